"""What a partition asks of the logs before it claims, and what it does not claim for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.batches import Record, marker, stored
from tests.unit.replication.batches.test_legacy import message_set
from tests.unit.replication.copy.claim_site import (
    ASSIGNED,
    INVALID_TIMESTAMP,
    LEADER_EPOCH,
    LIFETIME_S,
    LINEAGE,
    Cluster,
    Site,
    copies,
    equal_copy,
    run,
    source_of,
)
from tests.unit.replication.resume.two_logs import FOREIGN, OURS, walked

from srm import clock
from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.flow_state.replication_state import newest_position
from srm.domain.names.policy import IdentityReplicationPolicy
from srm.domain.names.record_headers import PROVENANCE_HEADER, RecordSettings
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import Lineage, Run
from srm.replication import codes
from srm.replication.claim import LAST_EPOCH, Claim
from srm.replication.copy import claiming
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import (
    NO_LEADER,
    EpochEnd,
    FetchedPartition,
    Leader,
    Produced,
    ProducerId,
)
from srm.replication.resume.resume import Walked
from srm.replication.resume.source_lookahead import Comparison


def test_a_target_that_fell_short_is_cut_before_anything_is_written_to_it() -> None:
    known = Start(5, 6, frozenset({OURS}), written_by=ProducerId(OURS, 0), target_lineage=LINEAGE)
    left = Start(3, 4, frozenset({OURS}), written_by=ProducerId(OURS, 0))
    target = Cluster(copies(3), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        await site.until(lambda: site.copy.target_next == 4)
        assert target.claimed == 0
        await site.claim()

    site = run(lambda: Site(source_of(5), target, cut=left), scenario)

    assert site.cuts == [4]
    assert (site.copy.phase, site.copy.source_next) == (Phase.COPYING, 3)
    assert site.copy.position().target_lineage.epoch == LEADER_EPOCH
    [note] = site.told.notes
    assert "offsets 4 to 5 are gone or not ours; copied again from source offset 3" in note


def test_a_cut_after_which_nothing_can_be_decided_is_reported_under_its_claim() -> None:
    """The partition stops, and for all that time the map must not name the lost copies."""
    target = Cluster(copies(3), [ProducerId(OURS, 1)])
    other = Cluster([stored([Record(i, 1, b"other", b"other")]) for i in range(3)])
    cut = Start(1, 2, frozenset({OURS}), cut=True, target_lineage=LINEAGE)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, cut)
        await site.until(lambda: site.copy.phase is Phase.STOPPED)

    site = run(lambda: Site(other, target), scenario)

    assert "undecidable" in site.copy.reason
    assert (site.copy.source_next, site.copy.target_next) == (1, 2)
    assert site.copy.written_by == ProducerId(OURS, 1)
    assert site.copy.position().target_lineage == LINEAGE.with_epoch(LEADER_EPOCH, 2)


def test_an_undecidable_position_is_claimed_once_and_then_only_looked_at() -> None:
    other = Cluster([stored([Record(0, 1, b"other", b"other")])])
    target = Cluster(copies(3), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, Start(0, 1, frozenset({OURS})))
        for _ in range(3):
            await site.claim()
            assert site.copy.phase is Phase.STOPPED
            assert "undecidable" in site.copy.reason
            site.copy.take_up()

    run(lambda: Site(other, target), scenario)

    assert target.claimed == 1


@pytest.mark.parametrize(
    "theirs",
    [
        stored([Record(0, 1, b"k", b"0")], producer_id=FOREIGN),
        message_set(1, 0, 0, [(1, b"k", b"0")]),
    ],
    ids=["of today", "of a format before Kafka 0.11"],
)
def test_a_target_that_others_have_filled_is_claimed_once_and_copied_to_when_that_is_decided(
    theirs: bytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    target = Cluster([theirs], [ProducerId(OURS, 1), ProducerId(OURS, 2)])
    decided = PartitionNotes.after_others(ASSIGNED, "ann", 0)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, None)
        for _ in range(2):
            await site.until(lambda: site.copy.phase is Phase.STOPPED)
            assert "holds records that srm did not copy, at target offsets 0 to 0" in (
                site.copy.reason
            )
            assert "srm topics append --flow 'P->B' --topic T" in site.copy.action
            assert site.copy.reason in _shown_on_the_page()
            site.lifecycle.hear([replace(decided, target_topic_id="another topic")])
            assert site.copy.phase is Phase.STOPPED
            site.lifecycle.claim(site.copy)
        assert target.claimed == 1
        await site.until(lambda: site.copy.phase is Phase.STOPPED)
        site.lifecycle.hear([decided])
        await site.until(lambda: site.copy.phase is Phase.COPYING)

    site = run(lambda: Site(source_of(1), target), scenario)

    assert (site.copy.source_next, site.copy.target_next) == (0, 3)
    assert site.told.notes == ["foreign records at target offsets 0 to 0"]
    warnings = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert sum("holds records that srm did not copy" in one.message for one in warnings) == 1


SHARED = replace(ASSIGNED, target_topic="T")
LOCAL = stored([Record(0, 1, b"k", b"b0")], producer_id=FOREIGN)
LOCAL_LATER = stored([Record(1, 1, b"k", b"p0")])


def marked(offset: int, value: bytes, *origins: str) -> bytes:
    """Return a record with the header of a replicator, which other tools add, too."""
    headers = [(PROVENANCE_HEADER, origin.encode()) for origin in origins]
    return stored([Record(offset, 1, b"k", value, headers)], producer_id=FOREIGN)


def unmarked(offset: int, value: bytes) -> bytes:
    return stored([Record(offset, 1, b"k", value)], producer_id=FOREIGN)


def of_a_tool(offset: int, value: bytes) -> bytes:
    return stored([Record(offset, 1, b"k", value, [("from", b"P")])], producer_id=FOREIGN)


BESIDE_A_THIRD = [marked(0, b"c0", "c-id,T,1"), LOCAL_LATER]


@pytest.mark.parametrize(
    ("source", "target", "both_ways", "phase"),
    [
        ([marked(0, b"b0", "b-id,T,1"), LOCAL_LATER], [LOCAL], True, Phase.COPYING),
        ([marked(0, b"b0", "c-id,U,1", "b-id,T,1")], [LOCAL], True, Phase.COPYING),
        ([], [LOCAL], True, Phase.COPYING),
        ([marked(0, b"b0", "b-id,T,1"), LOCAL_LATER], [LOCAL], False, Phase.STOPPED),
        (BESIDE_A_THIRD, [LOCAL], True, Phase.COPYING),
        (BESIDE_A_THIRD, [LOCAL], False, Phase.STOPPED),
        (BESIDE_A_THIRD, [unmarked(0, b"b0"), unmarked(1, b"p0")], True, Phase.STOPPED),
        (BESIDE_A_THIRD, [LOCAL, of_a_tool(1, b"p0")], True, Phase.STOPPED),
        (BESIDE_A_THIRD, [unmarked(1, b"b0")], True, Phase.STOPPED),
        (BESIDE_A_THIRD[1:], [LOCAL], True, Phase.STOPPED),
        ([marked(0, b"c0", "c-id,T,1")], [LOCAL], True, Phase.COPYING),
        ([marked(0, b"b0", "of another form"), LOCAL_LATER], [LOCAL], True, Phase.STOPPED),
        ([marked(0, b"b0", "b-id,U,1"), LOCAL_LATER], [LOCAL], True, Phase.STOPPED),
        (
            [marked(0, b"b0", "b-id,T,1"), LOCAL_LATER],
            [LOCAL, marked(1, b"p0", "p-id,T,1")],
            True,
            Phase.STOPPED,
        ),
        (
            [marked(0, b"b0", "b-id,T,1"), LOCAL_LATER],
            [LOCAL, marked(1, b"p0", "p-id,T,1", "c-id,T,2")],
            True,
            Phase.STOPPED,
        ),
    ],
    ids=[
        "the opposite flow copies them",
        "it copies them, after another hop",
        "the source is empty",
        "no flow copies them",
        "both are whole, and no record is in both",
        "they are, but no flow copies them",
        "a record is in both",
        "a record is in both, with a header of another tool",
        "a record of the target is gone",
        "a record of the source is gone",
        "it copies a third cluster's records alone",
        "the header is not one of srm",
        "copies of another topic",
        "another tool has copied the source there",
        "it has copied the source by way of a third cluster",
    ],
)
def test_a_shared_name_holds_originals_only_where_the_records_of_both_sides_say_so(
    source: list[bytes], target: list[bytes], both_ways: bool, phase: Phase
) -> None:
    found = shared(source, target, both_ways=both_ways)

    assert found.copy.phase is phase
    assert (found.copy.source_next, found.copy.others is None) == (0, False)


def test_long_logs_under_a_shared_name_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "LOOK_AHEAD_RECORDS", 2)

    assert shared(BESIDE_A_THIRD, [LOCAL], both_ways=True).copy.phase is Phase.STOPPED


def shared(source: list[bytes], target: list[bytes], *, both_ways: bool) -> Site:
    async def scenario(site: Site) -> None:
        site.lifecycle.begin(SHARED, None)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    def site() -> Site:
        records = RecordSettings(provenance=True)
        claims = [ProducerId(OURS, 1), ProducerId(OURS, 2)]
        return Site(
            *(Cluster(source), Cluster(target, claims), None, SHARED),
            both_enabled=both_ways,
            policy=IdentityReplicationPolicy(".", "P"),
            back=IdentityReplicationPolicy(".", "B"),
            records=records,
        )

    return run(site, scenario)


@pytest.mark.parametrize(
    ("target", "joined", "phase"),
    [
        ([marked(0, b"c0", "c-id,T,1")], {"C"}, Phase.COPYING),
        ([marked(0, b"c0", "c-id,T,1"), LOCAL_LATER], {"C"}, Phase.STOPPED),
        ([marked(0, b"c0", "c-id,T,1", "p-id,T,2")], {"C"}, Phase.STOPPED),
        ([marked(0, b"c0", "c-id,T,1")], {}, Phase.STOPPED),
        ([marker(0, FOREIGN), marked(1, b"c0")], {"C"}, Phase.STOPPED),
        ([marker(0, FOREIGN), marked(1, b"c0", "c-id,T,1")], {"C"}, Phase.COPYING),
    ],
    ids=[
        *("another flow's copies", "and records there", "copies of ours", "no other flow is known"),
        *("copies of a flow that added no headers", "another flow's copies under its claim"),
    ],
)
def test_a_copy_begins_after_copies_of_a_flow_from_another_cluster_without_a_decision(
    target: list[bytes], joined: set[str], phase: Phase
) -> None:
    async def scenario(site: Site) -> None:
        site.lifecycle.begin(SHARED, None)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    def site() -> Site:
        return Site(
            *(Cluster([LOCAL]), Cluster(target, [ProducerId(OURS, 1)]), None, SHARED),
            policy=IdentityReplicationPolicy(".", "P"),
            joined=frozenset(joined),
            records=RecordSettings(provenance=True),
        )

    copy = run(site, scenario).copy

    assert copy.phase is phase
    assert phase is Phase.COPYING or "srm topics append" in copy.reason


def _shown_on_the_page() -> str:
    """Return docs/operate.md on one line, with the names and offsets of these tests."""
    page = (Path(__file__).parents[4] / "docs" / "operate.md").read_text("utf-8")
    return " ".join(page.split()).replace("Payments", "T").replace("0 to 99", "0 to 0")


def test_a_partition_that_a_decision_takes_up_is_not_taken_up_again_by_its_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second look at logs that answer late would move a partition that copies already."""
    source = source_of(1)
    looks = 0

    async def late(partition: TopicPartition) -> tuple[int, int]:
        nonlocal looks
        looks += 1
        await asyncio.Event().wait()
        raise AssertionError(partition)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, None)
        await site.until(lambda: site.copy.phase is Phase.STOPPED)
        attempt = site.copy.attempt
        monkeypatch.setattr(source, "log_range", late)
        site.lifecycle.hear([PartitionNotes.after_others(ASSIGNED, "ann", 0)])
        site.lifecycle._retry(site.copy, attempt)
        await site.until(lambda: looks)

    theirs = stored([Record(0, 1, b"k", b"0")], producer_id=FOREIGN)
    run(lambda: Site(source, Cluster([theirs], [ProducerId(OURS, 1)])), scenario)

    assert looks == 1


