"""Alignment of a copy that others made with its source, by the content of records. Pure.

The copy is at least once: after a crash its writer has copied some records again, and it may have
skipped some. So the target is a sequence of stretches that follow the source::

    source  1 2 3 4 5 6 7 8 9
    target  1 2 3 4 5 | 4 5 6 | 8 9        4 and 5 twice; 7 was skipped

A record of the target that equals the next one of the source is its copy. Elsewhere the place with
the longest agreement from there on counts; of equal ones the nearest before, which skips nothing.
Equal contents may be confused with each other, which changes no content of either log.

A record without a counterpart is older than the source's log, compacted there, or foreign. A source
record before the furthest copied one that has no copy is optional (aborted), compacted on the
target, or skipped. Compaction needs a later record of the key there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from srm.domain.offset_map.runs import Offsets, Run, Runs

KEYED: Final = 1
TOMBSTONE: Final = 2
OPTIONAL: Final = 4
"""Bits of a record's kind: it has a key; no value; it need not be copied."""

Ranges = tuple[tuple[int, int], ...]
"""Ranges of offsets, [from, to), in order."""

_LOOK_AHEAD: Final = 4096
_MOST: Final = 1 << 22
"""Source records that are kept on each side of the place: 33 bytes each."""
_AGREEMENT: Final = 64
_NEAREST: Final = 16
"""Candidates of a chunk that are compared."""


