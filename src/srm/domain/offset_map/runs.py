"""Stretches of logs: runs of copied records, ranges of offsets, leader epochs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from srm.errors import IntegrityError, UsageError

Offsets = npt.NDArray[np.int64]

FINGERPRINTS: Final = 1 << 53
"""Number of different fingerprints; every JSON reader has exact whole numbers up to it."""
_MIXING: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
_EMPTY: Final[Offsets] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, order=True)
class Run:
    """``count`` source records from ``source_start``, copied to ``target_start`` and after.

    Without records it is a *cut*: the source was truncated when the copy was there.
    """

    source_start: int
    target_start: int
    count: int

    @property
    def source_end(self) -> int:
        return self.source_start + self.count

    @property
    def target_end(self) -> int:
        return self.target_start + self.count

    @property
    def shift(self) -> int:
        return self.target_start - self.source_start


class Runs(Sequence[Run]):
    """An immutable sequence of runs, as arrays of source starts, target starts and counts."""

    __slots__ = ("counts", "sources", "targets")

    def __init__(
        self, sources: Offsets = _EMPTY, targets: Offsets = _EMPTY, counts: Offsets = _EMPTY
    ) -> None:
        self.sources = sources
        self.targets = targets
        self.counts = counts

    @classmethod
    def of(cls, runs: Iterable[Run]) -> Runs:
        if isinstance(runs, Runs):
            return runs
        numbers = np.array(
            [(run.source_start, run.target_start, run.count) for run in runs], np.int64
        ).reshape(-1, 3)
        return cls(*(np.ascontiguousarray(numbers[:, column]) for column in range(3)))

    @classmethod
    def concatenate(cls, parts: Sequence[Runs]) -> Runs:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls()
        return cls(*map(np.concatenate, zip(*(part.arrays for part in parts), strict=True)))

    @property
    def arrays(self) -> tuple[Offsets, Offsets, Offsets]:
        return self.sources, self.targets, self.counts

    @property
    def source_ends(self) -> Offsets:
        return self.sources + self.counts

    @property
    def target_ends(self) -> Offsets:
        return self.targets + self.counts

    @property
    def records(self) -> int:
        return int(self.counts.sum())

    @property
    def fingerprint(self) -> int:
        """Fingerprint of 53 bits of the pairs of offsets, whatever their division into runs.

        Fingerprints of two parts add up, modulo 2^53. It does not resist attackers.
        """
        shifts = _mix(self.targets - self.sources)
        ends = _mix(shifts ^ self.source_ends) - _mix(shifts ^ self.sources)
        return int(ends.sum()) % FINGERPRINTS

    def __len__(self) -> int:
        return len(self.counts)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> Run | Runs:
        if isinstance(index, slice):
            return Runs(self.sources[index], self.targets[index], self.counts[index])
        return Run(int(self.sources[index]), int(self.targets[index]), int(self.counts[index]))

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self.sources.tolist(), self.targets.tolist(), self.counts.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Runs):
            return all(map(np.array_equal, self.arrays, other.arrays))
        return tuple(self) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:3]))
        return f"Runs({shown}{', ...' if len(self) > 3 else ''}; {len(self)} in all)"

    def before(self, source_offset: int, target_offset: int) -> Runs:
        """Return the runs before an offset of either side; both sides must grow."""
        last = min(
            int(np.searchsorted(self.sources, source_offset)),
            int(np.searchsorted(self.targets, target_offset)),
        )
        kept = self[:last]
        if not last:
            return kept
        run = kept[last - 1]
        count = min(run.count, source_offset - run.source_start, target_offset - run.target_start)
        if count == run.count:
            return kept
        counts = kept.counts.copy()
        counts[-1] = count
        return Runs(kept.sources, kept.targets, counts)

    def with_records(self) -> Runs:
        """Leave out cuts."""
        kept = self.counts > 0
        if kept.all():
            return self
        return Runs(self.sources[kept], self.targets[kept], self.counts[kept])

    def join(self) -> Runs:
        """Join each run with the next one where that continues it on both sides."""
        shifts = self.targets - self.sources
        joins = (self.targets[1:] == self.target_ends[:-1]) & (shifts[1:] == shifts[:-1])
        if not joins.any():
            return self
        starts = np.concatenate(([0], np.flatnonzero(~joins) + 1))
        counts = np.add.reduceat(self.counts, starts)
        return Runs(self.sources[starts], self.targets[starts], counts)

    def grow(self) -> bool:
        """Return True if both sides only grow, as in a map; facts about one may not."""
        return bool(
            (self.sources[1:] >= self.source_ends[:-1]).all()
            and (self.targets[1:] >= self.target_ends[:-1]).all()
        )


def _mix(numbers: Offsets) -> Offsets:
    """Spread numbers over 64 bits: the finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    mixed = numbers.astype(np.uint64)
    for shift, factor in _MIXING:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return (mixed ^ (mixed >> np.uint64(31))).astype(np.int64)


