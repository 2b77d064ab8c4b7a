"""The first claim on an empty log has no marker, and its batches are known all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.copy.claim_site import (
    ASSIGNED,
    LEADER_EPOCH,
    Cluster,
    Site,
    run,
    source_of,
)
from tests.unit.replication.resume.two_logs import FOREIGN, OURS, in_epoch

from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.topics import TopicPartition, topic_id_bytes
from srm.domain.offset_map.runs import Lineage, Run
from srm.replication.batches.batch import seal
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import (
    EpochEnd,
    Fetched,
    FetchedPartition,
    FetchFrom,
    ProduceAnswer,
    Produced,
    ProduceRequest,
    ProducerId,
)

FIRST = ProducerId(OURS, 0)
UNKNOWN_TOPIC_ID = 100


def copied(count: int) -> list[bytes]:
    """Return a log that begins with copies, without a marker."""
    found = []
    for i in range(count):
        raw = bytearray(stored([Record(i, 1, b"k", b"%d" % i)], producer_id=OURS))
        raw[53:57] = i.to_bytes(4, "big")
        seal(memoryview(raw))
        found.append(bytes(raw))
    return found


def claimed(
    target: Sequence[bytes], claim: ProducerId, start: Start | None = None, **changes: object
) -> tuple[PartitionCopy, Cluster]:
    """Claim once, on a source of three records; return the copy and the target."""
    log = Cluster(target, [claim])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, start)
        await site.claim()

    return run(lambda: Site(source_of(3), log, **changes), scenario).copy, log


def test_it_writes_nothing_and_is_reported_before_its_first_batch() -> None:
    copy, target = claimed([], FIRST)

    assert (copy.target_next, target.end) == (0, 0)
    assert not copy.wants_data
    assert copy.unreported_claim == FIRST


@pytest.mark.parametrize(
    ("held", "claim", "start"),
    [
        ([], ProducerId(OURS, 1), None),
        ([marker(0, OURS)], ProducerId(OURS + 1, 0), None),
        ([], ProducerId(OURS + 1, 0), replace(NOWHERE, producer_ids=frozenset({OURS}))),
    ],
    ids=["an older epoch", "a log that is not empty", "another producer id is known"],
)
def test_every_other_claim_writes_a_marker(
    held: list[bytes], claim: ProducerId, start: Start | None
) -> None:
    copy, target = claimed(held, claim, start)

    assert copy.target_next == target.end == len(held) + 1
    assert copy.wants_data


def test_a_claim_on_a_name_that_others_fill_too_writes_one() -> None:
    """By it other flows know whose batches follow."""
    policy = IdentityReplicationPolicy()

    _, target = claimed([], FIRST, policy=policy, joined=frozenset({"C"}))

    assert target.end == 1


@pytest.mark.parametrize("count", [1, 3])
def test_its_batches_are_known_without_any_report(count: int) -> None:
    copy, _ = claimed(copied(count), ProducerId(OURS, 1))

    assert (copy.source_next, copy.target_next) == (count, count + 1)
    assert copy.map.last_run == Run(0, 0, count)


def test_its_batches_follow_a_position_at_the_beginning() -> None:
    known = replace(NOWHERE, has_position=True, producer_ids=frozenset({OURS}))
    start = replace(known, written_by=FIRST, target_lineage=Lineage(((0, 0),)))

    copy, _ = claimed(copied(2), ProducerId(OURS, 1), start)

    assert (copy.source_next, copy.target_next) == (2, 3)


class Writes(Cluster):
    """A cluster that answers a write when the test lets it; a topic by one id is there."""

    def __init__(self, claims: Sequence[ProducerId]) -> None:
        super().__init__([], claims)
        self.topic_id = topic_id_bytes(ASSIGNED.target_topic_id)
        self.leader_epoch = LEADER_EPOCH
        self.epochs = [(LEADER_EPOCH, 0)]
        self.waiting: list[ProduceRequest] = []

    def elect(self, epoch: int) -> None:
        """Begin a leader epoch, which replaces one without a record."""
        self.epochs = [each for each in self.epochs if each[1] < self.end] + [(epoch, self.end)]
        self.leader_epoch = epoch

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        later = [each for each in self.epochs if each[0] > epoch]
        before = [each for each in self.epochs if each[0] <= epoch]
        if not before:
            return EpochEnd(epoch if later else -1, later[0][1] if later else -1)
        return EpochEnd(before[-1][0], later[0][1] if later else self.end)

    def produce(self, node: int, requests: Sequence[ProduceRequest]) -> None:
        del node
        self.waiting += requests

    def answer(self) -> None:
        request = self.waiting.pop(0)
        [(place, view)] = request.batches
        base = self.end
        raw = base.to_bytes(8, "big") + bytes(view[8:])
        self.append(in_epoch(self.leader_epoch, raw))
        request.answered(ProduceAnswer({place: Produced(0, base)}))

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        if partitions[0].topic_id != self.topic_id:
            gone = FetchedPartition(b"", 0, UNKNOWN_TOPIC_ID, -1, -1, -1, (), memoryview(b""))
            return Fetched([gone], None)
        return await super().fetch(node, partitions, **options)


def begin(site: Site, batches: int) -> PartitionCopy:
    """Send the first batch of a claim that begins the log, and let others wait."""
    copy = site.copy
    copy.note_position_reported()
    site.lifecycle.hold_back(copy, held=False)
    for raw in copied(batches):
        view = memoryview(bytearray(raw))
        part = FetchedPartition(copy.source_id, 0, 0, batches, batches, 0, (), view)
        copy.accept(part, None, copy.fetch_offset, read_committed=True)
    site.lifecycle.on_data(copy)
    return copy


def copies(
    target: Writes, interfere: Callable[[Site], None] = lambda _: None, batches: int = 3
) -> PartitionCopy:
    """Copy all; ``interfere`` acts while the first batch waits for its answer."""

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, None)
        await site.claim()
        copy = begin(site, batches)
        await site.until(lambda: target.waiting)
        assert len(target.waiting) == 1
        assert not copy.can_send
        interfere(site)
        target.answer()
        assert not copy.can_send
        await site.until(lambda: target.waiting or copy.phase is not Phase.COPYING)
        while copy.phase is Phase.COPYING and target.waiting:
            target.answer()
            await asyncio.sleep(0)  # the next write leaves in the next turn
        if copy.phase is Phase.COPYING:
            assert not await site.lifecycle._has_end_moved(copy)

    return run(lambda: Site(source_of(batches), target), scenario).copy


def test_nothing_follows_its_first_batch_before_that_was_read_back() -> None:
    """A broker takes any sequence number of a producer that it does not know."""
    copy = copies(Writes([FIRST]))

    assert copy.target_next == 3
    assert copy.target_lineage == Lineage(((LEADER_EPOCH, 0),))


def test_a_leader_elected_before_its_first_batch_is_that_of_the_log() -> None:
    target = Writes([FIRST])

    copy = copies(target, lambda _: target.elect(LEADER_EPOCH + 1))

    assert copy.target_next == 3
    assert copy.target_lineage == Lineage(((LEADER_EPOCH + 1, 0),))


def test_its_batches_follow_while_the_source_is_checked() -> None:
    target = Writes([FIRST])

    copy = copies(target, lambda site: site.lifecycle.on_fetch_trouble(site.copy, 1, None))

    assert copy.target_next == 3
    assert not copy.queue.has_waiting


def test_a_topic_created_again_under_it_gets_no_second_batch() -> None:
    """The offset of the first batch is as expected: only its topic's id shows that."""
    target = Writes([FIRST])

    def create_again(_: Site) -> None:
        target.topic_id = topic_id_bytes("E" * 21 + "g")

    copy = copies(target, create_again)

    assert copy.phase is Phase.STOPPED
    assert target.end == 1


def test_a_first_batch_that_retention_deletes_at_once_is_followed() -> None:
    """Its records may be older than the topic keeps them."""
    target = Writes([FIRST])
    append = target.append

    def delete_all(raw: bytes) -> None:
        append(raw)
        target.start, target.append = target.end, append  # type: ignore[method-assign]

    def interfere(_: Site) -> None:
        target.append = delete_all  # type: ignore[method-assign]

    copy = copies(target, interfere)

    assert copy.phase is Phase.COPYING
    assert (target.start, copy.target_next) == (1, 3)


def test_a_log_that_another_producer_fills_first_is_claimed_by_a_marker() -> None:
    target = Cluster([], [FIRST, ProducerId(OURS, 1)])
    others = [stored([Record(0, 1, b"k", b"of another")], producer_id=FOREIGN)]
    target.on_claim = lambda: target.append(others.pop()) if others else None

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, None)
        await site.claim()
        assert "began its log" in site.copy.reason
        await site.claim()

    site = run(lambda: Site(source_of(3), target), scenario)

    assert site.copy.target_next == target.end == 2
    assert site.told.notes == ["foreign records at target offsets 0 to 0"]
