r"""Exact offset map of one partition, from source records to target offsets and back.

A *run* is a stretch of consecutive source records at consecutive target offsets::

    source offsets   100 101 102 103 104 (105 marker) 106 107
    target offsets    60  61  62  63  64               65  66
                     \_______ run 1 ______/            \ run 2 /

Invariants of :class:`OffsetMap`, for neighbouring runs a, b:

- ``a.source_end <= b.source_start`` and ``a.target_end <= b.target_start``. Both sides only grow,
  so each record is in one run and each direction is a binary search.
- Two neighbours are never contiguous on both sides: such stretches are one run.

Committed offsets are "next to read". Forward, the next record to read is the first copied one at
or after the committed offset. Backward, everything before the committed offset has been read, so
reading continues after the source offset of the last copied record before it. Neither ever guesses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from srm.domain.offset_map.map_records import Entries
from srm.domain.offset_map.runs import Offsets, Run, Runs, both_ends, coalesce, solid_runs
from srm.errors import NotLoadedError

__all__ = ["Run", "Runs", "coalesce"]  # what most readers of a map need as well

Mask = npt.NDArray[np.bool_]
_FAR: Final = np.int64(2**63 - 1)
_SIDES: Final = ("_source_start", "_source_end", "_target_start", "_target_end")
_ARRAYS: Final = (*_SIDES, "_before")


@dataclass(frozen=True, slots=True)
class Cuts:
    """Parts of earlier entries that later ones remove, after a truncation of source or target.

    ``sources`` and ``targets`` are the first lost offsets of each. Of ``gone`` entries nothing is
    left; ``cut`` ones have a rest, and must be loaded.
    """

    sources: Offsets
    targets: Offsets
    gone: Mask
    cut: Mask

    @classmethod
    def between(cls, entries: Entries) -> Self:
        sources, targets = _lowest_after(entries.source_start), _lowest_after(entries.target_start)
        gone = (entries.source_start >= sources) | (entries.target_start >= targets)
        cut = (entries.source_end > sources) | (entries.target_end > targets)
        return cls(sources, targets, gone, cut & ~gone)


def _lowest_after(starts: Offsets) -> Offsets:
    lowest = np.full(len(starts), _FAR, np.int64)
    if len(starts) > 1:
        lowest[:-1] = np.minimum.accumulate(starts[:0:-1])[::-1]
    return lowest


def window_parts(entries: Entries, loaded: Mapping[int, Runs]) -> list[Runs | Entries]:
    """Return each entry in order, or its runs if loaded; NotLoadedError for a cut one without."""
    cuts = Cuts.between(entries)
    gone, cut = (set(np.flatnonzero(mask).tolist()) for mask in (cuts.gone, cuts.cut))
    if missing := cut - loaded.keys():
        raise NotLoadedError(
            f"the offset map was cut, and the part from source offset "
            f"{entries.source_start[min(missing)]} on was not loaded"
        )
    parts: list[Runs | Entries] = []
    done = 0
    for number in sorted(loaded.keys() | gone):
        if number > done:
            parts.append(entries.slice(done, number).with_records())
        done = number + 1
        if number not in gone:
            limits = int(cuts.sources[number]), int(cuts.targets[number])
            parts.append(loaded[number].with_records().before(*limits))
    if done < len(entries):
        parts.append(entries.slice(done).with_records())
    return parts


@dataclass(frozen=True, slots=True)
class Position:
    """Progress of one partition: the next source offset to read, the next target offset.

    ``source_next`` also passes records that are never copied (markers, aborted, compacted), so it
    can be after the last run. ``source_end`` is the source's last stable offset then. A slot
    reports a position only after all runs before it are in the map
    (:mod:`srm.replication.report`), so it proves that no run before it is missing.
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
    """The offset is beyond the end of the map, by ``remaining`` offsets."""

    remaining: int


@dataclass(frozen=True, slots=True)
class NoMap:
    """The partition was never copied, so it has no map yet."""


Translation = Translated | NotCopiedYet | NoMap


