"""Before a claim the target is asked what it still holds: a loss is seen, an election is none."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.batches import Record, marker, stored

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage, Run
from srm.errors import UnavailableError
from srm.replication import codes, log_reader
from srm.replication.batches.batch import batches
from srm.replication.claim import Claim, HeldLog, held_log
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import Start
from srm.replication.ports import EpochEnd, Fetched, FetchedPartition, FetchFrom, Leader, ProducerId

OURS, STRANGER = 7, 8


class TargetLog:
    """A partition with leader epochs, as its leader answers for it."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.epochs: list[tuple[int, int]] = []
        self.epoch = 0
        self.start = 0
        self.end = 0

    def append(self, batch: bytes, count: int) -> None:
        raw = bytearray(batch)
        struct.pack_into(">qii", raw, 0, self.end, len(raw) - 12, self.epoch)
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, self.end))
        self.stored.append(bytes(raw))
        self.end += count

    def claim(self, epoch: int) -> None:
        self.append(marker(0, OURS, epoch), 1)

    def copied(self, count: int, sequence: int, epoch: int = 1, producer: int = OURS) -> None:
        raw = bytearray(stored([Record(i, 1, b"k", b"v") for i in range(count)]))
        struct.pack_into(">qhi", raw, 43, producer, epoch, sequence)
        self.append(bytes(raw), count)

    def elect(self, truncated_to: int | None = None) -> None:
        """Elect a leader, whose epoch has an entry at the log's end until a later one has it."""
        self.epoch += 1
        if truncated_to is not None:
            self.stored = [
                raw for raw in self.stored if self._header(raw).base_offset < truncated_to
            ]
            self.end = truncated_to
        self.epochs = [(epoch, at) for epoch, at in self.epochs if at < self.end]
        self.epochs.append((self.epoch, self.end))

    def trim(self, offset: int) -> None:
        """Delete records before an offset: of the epochs before it the last begins there now."""
        self.start = offset
        passed = [epoch for epoch, at in self.epochs if at <= offset]
        later = [(epoch, at) for epoch, at in self.epochs if at > offset]
        self.epochs = [(passed[-1], offset), *later]

    def boundaries(self) -> list[int]:
        return [self._header(raw).last_offset + 1 for raw in self.stored]

    def _header(self, raw: bytes) -> Any:
        return next(batches(memoryview(raw)))

    def leaders_changed(self) -> None:
        """Nothing is remembered."""

    async def leader(self, partition: TopicPartition) -> Leader:
        del partition
        return Leader(1, 0)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        del partition
        return self.start, self.end

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        """As Kafka's LeaderEpochFileCache.endOffsetFor."""
        del partition
        if not self.epochs or epoch < 0 or epoch > self.epoch:
            return EpochEnd(-1, -1)
        held = max((one for one, _ in self.epochs if one <= epoch), default=epoch)
        later = [at for later, at in self.epochs if later > epoch]
        return EpochEnd(held, max(self.start, later[0]) if later else self.end)

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        del node, options
        [wanted] = partitions
        error = 0 if self.start <= wanted.offset <= self.end else codes.OFFSET_OUT_OF_RANGE
        found = [r for r in self.stored if self._header(r).last_offset >= wanted.offset]
        records = memoryview(bytearray(b"" if error else b"".join(found[:1])))
        part = FetchedPartition(b"", 0, error, self.end, self.end, self.start, (), records)
        return Fetched([part], None)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_ELECTED_S", 0.0)
    monkeypatch.setattr(log_reader, "_PAUSE_S", 0.0)


def held(log: TargetLog, start: Start, *, is_shared: bool = False) -> HeldLog:
    reader = LogReader(log, TopicPartition("T", 0), b"", False)  # type: ignore[arg-type]
    return asyncio.run(held_log(reader, start, is_shared=is_shared))