def solid_runs(facts: Runs) -> Runs:
    """Return the runs of facts in any order, see :func:`coalesce`."""
    solid = facts.with_records()
    if len(solid) == len(facts) and facts.grow():
        return facts.join()
    return Runs.of(coalesce(facts))


def coalesce(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Sort facts about one partition, and join or cut facts about the same records.

    Two owners may report the same stretch: one that was stopped, and its successor that found the
    records in the log. A truncated source gives its offsets to other records: a cut or run that is
    later on the target and begins at a lower source offset cuts the earlier ones there.
    IntegrityError: two runs put different records at one target offset.
    """
    joined: list[Run] = []
    for run in sorted(runs, key=lambda r: (r.target_start, r.count > 0, -r.count)):
        if run.count <= 0:
            _cut(joined, run.source_start)
            continue
        last = joined[-1] if joined else None
        if last is not None and run.target_start <= last.target_end and run.shift == last.shift:
            end = max(last.target_end, run.target_end)
            joined[-1] = Run(last.source_start, last.target_start, end - last.target_start)
        elif last is not None and run.target_start < last.target_end:
            raise IntegrityError(f"offset map contradicts itself: {last} and {run}")
        else:
            _cut(joined, run.source_start)
            joined.append(run)
    return tuple(joined)


def _cut(runs: list[Run], source_offset: int) -> None:
    """Remove the part of ordered runs from a source offset on."""
    while runs and runs[-1].source_end > source_offset:
        last = runs.pop()
        if last.source_start < source_offset:
            count = source_offset - last.source_start
            runs.append(Run(last.source_start, last.target_start, count))


class OffsetSet:
    """A set of offsets, as sorted ranges."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(ranges):
            self.add(start, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._starts, self._ends, strict=True)

    @property
    def count(self) -> int:
        return sum(end - start for start, end in self)

    @property
    def last(self) -> tuple[int, int] | None:
        """The highest range, None of an empty set."""
        return (self._starts[-1], self._ends[-1]) if self._starts else None

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add a range; return its parts that were not in the set."""
        if start >= end:
            return []
        low = bisect_right(self._ends, start - 1)  # adjoining ranges become one
        high = bisect_right(self._starts, end)
        found, at = [], start
        for begin, until in zip(self._starts[low:high], self._ends[low:high], strict=True):
            if at < begin:
                found.append((at, min(begin, end)))
            at = max(at, until)
        if at < end:
            found.append((at, end))
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]
        return found

    def next(self, offset: int) -> int | None:
        """Return the lowest offset of the set at or after an offset, None without one."""
        at = bisect_right(self._ends, offset)
        return max(offset, self._starts[at]) if at < len(self._starts) else None


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets ``[start, end)`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offsets [{self.start}, {self.end})"

    @property
    def size(self) -> int:
        """Number of offsets in the range; not all of them need hold a record."""
        return max(0, self.end - self.start)


def both_ends(start: int, end: int) -> str:
    """Return offsets ``[start, end)`` as text for operators, with the last offset included."""
    return f"{start} to {end - 1}"


def skip_ranges(offset: int, ranges: Iterable[tuple[int, int]]) -> int:
    """Return the first offset from one on that is in none of the ranges ``[start, end)``."""
    for start, end in sorted(ranges):
        offset = end if start <= offset < end else offset
    return offset


def split_ranges(ranges: Iterable[OffsetRange], size: int) -> tuple[OffsetRange, ...]:
    """Cut ranges into parts of at most ``size`` offsets; empty ranges are dropped."""
    if size <= 0:
        raise UsageError(f"ranges cannot be cut into parts of {size} offsets")
    return tuple(
        OffsetRange(r.topic, r.partition, start, min(start + size, r.end))
        for r in ranges
        for start in range(r.start, r.end, size)
    )


MOST_EPOCHS: Final = 16
"""Maximum epochs that are kept before a position, the latest ones."""


class EpochRange(NamedTuple):
    """Offsets [start, end) of a leader epoch, as read; not ``is_exact``: it may begin earlier."""

    epoch: int
    start: int
    end: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class Lineage:
    """Leader epochs of a log with their start offsets, both ascending, as brokers keep them.

    All logs that hold an epoch up to an offset are equal before that offset, so two logs are equal
    up to the end of the last epoch in both (KIP-101, KIP-279). The first epoch may have begun
    earlier.
    """

    starts: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.starts)

    @property
    def epoch(self) -> int:
        """The latest leader epoch, -1 if none is known."""
        return self.starts[-1][0] if self.starts else -1

    @property
    def begin(self) -> int:
        """Offset before which nothing is known; 0 without an epoch."""
        return self.starts[0][1] if self.starts else 0

    def with_epoch(self, epoch: int, start: int) -> Lineage:
        """Return the lineage with the epoch of a batch that was read from an offset on.

        It replaces each one that is not lower or does not begin before. An unknown epoch (-1, an
        old format) makes the lineage unknown.
        """
        if epoch == self.epoch:
            return self
        if epoch < 0:
            return UNKNOWN_LINEAGE
        kept = (one for one in self.starts if one[0] < epoch and one[1] < start)
        return Lineage((*kept, (epoch, start)))

    def with_leader(self, epoch: int, end: int) -> Lineage:
        """Return the lineage of a log that was as known up to ``end`` under a leader's epoch."""
        return self.with_epoch(epoch, end) if self and epoch > self.epoch else self

    def with_unread(self, epoch: int, start: int) -> Lineage | None:
        """Return the lineage with an epoch not read, or not from its start; None on a conflict."""
        before = self.before(start)
        # A lower epoch from the same offset on is of a leader that wrote nothing, see with_leader.
        after = [(e, at) for e, at in self.starts if (at, e) > (start, epoch) and e != epoch]
        if epoch <= before.epoch or (after and (after[0][0] <= epoch or after[0][1] <= start)):
            return None
        return Lineage((*before.starts, (epoch, start), *after)[-MOST_EPOCHS:])

    def before(self, offset: int) -> Lineage:
        """Return the lineage of the log before an offset, with the latest epochs there."""
        if len(self.starts) <= MOST_EPOCHS and (not self or self.starts[-1][1] < offset):
            return self
        return Lineage(tuple(one for one in self.starts if one[1] < offset)[-MOST_EPOCHS:])

    def distances(self, end: int) -> Iterator[int]:
        """Yield two small numbers for each epoch of a log that ends at an offset."""
        later = 0
        for epoch, start in reversed(self.starts):
            yield later - epoch
            yield end - start
            later, end = epoch, start

    @classmethod
    def from_distances(cls, distances: Iterator[int], count: int, end: int) -> Lineage:
        epoch, starts = 0, []
        for _ in range(count):
            epoch, end = epoch - next(distances), end - next(distances)
            starts.append((epoch, end))
        return cls(tuple(reversed(starts)))

    def latest_first(self, end: int) -> Iterator[EpochRange]:
        """Yield the epochs of a log that ends at an offset."""
        for index in range(len(self.starts) - 1, -1, -1):
            epoch, start = self.starts[index]
            yield EpochRange(epoch, start, end, bool(index or not start))
            end = start


UNKNOWN_LINEAGE: Final = Lineage()
"""Lineage of a log of which nothing was read."""
