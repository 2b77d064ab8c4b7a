"""Load of a partition's map around wanted offsets, from its last block and index. Pure, no I/O.

The report leads to the last block and the newest chunk, the chunk to the root, the root to the
chunks, and those to their blocks (:mod:`srm.domain.offset_map.map_records`)::

    report --> last block
       '-----> newest chunk --> root --> chunks around --> blocks around
                                         the wanted        the wanted
                                         offsets           offsets

Other stretches stay one index entry, with both ends and a record count. So a map of any length
takes four steps to read, and the memory of the wanted parts only. A row of the loaded map is an
entry, or several neighbours without wanted offsets. Entries that cut each other are always read.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple, Self, TypeVar

import numpy as np

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import (
    BlockKey,
    CopyId,
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapEnd,
    decode_block,
    decode_index,
)
from srm.domain.offset_map.map_tree import NO_BLOCKS, MapTree, Need, Rows, leads_to, lists_before
from srm.domain.offset_map.offset_map import Cuts, Mask, OffsetMap, Position
from srm.domain.offset_map.runs import Offsets, Run, Runs
from srm.errors import IntegrityError

_KEY_OF_COPY: Final = 37  # kind, topic id, partition and target topic id of an index record's key
_HELP: Final = "the next claim finds it again in the logs: restart the replicator"
_T = TypeVar("_T")
_K = TypeVar("_K")
_FAR: Final = 2**63 - 1
_Record = tuple[bytes, bytes]
_Sides = tuple[int, int]
"""An offset of the source and one of the target."""


Answers = Mapping[Need, _Record | None]
"""Key and value of each need; None if the topic no longer holds it."""


@dataclass(frozen=True, slots=True)
class LoadedMap:
    """A map around the wanted offsets, with its lost parts; without the last one no position."""

    offset_map: OffsetMap
    gap: str = ""


_R = TypeVar("_R")
_Reading = Generator[list[Need], Answers, _R]
"""Yields the records to read next, is sent the answers, and returns its result."""
Steps = _Reading[LoadedMap]


def unread(position: Position) -> OffsetMap:
    """Return a map with a position only, which cannot translate offsets before it."""
    source, target = position.source_next, position.target_next
    # More records than offsets, so it cannot be mistaken for a run.
    everything = IndexEntry(-1, source, -1, target, records=source + target + 3)
    return OffsetMap.window(Entries.of([everything]), {}, position, open_end=False)


class StaleIndexError(IntegrityError):
    """The index of a map is not where the report says; read the blocks themselves."""


def load(copy: CopyId, end: MapEnd, position: Position | None, wanted: Wanted) -> Steps:
    """Load the map of a copy around the wanted offsets; StaleIndexError without an index."""
    lost: list[str] = []
    tree = yield from _reach(copy, end, lost)
    if end == NO_BLOCKS:
        return LoadedMap(OffsetMap((), position))
    last_key = BlockKey(copy[0], copy[1], end.target_start, end.owner)
    return (yield from _around(tree, last_key, position, wanted, lost))


def reach(copy: CopyId, end: MapEnd) -> _Reading[MapTree]:
    """Return the tree that a report leads to; IntegrityError if it does not."""
    lost: list[str] = []
    tree = yield from _reach(copy, end, lost)
    if lost:
        raise IntegrityError(lost[0])
    return tree


def _reach(copy: CopyId, end: MapEnd, lost: list[str]) -> _Reading[MapTree]:
    """Return the tree without a lost last block; StaleIndexError without its index."""
    if end == NO_BLOCKS:
        return MapTree()
    last_key = BlockKey(copy[0], copy[1], end.target_start, end.owner)
    last_need = Need(end.place, last_key.encode())
    index_need = Need(end.index_place, _of_copy(copy, IndexKind.CHUNK))
    answers = yield [last_need, index_need] if end.index_place >= 0 else [last_need]
    what = f"the last block, from target offset {end.target_start} on,"
    last = _read(decode_block, answers[last_need], lost, what)
    if last is not None and last.target_topic_id != copy[2]:
        raise StaleIndexError(f"the record at place {end.place} is of a copy to another topic")
    chunk = root = None
    if end.index_place >= 0:
        chunk = _index(answers[index_need])
        if chunk.root_place >= 0:
            root_need = Need(chunk.root_place, _of_copy(copy, IndexKind.ROOT))
            root = _index((yield [root_need])[root_need])
        if not leads_to(chunk, last) or (root is not None and not lists_before(root, chunk)):
            raise StaleIndexError("the index of the offset map does not lead to its end")
    return MapTree(last, end.place, chunk, end.index_place, root)


def load_from(tree: MapTree, position: Position | None, wanted: Wanted) -> Steps:
    """Load the map of a tree that is known already, which may not be on the log as it is here."""
    if tree.last is None:
        return LoadedMap(OffsetMap((), position))
    return (yield from _around(tree, tree.last.block_key, position, wanted, []))


def carry_out(
    readings: Mapping[_K, _Reading[_R]], topic: Callable[[set[int]], Rows]
) -> dict[_K, _R | IntegrityError]:
    """Carry readings out together; ``topic`` returns the records at some places."""
    found: dict[_K, _R | IntegrityError] = {}
    answers: dict[_K, Answers | None] = dict.fromkeys(readings)
    while answers:
        needs: dict[_K, list[Need]] = {}
        for key, known in answers.items():
            try:
                needs[key] = next(readings[key]) if known is None else readings[key].send(known)
            except StopIteration as end:
                found[key] = end.value
            except IntegrityError as error:
                found[key] = error
        places = {need.place for wanted in needs.values() for need in wanted}
        rows = topic(places) if places else {}
        answers = {key: {n: n.answer(rows) for n in wanted} for key, wanted in needs.items()}
    return found


def _around(
    tree: MapTree, last_key: BlockKey, position: Position | None, wanted: Wanted, lost: list[str]
) -> Steps:
    """Load the blocks around the wanted offsets; the last one is in the tree if it is not lost."""
    last = tree.last
    newest = (tree.chunk.key.number, tree.chunk.key.owner) if tree.chunk else None
    # A root newer than the report may list the newest chunk, too.
    end = last_key.target_start, last_key.owner
    tables = [in_use(tree.root, newest), in_use(tree.chunk, end)]
    if last is not None:
        tables.append(Table(Entries.of([IndexEntry.of_block(last, tree.last_place)])))
    rows = yield from _expand(rows_of(tables, wanted), wanted, lost)
    known = yield from _runs(rows, lost)
    if last is not None:
        known[len(rows) - 1] = last.runs
    entries, loaded = _narrow(rows, known, wanted)
    position, open_end = (position, last.open_end) if last is not None else (None, False)
    found = OffsetMap.window(Entries.of(entries), loaded, position, open_end=open_end)
    return LoadedMap(found, "; ".join(lost))


def _runs(rows: Sequence[Row], lost: list[str]) -> _Reading[dict[int, Runs]]:
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
    rows: Sequence[Row], known: Mapping[int, Runs], wanted: Wanted
) -> tuple[list[IndexEntry], dict[int, Runs]]:
    """Keep of each block the runs at wanted offsets and the last run; all of those that cut."""
    entries: list[IndexEntry] = []
    loaded: dict[int, Runs] = {}
    for number, row in enumerate(rows):
        runs = known.get(number)
        if runs is None:
            entries.append(row.entry)
        elif wanted.source_ranges or row.is_in_cut or (runs.counts <= 0).any() or not runs.grow():
            loaded[len(entries)] = runs
            entries.append(row.entry)
        else:
            entries += _condense(runs, wanted.runs_at(runs))
            loaded[len(entries) - 1] = runs[-1:]
    return entries, loaded


def _condense(runs: Runs, kept: Sequence[int]) -> list[IndexEntry]:
    """Return one entry for each kept run, and one for all runs between two of them."""
    found: list[IndexEntry] = []
    at = 0
    for number in kept:
        if number > at:
            found.append(IndexEntry.spanning(runs[at], runs[number - 1], runs[at:number].records))
        found.append(IndexEntry.spanning(runs[number], runs[number], runs[number].count))
        at = number + 1
    return found


def _expand(rows: Sequence[Row], wanted: Wanted, lost: list[str]) -> _Reading[list[Row]]:
    needs = {number: row.need for number, row in enumerate(rows) if row.is_chunk and row.need}
    if not needs:
        return list(rows)
    answers = yield list(needs.values())
    expanded: list[Row] = []
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
            expanded += rows_of([in_use(chunk)], wanted, row.limits, row.floors)
    return expanded


def _of_copy(copy: CopyId, kind: IndexKind) -> bytes:
    """Return the common prefix of the keys of a copy's index records, of any owner."""
    return IndexKey(kind, *copy, (0, 0)).encode()[:_KEY_OF_COPY]


