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

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from srm.domain.offset_map.runs import Offsets, OffsetSet, Run, Runs

KEYED: Final = 1
TOMBSTONE: Final = 2
OPTIONAL: Final = 4
"""Bits of a record's kind: it has a key; no value; it need not be copied."""

_Places = npt.NDArray[np.intp]
_COMPARED: Final = 1024
_NEAREST: Final = 16
"""Candidates of a chunk on each side that the next contents narrow down, and that are ranked."""


@dataclass(frozen=True)
class Columns:
    """Consecutive records of a log: offsets, hashes of contents and of keys, kinds."""

    offsets: Offsets
    contents: Offsets
    keys: Offsets
    kinds: npt.NDArray[np.uint8]

    @classmethod
    def concatenate(cls, parts: Sequence[Columns]) -> Columns:
        columns = ([getattr(part, one.name) for part in parts] for one in fields(cls))
        return cls(*map(np.concatenate, columns))

    def after(self, count: int) -> Columns:
        return Columns(*(getattr(self, one.name)[count:] for one in fields(self)))

    def __len__(self) -> int:
        return len(self.offsets)

    @cached_property
    def marks(self) -> npt.NDArray[np.bool_]:
        """Marks of the records that are on the other side; changed in place."""
        return np.zeros(len(self), np.bool_)

    @cached_property
    def _order(self) -> _Places:
        return np.argsort(self.contents, kind="stable")

    @cached_property
    def _in_order(self) -> Offsets:
        return self.contents[self._order]

    def nearest(self, contents: Offsets, here: int) -> Sequence[int]:
        """Return indexes of the first content near an index, if many by the following ones."""
        ends = (np.searchsorted(self._in_order, contents[0], side) for side in ("left", "right"))
        found = _around(self._order[slice(*ends)], here, _COMPARED)
        for step in range(1, len(contents)):
            if len(found) <= 2 * _NEAREST:
                break
            following = self.contents[np.minimum(found + step, len(self) - 1)]
            if not (agrees := following == contents[step]).any():
                break
            found = found[agrees]
        indexes: list[int] = _around(found, here, _NEAREST).tolist()
        return indexes

    def find(self, contents: Offsets) -> tuple[_Places, npt.NDArray[np.int8]]:
        """Return for each content one of its indexes, and whether it has none, one, or more (2)."""
        last = len(self) - 1
        at = np.searchsorted(self._in_order, contents)
        first, second = np.minimum(at, last), np.minimum(at + 1, last)
        has = self._in_order[first] == contents
        has_more = has & (second > first) & (self._in_order[second] == contents)
        return self._order[first], has.astype(np.int8) + has_more


def _around(places: _Places, here: int, count: int) -> _Places:
    middle = int(np.searchsorted(places, here))
    return places[max(0, middle - count) : middle + count]


@dataclass(frozen=True)
class SourcePlaces:
    """Places of a target's records in the source: how many each has (none, one, more: 2).

    ``chunks`` and ``places``: of a single place, the number of its chunk and the place in that.
    """

    counts: npt.NDArray[np.int8]
    chunks: _Places
    places: _Places

    @classmethod
    def among(cls, chunks: Iterable[Columns], contents: Offsets) -> SourcePlaces:
        counts = np.zeros(len(contents), np.int8)
        numbers, places = np.zeros(len(contents), np.intp), np.zeros(len(contents), np.intp)
        for number, chunk in enumerate(chunks):
            at, more = chunk.find(contents)
            is_here = more > 0
            numbers[is_here], places[is_here] = number, at[is_here]
            counts = np.minimum(counts + more, 2)
        return cls(counts, numbers, places)

    @cached_property
    def _known_places(self) -> _Places:
        return np.flatnonzero(self.counts)

    @cached_property
    def _breaks(self) -> _Places:
        """Records that a stretch of single places, in order in one chunk, does not reach."""
        joins = (self.counts[1:] == 1) & (np.diff(self.chunks) == 0) & (np.diff(self.places) > 0)
        return np.append(np.flatnonzero(~joins) + 1, len(self.counts))

    def next_known(self, first: int) -> int:
        """Return the next record from one on that has a place, or the number of records."""
        at = int(np.searchsorted(self._known_places, first))
        return int(self._known_places[at]) if at < len(self._known_places) else len(self.counts)

    def stretch(self, first: int) -> _Places:
        """Return the single places from a record on that are in order in one chunk."""
        if self.counts[first] != 1:
            return self.places[:0]
        end = int(self._breaks[np.searchsorted(self._breaks, first, "right")])
        return self.places[first:end]


