"""Looks at where both logs end, of a partition to which nothing is written."""

from __future__ import annotations

import asyncio

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.copy.claim_site import (
    ASSIGNED,
    LINEAGE,
    Cluster,
    Site,
    copies,
    equal_copy,
    run,
    source_of,
)
from tests.unit.replication.resume.two_logs import OURS, in_epoch

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import Lineage, Run
from srm.replication.batches.batch import BatchToSend, batches
from srm.replication.copy import lifecycle
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase, Stop
from srm.replication.ports import EpochEnd, FetchedPartition, Leader, ProducerId


def test_an_idle_target_that_was_elected_with_another_end_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is as long as the copy was; nothing would be written to it, and no claim would look."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    target = Cluster(copies(3), [ProducerId(OURS, 1)])
    held = EpochEnd(5, 4)

    async def epoch_end(partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        return held if epoch == 5 else EpochEnd(epoch, 3 if epoch == 4 else 0)

    monkeypatch.setattr(target, "epoch_end", epoch_end)
    lineage = Lineage(((4, 0), (5, 3)))
    known = Start(3, 4, frozenset({OURS}), target_lineage=lineage)

    async def scenario(site: Site) -> None:
        nonlocal held
        site.lifecycle.begin(ASSIGNED, known)
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        await site.until(lambda: site.copy.phase is Phase.IDLE)
        await asyncio.sleep(0.05)
        assert not site.cuts, "the log is the one that was copied to"
        held = EpochEnd(4, 4)
        await site.until(lambda: bool(site.cuts))
        watching.cancel()

    site = run(lambda: Site(source_of(3), target, cut=Start(2, 3, frozenset({OURS}))), scenario)

    assert site.cuts == [3]


def test_an_idle_target_is_compared_with_the_claim_of_the_map_where_no_report_is_left() -> None:
    """A former replica leads that is as long as the copy, and has none of its last claim."""
    target = Cluster(copies(3), [ProducerId(OURS, 2)])
    known = Start(3, 4, frozenset({OURS}), written_by=ProducerId(OURS, 1), last_run=Run(0, 1, 3))

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        await site.until(lambda: bool(site.cuts))

    site = run(lambda: Site(source_of(3), target, cut=Start(0, 0, frozenset({OURS}))), scenario)

    assert site.cuts == [0]


def test_an_idle_copy_reports_the_leader_epoch_under_which_its_target_ends_where_it_did() -> None:
    """So a late report of a former owner, whose marker the election took, does not count."""
    target = Cluster(copies(3), [ProducerId(OURS, 1)])
    target.leader_epoch = 2
    known = Start(3, 4, frozenset({OURS}), target_lineage=LINEAGE, written_by=ProducerId(OURS, 0))

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        await site.until(lambda: site.copy.source_leader == Leader(1, 0))  # it is placed

    site = run(lambda: Site(source_of(3), target), scenario)

    assert (site.copy.phase, site.copy.written_by) == (Phase.IDLE, ProducerId(OURS, 0))
    assert site.copy.position().target_lineage == LINEAGE.with_epoch(2, 4)


def test_an_idle_copy_claims_once_to_pass_markers_that_others_have_written_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Java's consumers commit after a seal: without a position there no failback would open."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    target = Cluster(copies(3), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, Start(3, 4, frozenset({OURS})))
        await site.until(lambda: site.copy.source_leader == Leader(1, 0))  # it is placed
        assert not target.claimed
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        target.append(marker(4, 99))
        await site.until(lambda: site.copy.phase is Phase.COPYING)
        await asyncio.sleep(0.05)
        watching.cancel()

    site = run(lambda: Site(source_of(3), target), scenario)

    assert (target.claimed, site.copy.source_next, site.copy.target_next) == (1, 3, 6)


class Epochs(Cluster):
    """A target whose leader answers by the epochs of its batches, as it writes them."""

    def append(self, raw: bytes) -> None:
        super().append(in_epoch(self.leader_epoch, raw))

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        known = [next(batches(memoryview(raw))) for raw in self._batches]
        held = max((b.leader_epoch for b in known if b.leader_epoch <= epoch), default=epoch)
        later = [b.base_offset for b in known if b.leader_epoch > epoch]
        return EpochEnd(held, min(later, default=self.end))


def test_a_leader_that_is_elected_twice_between_two_batches_lost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The copy has noted the first of both epochs, and no batch is of that."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    held = [in_epoch(0, raw) for raw in copies(3)]
    target = Epochs(held, [ProducerId(OURS, 1), ProducerId(OURS, 2)])
    known = Start(3, 4, frozenset({OURS}), target_lineage=LINEAGE, written_by=ProducerId(OURS, 0))

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        await site.claim()
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        target.leader_epoch = 1
        await site.until(lambda: site.copy.target_lineage == Lineage(((0, 0), (1, 5))))
        target.leader_epoch = 2
        target.append(equal_copy(5, 1, 0))
        site.copy.source_next, site.copy.target_next = 4, 6
        await site.until(lambda: site.copy.target_lineage == Lineage(((0, 0), (2, 5))))
        watching.cancel()

    site = run(lambda: Site(source_of(4), target, cut=Start(3, 5, frozenset({OURS}))), scenario)

    assert (site.cuts, site.told.notes, target.claimed) == ([], [], 1)


def test_what_a_former_leader_has_acknowledged_is_not_of_the_epoch_of_the_present_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The present one lacks the batch, and a look finds that before the answer arrives."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    target = Epochs([in_epoch(0, raw) for raw in copies(3)], [ProducerId(OURS, 1)])
    known = Start(3, 4, frozenset({OURS}), target_lineage=LINEAGE, written_by=ProducerId(OURS, 0))
    record = in_epoch(0, stored([Record(3, 1, b"k", b"3")]))
    fetched = FetchedPartition(bytes(16), 0, 0, 4, 4, 0, (), memoryview(bytearray(record)))
    sent: list[BatchToSend] = []

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        await site.claim()
        ask, asked = target.epoch_end, 0

        async def epoch_end(partition: TopicPartition, epoch: int) -> EpochEnd:
            nonlocal asked
            asked += 1
            if not sent:
                site.copy.accept(fetched, None, 3, read_committed=False)
                sent.append(site.copy.send_next())
            return await ask(partition, epoch)

        monkeypatch.setattr(target, "epoch_end", epoch_end)
        target.leader_epoch = 1
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        await site.until(lambda: asked)
        await asyncio.sleep(0.05)
        assert site.copy.on_ack(sent[0], 5, 0)
        watching.cancel()

    site = run(lambda: Site(source_of(4), target), scenario)

    assert site.copy.position().target_lineage == LINEAGE
    assert site.copy.target_next == 6


def test_the_next_record_of_an_idle_copy_goes_to_the_leader_that_a_look_has_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The former one may be cut off, and give no answer for a long time."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    target = Cluster(copies(3), [ProducerId(OURS, 1)])
    node, connected, sent = 1, list[int](), list[int]()
    record = stored([Record(3, 1, b"k", b"3")])
    fetched = FetchedPartition(bytes(16), 0, 0, 4, 4, 0, (), memoryview(bytearray(record)))

    async def leader(partition: TopicPartition) -> Leader:
        del partition
        return Leader(node, 0)

    async def connect(node: int) -> None:
        connected.append(node)

    def produce(node: int, requests: object) -> None:
        del requests
        sent.append(node)

    for name, call in (("leader", leader), ("connect", connect), ("produce", produce)):
        monkeypatch.setattr(target, name, call, raising=False)

    async def scenario(site: Site) -> None:
        nonlocal node
        site.lifecycle.begin(ASSIGNED, Start(3, 4, frozenset({OURS})))
        await site.claim()
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        node = 2
        await site.until(lambda: 2 in connected)
        await asyncio.sleep(0.05)
        watching.cancel()
        site.copy.accept(fetched, None, 3, read_committed=False)
        site.lifecycle.on_data(site.copy)
        await site.until(lambda: sent)

    site = run(lambda: Site(source_of(4), target), scenario)

    assert (sent, connected.count(2)) == ([2], 1)
    assert (site.copy.phase, target.claimed) == (Phase.COPYING, 1)


def test_a_look_at_one_target_that_fails_unexpectedly_ends_no_other_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    target = Cluster(copies(3))
    answer, looks = target.log_end, 0

    async def nonsense(partition: TopicPartition) -> EpochEnd:
        nonlocal looks
        looks += 1
        if looks == 1:  # as it is placed
            return await answer(partition)
        raise KeyError(partition)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, Start(3, 4, frozenset({OURS})))
        await site.until(lambda: looks == 1)
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        await site.until(lambda: looks > 4 or watching.done())
        assert not watching.done()
        watching.cancel()

    monkeypatch.setattr(target, "log_end", nonsense)
    run(lambda: Site(source_of(3), target), scenario)


