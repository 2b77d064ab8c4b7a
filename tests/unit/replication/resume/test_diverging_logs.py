"""Where a log diverges from the one that was read is found by lineage, as followers find it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.batches import Record, stored

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.errors import UnavailableError
from srm.replication import codes, log_reader, ports
from srm.replication.log_reader import LogReader
from srm.replication.ports import EpochEnd, Fetched, FetchedPartition, FetchFrom

Cells = tuple[tuple[int, int], ...]
"""Leader epoch and content of each offset."""


@dataclass(frozen=True)
class Replicas:
    """A partition: what each replica holds, who leads, and the leader epochs of its cache."""

    logs: tuple[Cells, ...] = ((), (), ())
    leader: int = 0
    epoch: int = 0
    written: int = 0

    @property
    def log(self) -> Cells:
        return self.logs[self.leader]

    def elect(self, leader: int) -> Replicas:
        """Let any replica lead, in sync or not."""
        return replace(self, leader=leader, epoch=self.epoch + 1)

    def write(self, count: int) -> Replicas:
        more = tuple((self.epoch, self.written + n) for n in range(count))
        return self._with(self.leader, self.log + more, self.written + count)

    def follow(self, follower: int, most: int) -> Replicas:
        """Let a follower truncate to what it shares with the leader, and fetch some more."""
        shared = common(self.logs[follower], self.log)
        return self._with(follower, self.log[: max(shared, most)], self.written)

    def _with(self, replica: int, log: Cells, written: int) -> Replicas:
        logs = tuple(log if n == replica else one for n, one in enumerate(self.logs))
        return replace(self, logs=logs, written=written)


@dataclass
class Leader:
    """Answers as the leader of a log; a replica built after compaction lacks whole epochs.

    It is slow if tiered storage does not answer it in time.
    """

    log: Cells
    epoch: int
    start: int = 0
    removed: frozenset[int] = frozenset()
    rebuilt: bool = False
    is_slow: bool = False
    alias: str = field(default="P", init=False)

    def _cache(self) -> list[tuple[int, int]]:
        """As LeaderEpochFileCache: the first offset of each epoch, and the leader's own."""
        held = [(e, at) for at, (e, _) in enumerate(self.log)]
        if self.rebuilt:
            held = [one for one in held if one[1] not in self.removed]
        firsts = [one for n, one in enumerate(held) if not n or held[n - 1][0] != one[0]]
        if not firsts or firsts[-1][0] < self.epoch:
            firsts.append((self.epoch, len(self.log)))
        dropped = [n for n, (_, at) in enumerate(firsts) if at <= self.start][-1:]
        kept = firsts[dropped[0] :] if dropped else firsts
        return [(e, max(at, self.start)) for e, at in kept]

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        cache = self._cache()
        if epoch == cache[-1][0]:
            return EpochEnd(epoch, len(self.log))
        higher = [at for e, at in cache if e > epoch]
        if epoch < 0 or not higher:
            return EpochEnd(-1, -1)
        return EpochEnd(max((e for e, _ in cache if e <= epoch), default=epoch), higher[0])

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        del partition
        return self.start, len(self.log)

    async def local_start(self, partition: TopicPartition) -> int:
        del partition
        return len(self.log) if self.is_slow else self.start

    async def leader(self, partition: TopicPartition) -> ports.Leader:
        del partition
        return ports.Leader(1, 0)

    def leaders_changed(self) -> None:
        """Nothing is remembered."""

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        del node, options
        [wanted] = partitions
        held = range(wanted.offset, len(self.log))
        found = next((at for at in held if at not in self.removed), None)
        error = 0 if wanted.offset >= self.start else codes.OFFSET_OUT_OF_RANGE
        is_empty = error or found is None or self.is_slow
        raw = b"" if is_empty else stored([Record(found or 0, 1, b"k", b"v")])
        end, records = len(self.log), memoryview(bytearray(raw))
        return Fetched([FetchedPartition(b"", 0, error, end, end, self.start, (), records)], None)


def common(one: Cells, other: Cells) -> int:
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def lineage_of(log: Cells, begin: int = 0) -> Lineage:
    """Read a log from an offset on."""
    lineage = UNKNOWN_LINEAGE
    for at in range(begin, len(log)):
        lineage = lineage.with_epoch(log[at][0], at)
    return lineage