def test_the_last_claim_under_a_producer_id_that_is_used_up_is_waited_out() -> None:
    target = Cluster(copies(3, LAST_EPOCH), [ProducerId(9, epoch) for epoch in range(3)])
    now = 1000.0

    async def scenario(site: Site) -> None:
        nonlocal now
        start = Start(3, 4, frozenset({OURS}), written_by=ProducerId(OURS, LAST_EPOCH))
        site.lifecycle.begin(ASSIGNED, start)
        for passed in (0, LIFETIME_S - 1):
            now = 1000 + passed
            await site.claim()
            assert site.copy.phase is Phase.STOPPED
            assert f"still write for {LIFETIME_S - passed:.0f} s, so" in site.copy.reason
            site.copy.take_up()
        now = 1000 + LIFETIME_S
        await site.claim()
        assert site.copy.phase is Phase.COPYING

    with clock.using(lambda: now):
        run(lambda: Site(source_of(3), target), scenario)


@pytest.mark.parametrize("truncated", [False, True])
def test_a_cut_of_the_source_hides_no_claim_that_is_to_be_waited_out(truncated: bool) -> None:
    known = Start(3, 4, frozenset({OURS}), written_by=ProducerId(OURS, LAST_EPOCH), cut=True)
    target = Cluster(copies(3, LAST_EPOCH), [ProducerId(9, 0)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, replace(known, truncated=truncated))
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))
        assert site.copy.phase is Phase.STOPPED
        assert "so copying waits" in site.copy.reason
        assert site.copy.written_by == known.written_by, "whoever is next has to wait, too"

    run(lambda: Site(source_of(3), target), scenario)


