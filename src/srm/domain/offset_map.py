r"""The exact offset map of one partition: which target offset holds which source record.

A *run* is a stretch of consecutive source records that stand at consecutive target offsets::

    source offsets   100 101 102 103 104 (105 marker) 106 107
    target offsets    60  61  62  63  64               65  66
                     \_______ run 1 ______/            \ run 2 /

Invariants of :class:`OffsetMap`, for neighbouring runs a, b:

- ``a.source_end <= b.source_start`` and ``a.target_end <= b.target_start``: both sides only grow,
  so each record is in one run and each direction is a binary search;
- two neighbours are never contiguous on both sides: such stretches are one run.

Committed offsets are "next to read". Forward, the next record to read is the first copied one at
or after the committed offset. Backward, everything before the committed offset has been read, so
reading goes on after the source offset of the last copied record before it. Neither ever guesses.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from srm.domain.runs import Run, Runs
from srm.errors import IntegrityError

__all__ = [
    "NoMap",
    "NotCopiedYet",
    "OffsetMap",
    "Position",
    "Run",
    "Runs",
    "Translated",
    "Translation",
    "coalesce",
]


@dataclass(frozen=True, slots=True)
class Position:
    """How far one partition is copied: the next source offset to read, the next target offset.

    ``source_next`` also passes what is never copied (markers, aborted and compacted records), so
    it can be ahead of the end of the last run. ``source_end`` is the source's last stable offset
    when the position was taken: equal to ``source_next`` means nothing is left to copy.

    A slot reports a position only after every run before it is in the map (see
    :mod:`srm.replication.slot.reporting`), so a position proves that no run before it is missing,
    even when it stands behind a marker and touches no run.
    """

    source_next: int
    target_next: int
    source_end: int


@dataclass(frozen=True, slots=True)
class Translated:
    """The exact translation."""

    offset: int


@dataclass(frozen=True, slots=True)
class NotCopiedYet:
    """The map does not reach the offset yet; its end is ``remaining`` offsets away."""

    remaining: int


@dataclass(frozen=True, slots=True)
class NoMap:
    """Nothing is known about this partition yet: it was never copied."""


Translation = Translated | NotCopiedYet | NoMap


def coalesce(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Sort facts about one partition, and join or cut what they say of the same records.

    The same stretch may be reported twice (by an owner that was stopped, and by its successor that
    found the records in the log), so overlapping runs are fine while they agree.

    A source that was truncated gives other records the same offsets. So a cut, or a run, that
    stands later on the target and begins at a lower source offset cuts the earlier ones: what they
    held from there on has no source counterpart any more, and is a hole.

    Raises:
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
    """Take away what runs in order hold from a source offset on."""
    while runs and runs[-1].source_end > source_offset:
        last = runs.pop()
        if last.source_start < source_offset:
            runs.append(
                Run(last.source_start, last.target_start, source_offset - last.source_start)
            )


@dataclass(frozen=True)
class OffsetMap:
    """All known runs of one partition, and how far the copy has come (None: no report yet)."""

    runs: tuple[Run, ...] = ()
    position: Position | None = None
    _source_ends: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _target_starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index both sides for binary search."""
        object.__setattr__(self, "_source_ends", tuple(run.source_end for run in self.runs))
        object.__setattr__(self, "_target_starts", tuple(run.target_start for run in self.runs))

    @classmethod
    def of(
        cls, runs: Iterable[Run], position: Position | None = None, *, open_end: bool = True
    ) -> OffsetMap:
        """Build the map from facts in any order.

        With ``open_end`` the last run goes on up to the position, if that is on its line.

        Raises:
            IntegrityError: the facts contradict each other.
        """
        facts = tuple(runs)
        joined = list(coalesce(facts))
        cut_at = max((run.target_start for run in facts if run.count <= 0), default=-1)
        # A cut after the last run ends it: a position on its line is there by accident.
        if joined and position is not None and open_end and cut_at < joined[-1].target_end:
            last = joined[-1]
            grown = position.target_next - last.target_start
            if grown > last.count and position.source_next - last.source_start == grown:
                joined[-1] = Run(last.source_start, last.target_start, grown)
        return cls(tuple(joined), position)

    @property
    def known_source_end(self) -> int | None:
        """Source offset up to which the map is complete, None where nothing is known."""
        ends = [run.source_end for run in self.runs[-1:]]
        if self.position is not None:
            ends.append(self.position.source_next)
        return max(ends, default=None)

    @property
    def known_target_end(self) -> int | None:
        """Target offset up to which the map is complete, None where nothing is known."""
        ends = [run.target_end for run in self.runs[-1:]]
        if self.position is not None:
            ends.append(self.position.target_next)
        return max(ends, default=None)

    def forward(self, committed: int, target_log_start: int = 0) -> Translation:
        """Target offset at which a reader of the source at ``committed`` goes on.

        Args:
            committed: source offset of the next record to read.
            target_log_start: first offset the target still holds; it matters only where no run is
                known: does the target hold records that no run speaks of?
        """
        reached = self.known_source_end
        if reached is None:
            return NoMap()
        index = bisect_right(self._source_ends, committed)
        if index < len(self.runs):
            run = self.runs[index]
            offset = run.target_start + max(0, committed - run.source_start)
            return Translated(offset)
        if committed > reached:
            return NotCopiedYet(committed - reached)
        if self.runs:
            return Translated(self.runs[-1].target_end)
        return self._without_runs(committed, target_log_start)

    def backward(self, committed: int) -> Translation:
        """Source offset at which a reader of the target at ``committed`` goes on.

        Args:
            committed: target offset of the next record to read.
        """
        known = self.known_target_end
        if known is None:
            return NoMap()
        if committed > known:
            return NotCopiedYet(committed - known)
        if not self.runs:
            if self.position is None or committed < self.position.target_next:
                return NoMap()
            return Translated(self.position.source_next)
        index = bisect_left(self._target_starts, committed)
        if index == 0:
            return Translated(self.runs[0].source_start)
        run = self.runs[index - 1]
        return Translated(min(committed, run.target_end) - run.shift)

    def records_between(self, target_from: int, target_to: int) -> int:
        """Count copied records at target offsets in ``[target_from, target_to)``."""
        return sum(
            max(0, min(run.target_end, target_to) - max(run.target_start, target_from))
            for run in self.runs
        )

    def source_records_between(self, source_from: int, source_to: int) -> int:
        """Count copied records at source offsets in ``[source_from, source_to)``."""
        return sum(
            max(0, min(run.source_end, source_to) - max(run.source_start, source_from))
            for run in self.runs
        )

    def _without_runs(self, committed: int, target_log_start: int) -> Translation:
        if self.position is None:
            return NoMap()
        if committed < self.position.source_next and self.position.target_next > target_log_start:
            # The target holds records, but no run says which: the position was read before them.
            return NoMap()
        return Translated(max(self.position.target_next, target_log_start))
