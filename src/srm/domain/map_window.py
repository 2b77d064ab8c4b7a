"""From the end of a partition's map, as a report names it, to what is wanted of it. Pure, no I/O.

The report leads to the last block and the newest chunk, the chunk to the root, the root to the
chunks, and those to their blocks (:mod:`srm.domain.map_index`)::

    report --> last block
       '-----> newest chunk --> root --> chunks around --> blocks around
                                         the wanted        the wanted
                                         offsets           offsets

What is not wanted stays one entry of the index: both ends, and how many records are in it. So a
map of any length is read in four steps, and is as small in memory as what is wanted of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from srm.domain.map_index import (
    Entries,
    Entry,
    IndexKey,
    IndexKind,
    IndexRecord,
    block_key,
    chunk_key,
    decode_index,
)
from srm.domain.map_reach import NO_BLOCKS, leads_to, lists_before
from srm.domain.map_records import BlockKey, decode_block
from srm.domain.map_wanted import Wanted
from srm.domain.offset_map import OffsetMap, Position
from srm.domain.replication_records import CopyId, MapEnd
from srm.domain.runs import Offsets, Run, Runs
from srm.domain.spans import Cuts
from srm.errors import IntegrityError

_FAR: Final = 2**63 - 1
_KEY_OF_COPY: Final = 37  # kind, topic id, partition and target topic id of an index record's key
_HELP: Final = "it is found again in the logs when the partition is claimed: restart the replicator"
_Mask = npt.NDArray[np.bool_]
_T = TypeVar("_T")


class Need(NamedTuple):
    """A record of the map topic: where it stood when that was told, and how its key begins."""

    place: int
    prefix: bytes

    def matches(self, key: bytes) -> bool:
        """Whether a record with this key is meant."""
        return key.startswith(self.prefix)


Answers = Mapping[Need, tuple[bytes, bytes] | None]
"""Key and value of what was needed; None for what is not in the topic any more."""


@dataclass(frozen=True, slots=True)
class LoadedMap:
    """A map around what was wanted; ``gap`` says what of it is lost, if anything.

    Without its last block a map has no position: nobody knows what is before that.
    """

    offset_map: OffsetMap
    gap: str = ""


Steps = Generator[list[Need], Answers, LoadedMap]
"""Yields what to read next and is sent the answers, until it returns the map."""


def unread(position: Position) -> OffsetMap:
    """Return a map of which only the position is known: it cannot translate what is before that."""
    source, target = position.source_next, position.target_next
    # More records than offsets: nobody takes it for a run.
    everything = Entry(-1, source, -1, target, source + target + 3, -1, 0, 0, 0)
    return OffsetMap.window(Entries.of([everything]), {}, position, open_end=False)


class StaleIndexError(IntegrityError):
    """The index of a map is not where the report says: the blocks themselves have to be read."""


def load(copy: CopyId, end: MapEnd, position: Position | None, wanted: Wanted) -> Steps:
    """Load the map of a copy around what is wanted.

    Raises:
        StaleIndexError: the index cannot be found, or read.
        IntegrityError: what was loaded contradicts itself.
    """
    if end == NO_BLOCKS:
        return LoadedMap(OffsetMap((), position))
    last_key = BlockKey(copy[0], copy[1], end.target_start, end.owner)
    last_need = Need(end.place, last_key.encode())
    index_need = Need(end.index_place, _of_copy(copy, IndexKind.CHUNK))
    answers = yield [last_need, index_need] if end.index_place >= 0 else [last_need]
    lost: list[str] = []
    what = f"the last block, from target offset {end.target_start} on,"
    last = _read(decode_block, answers[last_need], lost, what)
    chunk = root = None
    if end.index_place >= 0:
        chunk = _index(answers[index_need])
        if chunk.root_place >= 0:
            root_need = Need(chunk.root_place, _of_copy(copy, IndexKind.ROOT))
            root = _index((yield [root_need])[root_need])
        if not leads_to(chunk, last) or (root is not None and not lists_before(root, chunk)):
            raise StaleIndexError("the index of the offset map is that of another end")
    tables = [_chunks(root, chunk), _full_blocks(chunk, last_key)]
    if last is not None:
        tables.append(_Table(Entries.of([Entry.of_block(last, end.place)])))
    sought = _Sought.of(wanted)
    rows = yield from _expand(_rows(tables, sought), sought, lost)
    known = yield from _runs(rows, lost)
    if last is not None:
        known[len(rows) - 1] = last.runs
    entries, loaded = _narrow(rows, known, sought)
    found = OffsetMap.window(
        Entries.of(entries),
        loaded,
        position if last else None,
        open_end=last is not None and last.open_end,
    )
    return LoadedMap(found, "; ".join(lost))


class _Row(NamedTuple):
    """One row of the map to be: ``need`` is read for it, ``run`` is all that it holds.

    ``limits`` are the first offsets of both sides that later rows have taken from it, ``floors``
    the last ones that earlier rows have reached.
    """

    entry: Entry
    need: Need | None = None
    run: Run | None = None
    is_chunk: bool = False
    limits: tuple[int, int] = (_FAR, _FAR)
    floors: tuple[int, int] = (-1, -1)

    @property
    def is_in_cut(self) -> bool:
        """Whether later rows take something from it, or it from earlier ones."""
        entry = self.entry
        return (
            entry.source_end > self.limits[0]
            or entry.target_end > self.limits[1]
            or entry.source_start < self.floors[0]
            or entry.target_start < self.floors[1]
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """Entries in the order of the map: ``need`` reads one of them; the last block was read."""

    entries: Entries
    need: Callable[[int], Need] | None = None
    is_chunks: bool = False

    def row(
        self, number: int, limits: tuple[int, int], floors: tuple[int, int], *, needed: bool
    ) -> _Row:
        """Return the row of an entry that is not joined with its neighbours."""
        entry = self.entries[number]
        if not needed or self.need is None:
            return _Row(entry, limits=limits, floors=floors)
        records = entry.records
        if (
            entry.source_end - entry.source_start
            == records
            == entry.target_end - entry.target_start
        ):
            return _Row(entry, run=Run(entry.source_start, entry.target_start, records))
        return _Row(entry, self.need(number), None, self.is_chunks, limits, floors)


def _chunks(root: IndexRecord | None, newest: IndexRecord | None) -> _Table:
    """Return the full chunks; a root that is newer than the report may list the newest one, too."""
    if root is None:
        return _Table(Entries.of(()))
    entries = root.entries
    stop = len(entries)
    if newest is not None:
        same = (entries.key_start == newest.key.number) & _owned(entries, newest.key.owner)
        stop = int(np.flatnonzero(same)[0]) if same.any() else stop
    first = min(root.deleted, stop)
    table = entries.slice(first, stop)
    places = table.place

    def need(number: int) -> Need:
        return Need(int(places[number]), chunk_key(root, first + number).encode())

    return _Table(table, need, is_chunks=True)


def _full_blocks(chunk: IndexRecord | None, last: BlockKey | None = None) -> _Table:
    """Return the blocks of a chunk but for the last one of all, which was read already."""
    if chunk is None:
        return _Table(Entries.of(()))
    entries = chunk.entries
    stop = len(entries)
    if last is not None:
        same = (entries.key_start == last.target_start) & _owned(entries, last.owner)
        stop = int(np.flatnonzero(same)[0]) if same.any() else stop
    first = min(chunk.deleted, stop)
    table = entries.slice(first, stop)
    places = table.place

    def need(number: int) -> Need:
        return Need(int(places[number]), block_key(chunk, first + number).encode())

    return _Table(table, need)


def _owned(entries: Entries, owner: tuple[int, int]) -> _Mask:
    return np.asarray((entries.owner_id == owner[0]) & (entries.owner_epoch == owner[1]))


def _runs(rows: Sequence[_Row], lost: list[str]) -> Generator[list[Need], Answers, dict[int, Runs]]:
    """Read the blocks that are needed; return what is known of rows by their numbers."""
    known = {number: Runs.of([row.run]) for number, row in enumerate(rows) if row.run}
    needs = {n: row.need for n, row in enumerate(rows) if row.need and not row.is_chunk}
    if needs:
        answers = yield list(needs.values())
        for number, need in needs.items():
            what = f"the block from target offset {rows[number].entry.target_start} on"
            block = _read(decode_block, answers[need], lost, what)
            if block is not None:
                known[number] = block.runs
    return known


def _narrow(
    rows: Sequence[_Row], known: Mapping[int, Runs], sought: _Sought
) -> tuple[list[Entry], dict[int, Runs]]:
    """Keep of the blocks only the runs at what is wanted, and the last one of all.

    A run needs nothing but its entry; where blocks cut each other, all of them stays.
    """
    entries: list[Entry] = []
    loaded: dict[int, Runs] = {}
    for number, row in enumerate(rows):
        runs = known.get(number)
        if runs is None:
            entries.append(row.entry)
        elif sought.source_ranges or row.is_in_cut or not _grows(runs):
            loaded[len(entries)] = runs
            entries.append(row.entry)
        else:
            entries += _condensed(runs, sought.runs_at(runs))
            loaded[len(entries) - 1] = runs[-1:]
    return entries, loaded


def _grows(runs: Runs) -> bool:
    """Whether each run has records and begins behind the one before it, on both sides."""
    return bool(
        (runs.counts > 0).all()
        and (runs.sources[1:] >= runs.source_ends[:-1]).all()
        and (runs.targets[1:] >= runs.target_ends[:-1]).all()
    )


def _condensed(runs: Runs, kept: Sequence[int]) -> list[Entry]:
    """Return an entry for each of these runs, and one for all between them."""
    found: list[Entry] = []
    at = 0
    for number in kept:
        if number > at:
            found.append(_entry(runs[at:number]))
        found.append(_entry(runs[number : number + 1]))
        at = number + 1
    return found


def _entry(runs: Runs) -> Entry:
    first, last = runs[0], runs[-1]
    return Entry(
        *(first.source_start, last.source_end, first.target_start, last.target_end, runs.records),
        *(-1, 0, 0, 0),
    )


def _expand(
    rows: Sequence[_Row], sought: _Sought, lost: list[str]
) -> Generator[list[Need], Answers, list[_Row]]:
    """Read the chunks that are needed and put the rows of their blocks in their places."""
    needs = {number: row.need for number, row in enumerate(rows) if row.is_chunk and row.need}
    if not needs:
        return list(rows)
    answers = yield list(needs.values())
    expanded: list[_Row] = []
    for number, row in enumerate(rows):
        need = needs.get(number)
        chunk = None
        if need is not None:
            what = f"the index of the blocks from target offset {row.entry.target_start} on"
            chunk = _read(decode_index, answers[need], lost, what)
        if chunk is None:
            if need is not None and row.entry.records <= 0:
                raise StaleIndexError(lost[-1])
            expanded.append(row)
        else:
            expanded += _rows([_full_blocks(chunk)], sought, row.limits, row.floors)
    return expanded


def _rows(
    tables: Sequence[_Table],
    sought: _Sought,
    limits: tuple[int, int] = (_FAR, _FAR),
    floors: tuple[int, int] = (-1, -1),
) -> list[_Row]:
    """Choose what is read of tables in a row; neighbours of which nothing is become one row.

    What later rows cut is always read, and what cuts: an index does not tell where in it that is.
    """
    together = _point(floors)
    for table in tables:
        together += table.entries
    together += _point(limits)
    cuts = Cuts.between(together)
    floor = _reached(together.source_end), _reached(together.target_end)
    gone, needed = _numbered(cuts.gone, len(together)), _numbered(cuts.cut, len(together))
    needed |= (together.source_start < floor[0]) | (together.target_start < floor[1])
    apart, inside = sought.find(together, cuts, gone)
    needed |= inside
    rows: list[_Row] = []
    base = 1
    for table in tables:
        entries, at = table.entries, 0
        own = slice(base, base + len(entries))
        if table.is_chunks:  # one without records stands for blocks that cut each other
            needed[own] |= entries.records <= 0
        alone = needed[own] | apart[own] | gone[own] | (entries.records <= 0)
        for number in np.flatnonzero(alone).tolist():
            rows += _joined(entries, at, number)
            at = number + 1
            place = base + number
            bounds = (
                (int(cuts.sources[place]), int(cuts.targets[place])),
                (int(floor[0][place]), int(floor[1][place])),
            )
            # One that is gone still tells what it cuts itself.
            wanted = bool(needed[place]) and not gone[place]
            rows.append(table.row(number, *bounds, needed=wanted))
        rows += _joined(entries, at, len(entries))
        base += len(entries)
    return rows


def _joined(entries: Entries, first: int, stop: int) -> list[_Row]:
    """Return one row for entries of which nothing is wanted."""
    if first == stop:
        return []
    start, end = entries[first], entries[stop - 1]
    whole = start._replace(
        source_end=end.source_end,
        target_end=end.target_end,
        records=int(entries.records[first:stop].sum()),
    )
    return [_Row(whole)]


@dataclass(frozen=True, slots=True, eq=False)
class _Sought:
    """What is wanted, sorted."""

    sources: Offsets
    targets: Offsets
    source_ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, wanted: Wanted) -> _Sought:
        return cls(
            np.array(sorted(wanted.sources), np.int64),
            np.array(sorted(wanted.targets), np.int64),
            wanted.source_ranges,
        )

    def runs_at(self, runs: Runs) -> list[int]:
        """Return the numbers of the runs at what is wanted, in order, and of the last one."""
        first, last = runs[0], runs[-1]
        low, high = np.searchsorted(self.sources, (first.source_start, last.source_end))
        by_source = np.searchsorted(runs.source_ends, self.sources[low:high], "right")
        low, high = np.searchsorted(self.targets, (first.target_start, last.target_end + 1))
        by_target = np.searchsorted(runs.targets, self.targets[low:high], "left") - 1
        at = np.concatenate((by_source, by_target, [len(runs) - 1]))
        return sorted({number for number in at.tolist() if 0 <= number < len(runs)})

    def find(self, entries: Entries, cuts: Cuts, gone: _Mask) -> tuple[_Mask, _Mask]:
        """Tell which entries must be apart from others, and which hold inside what is wanted."""
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
    return Entries.of([Entry(source, source, target, target, 0, 0, 0, 0, 0)])


def _reached(ends: Offsets) -> Offsets:
    """Return how far the entries before each one reach."""
    before = np.full(len(ends), -1, np.int64)
    np.maximum.accumulate(ends[:-1], out=before[1:])
    return before


def _numbered(numbers: frozenset[int], size: int) -> _Mask:
    mask = np.zeros(size, bool)
    mask[list(numbers)] = True
    return mask


def _of_copy(copy: CopyId, kind: IndexKind) -> bytes:
    """Return how the keys of a copy's index records begin, whoever wrote them."""
    return IndexKey(kind, *copy, (0, 0)).encode()[:_KEY_OF_COPY]


def _index(answer: tuple[bytes, bytes] | None) -> IndexRecord:
    if answer is None:
        raise StaleIndexError("the index of the offset map is not where the report says")
    try:
        return decode_index(*answer)
    except IntegrityError as error:
        raise StaleIndexError(str(error)) from error


def _read(
    decode: Callable[[bytes, bytes], _T],
    answer: tuple[bytes, bytes] | None,
    lost: list[str],
    what: str,
) -> _T | None:
    """Decode what was read; note what cannot be, and what brings it back."""
    try:
        if answer is not None:
            return decode(*answer)
        lost.append(f"{what} is missing; {_HELP}")
    except IntegrityError as error:
        lost.append(f"{what} cannot be read ({error}); {_HELP}")
    return None