def test_an_idle_target_whose_leader_is_that_of_the_copy_is_not_asked_for_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A leader does not truncate its log; the end that it answers says so by its epoch."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    target = Cluster(copies(3))
    target.leader_epoch, looks, epochs = 4, 0, 0
    answer = target.log_end

    async def log_end(partition: TopicPartition) -> EpochEnd:
        nonlocal looks
        looks += 1
        return await answer(partition)

    async def epoch_end(partition: TopicPartition, epoch: int) -> EpochEnd:
        nonlocal epochs
        del partition
        epochs += 1
        return EpochEnd(epoch, 4 if epoch == 4 else 0)

    monkeypatch.setattr(target, "log_end", log_end)
    monkeypatch.setattr(target, "epoch_end", epoch_end)
    known = Start(3, 4, frozenset({OURS}), target_lineage=Lineage(((4, 0),)))

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        watching = asyncio.create_task(site.lifecycle.watch_targets())
        await site.until(lambda: looks > 3)
        assert not epochs
        target.leader_epoch = 5
        await site.until(lambda: site.copy.target_lineage.epoch == 5)
        known_epochs, known_looks = epochs, looks
        await site.until(lambda: looks > known_looks + 3)
        assert known_epochs == epochs > 0
        watching.cancel()
        assert (site.copy.phase, target.claimed) == (Phase.IDLE, 0)

    run(lambda: Site(source_of(3), target), scenario)


@pytest.mark.parametrize(("topic_id", "known"), [(None, 9), (bytes(16), 3)])
def test_how_far_the_source_is_is_known_of_what_has_stopped(
    monkeypatch: pytest.MonkeyPatch, topic_id: bytes | None, known: int
) -> None:
    """Nothing is fetched of it, and its lag is that of its topic and flow all the same."""
    monkeypatch.setattr(lifecycle, "_WATCH_S", 0.01)
    source = source_of(9)
    looks = 0

    async def id_of(topic: str) -> bytes:
        nonlocal looks
        looks += 1
        assert topic == "T"
        return topic_id or PartitionCopy(ASSIGNED, Start(3, 4)).source_id

    monkeypatch.setattr(source, "topic_id", id_of, raising=False)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, Start(3, 4, frozenset({OURS})))
        site.copy.rest(Phase.STOPPED, Stop("the target refused it"))
        watching = asyncio.create_task(site.lifecycle.watch_ends())
        await site.until(lambda: looks > 2 or watching.done())
        watching.cancel()

    site = run(lambda: Site(source, Cluster(copies(3))), scenario)

    assert site.copy.position().position.source_end == known
    assert site.copy.known_end == known