def test_a_walk_under_a_new_producer_id_tells_nothing_before_the_old_one_has_lapsed() -> None:
    """Whoever reads a position under the new id no longer knows that there is one to wait for."""
    known = Start(0, 1, frozenset({OURS}), written_by=ProducerId(OURS, LAST_EPOCH))
    target = Cluster([*copies(3), marker(4, 20, 0)])
    told: list[Walked] = []
    seconds = iter(range(0, 100_000, 2))

    with clock.using(lambda: float(next(seconds))):
        resumed = walked(
            source_of(5),
            target,
            known,
            Comparison(),
            Claim(ProducerId(20, 0), float("inf")),
            progress=told.append,
        )

    assert told
    assert [walk.settled for walk in told if walk.settled] == []
    assert (resumed.has_rotated, resumed.source_next, len(resumed.runs)) == (True, 3, 1)


class RestoredSource(Cluster):
    """A source that was restored at offset 1, and has used leader epoch 7 again since."""

    alias = "P"

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        if epoch >= 7:
            return EpochEnd(7, self.end)
        return EpochEnd(epoch, 1 if epoch == 6 else 0)


@pytest.mark.parametrize("accepts_loss", [False, True])
def test_a_restored_source_whose_epochs_a_fetch_takes_for_the_same_is_found_out(
    accepts_loss: bool,
) -> None:
    lineage = Lineage(((6, 0), (7, 2)))
    known = Start(
        *(3, 4, frozenset({OURS})),
        found=Run(0, 1, 3),
        source_lineage=lineage,
        written_by=ProducerId(OURS, 0),
    )
    source = RestoredSource([stored([Record(i, 1, b"k", b"%d" % i)]) for i in range(9)])
    target = Cluster(copies(3), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        site.lifecycle.claim(site.copy)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    policy = "continue" if accepts_loss else "stop"
    site = run(lambda: Site(source, target, data_loss_policy=policy), scenario)

    if accepts_loss:
        assert (site.told.losses, site.told.cuts) == ([(1, 3)], [(1, 4)])
        assert (site.copy.phase, site.copy.source_next) == (Phase.COPYING, 1)
    else:
        assert target.claimed == 0
        assert site.copy.blocked == (1, 3)
        assert "P->B.data.loss.policy = continue in srm.properties" in site.copy.reason
        assert site.copy.action.endswith("then run srm replicator restart --flow 'P->B'")


def test_a_failure_while_a_verdict_is_carried_out_stops_the_partition_and_not_the_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, target = source_of(3), Cluster(copies(3))
    source.start = 2

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, Start(1, 2, frozenset({OURS})))
        await site.until(lambda: site.copy.source_leader != NO_LEADER)
        monkeypatch.setattr(site.told, "lost", nonsense)
        site.copy.note_checked(2)
        site.lifecycle.on_fetch_trouble(site.copy, codes.OFFSET_OUT_OF_RANGE, None)
        await site.until(lambda: site.copy.phase is Phase.STOPPED)

    def nonsense(*_: object, **__: object) -> None:
        raise KeyError("no notes")

    site = run(lambda: Site(source, target, data_loss_policy="continue"), scenario)

    assert site.copy.reason == "unexpected KeyError('no notes'); see the log"


