"""Runs of a copy at least once: records may be on the target twice, or were skipped.

A writer that crashed copies some records again. The map can hold one copy of each record, and both
of its sides only grow::

    source offsets of the copies   1 2 3 4 5 | 4 5 6 7
    in the map                     1 2 3         4 5 6 7

A reader that continues at a copy in the map must meet each later record again, so of each record
the last copy counts, and only if every later record has one after it. So no reader skips a record,
and it reads none twice but those that were copied between two of its places.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from srm.domain.offset_map.runs import Run, Runs


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
        """Number of offsets."""
        return sum(end - start for start, end in self)

    @property
    def last(self) -> tuple[int, int] | None:
        """The highest range, None of an empty set."""
        return (self._starts[-1], self._ends[-1]) if self._starts else None

    def add(self, start: int, end: int) -> list[tuple[int, int]]:
        """Add a range; return its parts that were not in the set."""
        low = bisect_right(self._ends, start - 1)  # adjoining ranges become one
        high = bisect_right(self._starts, end)
        found, at = [], start
        for known_start, known_end in zip(
            self._starts[low:high], self._ends[low:high], strict=True
        ):
            if at < known_start:
                found.append((at, min(known_start, end)))
            at = max(at, known_end)
        if at < end:
            found.append((at, end))
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high], self._ends[low:high] = [start], [end]
        return found

    def remove(self, start: int, end: int) -> None:
        """Remove a range."""
        low, high = bisect_right(self._ends, start), bisect_right(self._starts, end - 1)
        if low >= high:
            return
        first, last = self._starts[low], self._ends[high - 1]
        left = [(a, b) for a, b in ((first, start), (end, last)) if a < b]
        self._starts[low:high] = [a for a, _ in left]
        self._ends[low:high] = [b for _, b in left]


def last_copies(facts: Runs) -> Runs:
    """Return the map of copies in the target's order; see the module.

    Args:
        facts: runs in the order of the target, which may copy a source record several times.
    """
    if facts.grow():
        return facts.join()
    left = OffsetSet((run.source_start, run.source_end) for run in facts)
    kept: list[Run] = []
    for run in reversed(tuple(facts)):
        end = run.source_end
        while end > run.source_start and (last := left.last) is not None:
            start, known_end = max(last[0], run.source_start), last[1]
            if end < known_end:  # a later record has no copy after this one
                left.remove(run.source_start, end)
                break
            if end > known_end:  # it is copied again
                end = max(known_end, run.source_start)
                continue
            shift = run.target_start - run.source_start
            kept.append(Run(start, start + shift, end - start))
            left.remove(start, end)
            end = start
    return Runs.of(reversed(kept)).join()


def late_copies(facts: Runs) -> tuple[tuple[int, int], ...]:
    """Return the ranges of source offsets whose first copy is after one of a later record."""
    if facts.grow():
        return ()
    seen, late = OffsetSet(), OffsetSet()
    for run in facts:
        reached = seen.last[1] if seen.last else run.source_start
        for start, end in seen.add(run.source_start, run.source_end):
            if start < reached:
                late.add(start, min(end, reached))
    return tuple(late)
