"""Load of a partition's map around wanted offsets, from the reported end of the map. Pure, no I/O.

The report leads to the last block and the newest chunk, the chunk to the root, the root to the
chunks, and those to their blocks (:mod:`srm.domain.offset_map.map_index`)::

    report --> last block
       '-----> newest chunk --> root --> chunks around --> blocks around
                                         the wanted        the wanted
                                         offsets           offsets

Other stretches stay one index entry, with both ends and a record count. So a map of any length is
read in four steps, and takes only the memory of the wanted parts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from srm.domain.offset_map.map_index import (
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    decode_index,
)
from srm.domain.offset_map.map_reach import NO_BLOCKS, leads_to, lists_before
from srm.domain.offset_map.map_records import BlockKey, CopyId, MapEnd, decode_block
from srm.domain.offset_map.map_rows import (
    Need,
    Row,
    Sought,
    Table,
    full_blocks,
    full_chunks,
    rows_of,
)
from srm.domain.offset_map.map_wanted import Wanted
from srm.domain.offset_map.offset_map import OffsetMap, Position
from srm.domain.offset_map.runs import Runs
from srm.errors import IntegrityError

_KEY_OF_COPY: Final = 37  # kind, topic id, partition and target topic id of an index record's key
_HELP: Final = "the next claim finds it again in the logs: restart the replicator"
_T = TypeVar("_T")


Answers = Mapping[Need, tuple[bytes, bytes] | None]
"""Key and value of each need; None if the topic no longer holds it."""


@dataclass(frozen=True, slots=True)
class LoadedMap:
    """A map around the wanted offsets; ``gap`` names its lost parts, if any.

    Without its last block a map has no position: the runs before it are unknown.
    """

    offset_map: OffsetMap
    gap: str = ""


Steps = Generator[list[Need], Answers, LoadedMap]
"""Yields the records to read next, is sent the answers, and returns the map."""


def unread(position: Position) -> OffsetMap:
    """Return a map with a position only, which cannot translate offsets before it."""
    source, target = position.source_next, position.target_next
    # More records than offsets, so it cannot be mistaken for a run.
    everything = IndexEntry(-1, source, -1, target, source + target + 3, -1, 0, 0, 0)
    return OffsetMap.window(Entries.of([everything]), {}, position, open_end=False)


class StaleIndexError(IntegrityError):
    """The index of a map is not where the report says; read the blocks themselves."""


def load(copy: CopyId, end: MapEnd, position: Position | None, wanted: Wanted) -> Steps:
    """Load the map of a copy around the wanted offsets.

    Raises:
        StaleIndexError: the index is missing or unreadable.
        IntegrityError: the loaded records contradict each other.
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
            raise StaleIndexError("the index of the offset map does not lead to its end")
    tables = [full_chunks(root, chunk), full_blocks(chunk, last_key)]
    if last is not None:
        tables.append(Table(Entries.of([IndexEntry.of_block(last, end.place)])))
    sought = Sought.of(wanted)
    rows = yield from _expand(rows_of(tables, sought), sought, lost)
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


def _runs(rows: Sequence[Row], lost: list[str]) -> Generator[list[Need], Answers, dict[int, Runs]]:
    """Read the needed blocks; return the known runs of rows by their numbers."""
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
    rows: Sequence[Row], known: Mapping[int, Runs], sought: Sought
) -> tuple[list[IndexEntry], dict[int, Runs]]:
    """Keep of each block only the runs at wanted offsets, and the last run of all.

    A run needs only its entry. Blocks that cut each other are kept as a whole.
    """
    entries: list[IndexEntry] = []
    loaded: dict[int, Runs] = {}
    for number, row in enumerate(rows):
        runs = known.get(number)
        if runs is None:
            entries.append(row.entry)
        elif sought.source_ranges or row.is_in_cut or not _grows(runs):
            loaded[len(entries)] = runs
            entries.append(row.entry)
        else:
            entries += _condense(runs, sought.runs_at(runs))
            loaded[len(entries) - 1] = runs[-1:]
    return entries, loaded


def _grows(runs: Runs) -> bool:
    """Return True if each run has records and begins after the previous one, on both sides."""
    return bool(
        (runs.counts > 0).all()
        and (runs.sources[1:] >= runs.source_ends[:-1]).all()
        and (runs.targets[1:] >= runs.target_ends[:-1]).all()
    )


def _condense(runs: Runs, kept: Sequence[int]) -> list[IndexEntry]:
    """Return one entry for each kept run, and one for all runs between two of them."""
    found: list[IndexEntry] = []
    at = 0
    for number in kept:
        if number > at:
            found.append(_entry(runs[at:number]))
        found.append(_entry(runs[number : number + 1]))
        at = number + 1
    return found


def _entry(runs: Runs) -> IndexEntry:
    first, last = runs[0], runs[-1]
    return IndexEntry(
        *(first.source_start, last.source_end, first.target_start, last.target_end, runs.records),
        *(-1, 0, 0, 0),
    )


def _expand(
    rows: Sequence[Row], sought: Sought, lost: list[str]
) -> Generator[list[Need], Answers, list[Row]]:
    """Read the needed chunks and replace their rows with the rows of their blocks."""
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
            expanded += rows_of([full_blocks(chunk)], sought, row.limits, row.floors)
    return expanded


def _of_copy(copy: CopyId, kind: IndexKind) -> bytes:
    """Return the common prefix of the keys of a copy's index records, of any owner."""
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
    """Decode an answer; note a missing or damaged record and its remedy."""
    try:
        if answer is not None:
            return decode(*answer)
        lost.append(f"{what} is missing; {_HELP}")
    except IntegrityError as error:
        lost.append(f"{what} cannot be read ({error}); {_HELP}")
    return None
