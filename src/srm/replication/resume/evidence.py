"""Rules that derive the place of one log in the other from both logs, without I/O.

Let ``(S, T)`` be a proven place: the copy of what the source held before ``S`` ends at target
offset ``T``. Copies keep the source's order, and nothing that has to be copied is skipped. So
between one proven place and the next, with ``n`` copies of ours on the target and ``h`` offsets
there that are empty now (compaction), all of this holds::

    source   S |gone, needed, gone, needed ...| o       needed: records that have to be copied
    target   T |n copies, h empty offsets     | t

- each copy took an offset of the source of its own: ``o - S >= n``;
- a needed record before ``o`` has its copy between ``T`` and ``t``: at an empty offset;
- a copy whose record is gone had an offset before ``o`` where the source is empty now.

Where no offset is empty on either side, which is so in every log that is not compacted, this leaves
one place for each copy, whatever the records hold: equal ones are distinguished by counting.

A :class:`LogReading` is one way to read the logs so far. Reading branches where records are equal
and offsets are empty; the walk is decided when all branches that are left end at the same place.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from srm.domain.offset_map.offset_map import Run

MOST_PLACES: Final = 512
"""Ways to read the logs that are followed at once."""
MOST_OWED: Final = 1 << 18
"""Keys that the target may still owe."""
_MOST_SPANS: Final = 4096
MOST_RUNS: Final = 1 << 18
"""Runs that are kept while it is not clear yet whether they are right."""


class Content(NamedTuple):
    """One copied record as it is compared; ``time`` is None where the target gives its own."""

    offset: int
    content: int
    time: int | None
    key: int
    has_key: bool
    is_tombstone: bool


@dataclass(slots=True)
class Span:
    """Number of offsets met, and the first and last of them."""

    count: int = 0
    first: int = -1
    last: int = -1

    def add(self, first: int, last: int | None = None, count: int = 1) -> None:
        """Meet some more, in order."""
        if not self.count:
            self.first = first
        self.last = first if last is None else last
        self.count += count


class FoundRuns:
    """Runs that were found, as numbers: there can be many."""

    def __init__(self, numbers: array[int] | None = None) -> None:
        self._numbers = array("q") if numbers is None else numbers

    def __len__(self) -> int:
        """Count the runs."""
        return len(self._numbers) // 3

    def add(self, source_start: int, target_start: int, count: int) -> None:
        """Append a stretch in order, or lengthen the last run."""
        numbers = self._numbers
        if numbers:
            source, target, length = numbers[-3:]
            if target + length == target_start and source + length == source_start:
                numbers[-1] = length + count
                return
        numbers.extend((source_start, target_start, count))

    def extend(self, runs: Iterable[Run]) -> None:
        """Append runs in order."""
        for run in runs:
            self.add(run.source_start, run.target_start, run.count)

    def copy(self) -> FoundRuns:
        """Return a copy."""
        return FoundRuns(self._numbers[:])

    def take(self) -> list[Run]:
        """Return all runs, and forget them."""
        numbers, self._numbers = self._numbers, array("q")
        return [Run(*numbers[at : at + 3]) for at in range(0, len(numbers), 3)]


@dataclass(slots=True)
class LogReading:
    """One way to read the logs so far, since the last copy that was found (or the start).

    ``at`` is the index of the next record of the source, ``passed`` the source offset after the
    last one found, ``reached`` the target offset after its copy. ``copies`` counts what is known to
    be copied since; ``gone`` of them are on the target but not on the source. ``holes`` are empty
    target offsets since, ``free`` those that the target's log has dropped at its beginning.
    ``owed`` are hashes of keys of which the target must hold a later record, because an earlier one
    is not there. ``runs`` are those not handed out yet. ``certain``: the reading before it passed
    the first needed record by evidence, None if it has passed none since then.
    """

    at: int
    passed: int
    reached: int = 0
    copies: int = 0
    gone: int = 0
    holes: int = 0
    free: int = 0
    owed: set[int] = field(default_factory=set)
    runs: FoundRuns = field(default_factory=FoundRuns)
    found: int = 0
    removed: Span = field(default_factory=Span)
    former: Span = field(default_factory=Span)
    certain: LogReading | None = None

    @property
    def begun(self) -> bool:
        """True if a copy was found."""
        return self.found > 0

    @property
    def source_next(self) -> int:
        """Source offset before which everything is copied: each copy has passed one."""
        return self.passed + self.copies

    @property
    def credit(self) -> int:
        """Number of needed source records whose copies can be at empty offsets."""
        return self.holes + self.free

    @property
    def is_settled(self) -> bool:
        """True if the findings so far are proven, provided this is the only place left."""
        return not (self.copies or self.gone or self.holes or self.free or self.owed)

    def allows(self, offset: int, skipped: int) -> bool:
        """Return whether the next copy can be at ``offset``, after ``skipped`` needed records."""
        return (
            offset >= self.passed + self.copies
            and skipped <= self.credit
            and offset - self.passed - skipped >= self.gone
        )

    def find(self, index: int, offset: int, target: int, count: int) -> None:
        """Advance to after a stretch of copied records."""
        self.runs.add(offset, target, count)
        self.at, self.passed, self.reached = index + count, offset + count, target + count
        self.copies = self.gone = self.holes = self.free = 0
        self.found += count

    def lack(self, target: int, *, counts: bool) -> None:
        """Advance over a copy whose record is gone; it counts if that had an offset of its own."""
        self.removed.add(target)
        self.copies += counts
        self.gone += counts

    def branch(self) -> LogReading:
        """Return a copy to advance on its own."""
        return replace(
            self,
            owed=set(self.owed),
            runs=self.runs.copy(),
            removed=replace(self.removed),
            former=replace(self.former),
        )

    def without_count(self) -> LogReading:
        """Return a copy that counts nothing since the last copy that was found."""
        return replace(self.branch(), copies=0, gone=0, holes=0, free=0)


def distinct(places: Iterable[LogReading]) -> list[LogReading]:
    """Of several ways to the same place leave the one that needs the least evidence."""
    best: dict[tuple[int, int, int, int, int, bool], LogReading] = {}
    for place in places:
        key = (place.at, place.passed, place.copies, place.gone, place.credit, place.begun)
        other = best.get(key)
        if other is None or len(place.owed) < len(other.owed):
            best[key] = place
    return list(best.values())


class EarlyCopies:
    """Source range of the copies before the first match: known once that is found.

    If they are as many as the source offsets, each offset was a record, and was copied.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[int, int]] | None = []

    def add(self, first: int, count: int) -> None:
        """Note copies at target offsets."""
        spans = self._spans
        if spans is None:
            return
        if spans and sum(spans[-1]) == first:
            spans[-1] = spans[-1][0], spans[-1][1] + count
        elif len(spans) < _MOST_SPANS:
            spans.append((first, count))
        else:
            self._spans = None

    def runs(self, source_start: int, count: int) -> FoundRuns:
        """Return the runs of the first ``count`` copies, if they are known one by one."""
        found = FoundRuns()
        for first, length in self._spans or ():
            if taken := min(length, count):
                found.add(source_start, first, taken)
            source_start += taken
            count -= taken
        return found if not count else FoundRuns()