@dataclass(frozen=True)
class Columns:
    """Consecutive records of a log: offsets, hashes of contents and of keys, kinds."""

    offsets: Offsets
    contents: Offsets
    keys: Offsets
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def concatenate(cls, parts: Sequence[Columns]) -> Columns:
        """Return the records of all parts, one after the other."""
        return cls(
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.contents for part in parts]),
            np.concatenate([part.keys for part in parts]),
            np.concatenate([part.kinds for part in parts]),
        )

    def after(self, count: int) -> Columns:
        """Return the records after the first ones."""
        return Columns(
            self.offsets[count:], self.contents[count:], self.keys[count:], self.kinds[count:]
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def marks(self) -> npt.NDArray[np.bool_]:
        """Marks of the records that are on the other side; changed in place."""
        return np.zeros(len(self), np.bool_)

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(self.contents, kind="stable")

    @cached_property
    def _in_order(self) -> Offsets:
        return self.contents[self._order]

    def places(self, content: int) -> npt.NDArray[np.intp]:
        """Return the indexes of a content, in order."""
        first = np.searchsorted(self._in_order, content)
        last = np.searchsorted(self._in_order, content, "right")
        return self._order[first:last]

    def has(self, contents: Offsets) -> npt.NDArray[np.bool_]:
        """Return which contents the records have."""
        at = np.minimum(np.searchsorted(self._in_order, contents), len(self) - 1)
        found: npt.NDArray[np.bool_] = self._in_order[at] == contents
        return found


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


@dataclass(frozen=True, slots=True)
class AlignedCopy:
    """Result: the map, the position after the last copied record, and what is not in the map.

    Attributes:
        runs: the map; empty if a record is late.
        source_next: offset after the furthest copied source record.
        copied: number of source records with a copy.
        repeated: number of further copies.
        skipped: source offsets before ``source_next`` whose records have no copy, without a reason.
        foreign: target offsets of records that the source did not have.
        older: target offsets of records before the source's log start.
        compacted: number of records that compaction removed on one side.
        late: source offsets that were first copied after later ones: no map keeps the order.
    """

    runs: Runs
    source_next: int
    copied: int
    repeated: int
    skipped: Ranges
    skipped_records: int
    foreign: Ranges
    older: Ranges
    compacted: int
    late: Ranges


@dataclass
class Alignment:
    """Aligns one partition; the caller feeds the source whenever :meth:`match` wants more.

    Attributes:
        begin: source offset of a known position; 0 if nothing is known.
        trimmed: the source's log begins after its first records.
        target_trimmed: the target's log begins after the first copies.
        source_compacts: the source removes records with a later one of their key.
        target_compacts: the target does.
    """

    begin: int = 0
    trimmed: bool = False
    target_trimmed: bool = False
    source_compacts: bool = False
    target_compacts: bool = False
    most: int = _MOST
    ended: bool = False
    _chunks: deque[Columns] = field(default_factory=deque)
    _chunk: int = 0
    _at: int = 0
    _look: int = _LOOK_AHEAD
    _facts: list[Runs] = field(default_factory=list)
    _furthest: int = -1
    _owed: set[int] = field(default_factory=set)
    _missing: list[tuple[Offsets, Offsets, npt.NDArray[np.uint8]]] = field(default_factory=list)
    _foreign: OffsetSet = field(default_factory=OffsetSet)
    _older: OffsetSet = field(default_factory=OffsetSet)
    _compacted: int = 0

    # ----- the source

    def feed(self, source: Columns) -> None:
        """Add the next records of the source."""
        if not len(source):
            return
        is_at_end = self._chunk == len(self._chunks)
        self._chunks.append(source)
        if is_at_end and source.offsets[-1] < self.begin:
            self._chunk += 1
        elif is_at_end:
            self._at = int(np.searchsorted(source.offsets, self.begin))
        while self._chunk and sum(map(len, self._behind())) - len(self._chunks[0]) > self.most:
            self._retire(self._chunks.popleft())
            self._chunk -= 1

    def _behind(self) -> Iterator[Columns]:
        return (self._chunks[index] for index in range(self._chunk))

    def _ahead(self) -> int:
        """Count the records from the place on."""
        rest = (len(self._chunks[at]) for at in range(self._chunk, len(self._chunks)))
        return sum(rest) - self._at

    # ----- the target

    @property
    def wants_source(self) -> bool:
        """True if the source has to be fed before the next record can be marks."""
        return not self.ended and self._ahead() < self._look

    def match(self, target: Columns, *, is_last: bool) -> int:
        """Match records of the target; return how many.

        The others come again: with more of the source if it is wanted, else with more of the
        target, as one place is chosen by what follows it.
        """
        done = 0
        while done < len(target) and not self.wants_source:
            count = self._match_straight(target, done)
            done += count
            if not (count or is_last or len(target) - done >= _AGREEMENT):
                return done
            if count or self._jump(target, done):
                self._look = _LOOK_AHEAD
            elif not self.ended and self._look < self.most:
                self._look = min(self._look * 8, self.most)
            else:
                done += self._pass(target, done)
        return done

    def _match_straight(self, target: Columns, first: int) -> int:
        """Match the records that equal the next ones of the source, as far as its chunk goes."""
        if self._chunk == len(self._chunks):
            return 0
        chunk, at = self._chunks[self._chunk], self._at
        most = min(len(chunk) - at, len(target) - first)
        equal = chunk.contents[at : at + most] == target.contents[first : first + most]
        count = most if equal.all() else int(np.argmin(equal))
        if count:
            self._note_match(chunk, at, target, first, count)
            self._at += count
        if self._at == len(chunk):
            self._chunk, self._at = self._chunk + 1, 0
        return count

    def _note_match(self, chunk: Columns, at: int, target: Columns, first: int, count: int) -> None:
        if self.target_trimmed and self._furthest < 0:  # copies of those before are deleted
            self.begin = max(self.begin, int(chunk.offsets[at]))
        chunk.marks[at : at + count] = True
        sources = chunk.offsets[at : at + count]
        targets = target.offsets[first : first + count]
        breaks = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
        starts = np.concatenate(([0], breaks))
        counts = np.diff(np.concatenate((starts, [count])))
        self._facts.append(Runs(sources[starts], targets[starts], counts))
        if len(self._facts) > _LOOK_AHEAD:
            self._facts = [Runs.concatenate(self._facts).join()]
        self._furthest = max(self._furthest, int(sources[-1]))
        if self._owed:
            self._owed.difference_update(target.keys[first : first + count].tolist())

    def _jump(self, target: Columns, first: int) -> bool:
        """Continue at the place of the source that agrees longest from a record on, if any does."""
        content = int(target.contents[first])
        wanted = target.contents[first : first + _AGREEMENT]
        best: tuple[tuple[int, bool, int], int, int] | None = None
        begins = 0
        here = sum(map(len, self._behind())) + self._at
        for number, chunk in enumerate(self._chunks):
            places = chunk.places(content)
            if len(places) > 2 * _NEAREST:
                places = np.concatenate((places[:_NEAREST], places[-_NEAREST:]))
            for at in places.tolist():
                distance = begins + at - here
                agrees = self._agreement(number, at, wanted)
                rank = agrees, distance < 0, -abs(distance)
                if best is None or rank > best[0]:
                    best = rank, number, at
            begins += len(chunk)
        if best is None:
            return False
        _, number, at = best
        if self.target_compacts and not (self.target_trimmed and self._furthest < 0):
            self._owe(number, at)
        self._chunk, self._at = number, at
        return True

    def _agreement(self, number: int, at: int, wanted: Offsets) -> int:
        count = 0
        while count < len(wanted) and number < len(self._chunks):
            there = self._chunks[number].contents[at : at + len(wanted) - count]
            equal = there == wanted[count : count + len(there)]
            if not equal.all():
                return count + int(np.argmin(equal))
            count, number, at = count + len(there), number + 1, 0
        return count

    def _owe(self, number: int, at: int) -> None:
        """Note the keys of passed records: a later record of each has to follow on the target."""
        for index in range(self._chunk, number + 1):
            chunk = self._chunks[index]
            part = slice(
                self._at if index == self._chunk else 0, at if index == number else len(chunk)
            )
            owes = (chunk.kinds[part] == KEYED) & ~chunk.marks[part]
            self._owed.update(chunk.keys[part][owes].tolist())

    def _pass(self, target: Columns, first: int) -> int:
        """Pass the target's records that are nowhere in what is known of the source."""
        contents = target.contents[first:]
        known = np.zeros(len(contents), np.bool_)
        for chunk in self._chunks:
            known |= chunk.has(contents)
        count = int(np.argmax(known)) if known.any() else len(contents)
        part = slice(first, first + count)
        offsets, keyed = target.offsets[part], (target.kinds[part] & KEYED) > 0
        if self._furthest < 0 and self.trimmed:
            _add_all(self._older, offsets)
        elif self.source_compacts:
            self._compacted += int(keyed.sum())
            _add_all(self._foreign, offsets[~keyed])
        else:
            _add_all(self._foreign, offsets)
        return count

    # ----- the result

    def _retire(self, chunk: Columns) -> None:
        """Note the records of a chunk without a copy."""
        end = np.searchsorted(chunk.offsets, self._furthest)
        lacks = ~chunk.marks[:end] & (chunk.kinds[:end] < OPTIONAL)
        lacks &= chunk.offsets[:end] >= self.begin
        if self.target_compacts:
            explained = lacks & ((chunk.kinds[:end] & KEYED) > 0)
            if self._owed:
                owed = np.fromiter(self._owed, np.int64, len(self._owed))
                is_tombstone = (chunk.kinds[:end] & TOMBSTONE) > 0
                explained &= is_tombstone | ~np.isin(chunk.keys[:end], owed)
            self._compacted += int(explained.sum())
            lacks &= ~explained
        if lacks.any():
            self._missing.append(
                (chunk.offsets[:end][lacks], chunk.keys[:end][lacks], chunk.kinds[:end][lacks])
            )

    def result(self) -> AlignedCopy:
        """Return the alignment, after the last record of the target."""
        while self._chunks:
            self._retire(self._chunks.popleft())
        skipped, records = OffsetSet(), 0
        owed = np.fromiter(self._owed, np.int64, len(self._owed))
        for offsets, keys, kinds in self._missing:
            lacks = np.ones(len(offsets), np.bool_)
            if self.target_compacts:  # its key came later after all
                lacks = (kinds & KEYED == 0) | np.isin(keys, owed)
            self._compacted += len(offsets) - int(lacks.sum())
            records += int(lacks.sum())
            _add_all(skipped, offsets[lacks])
        facts = Runs.concatenate(self._facts).join()
        copied = OffsetSet((run.source_start, run.source_end) for run in facts).count
        late = late_copies(facts, self.begin)
        return AlignedCopy(
            Runs() if late else last_copies(facts, self.begin),
            max(self.begin, self._furthest + 1),
            copied,
            int(facts.counts.sum()) - copied,
            tuple(skipped),
            records,
            tuple(self._foreign),
            tuple(self._older),
            self._compacted,
            late,
        )


def _add_all(to: OffsetSet, offsets: Offsets) -> None:
    if not len(offsets):
        return
    starts = np.concatenate(([0], np.flatnonzero(np.diff(offsets) != 1) + 1))
    ends = np.concatenate((starts[1:], [len(offsets)])) - 1
    for start, end in zip(offsets[starts].tolist(), offsets[ends].tolist(), strict=True):
        to.add(start, end + 1)


def last_copies(facts: Runs, begin: int = 0) -> Runs:
    """Return the map of copies at least once, in the target's order.

    A writer that crashed copied some records again, and may be killed while it does. The map can
    hold one copy of each record, and both of its sides only grow::

        source offsets of the copies   1 2 3 4 5 | 4 5 6 7 8 9 | 6 7
        in the map                     1 2 3       4 5 6 7 8 9

    From a copy in the map a reader meets each later record after the one before it. Of several such
    copies the last counts, so that few records come again. A repeat that was cut short has none:
    its reader would meet the end, or a later record too early.

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