def _index(answer: _Record | None) -> IndexRecord:
    if answer is None:
        raise StaleIndexError("the index of the offset map is not where the report says")
    try:
        return decode_index(*answer)
    except IntegrityError as error:
        raise StaleIndexError(str(error)) from error


def _read(
    decode: Callable[[bytes, bytes], _T], answer: _Record | None, lost: list[str], what: str
) -> _T | None:
    """Decode an answer; note a missing or damaged record and its remedy."""
    try:
        if answer is not None:
            return decode(*answer)
        lost.append(f"{what} is missing; {_HELP}")
    except IntegrityError as error:
        lost.append(f"{what} cannot be read ({error}); {_HELP}")
    return None


# ----- rows


class Row(NamedTuple):
    """One row of the future map: ``need`` is read for it, ``run`` is all that it holds.

    ``limits``: first offsets of both sides that later rows took from it; ``floors``: the last ones
    that earlier rows have reached.
    """

    entry: IndexEntry
    need: Need | None = None
    run: Run | None = None
    is_chunk: bool = False
    limits: _Sides = (_FAR, _FAR)
    floors: _Sides = (-1, -1)

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

    def row(self, number: int, limits: _Sides, floors: _Sides, *, needed: bool) -> Row:
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


def in_use(record: IndexRecord | None, end: tuple[int, tuple[int, int]] | None = None) -> Table:
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
    is_chunks = record.key.kind is IndexKind.ROOT
    key_of = record.chunk_key if is_chunks else record.block_key

    def need(number: int) -> Need:
        return Need(int(places[number]), key_of(first + number).encode())

    return Table(table, need, is_chunks)


