"""Choice of the index entries to read for wanted offsets, and of those joined into one row. Pure.

A row of the future map is an entry of the index, or several neighbours without wanted offsets.
Entries that later ones cut, and the entries that cut them, are always read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from srm.domain.offset_map.map_index import (
    Entries,
    IndexEntry,
    IndexKey,
    IndexRecord,
    block_key,
    chunk_key,
)
from srm.domain.offset_map.map_records import BlockKey
from srm.domain.offset_map.map_wanted import Wanted
from srm.domain.offset_map.runs import Offsets, Run, Runs
from srm.domain.offset_map.spans import Cuts

_FAR: Final = 2**63 - 1
_Mask = npt.NDArray[np.bool_]


class Need(NamedTuple):
    """A record of the map topic: its last reported place, and the prefix of its key."""

    place: int
    prefix: bytes

    def matches(self, key: bytes) -> bool:
        """Return True if a record with this key is meant."""
        return key.startswith(self.prefix)


class Row(NamedTuple):
    """One row of the future map: ``need`` is read for it, ``run`` is all that it holds.

    ``limits`` are the first offsets of both sides that later rows have taken from it.
    ``floors`` are the last offsets that earlier rows have reached.
    """

    entry: IndexEntry
    need: Need | None = None
    run: Run | None = None
    is_chunk: bool = False
    limits: tuple[int, int] = (_FAR, _FAR)
    floors: tuple[int, int] = (-1, -1)

    @property
    def is_in_cut(self) -> bool:
        """Return True if later rows cut this row, or it cuts earlier ones."""
        entry = self.entry
        return (
            entry.source_end > self.limits[0]
            or entry.target_end > self.limits[1]
            or entry.source_start < self.floors[0]
            or entry.target_start < self.floors[1]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Entries in map order; ``need`` returns what to read, None for the last block."""

    entries: Entries
    need: Callable[[int], Need] | None = None
    is_chunks: bool = False

    def row(
        self, number: int, limits: tuple[int, int], floors: tuple[int, int], *, needed: bool
    ) -> Row:
        """Return the row of one entry, not joined with its neighbours."""
        entry = self.entries[number]
        if not needed or self.need is None:
            return Row(entry, limits=limits, floors=floors)
        records = entry.records
        if (
            entry.source_end - entry.source_start
            == records
            == entry.target_end - entry.target_start
        ):
            return Row(entry, run=Run(entry.source_start, entry.target_start, records))
        return Row(entry, self.need(number), None, self.is_chunks, limits, floors)


def full_chunks(root: IndexRecord | None, newest: IndexRecord | None) -> Table:
    """Return the full chunks; a root newer than the report may list the newest chunk, too."""
    end = (newest.key.number, newest.key.owner) if newest else None
    return _in_use(root, end, chunk_key, is_chunks=True)


def full_blocks(chunk: IndexRecord | None, last: BlockKey | None = None) -> Table:
    """Return the blocks of a chunk without the map's last block, which was already read."""
    end = (last.target_start, last.owner) if last else None
    return _in_use(chunk, end, block_key)


def _in_use(
    record: IndexRecord | None,
    end: tuple[int, tuple[int, int]] | None,
    key_of: Callable[[IndexRecord, int], BlockKey | IndexKey],
    *,
    is_chunks: bool = False,
) -> Table:
    """Return the entries of a record in use, before the one with the given end of a key."""
    if record is None:
        return Table(Entries.of(()))
    entries = record.entries
    stop = len(entries)
    if end is not None and len(listed := entries.with_key(*end)):
        stop = int(listed[0])
    first = min(record.deleted, stop)
    table = entries.slice(first, stop)
    places = table.place

    def need(number: int) -> Need:
        return Need(int(places[number]), key_of(record, first + number).encode())

    return Table(table, need, is_chunks)