def copy_of(
    sizes: Sequence[int], elections: Sequence[int] = (), noted: int = 0
) -> tuple[TargetLog, Start]:
    """Claim, and copy batches of so many records, with elections that lose nothing.

    An idle copy has noted so many of the elections before each batch.
    """
    log, lineage = TargetLog(), Lineage(((0, 0),))
    log.claim(1)
    sequence = 0
    for index, size in enumerate(sizes):
        for number in range(elections.count(index)):
            log.elect()
            if number < noted:
                lineage = lineage.with_leader(log.epoch, log.end)
        log.copied(size, sequence)
        sequence += size
    return log, known_at_end(log, *lineage.starts, claim=1)


def known_at_end(log: TargetLog, *starts: tuple[int, int], claim: int = 2) -> Start:
    """Know a lineage up to the end that the log has now, written under a claim of ours."""
    writer = ProducerId(OURS, claim)
    ours = frozenset({OURS})
    return Start(1000, log.end, ours, target_lineage=Lineage(starts), written_by=writer)


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=12)
elections = st.lists(st.integers(0, 5), max_size=6)


@settings(deadline=None)
@given(sizes, elections, st.integers(0, 2), st.integers(0, 3))
def test_elections_that_lose_nothing_are_no_loss(
    batch_sizes: list[int], at: list[int], noted: int, markers: int
) -> None:
    log, start = copy_of(batch_sizes, at, noted)
    for number in range(markers):  # attempts of ours or others that wrote nothing else
        log.elect()
        log.claim(2 + number)

    assert held(log, start).end == start.target_next


@settings(deadline=None)
@given(sizes, elections, st.integers(0, 2), st.data())
def test_the_place_where_the_log_was_cut_is_found_however_it_grew_again(
    batch_sizes: list[int], at: list[int], noted: int, data: st.DataObject
) -> None:
    log, start = copy_of(batch_sizes, at, noted)
    cut = data.draw(st.sampled_from([0, *log.boundaries()[:-1]]))
    log.elect(truncated_to=cut)
    for kind in data.draw(st.lists(st.sampled_from(["claim", "astray", "stranger", "elect"]))):
        if kind == "claim":
            log.claim(2)
        elif kind == "astray":  # the producer's state is gone with the records: any sequence goes
            log.copied(2, sequence=sum(batch_sizes))
        elif kind == "stranger":
            log.copied(3, sequence=0, producer=STRANGER)
        else:
            log.elect()

    assert held(log, start).end == cut


def test_what_a_leader_wrote_that_the_next_one_never_saw_is_not_taken_for_the_copy() -> None:
    """It came back without what was copied after it: the map tells of the other log's offsets."""
    log, _ = copy_of([3, 3])
    log.elect()
    begun = log.end
    log.copied(3, sequence=6)
    log.copied(3, sequence=9)  # these were in flight when it fell
    known = known_at_end(log, (0, 0), (2, begun))
    log.epoch = 3
    log.claim(3)

    assert held(log, known).end == begun


@settings(deadline=None)
@given(sizes, elections, st.integers(0, 2), st.data())
def test_elections_whose_place_retention_has_passed_are_no_loss(
    batch_sizes: list[int], at: list[int], noted: int, data: st.DataObject
) -> None:
    """What was written before an election no claim has seen is gone, and nothing else."""
    log, start = copy_of(batch_sizes, at, noted)
    log.trim(data.draw(st.integers(0, log.end)))

    found = held(log, start)

    assert found.end == start.target_next


@pytest.mark.parametrize("later", ["claim", "copied", "stranger"])
def test_what_another_wrote_where_retention_has_passed_a_cut_is_not_taken_for_the_copy(
    later: str,
) -> None:
    log, start = copy_of([3, 3, 3])
    log.elect(truncated_to=log.boundaries()[1])
    log.claim(2)
    log.trim(log.end)
    if later == "claim":
        log.claim(3)
    log.copied(9, sequence=0, epoch=2, producer=STRANGER if later == "stranger" else OURS)

    assert held(log, start).end == log.start