class OffsetMap:
    """Known runs of one partition, and the reported position (None: no report yet). Immutable.

    A *window* holds the runs around some offsets, and index entries for the others: *stretches*
    with both ends and a record count. That suffices to count across them, and to translate an
    offset at their ends. Inside, a map raises NotLoadedError instead of guessing.
    """

    __slots__ = ("_before", "_runs", *_SIDES, "known_source_end", "known_target_end", "position")
    _before: Offsets
    """Number of records before each span, and at last of all."""
    _source_start: Offsets
    _source_end: Offsets
    _target_start: Offsets
    _target_end: Offsets
    known_source_end: int | None
    """Source offset up to which the map is complete, None if unknown."""
    known_target_end: int | None

    def __init__(self, runs: Iterable[Run] = (), position: Position | None = None) -> None:
        known = Runs.of(runs)
        self._take(known, [known], position)

    def _take(
        self, runs: Runs | None, parts: Iterable[Runs | Entries], position: Position | None
    ) -> None:
        columns = [
            (part.sources, part.source_ends, part.targets, part.target_ends, part.counts)
            if isinstance(part, Runs)
            else part.arrays[:5]
            for part in parts
        ]
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        *sides, counts = joined or [np.empty(0, np.int64)] * 5
        for name, side in zip(_SIDES, sides, strict=True):
            setattr(self, name, side)
        self._before = np.append(0, np.cumsum(counts))
        self._runs = runs
        self._place(position)

    def _place(self, position: Position | None) -> None:
        self.position = position
        # Every translation reads them.
        reported = (position.source_next, position.target_next) if position else (None, None)
        self.known_source_end = _furthest(self.last_source_end, reported[0])
        self.known_target_end = _furthest(self.last_target_end, reported[1])

    @classmethod
    def of(
        cls, runs: Iterable[Run], position: Position | None = None, *, open_end: bool = True
    ) -> OffsetMap:
        """Build the map from runs in any order; ``open_end`` extends the last to the position."""
        facts = Runs.of(runs)
        joined = solid_runs(facts)
        cuts = facts.targets[facts.counts <= 0]
        # A cut after the last run ends it: a position on its line is coincidence.
        if not len(joined) or (len(cuts) and int(cuts.max()) >= int(joined.target_ends[-1])):
            open_end = False
        return cls(_extend_last(joined, position) if open_end else joined, position)

    @classmethod
    def window(
        cls,
        entries: Entries,
        loaded: Mapping[int, Runs],
        position: Position | None = None,
        *,
        open_end: bool = True,
    ) -> OffsetMap:
        """Build a map from its entries (of blocks, or chunks in the root), some of them loaded.

        ``loaded``: runs by the number of their entry, with the last block for ``open_end``, and all
        blocks that later entries cut. ``open_end``: the last run continues up to the position, if
        on its line.
        """
        # A run may cut the one before it in its block.
        known = {n: runs if runs.grow() else solid_runs(runs) for n, runs in loaded.items()}
        last = len(entries) - 1
        if open_end and last >= 0:
            if last not in known:
                raise NotLoadedError("the last block of the offset map was not loaded")
            runs = loaded[last]
            if len(runs) and int(runs.counts[-1]) > 0:
                known[last] = _extend_last(known[last], position)
        parts = window_parts(entries, known)
        found = cls()
        loaded_parts = [part for part in parts if isinstance(part, Runs)]
        is_whole = len(loaded_parts) == len(parts)
        found._take(Runs.concatenate(loaded_parts) if is_whole else None, parts, position)
        return found

    def reaching(self, target_next: int) -> OffsetMap:
        """Return the map with its position moved in the target, past offsets without records."""
        if self.position is None:
            return self
        found = OffsetMap()
        for name in ("_runs", *_ARRAYS):
            setattr(found, name, getattr(self, name))
        found._place(replace(self.position, target_next=target_next))
        return found

    @property
    def runs(self) -> Runs:
        """All runs; NotLoadedError if some are not loaded."""
        if self._runs is None:
            raise NotLoadedError("the offset map was loaded around some offsets, not as a whole")
        return self._runs

    @property
    def known_runs(self) -> Runs:
        """The loaded runs, all runs if the map is whole."""
        if self._runs is not None:
            return self._runs
        counts = np.diff(self._before)
        own = self._source_end - self._source_start == counts
        own &= self._target_end - self._target_start == counts
        return Runs(self._source_start[own], self._target_start[own], counts[own])

    @property
    def records(self) -> int:
        return int(self._before[-1])

    @property
    def first(self) -> tuple[int, int] | None:
        if not len(self._source_start):
            return None
        return int(self._source_start[0]), int(self._target_start[0])

    @property
    def first_source(self) -> int | None:
        return int(self._source_start[0]) if len(self._source_start) else None

    @property
    def last_source_end(self) -> int | None:
        return int(self._source_end[-1]) if len(self._source_end) else None

    @property
    def last_target_end(self) -> int | None:
        return int(self._target_end[-1]) if len(self._target_end) else None

    def forward(self, committed: int, target_log_start: int = 0) -> Translation:
        """Return the target offset at which a reader of the source at ``committed`` continues.

        ``target_log_start`` matters only without runs: it shows if the target holds records.
        """
        reached = self.known_source_end
        if reached is None:
            return NoMap()
        at = int(self._source_end.searchsorted(committed, "right"))
        if at < len(self._source_end):
            inside = max(0, committed - int(self._source_start[at]))
            if inside:
                self._require_run(at, "source offset", committed)
            return Translated(int(self._target_start[at]) + inside)
        if committed > reached:
            return NotCopiedYet(committed - reached)
        end = self.last_target_end
        return self._without_runs(committed, target_log_start) if end is None else Translated(end)

    def backward(self, committed: int) -> Translation:
        """Return the source offset at which a reader of the target at ``committed`` continues."""
        known = self.known_target_end
        if known is None:
            return NoMap()
        if committed > known:
            return NotCopiedYet(committed - known)
        first = self.first_source
        if first is None:
            if self.position is None or committed < self.position.target_next:
                return NoMap()
            return Translated(self.position.source_next)
        found = self._read_before(committed)
        return Translated(first if found is None else found)

    def _read_before(self, target_offset: int) -> int | None:
        """Return the source offset after the last record before a target offset, None if none."""
        at = int(self._target_start.searchsorted(target_offset, "left")) - 1
        if at < 0:
            return None
        if target_offset >= int(self._target_end[at]):
            return int(self._source_end[at])
        self._require_run(at, "target offset", target_offset)
        return target_offset - int(self._target_start[at]) + int(self._source_start[at])

    def next_record(self, source_offset: int) -> int | None:
        """Return the first copied source record at or after an offset, or its stretch."""
        at = int(self._source_end.searchsorted(source_offset, "right"))
        if at == len(self._source_end):
            return None
        return max(source_offset, int(self._source_start[at]))

    def next_unread(self, committed: int, kept: Iterable[tuple[int, int]] = ()) -> int:
        """Return the first source record whose copy a reader has not read, else the map's end.

        Ranges ``kept`` on the source have no copies: they are unread until the reader passes them.
        """
        read = self._read_before(committed) or 0
        found = self.next_record(read)
        unread = (self.known_source_end or 0) if found is None else found
        return min([unread, *(max(start, read) for start, end in kept if end > read)])

    def records_between(self, target_from: int, target_to: int) -> int:
        """Count copied records at target offsets in ``[target_from, target_to)``."""
        return self._count(target_from, target_to, self._target_start, self._target_end)

    def source_records_between(self, source_from: int, source_to: int) -> int:
        """Count copied records at source offsets in ``[source_from, source_to)``."""
        return self._count(source_from, source_to, self._source_start, self._source_end)

    def _count(self, first: int, end: int, starts: Offsets, ends: Offsets) -> int:
        if first >= end:
            return 0
        return self._before_offset(end, starts, ends) - self._before_offset(first, starts, ends)

    def _before_offset(self, offset: int, starts: Offsets, ends: Offsets) -> int:
        at = int(starts.searchsorted(offset, "left")) - 1
        if at < 0:
            return 0
        if offset >= int(ends[at]):
            return int(self._before[at + 1])
        self._require_run(at, "offset", offset)
        return int(self._before[at]) + offset - int(starts[at])

    def _require_run(self, at: int, what: str, offset: int) -> None:
        records = self._before[at + 1] - self._before[at]
        if (
            self._source_end[at] - self._source_start[at] != records
            or self._target_end[at] - self._target_start[at] != records
        ):
            raise NotLoadedError(
                f"{what} {offset} is in a part of the offset map that was not loaded: "
                f"source offsets {both_ends(self._source_start[at], self._source_end[at])}"
            )

    def _without_runs(self, committed: int, target_log_start: int) -> Translation:
        if self.position is None:
            return NoMap()
        if committed < self.position.source_next and self.position.target_next > target_log_start:
            # The target holds records without runs: the position was read before them.
            return NoMap()
        return Translated(max(self.position.target_next, target_log_start))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetMap):
            return NotImplemented
        return self.position == other.position and all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS
        )

    def __hash__(self) -> int:
        return hash((self.records, self.last_source_end, self.position))

    def __repr__(self) -> str:
        what = f"{len(self._source_end)} spans" if self._runs is None else repr(self._runs)
        return f"OffsetMap({what}, {self.position})"


def _furthest(end: int | None, reported: int | None) -> int | None:
    return max((offset for offset in (end, reported) if offset is not None), default=None)


def _extend_last(runs: Runs, position: Position | None) -> Runs:
    """Let the last run continue up to a position on its line."""
    if position is None:
        return runs
    last = runs[-1]
    grown = position.target_next - last.target_start
    if grown <= last.count or position.source_next - last.source_start != grown:
        return runs
    counts = runs.counts.copy()
    counts[-1] = grown
    return Runs(runs.sources, runs.targets, counts)
