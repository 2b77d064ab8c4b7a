"""Runs of a copy at least once: records may be on the target twice, or were skipped.

A writer that crashed copies some records again, and may be killed while it does. The map can hold
one copy of each record, and both of its sides only grow::

    source offsets of the copies   1 2 3 4 5 | 4 5 6 7 8 9 | 6 7
    in the map                     1 2 3       4 5 6 7 8 9

From a copy in the map a reader meets each later record after the one before it. Of several such
copies the last counts, so that few records come again. A repeat that was cut short has none: its
reader would meet the end, or a later record too early.
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
        if start >= end:
            return []
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

    def next(self, offset: int) -> int | None:
        """Return the lowest offset of the set at or after an offset, None without one."""
        at = bisect_right(self._ends, offset)
        return max(offset, self._starts[at]) if at < len(self._starts) else None


def last_copies(facts: Runs, begin: int = 0) -> Runs:
    """Return the map of copies in the target's order; see the module.

    Args:
        facts: runs in the order of the target, which may copy a source record several times, but
            no record first after a later one, see :func:`late_copies`.
        begin: source offset up to which a map is known, where the result begins. The known copies
            are before all facts on the target.
    """
    if facts.grow() and not (len(facts) and int(facts.sources[0]) < begin):
        return facts.join()
    copied = OffsetSet([(0, begin), *((run.source_start, run.source_end) for run in facts)])
    lowest = copied.last[1] if copied.last else 0
    later: list[tuple[Run, bool]] = []  # each reaches further than those before it on the target
    kept: list[Run] = []
    for run in reversed(tuple(facts)):
        while later and later[-1][0].source_end <= run.source_end:
            later.pop()
        if later:  # a reader of the run meets nothing new before that one
            following, in_order = later[-1]
            meets = max(following.source_start, run.source_end)
            in_order = in_order and copied.next(run.source_end) == meets
        else:
            in_order = copied.next(run.source_end) is None
        later.append((run, in_order))
        start = max(run.source_start, begin)
        if in_order and start < lowest:
            kept.append(Run(start, start + run.shift, min(run.source_end, lowest) - start))
            lowest = start
    return Runs.of(reversed(kept)).join()


def late_copies(facts: Runs, begin: int = 0) -> tuple[tuple[int, int], ...]:
    """Return the ranges of source offsets whose first copy is after one of a later record.

    The arguments are those of :func:`last_copies`.
    """
    if facts.grow():
        return ()
    seen, late = OffsetSet([(0, begin)]), OffsetSet()
    for run in facts:
        reached = seen.last[1] if seen.last else run.source_start
        for start, end in seen.add(run.source_start, run.source_end):
            if start < reached:
                late.add(start, min(end, reached))
    return tuple(late)