def test_copies_that_went_astray_where_retention_has_passed_a_cut_are_no_copy() -> None:
    """The producer's state is gone with the records: any sequence goes."""
    log, start = copy_of([3, 3, 3])
    log.elect(truncated_to=0)
    for number in range(3):
        log.copied(2, sequence=9 + 2 * number)
    for epoch in range(2, 8):
        log.claim(epoch)
    log.trim(2)

    assert held(log, start).end == log.start


def test_a_leader_that_does_not_know_an_epoch_of_its_log_is_not_asked_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its list of epochs lost one that its batches have, and its answers do not change."""
    log, start = copy_of([3, 3, 3], elections=[1])
    boundary = log.boundaries()[1]
    log.epochs, log.epoch = [(0, 0), (2, boundary)], 2
    answer, asked = log.epoch_end, 0

    async def epoch_end(partition: TopicPartition, epoch: int) -> EpochEnd:
        nonlocal asked
        asked += 1
        assert asked < 20
        return await answer(partition, epoch)

    monkeypatch.setattr(log, "epoch_end", epoch_end)

    assert held(log, start).end == boundary


def test_an_epoch_that_a_later_election_took_before_any_batch_of_it_is_no_loss() -> None:
    """An idle copy noted it at the log's end; the next batch there is of the later leader."""
    log, known = copy_of([3, 3], elections=[1, 1], noted=1)
    assert known.target_lineage == Lineage(((0, 0), (1, 4)))

    found = held(log, known)

    assert (found.end, found.lineage) == (known.target_next, Lineage(((0, 0), (2, 4))))


def test_an_election_between_two_claims_is_not_taken_for_the_later_one() -> None:
    """No claim has read epoch 1, and a leader has more of it than the next claim found."""
    log, _ = copy_of([3, 3], elections=[1])
    begun = log.end
    log.copied(3, sequence=6)
    known = known_at_end(log, (0, 0), (2, begun))
    log.epoch = 3
    log.claim(3)

    assert held(log, known).end == begun


def test_an_epoch_that_began_before_the_claim_that_read_it_is_no_loss() -> None:
    log, _ = copy_of([3, 3], elections=[1])
    begun = log.end
    log.claim(2)
    known = known_at_end(log, (0, 0), (1, begun))

    assert held(log, known).end == log.end


@pytest.mark.parametrize("deleted", ["compacted", "expired"])
def test_an_election_that_one_claim_has_passed_needs_no_proof_at_the_next(deleted: str) -> None:
    """The batches at the boundary prove it once; later they may be gone."""
    log, start = copy_of([3, 3, 3], elections=[1])
    boundary = log.boundaries()[1]
    lineage = held(log, start).lineage.with_epoch(1, log.end)
    if deleted == "compacted":
        del log.stored[1:3]
    else:
        log.start = boundary + 1
        log.epochs = [(1, boundary)]

    assert lineage == Lineage(((0, 0), (1, boundary)))
    assert held(log, replace(start, target_lineage=lineage)).end == start.target_next


def test_a_cut_before_the_begin_of_the_lineage_is_exact() -> None:
    log, start = copy_of([3, 3, 3])
    known = replace(start, target_lineage=Lineage(((0, start.target_next - 1),)))
    log.elect(truncated_to=log.boundaries()[2])
    log.claim(2)

    assert held(log, known).end == log.boundaries()[2]


def test_what_a_leader_lost_with_its_whole_epoch_is_lost_from_there_on() -> None:
    log, _ = copy_of([3, 3])
    left = log.end
    log.epoch = 3
    log.claim(3)

    lineage = Lineage(((0, 0), (2, left + 3)))
    assert held(log, Start(1000, left + 6, frozenset({OURS}), target_lineage=lineage)).end == left


def test_a_log_that_never_saw_any_epoch_of_the_copy_is_trusted_in_nothing() -> None:
    log, start = copy_of([3, 3])
    log.epoch = 3
    log.claim(3)

    assert held(log, replace(start, target_lineage=Lineage(((2, 3),)))).end == log.start