def test_a_source_that_lost_only_a_marker_is_copied_on_from_there_without_a_loss() -> None:
    """The next record may be written at the marker's offset, so the position goes back to it."""
    source, target = source_of(3), Cluster(copies(3), [ProducerId(OURS, 1)])
    known = Start(
        *(4, 4, frozenset({OURS})),
        found=Run(0, 1, 3),
        source_lineage=LINEAGE,
        written_by=ProducerId(OURS, 0),
    )

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        site.lifecycle.on_fetch_trouble(site.copy, codes.OFFSET_OUT_OF_RANGE, None)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    site = run(lambda: Site(source, target), scenario)

    assert (site.copy.phase, site.copy.reason) == (Phase.COPYING, "")
    assert (site.copy.source_next, site.told.losses) == (3, [])
    assert site.copy.unreported_claim == ProducerId(OURS, 1), "nothing is fetched before a report"


def _answer(end: EpochEnd) -> Callable[..., Awaitable[EpochEnd]]:
    async def epoch_end(*_: object) -> EpochEnd:
        return end

    return epoch_end


class SlowCoordinator(Cluster):
    """Before a claim is answered the log loses its end, and its old owner copies that again."""

    async def init_producer_id(self, transactional_id: str) -> ProducerId:
        if not self.claimed:
            self._batches = [b for b, end in zip(self._batches, self._ends, strict=True) if end < 5]
            self._ends = self._ends[: len(self._batches)]
            self.append(marker(4, OURS, 1))
            for at, sequence in ((5, 0), (6, 1)):
                self.append(equal_copy(at, 1, sequence))
        return await super().init_producer_id(transactional_id)