def shared_end(leader: Leader, lineage: Lineage, at: int) -> int:
    reader = LogReader(leader, TopicPartition("T", 0), b"", read_committed=False)  # type: ignore[arg-type]
    return asyncio.run(reader.shared_end(lineage, at)).end


def holds_to(leader: Leader, lineage: Lineage, at: int) -> int:
    reader = LogReader(leader, TopicPartition("T", 0), b"", read_committed=False)  # type: ignore[arg-type]
    return asyncio.run(reader.holds_to(lineage, at)).end


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "_ELECTED_S", 0.0)
    monkeypatch.setattr(log_reader, "_PAUSE_S", 0.0)


replica = st.integers(0, 2)
actions = st.lists(
    st.tuples(st.just("elect"), replica, st.just(0))
    | st.tuples(st.just("write"), st.just(0), st.integers(1, 4))
    | st.tuples(st.just("follow"), replica, st.integers(0, 12)),
    max_size=12,
)


def played(replicas: Replicas, history: list[tuple[str, int, int]]) -> Replicas:
    for kind, who, count in history:
        if kind == "elect":
            replicas = replicas.elect(who)
        elif kind == "write":
            replicas = replicas.write(count)
        elif who != replicas.leader:
            replicas = replicas.follow(who, count)
    return replicas


@settings(deadline=None)
@given(actions, actions)
def test_whatever_elections_were_unclean_the_logs_diverge_where_the_lineages_do(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]]
) -> None:
    read = played(Replicas(), before)
    now = played(read, after)

    found = shared_end(Leader(now.log, now.epoch), lineage_of(read.log), len(read.log))

    assert found == common(read.log, now.log)


@settings(deadline=None)
@given(actions, actions, actions)
@example(
    [("write", 0, 1), ("elect", 1, 0)],
    [("elect", 0, 0), ("elect", 0, 0), ("write", 0, 1)],
    [("write", 0, 1), ("elect", 1, 0)],
)
def test_a_log_restored_from_a_snapshot_diverges_where_the_lineages_do_however_it_has_grown(
    before: list[tuple[str, int, int]],
    after: list[tuple[str, int, int]],
    since: list[tuple[str, int, int]],
) -> None:
    """The cluster counts its epochs from the snapshot on again. Equal lineages are undecidable."""
    snapshot = played(Replicas(), before)
    read = played(snapshot, after)
    restored = replace(snapshot, written=snapshot.written + read.written)
    now = played(restored.elect(snapshot.leader), since)
    ours, theirs = lineage_of(read.log), lineage_of(now.log)
    parted = common(read.log, now.log)
    equal = set(ours.starts) & set(theirs.starts)
    assume(not any(start >= parted for _, start in equal))
    assume(not any(start in equal for start in _continued(parted, read.log, now.log)))

    found = shared_end(Leader(now.log, now.epoch), ours, len(read.log))

    assert found == parted


def _continued(at: int, *logs: Cells) -> set[tuple[int, int]]:
    """Return the epoch, with its start, that all logs continue at an offset."""
    if not all(0 < at < len(log) and log[at - 1][0] == log[at][0] for log in logs):
        return set()
    return set(lineage_of(logs[0]).before(at).starts[-1:])