@pytest.mark.parametrize("lost", [1, 2, 5])
def test_without_known_epochs_markers_of_later_claims_do_not_cover_up_a_loss(lost: int) -> None:
    """A log that is too short is trusted in nothing; see the next test."""
    log, start = copy_of([1] * 8)
    log.elect(truncated_to=start.target_next - lost)
    for number in range(lost):
        log.claim(2 + number)

    assert held(log, replace(start, target_lineage=UNKNOWN_LINEAGE)).end == log.start


@pytest.mark.parametrize("log_start", [0, 4])
def test_a_log_that_is_too_short_is_trusted_in_nothing_if_no_epoch_is_known(log_start: int) -> None:
    """What it holds may be a batch that went astray into it."""
    log, start = copy_of([3, 3])
    log.start = log_start
    bare = replace(start, target_next=log.end + 9, target_lineage=UNKNOWN_LINEAGE)

    assert held(log, bare).end == log_start


@pytest.mark.parametrize("claims", [0, 1, 3])
def test_a_cut_is_found_where_retention_has_deleted_the_markers_after_it(claims: int) -> None:
    log, start = copy_of([3, 3, 3])
    cut = log.boundaries()[1]
    log.elect(truncated_to=cut)
    for number in range(claims):  # owners that were killed before they reported the cut
        log.claim(2 + number)
    log.start = log.end
    found = held(log, start)
    claim = Claim(ProducerId(OURS, 2 + claims), float("inf"))

    assert not found.is_exact
    assert found.end_without(claim.claims_since(start.written_by)) == cut


def test_a_cut_after_the_start_of_the_log_is_exact() -> None:
    log, start = copy_of([3, 3, 3])
    cut = log.boundaries()[1]
    log.elect(truncated_to=cut)
    log.start = 1
    log.claim(2)
    found = held(log, start)

    assert found.is_exact
    assert found.end_without(5) == cut


def test_a_stranger_before_the_position_is_passed_on_the_way_back() -> None:
    log, start = copy_of([3, 3])
    log.copied(5, sequence=0, producer=STRANGER)

    assert held(log, replace(start, target_next=log.end, written_by=None)).end == 7


@pytest.mark.parametrize("markers", [1, 3])
def test_a_batch_that_went_astray_into_an_emptied_target_is_not_taken_for_the_copy(
    markers: int,
) -> None:
    """Only the map is left: it ends with the first two records, and the log is as long."""
    log = TargetLog()
    log.epoch = 1
    log.copied(2, sequence=13)
    for number in range(markers):
        log.claim(2 + number)
    run, writer = Run(0, 1, 2), ProducerId(OURS, 1)
    bare = Start(2, 3, frozenset({OURS}), written_by=writer, last_run=run)

    assert held(log, bare).end == 0


def test_a_marker_is_not_taken_for_the_record_with_which_the_map_ends() -> None:
    """A former replica leads again, and its log has a marker in the place of a record."""
    log, _ = copy_of([3, 3])
    log.claim(2)
    bare = Start(1, 1, frozenset({OURS}), written_by=ProducerId(OURS, 2))

    assert held(log, bare).end == 1, "the map may end before the marker"
    assert held(log, replace(bare, last_run=Run(0, 0, 1))).end == 0


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("markers", [0, 2])
def test_a_former_replica_as_long_as_the_copy_is_not_taken_for_it_without_epochs(
    markers: int, is_shared: bool
) -> None:
    """Only the map is left. A claim wrote its end that the log of the former replica never had."""
    log, _ = copy_of([3, 3])
    bare = Start(6, 7, frozenset({OURS}), written_by=ProducerId(OURS, 2), last_run=Run(3, 4, 3))
    for number in range(markers):  # owners that were killed before they reported anything
        log.claim(3 + number)

    assert held(log, bare, is_shared=is_shared).end == 0


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("found", ["marker", "later claims", "other records", "compacted marker"])
def test_an_owner_that_wrote_the_map_of_a_former_one_again_has_lost_nothing(
    found: str, is_shared: bool
) -> None:
    """It has taken the last block over, and its marker follows the records there."""
    log, _ = copy_of([3, 3])
    bare = Start(6, 7, frozenset({OURS}), written_by=ProducerId(OURS, 2), last_run=Run(3, 4, 3))
    if found == "other records":
        log.copied(2, sequence=0, producer=STRANGER)
    log.claim(2)
    if found == "later claims":
        log.claim(3)
    if found == "compacted marker":
        log.copied(1, sequence=0, epoch=3)
        del log.stored[-2]

    assert held(log, bare, is_shared=is_shared).end == 7