def test_a_target_that_lost_its_end_while_the_claim_was_taken_is_cut_too() -> None:
    """All records are equal, so the logs alone would agree: one offset further than is copied."""
    same = [stored([Record(i, 1, b"k", b"same")]) for i in range(7)]
    copied = [marker(0, OURS, 0), *(equal_copy(1 + i, 0, i) for i in range(5))]
    target = SlowCoordinator(copied, [ProducerId(OURS, 2), ProducerId(OURS, 3)])
    known = Start(5, 6, frozenset({OURS}), written_by=ProducerId(OURS, 0), target_lineage=LINEAGE)
    left = Start(3, 4, frozenset({OURS}), cut=True)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        site.lifecycle.claim(site.copy)
        await site.until(lambda: site.copy.phase is Phase.COPYING)

    site = run(lambda: Site(Cluster(same), target, cut=left), scenario)

    assert site.cuts == [4]
    assert site.copy.source_next == 5, "the record there is not copied yet"


@pytest.mark.parametrize("held", [5, 3])
def test_a_cut_that_deleted_markers_hide_is_found_by_the_epoch_of_the_next_claim(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Two owners were killed before they reported it; of their markers retention left the last.

    A source that was truncated as well stops no claim: the map would name the lost copies.
    """
    target = Cluster([marker(4, OURS, 2)], [ProducerId(OURS, 3), ProducerId(OURS, 4)])
    target.start = 4
    monkeypatch.setattr(target, "epoch_end", _answer(EpochEnd(0, 4)))
    known = Start(5, 6, frozenset({OURS}), written_by=ProducerId(OURS, 0), target_lineage=LINEAGE)
    known = replace(known, source_lineage=LINEAGE, found=Run(0, 1, 5))
    left = Start(1, 2, frozenset({OURS}), cut=True)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        site.lifecycle.claim(site.copy)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    site = run(lambda: Site(source_of(held), target, cut=left), scenario)

    assert site.cuts == [2]
    assert site.copy.source_next == 1


@pytest.mark.parametrize("error", [6, 74, 75])
def test_a_new_leader_of_the_source_is_followed_under_the_same_claim(error: int) -> None:
    """A claim takes an epoch and a walk, for each partition at each election."""
    source, target = source_of(3), Cluster(copies(3), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, Start(3, 4, frozenset({OURS}), target_lineage=LINEAGE))
        await site.claim()
        assert (site.copy.phase, site.copy.source_leader) == (Phase.COPYING, Leader(1, 0))
        attempt, source.leader_epoch = site.copy.attempt, 1
        site.lifecycle.on_fetch_trouble(site.copy, error, None)
        await site.until(lambda: site.copy.source_leader.epoch == 1)
        assert (site.copy.phase, site.copy.attempt) == (Phase.COPYING, attempt)

        site.lifecycle.on_fetch_trouble(site.copy, error, None)
        await site.until(lambda: site.copy.phase is Phase.STOPPED)
        assert site.copy.reason == f"fetch error {error}"

    run(lambda: Site(source, target), scenario)


def test_copies_that_the_source_lost_are_passed_where_that_was_decided() -> None:
    """Two of them are behind the last report, which the decision was about."""
    decided = Start(
        3, 7, frozenset({OURS}), written_by=ProducerId(OURS, 0), cut=True, truncated=True
    )
    target = Cluster(copies(8), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, decided)
        await site.until(lambda: site.copy.phase in (Phase.COPYING, Phase.STOPPED))

    site = run(lambda: Site(source_of(3), target), scenario)

    assert (site.copy.phase, site.copy.reason) == (Phase.COPYING, "")
    assert (site.copy.source_next, site.copy.target_next) == (3, 10)
    assert not site.copy.accepts_loss, "it was decided about those alone"


def test_a_decided_cut_of_the_source_is_found_again_by_who_is_next_while_it_is_walked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A report of the cut alone would hide that the copies behind it may be passed."""
    target = Cluster(copies(8), [ProducerId(OURS, 1)])
    before = Start(7, 7, frozenset({OURS}), written_by=ProducerId(OURS, 0), target_lineage=LINEAGE)
    source, walks = source_of(3), 0

    async def silent(*args: Any, **kwargs: Any) -> Any:
        nonlocal walks
        walks += 1
        await asyncio.Event().wait()
        raise AssertionError(args, kwargs)

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, before.cut_at(3))
        monkeypatch.setattr(source, "fetch", silent)
        await site.until(lambda: walks)
        told = PartitionCopy(ASSIGNED, before).position()
        assert newest_position([site.copy.position(), told]) is told

    run(lambda: Site(source, target), scenario)
    assert target.claimed == 1