Ranges = tuple[tuple[int, int], ...]
"""Ranges of offsets, [from, to), in order."""

_LOOK_AHEAD: Final = 4096
_MOST: Final = 1 << 22
"""Source records that are kept on each side of the place: 33 bytes each."""
_AGREEMENT: Final = 64


@dataclass(frozen=True, slots=True)
class AlignedCopy:
    """Result: the map, the position after the last copied record, and what is not in the map.

    ``skipped``: source offsets before ``source_next`` without a copy and a reason. ``foreign``:
    target offsets of records that the source did not have; ``older``: of those before its log
    start. ``late``: source offsets that were first copied after later ones: no map keeps the order,
    it is empty. ``cut_short``: source offsets that a repeat at the end of a compacted topic did not
    reach; keys of it may have an older record last.
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
    cut_short: Ranges = ()


@dataclass
class Alignment:
    """Aligns one partition; the caller feeds the source whenever :meth:`match` wants more.

    ``begin``: source offset of a known position. A log is trimmed if it begins after its first
    records, and compacts if it removes records with a later one of their key.
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
    _joined: list[Runs] = field(default_factory=list)
    _furthest: int = -1
    _owed: set[int] = field(default_factory=set)
    _missing: list[tuple[Offsets, Offsets, npt.NDArray[np.uint8]]] = field(default_factory=list)
    _foreign: OffsetSet = field(default_factory=OffsetSet)
    _older: OffsetSet = field(default_factory=OffsetSet)
    _compacted: int = 0

    # ----- the source

    def feed(self, source: Columns) -> None:
        if not len(source):
            return
        is_at_end = self._chunk == len(self._chunks)
        self._chunks.append(source)
        if is_at_end and source.offsets[-1] < self.begin:
            self._chunk += 1
        elif is_at_end:
            self._at = int(np.searchsorted(source.offsets, self.begin))
        while len(self._chunks) > 1 and self._merges(self._chunks[-2], self._chunks[-1]):
            self._merge()
        while self._chunk and sum(map(len, self._behind())) - len(self._chunks[0]) > self.most:
            self._retire(self._chunks.popleft())
            self._chunk -= 1

    def _merges(self, before: Columns, last: Columns) -> bool:
        """Keep few chunks: their sizes are like digits of the number of records."""
        return 2 * len(last) >= len(before) and len(before) + len(last) <= self.most // 8

    def _merge(self) -> None:
        last, before = self._chunks.pop(), self._chunks.pop()
        both = Columns.concatenate([before, last])
        both.marks[:] = np.concatenate((before.marks, last.marks))
        self._chunks.append(both)
        if self._chunk == len(self._chunks):
            self._at += len(before)
        self._chunk -= self._chunk >= len(self._chunks)

    def _behind(self) -> Iterator[Columns]:
        return (self._chunks[index] for index in range(self._chunk))

    def _ahead(self) -> int:
        rest = (len(self._chunks[at]) for at in range(self._chunk, len(self._chunks)))
        return sum(rest) - self._at

    # ----- the target

    @property
    def wants_source(self) -> bool:
        """True if the source has to be fed before the next record can be matched."""
        return not self.ended and self._ahead() < self._look

    def match(self, target: Columns, *, is_last: bool) -> int:
        """Match records of the target; return how many. The others come again, with more."""
        done, found = 0, None
        while done < len(target) and not self.wants_source:
            if count := self._match_straight(target, done):
                done, self._look = done + count, _LOOK_AHEAD
                continue
            if not (is_last or len(target) - done >= _AGREEMENT):
                return done
            if found is None:
                found, begin = SourcePlaces.among(self._chunks, target.contents[done:]), done
            if count := self._match_stretch(target, done, found, done - begin):
                done, self._look = done + count, _LOOK_AHEAD
            elif found.counts[done - begin]:
                self._jump(target, done)
                self._look = _LOOK_AHEAD
            elif not self.ended and self._look < self.most:
                self._look = min(self._look * 8, self.most)
            else:
                following = begin + found.next_known(done - begin)
                self._pass(target, slice(done, following))
                done = following
        return done

    def _match_straight(self, target: Columns, first: int) -> int:
        """Match the records that equal the next ones of the source, as far as its chunk goes."""
        if self._chunk == len(self._chunks):
            return 0
        chunk, at = self._chunks[self._chunk], self._at
        most = min(len(chunk) - at, len(target) - first)
        count = 0
        for size in (_AGREEMENT, most):  # most stretches of a compacted log are short
            part = slice(count, min(size, most))
            equal = chunk.contents[at:][part] == target.contents[first:][part]
            if not equal.all():
                count += int(np.argmin(equal))
                break
            count = part.stop
        if count:
            self._note_match(chunk, slice(at, at + count), target, first, count)
            self._move_to(self._chunk, at + count)
        return count

    def _match_stretch(self, target: Columns, first: int, found: SourcePlaces, at: int) -> int:
        """Match records that are in the source once, in its order, as far as the chunk goes."""
        places = found.stretch(at)
        if not len(places):
            return 0
        number = int(found.chunks[at])
        chunk = self._chunks[number]
        if not self.ended:  # what follows may be in the source's next records again
            known = sum(len(self._chunks[each]) for each in range(number, len(self._chunks)))
            places = places[: 1 + np.searchsorted(places, known - self._look, "left")]
        self._pass_source(number, int(places[0]))
        between = self._owed_between(chunk, places) if self.target_compacts else ()
        self._note_match(chunk, places, target, first, len(places))
        self._owed.update(between)
        self._move_to(number, int(places[-1]) + 1)
        return len(places)

    def _move_to(self, number: int, at: int) -> None:
        is_end = at == len(self._chunks[number])
        self._chunk, self._at = (number + 1, 0) if is_end else (number, at)

    def _note_match(
        self, chunk: Columns, at: slice | _Places, target: Columns, first: int, count: int
    ) -> None:
        sources = chunk.offsets[at]
        if self.target_trimmed and self._furthest < 0:  # copies of those before are deleted
            self.begin = max(self.begin, int(sources[0]))
        chunk.marks[at] = True
        targets = target.offsets[first : first + count]
        breaks = np.flatnonzero((np.diff(sources) != 1) | (np.diff(targets) != 1)) + 1
        starts = np.concatenate(([0], breaks))
        counts = np.diff(np.concatenate((starts, [count])))
        self._facts.append(Runs(sources[starts], targets[starts], counts))
        if len(self._facts) > _LOOK_AHEAD:
            self._joined.append(Runs.concatenate(self._facts).join())
            self._facts = []
        self._furthest = max(self._furthest, int(sources[-1]))
        if self._owed:
            self._owed.difference_update(target.keys[first : first + count].tolist())

    def _jump(self, target: Columns, first: int) -> None:
        """Continue at the place of the source that agrees longest from a record on."""
        wanted = target.contents[first : first + _AGREEMENT]
        best: tuple[tuple[int, bool, int], int, int] | None = None
        begins = 0
        here = sum(map(len, self._behind())) + self._at
        for number, chunk in enumerate(self._chunks):
            for at in chunk.nearest(wanted, here - begins):
                distance = begins + at - here
                rank = self._agreement(number, at, wanted), distance < 0, -abs(distance)
                if best is None or rank > best[0]:
                    best = rank, number, at
            begins += len(chunk)
        if best is None:
            raise RuntimeError("a record that was found has no place")
        _, number, at = best
        self._pass_source(number, at)
        self._chunk, self._at = number, at

    def _agreement(self, number: int, at: int, wanted: Offsets) -> int:
        count = 0
        while count < len(wanted) and number < len(self._chunks):
            there = self._chunks[number].contents[at : at + len(wanted) - count]
            equal = there == wanted[count : count + len(there)]
            if not equal.all():
                return count + int(np.argmin(equal))
            count, number, at = count + len(there), number + 1, 0
        return count

    def _pass_source(self, number: int, at: int) -> None:
        """Note the keys of passed records: a later record of each has to follow on the target."""
        if not self.target_compacts or (self.target_trimmed and self._furthest < 0):
            return
        for index in range(self._chunk, number + 1):
            chunk = self._chunks[index]
            begin = self._at if index == self._chunk else 0
            part = slice(begin, at if index == number else len(chunk))
            owes = (chunk.kinds[part] == KEYED) & ~chunk.marks[part]
            self._owed.update(chunk.keys[part][owes].tolist())

    def _owed_between(self, chunk: Columns, places: _Places) -> list[int]:
        """Return the keys between matches whose last record has no copy."""
        part = slice(int(places[0]), int(places[-1]) + 1)
        owes = (chunk.kinds[part] == KEYED) & ~chunk.marks[part]
        owes[places - part.start] = False
        matters = owes.copy()
        matters[places - part.start] = True
        last = dict(zip(chunk.keys[part][matters].tolist(), owes[matters].tolist(), strict=True))
        return [key for key, owed in last.items() if owed]

    def _pass(self, target: Columns, part: slice) -> None:
        offsets, keyed = target.offsets[part], (target.kinds[part] & KEYED) > 0
        if self._furthest < 0 and self.trimmed:
            _add_all(self._older, offsets)
        elif self.source_compacts:
            self._compacted += int(keyed.sum())
            _add_all(self._foreign, offsets[~keyed])
        else:
            _add_all(self._foreign, offsets)

    # ----- the result

    def _retire(self, chunk: Columns) -> None:
        end = np.searchsorted(chunk.offsets, self._furthest)
        lacks = ~chunk.marks[:end] & (chunk.kinds[:end] < OPTIONAL)
        lacks &= chunk.offsets[:end] >= self.begin
        if self.target_compacts:
            explained = lacks & ((chunk.kinds[:end] & KEYED) > 0)
            if self._owed:
                lacking = np.flatnonzero(explained & (chunk.kinds[:end] & TOMBSTONE == 0))
                is_owed = [key in self._owed for key in chunk.keys[lacking].tolist()]
                explained[lacking[is_owed]] = False
            self._compacted += int(explained.sum())
            lacks &= ~explained
        if lacks.any():
            self._missing.append(
                (chunk.offsets[:end][lacks], chunk.keys[:end][lacks], chunk.kinds[:end][lacks])
            )

    def result(self) -> AlignedCopy:
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
        facts = Runs.concatenate([*self._joined, *self._facts]).join()
        copied = OffsetSet((run.source_start, run.source_end) for run in facts).count
        late = late_copies(facts, self.begin)
        compacts = len(facts) and (self.source_compacts or self.target_compacts)
        last = facts[-1].source_end if compacts else self._furthest + 1
        return AlignedCopy(
            runs=Runs() if late else last_copies(facts, self.begin),
            source_next=max(self.begin, self._furthest + 1),
            copied=copied,
            repeated=int(facts.counts.sum()) - copied,
            skipped=tuple(skipped),
            skipped_records=records,
            foreign=tuple(self._foreign),
            older=tuple(self._older),
            compacted=self._compacted,
            late=late,
            cut_short=((last, self._furthest + 1),) if last <= self._furthest else (),
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

    ``facts`` have no :func:`late_copies`. ``begin``: source offset up to which a map is known,
    before all facts on the target.
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
    """Return ranges of source offsets that were first copied after later ones."""
    if facts.grow():
        return ()
    seen, late = OffsetSet([(0, begin)]), OffsetSet()
    for run in facts:
        reached = seen.last[1] if seen.last else run.source_start
        for start, end in seen.add(run.source_start, run.source_end):
            if start < reached:
                late.add(start, min(end, reached))
    return tuple(late)