def test_a_target_that_retention_has_emptied_is_no_loss() -> None:
    log, start = copy_of([3, 3])
    log.start = log.end

    assert held(log, start) == HeldLog(start.target_next, log.end, log.end, start.target_lineage)


def test_a_batch_that_compaction_has_removed_proves_nothing_and_hides_nothing() -> None:
    log, start = copy_of([3, 3])
    del log.stored[-1]
    log.claim(2)

    assert held(log, start).end == start.target_next


def test_a_log_that_changes_while_it_is_read_is_asked_again() -> None:
    class Changing(TargetLog):
        async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
            answer = await super().log_range(partition)
            self.start = self.end
            return answer

    log, start = copy_of([3, 3])
    log.__class__ = Changing

    with pytest.raises(UnavailableError, match="changes at the moment"):
        held(log, replace(start, target_lineage=UNKNOWN_LINEAGE))


def test_a_target_that_was_created_again_has_lost_nothing_of_its_end() -> None:
    class CreatedAnew(TargetLog):
        def leaders_changed(self) -> None:
            """Nothing to ask again."""

        async def fetch(
            self, node: int, partitions: Sequence[FetchFrom], **options: Any
        ) -> Fetched:
            fetched = await super().fetch(node, partitions, **options)
            fetched.partitions[0].error = max(codes.TOPIC_GONE)
            return fetched

    _, start = copy_of([3, 3])

    with pytest.raises(UnavailableError, match="error 103"):
        held(CreatedAnew(), start)


def test_without_a_position_there_is_nothing_to_compare() -> None:
    log, start = copy_of([3])

    assert held(log, replace(start, has_position=False, target_next=0)).end == 0


@pytest.mark.parametrize("local", [1, 150])
def test_on_a_shared_name_batches_of_local_producers_around_an_election_are_no_loss(
    local: int,
) -> None:
    log = TargetLog()
    log.claim(1)
    log.copied(3, sequence=0)
    for number in range(local):
        log.copied(1, sequence=0, producer=100 + number % 7)
    for _ in range(2):
        log.elect()
        log.copied(2, sequence=0, producer=STRANGER)
    log.copied(3, sequence=3)
    known = known_at_end(log, (0, 0), claim=1)

    found = held(log, known, is_shared=True)

    assert found.end == known.target_next
    assert [epoch for epoch, _ in found.lineage.starts] == [0, 1, 2]


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.data())
def test_on_a_shared_name_no_batch_of_ours_that_was_lost_counts_as_held(
    local: list[int], data: st.DataObject
) -> None:
    log = TargetLog()
    log.claim(1)
    for sequence, count in enumerate(local):
        for _ in range(count):
            log.copied(2, sequence=0, producer=STRANGER)
        log.copied(1, sequence=sequence)
    has_epochs = data.draw(st.booleans())
    known = known_at_end(log, *([(0, 0)] if has_epochs else []), claim=1)
    cut = data.draw(st.sampled_from(log.boundaries()[:-1]))
    log.elect(truncated_to=cut)
    for kind in data.draw(st.lists(st.sampled_from(["claim", "astray", "local", "elect"]))):
        if kind == "claim":
            log.claim(2)
        elif kind == "astray" and has_epochs:
            log.copied(2, sequence=len(local))
        elif kind == "local":
            log.copied(3, sequence=0, producer=STRANGER)
        else:
            log.elect()

    assert held(log, known, is_shared=True).end <= cut