def discarded(first: int, end: int, epoch: int = -1) -> PartitionNotes:
    place = ASSIGNED.topic, ASSIGNED.partition, ASSIGNED.topic_id
    request = f"r{first}"
    return PartitionNotes.from_decision(
        "discard", request, place, (first, end), "why", 0, epoch=epoch
    )


class Rewritten(Cluster):
    """A source whose log holds epoch 4 up to offset 7, and goes on under a later one."""

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        return EpochEnd(4, 7) if epoch >= 4 else EpochEnd(epoch, 3)


@pytest.mark.parametrize(
    ("epoch", "left_out", "over"),
    [
        (4, [(5, 7)], {"discard-r5": 7}),
        (3, [], {"discard-r5": 3}),
        (5, [], {"discard-r5": 0}),
        (-1, [(5, 9)], {}),
    ],
    ids=["in part", "before it", "not held", "not known"],
)
def test_what_was_decided_counts_as_far_as_the_log_still_holds_its_epoch(
    epoch: int, left_out: list[tuple[int, int]], over: dict[str, int]
) -> None:
    """Other records have the offsets after that, which nobody has decided about."""
    start = Start(
        *(5, 6, frozenset({OURS})),
        written_by=ProducerId(OURS, 0),
        left_out=(discarded(5, 9, epoch),),
    )
    source = Rewritten([stored([Record(i, 1, b"k", b"%d" % i)]) for i in range(10)])
    target = Cluster(copies(5), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, start)
        await site.claim()

    site = run(lambda: Site(source, target), scenario)

    assert (site.copy.phase, site.copy.limits.left_out) == (Phase.COPYING, left_out)
    assert site.told.ended == over