@settings(deadline=None)
@given(actions, actions, st.data())
def test_a_lineage_that_begins_late_never_calls_more_equal_than_is(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    read = played(Replicas(), before)
    now = played(read, after)
    begin = data.draw(st.integers(0, len(read.log)))
    lineage, equal = lineage_of(read.log, begin), common(read.log, now.log)

    found = shared_end(Leader(now.log, now.epoch), lineage, len(read.log))

    if lineage and found > lineage.begin:
        assert found == equal
    elif lineage:
        assert equal <= lineage.begin


@settings(deadline=None)
@given(actions, actions, st.data())
def test_retention_is_no_divergence(
    before: list[tuple[str, int, int]], after: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    read = played(Replicas(), before)
    now = played(read, after)
    start = data.draw(st.integers(0, len(now.log)))
    equal = common(read.log, now.log)

    found = shared_end(Leader(now.log, now.epoch, start), lineage_of(read.log), len(read.log))

    assert found == equal or equal <= found <= start


def test_an_election_with_nothing_of_the_epoch_between_is_exact() -> None:
    """The next leader never saw epoch 4, and has less, or more, of epoch 3 than the log read."""
    lineage = Lineage(((3, 0), (4, 10)))
    less = ((3, 1),) * 8 + ((6, 1),) * 20
    more = ((3, 1),) * 14 + ((6, 1),) * 20

    assert shared_end(Leader(less, 6), lineage, 15) == 8
    assert shared_end(Leader(more, 6), lineage, 15) == 10


def test_a_log_truncated_twice_diverges_at_the_lower_place() -> None:
    twice = ((3, 1),) * 5 + ((6, 1),) * 20

    assert shared_end(Leader(twice, 6), Lineage(((3, 0), (4, 10), (5, 12))), 15) == 5


def test_an_epoch_that_a_restored_cluster_uses_again_is_known_by_its_start() -> None:
    lineage = Lineage(((3, 0), (4, 10)))
    restored = ((3, 1),) * 8 + ((4, 2),) * 20

    assert shared_end(Leader(restored, 4), lineage, 15) == 8


def test_an_epoch_that_was_read_from_its_middle_begins_no_later() -> None:
    """The restored log has more of epoch 4, and begins epoch 5 after the lineage does."""
    lineage = Lineage(((5, 10),))
    restored = ((4, 1),) * 12 + ((5, 2),) * 20

    assert shared_end(Leader(restored, 5), lineage, 15) < 15
    assert shared_end(Leader(((4, 1),) * 8 + ((5, 1),) * 20, 5), lineage, 15) == 15


def test_what_is_left_of_another_epoch_counts_if_its_begin_is_deleted() -> None:
    lineage = Lineage(((4, 0), (5, 10)))
    forked = ((4, 1),) * 14 + ((5, 2),) * 20

    assert shared_end(Leader(forked, 5, start=12), lineage, 20) < 20
    assert shared_end(Leader(forked, 5, start=14), lineage, 20) == 20


def test_a_log_that_lost_everything_shares_nothing() -> None:
    assert shared_end(Leader((), 9), Lineage(((3, 0), (4, 10))), 15) == 0
    assert shared_end(Leader(((9, 1),) * 30, 9), Lineage(((3, 4), (4, 10))), 15) == 0


def test_without_a_lineage_the_end_of_the_log_decides() -> None:
    assert shared_end(Leader(((3, 1),) * 8, 3), UNKNOWN_LINEAGE, 15) == 8
    assert shared_end(Leader(((3, 1),) * 20, 3), UNKNOWN_LINEAGE, 15) == 15


def test_an_epoch_whose_batches_compaction_has_removed_is_no_divergence() -> None:
    """A replica that was built since does not know the epoch; nothing that is left differs."""
    lineage, log = Lineage(((3, 0), (4, 10))), ((3, 1),) * 10 + ((4, 1),) * 5 + ((5, 1),) * 5
    rebuilt = Leader(log, 5, removed=frozenset(range(10, 15)), rebuilt=True)

    assert shared_end(rebuilt, lineage, 15) == 10
    assert holds_to(rebuilt, lineage, 15) == 15
    assert holds_to(rebuilt, Lineage(((4, 10),)), 15) == 15
    other = Leader(((3, 1),) * 14 + ((6, 1),) * 9, 6)
    assert holds_to(other, lineage, 15) == 10


def test_an_empty_answer_before_the_end_of_the_log_is_no_sign_of_compaction() -> None:
    lineage, log = Lineage(((3, 0), (4, 10))), ((3, 1),) * 10 + ((5, 1),) * 10
    leader = Leader(log, 5, removed=frozenset(range(10, 15)), rebuilt=True, is_slow=True)

    with pytest.raises(UnavailableError, match="sent nothing from offset 10"):
        holds_to(leader, lineage, 15)


def test_a_log_whose_last_records_compaction_has_removed_ends_after_them() -> None:
    leader = Leader(((3, 1),) * 10, 3, removed=frozenset({8, 9}))
    log = LogReader(leader, TopicPartition("T", 0), b"", read_committed=False)  # type: ignore[arg-type]

    assert asyncio.run(log.batch_at(9)) is None
    assert asyncio.run(log.batch_from(8)) is None
    leader.is_slow = True
    with pytest.raises(UnavailableError, match="sent nothing from offset 8"):
        asyncio.run(log.batch_from(8))