def rows_of(
    tables: Sequence[Table],
    sought: Sought,
    limits: tuple[int, int] = (_FAR, _FAR),
    floors: tuple[int, int] = (-1, -1),
) -> list[Row]:
    """Choose what to read of consecutive tables; neighbours without wanted offsets become one row.

    Entries that later rows cut, and those that cut, are always read: an index does not hold the
    place of a cut.
    """
    together = _point(floors)
    for table in tables:
        together += table.entries
    together += _point(limits)
    cuts = Cuts.between(together)
    floor = _ends_before(together.source_end), _ends_before(together.target_end)
    gone, needed = _mask_of(cuts.gone, len(together)), _mask_of(cuts.cut, len(together))
    needed |= (together.source_start < floor[0]) | (together.target_start < floor[1])
    apart, inside = sought.find(together, cuts, gone)
    needed |= inside
    rows: list[Row] = []
    base = 1
    for table in tables:
        entries, at = table.entries, 0
        own = slice(base, base + len(entries))
        if table.is_chunks:  # an entry without records is of blocks that cut each other
            needed[own] |= entries.records <= 0
        alone = needed[own] | apart[own] | gone[own] | (entries.records <= 0)
        for number in np.flatnonzero(alone).tolist():
            rows += _join_rows(entries, at, number)
            at = number + 1
            place = base + number
            bounds = (
                (int(cuts.sources[place]), int(cuts.targets[place])),
                (int(floor[0][place]), int(floor[1][place])),
            )
            # A removed entry still has its own cuts.
            wanted = bool(needed[place]) and not gone[place]
            rows.append(table.row(number, *bounds, needed=wanted))
        rows += _join_rows(entries, at, len(entries))
        base += len(entries)
    return rows


def _join_rows(entries: Entries, first: int, stop: int) -> list[Row]:
    """Return one row for entries without wanted offsets."""
    if first == stop:
        return []
    start, end = entries[first], entries[stop - 1]
    whole = start._replace(
        source_end=end.source_end,
        target_end=end.target_end,
        records=int(entries.records[first:stop].sum()),
    )
    return [Row(whole)]


@dataclass(frozen=True, slots=True, eq=False)
class Sought:
    """Wanted offsets, sorted."""

    sources: Offsets
    targets: Offsets
    source_ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, wanted: Wanted) -> Sought:
        """Sort the wanted offsets."""
        return cls(
            np.array(sorted(wanted.sources), np.int64),
            np.array(sorted(wanted.targets), np.int64),
            wanted.source_ranges,
        )

    def runs_at(self, runs: Runs) -> list[int]:
        """Return the numbers of the runs at wanted offsets, in order, and of the last run."""
        first, last = runs[0], runs[-1]
        low, high = np.searchsorted(self.sources, (first.source_start, last.source_end))
        by_source = np.searchsorted(runs.source_ends, self.sources[low:high], "right")
        low, high = np.searchsorted(self.targets, (first.target_start, last.target_end + 1))
        by_target = np.searchsorted(runs.targets, self.targets[low:high], "left") - 1
        at = np.concatenate((by_source, by_target, [len(runs) - 1]))
        return sorted({number for number in at.tolist() if 0 <= number < len(runs)})

    def find(self, entries: Entries, cuts: Cuts, gone: _Mask) -> tuple[_Mask, _Mask]:
        """Return masks: entries that must be separate, and entries with wanted offsets inside."""
        kept = np.flatnonzero(~gone)
        source_start, target_start = entries.source_start[kept], entries.target_start[kept]
        source_end = np.minimum(entries.source_end, cuts.sources)[kept]
        target_end = np.minimum(entries.target_end, cuts.targets)[kept]
        apart, inside = np.zeros(len(gone), bool), np.zeros(len(gone), bool)
        at = np.searchsorted(source_end, self.sources, "right")  # the first that ends after it
        known = at < len(kept)
        at = at[known]
        apart[kept[at]] = True
        inside[kept[at[source_start[at] < self.sources[known]]]] = True
        at = np.searchsorted(target_start, self.targets, "left") - 1  # the last before it
        known = at >= 0
        at = at[known]
        apart[kept[at]] = True
        inside[kept[at[self.targets[known] < target_end[at]]]] = True
        for start, end in self.source_ranges:
            inside[kept[(source_start < end) & (source_end > start)]] = True
        return apart, inside


def _point(place: tuple[int, int]) -> Entries:
    source, target = place
    return Entries.of([IndexEntry(source, source, target, target, 0, 0, 0, 0, 0)])


def _ends_before(ends: Offsets) -> Offsets:
    """Return the largest end of all entries before each one."""
    before = np.full(len(ends), -1, np.int64)
    np.maximum.accumulate(ends[:-1], out=before[1:])
    return before


def _mask_of(numbers: frozenset[int], size: int) -> _Mask:
    mask = np.zeros(size, bool)
    mask[list(numbers)] = True
    return mask