def test_what_retention_took_of_a_range_that_is_left_out_stops_nothing() -> None:
    decided = Start(
        5,
        6,
        frozenset({OURS}),
        written_by=ProducerId(OURS, 0),
        left_out=(discarded(5, 7), discarded(7, 9)),
    )
    source = Cluster([stored([Record(9, 1, b"k", b"9")])])
    source.start = 9
    target = Cluster(copies(5), [ProducerId(OURS, 1)])

    async def scenario(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, decided)
        for _ in range(2):  # both logs are walked before a loss is believed
            await site.until(lambda: site.copy.phase in (Phase.IDLE, Phase.COPYING))
            site.lifecycle.on_fetch_trouble(site.copy, codes.OFFSET_OUT_OF_RANGE, "")
            await site.until(lambda: not site.copy.in_doubt)
        await site.until(lambda: site.copy.source_next == 9 or site.copy.phase is Phase.STOPPED)

    site = run(lambda: Site(source, target), scenario)

    assert (site.copy.source_next, site.copy.reason) == (9, "")


class Elected(Cluster):
    """A target whose leader was elected after the third copy."""

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        return EpochEnd(LEADER_EPOCH, self.end) if epoch >= LEADER_EPOCH else EpochEnd(0, 4)


def test_a_process_that_dies_after_a_skipped_record_leaves_a_position_that_passes_it() -> None:
    """Nothing is fetched before a report names that position, so no copy follows an unknown gap."""
    known = Start(3, 4, frozenset({OURS}), written_by=ProducerId(OURS, 0))
    source = source_of(6)
    target = Elected(copies(3), [ProducerId(OURS, epoch) for epoch in (1, 2, 3)])
    refused = memoryview(bytearray(stored([Record(3, 1, b"k", b"3")])))

    async def skip_and_die(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, known)
        await site.claim()
        copy = site.copy
        part = FetchedPartition(copy.source_id, 0, 0, 6, 6, 0, (), refused)
        copy.accept(part, None, 3, read_committed=True)
        copy.send_next()
        site.lifecycle.on_refused(copy, Produced(INVALID_TIMESTAMP, -1))
        await site.until(lambda: copy.phase in (Phase.COPYING, Phase.STOPPED))
        assert copy.phase is Phase.COPYING, copy.reason
        assert (site.told.losses, site.told.cuts) == ([(3, 4)], [])
        assert not copy.wants_data

    site = run(lambda: Site(source, target, errors_tolerance="all"), skip_and_die)
    left = site.copy.position()
    assert (left.position.source_next, left.position.target_next) == (4, 6)
    copied = bytearray(stored([Record(6, 1, b"k", b"4")], producer_id=OURS))
    copied[12:16] = LEADER_EPOCH.to_bytes(4, "big")
    copied[51:57] = (2).to_bytes(2, "big") + (0).to_bytes(4, "big")
    target.append(bytes(copied))
    found = Start(4, 6, frozenset({OURS}), written_by=ProducerId(OURS, 2))

    async def take_over(site: Site) -> None:
        site.lifecycle.begin(ASSIGNED, found)
        await site.claim()

    copy = run(lambda: Site(source, target), take_over).copy
    assert (copy.phase, copy.reason, copy.source_next) == (Phase.COPYING, "", 5)