def rows_of(
    tables: list[Table], wanted: Wanted, limits: _Sides = (_FAR, _FAR), floors: _Sides = (-1, -1)
) -> list[Row]:
    """Choose what to read of consecutive tables; unwanted neighbours become one row unless cut."""
    together = _point(floors)
    for table in tables:
        together += table.entries
    together += _point(limits)
    cuts = Cuts.between(together)
    floor = _ends_before(together.source_end), _ends_before(together.target_end)
    gone, needed = cuts.gone, cuts.cut.copy()
    needed |= (together.source_start < floor[0]) | (together.target_start < floor[1])
    apart, inside = wanted.find(together, cuts)
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
            is_needed = bool(needed[place]) and not gone[place]
            rows.append(table.row(number, *bounds, needed=is_needed))
        rows += _join_rows(entries, at, len(entries))
        base += len(entries)
    return rows


def _join_rows(entries: Entries, first: int, stop: int) -> list[Row]:
    if first == stop:
        return []
    start, end = entries[first], entries[stop - 1]
    records = int(entries.records[first:stop].sum())
    whole = start._replace(source_end=end.source_end, target_end=end.target_end, records=records)
    return [Row(whole)]


def _point(place: _Sides) -> Entries:
    source, target = place
    return Entries.of([IndexEntry(source, source, target, target, records=0, place=0)])


def _ends_before(ends: Offsets) -> Offsets:
    before = np.full(len(ends), -1, np.int64)
    np.maximum.accumulate(ends[:-1], out=before[1:])
    return before


@dataclass(frozen=True)
class Wanted:
    """Wanted offsets of one partition, and source ranges [from, to) with all runs."""

    sources: frozenset[int] = frozenset()
    targets: frozenset[int] = frozenset()
    source_ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, sources: Iterable[int | None] = (), targets: Iterable[int | None] = ()) -> Self:
        """Build it from offsets; None is ignored."""
        return cls(
            frozenset(offset for offset in sources if offset is not None),
            frozenset(offset for offset in targets if offset is not None),
        )

    def covers(self, other: Wanted) -> bool:
        return (
            self.sources >= other.sources
            and self.targets >= other.targets
            and set(self.source_ranges) >= set(other.source_ranges)
        )

    @cached_property
    def sorted_sources(self) -> Offsets:
        return np.array(sorted(self.sources), np.int64)

    @cached_property
    def sorted_targets(self) -> Offsets:
        return np.array(sorted(self.targets), np.int64)

    def runs_at(self, runs: Runs) -> list[int]:
        """Return the numbers of the runs at wanted offsets, in order, and of the last run."""
        first, last = runs[0], runs[-1]
        low, high = np.searchsorted(self.sorted_sources, (first.source_start, last.source_end))
        by_source = np.searchsorted(runs.source_ends, self.sorted_sources[low:high], "right")
        low, high = np.searchsorted(self.sorted_targets, (first.target_start, last.target_end + 1))
        by_target = np.searchsorted(runs.targets, self.sorted_targets[low:high], "left") - 1
        at = np.concatenate((by_source, by_target, [len(runs) - 1]))
        return sorted({number for number in at.tolist() if 0 <= number < len(runs)})

    def find(self, entries: Entries, cuts: Cuts) -> tuple[Mask, Mask]:
        """Return masks: entries that must be separate, and entries with wanted offsets inside."""
        kept = np.flatnonzero(~cuts.gone)
        source_start, target_start = entries.source_start[kept], entries.target_start[kept]
        source_end = np.minimum(entries.source_end, cuts.sources)[kept]
        target_end = np.minimum(entries.target_end, cuts.targets)[kept]
        apart, inside = np.zeros(len(entries), bool), np.zeros(len(entries), bool)
        at = np.searchsorted(source_end, self.sorted_sources, "right")  # the first ending after it
        known = at < len(kept)
        at = at[known]
        apart[kept[at]] = True
        inside[kept[at[source_start[at] < self.sorted_sources[known]]]] = True
        at = np.searchsorted(target_start, self.sorted_targets, "left") - 1  # the last before it
        known = at >= 0
        at = at[known]
        apart[kept[at]] = True
        inside[kept[at[self.sorted_targets[known] < target_end[at]]]] = True
        for start, end in self.source_ranges:
            inside[kept[(source_start < end) & (source_end > start)]] = True
        return apart, inside

    def __or__(self, other: Wanted) -> Wanted:
        return Wanted(
            self.sources | other.sources,
            self.targets | other.targets,
            self.source_ranges + other.source_ranges,
        )


WantedOffsets = Mapping[TopicPartition, Wanted]
"""Wanted offsets by source partition; of other partitions only the position is wanted."""

ALL_RUNS = Wanted(source_ranges=((-1, 2**63 - 1),))
