"""Offset map of a partition as a tree: last block, chunk, root; reached by a report, or rebuilt.

Records out of reach of the newest report are not part of the map: a stopped owner wrote them, or
they were cut off. A place is stale if its owner was killed before it reported a newer version of
the record, and the log cleaner has run since. Then a record with another key, or none, is there. If
no report names valid places, all records of the topic show the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from srm.domain.offset_map.map_records import (
    NO_OWNER,
    BlockKey,
    CopyId,
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapBlock,
    MapEnd,
    decode_block,
    decode_index,
    decode_key,
)
from srm.domain.offset_map.runs import Run
from srm.errors import IntegrityError

Rows = Mapping[int, tuple[bytes, bytes | None]]
"""Records of one partition of the map topic by their places: key and value."""

NO_ENTRIES: Final = Entries.of(())
NO_BLOCKS: Final = MapEnd(-1, (-1, -1))
"""End in a report of a map without blocks; without any MapEnd the map is unknown."""


PlacedBlock = tuple[MapBlock, int]


class Need(NamedTuple):
    """A record of the map topic: its last reported place, and the prefix of its key."""

    place: int
    prefix: bytes

    def answer(self, rows: Rows) -> tuple[bytes, bytes] | None:
        """Return the record of those at some places, None where it is not in its place."""
        key, value = rows.get(self.place, (b"", None))
        return None if value is None or not key.startswith(self.prefix) else (key, value)


@dataclass(frozen=True, slots=True)
class MapTree:
    """The newest records of a map, empty without any: chunks index blocks, the root full chunks."""

    last: MapBlock | None = None
    last_place: int = -1
    chunk: IndexRecord | None = None
    chunk_place: int = -1
    root: IndexRecord | None = None

    @property
    def root_place(self) -> int:
        return self.chunk.root_place if self.chunk else -1

    @property
    def end(self) -> MapEnd:
        if self.last is None:
            return NO_BLOCKS
        key = self.last.block_key
        return MapEnd(key.target_start, key.owner, self.last_place, self.chunk_place)

    @property
    def last_run(self) -> Run | None:
        """The last written run, or cut; None without any."""
        return self.last.runs[-1] if self.last is not None else None


def leads_to(chunk: IndexRecord, last: MapBlock | None) -> bool:
    """Return True if a chunk ends where the map's last block begins, or lists that block, too.

    A report names only its place: if the map topic was truncated since, another may be there.
    """
    if last is None or last.previous is None or not len(chunk.entries):
        return True
    before, end = last.previous, chunk.entries[len(chunk.entries) - 1]
    if (end.key_start, end.owner) == (before.target_start, before.owner):
        return True
    return len(chunk.entries.with_key(last.block_key.target_start, last.owner)) > 0


def lists_before(root: IndexRecord, chunk: IndexRecord) -> bool:
    """Return True if a root has the chunks before a chunk, and possibly that and later ones."""
    number = chunk.key.number
    if len(root.entries.with_key(number, chunk.key.owner)):
        return True
    return not bool((root.entries.key_start >= number).any())


def chunk_at(root: IndexRecord, number: int, rows: Rows) -> IndexRecord:
    """Return a full chunk, by the number of its entry in the root; IntegrityError without it."""
    return decode_index(*_record(root, number, root.chunk_key(number), rows))


def entry_block(chunk: IndexRecord, number: int, rows: Rows) -> MapBlock:
    """Return the block of a chunk's entry; IntegrityError without it."""
    return decode_block(*_record(chunk, number, chunk.block_key(number), rows))


def _record(
    index: IndexRecord, number: int, key: BlockKey | IndexKey, rows: Rows
) -> tuple[bytes, bytes]:
    place = index.entries[number].place
    found = Need(place, key.encode()).answer(rows)
    if found is None:
        raise IntegrityError(
            f"the record at place {place} of the offset map topic is missing or has another key"
        )
    return found


@dataclass(frozen=True, slots=True)
class Placed:
    """A record of the map topic, with its place."""

    place: int
    value: bytes


@dataclass(frozen=True, slots=True)
class RebuiltMap:
    """A tree of what is left, and the ``garbage``: blocks outside it.

    ``rewrite``: no index in the log leads to its blocks. ``missing``: the first unreadable block.
    """

    tree: MapTree = field(default_factory=MapTree)
    rewrite: bool = False
    missing: BlockKey | None = None
    garbage: tuple[BlockKey, ...] = ()


@dataclass(slots=True)
class MapTable:
    """All records of one copy's map; ``damaged`` has the keys of unreadable blocks."""

    topic_id: str
    partition: int
    blocks: dict[BlockKey, PlacedBlock] = field(default_factory=dict)
    index: dict[IndexKey, tuple[IndexRecord, int]] = field(default_factory=dict)
    damaged: set[BlockKey] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, copy_id: CopyId, records: Mapping[bytes, Placed]) -> MapTable:
        topic_id, partition, target_topic_id = copy_id
        found = cls(topic_id, partition)
        for key, record in records.items():
            try:
                found._add(key, record, target_topic_id)
            except IntegrityError as error:
                found.reasons.append(str(error))
                if isinstance(damaged := decode_key(key), BlockKey):
                    found.damaged.add(damaged)
        return found

    def _add(self, key: bytes, record: Placed, target_topic_id: str) -> None:
        known = decode_key(key)
        if isinstance(known, IndexKey):
            if known.target_topic_id == target_topic_id:
                self.index[known] = decode_index(key, record.value), record.place
            return
        block = decode_block(key, record.value)
        if block.target_topic_id == target_topic_id:
            self.blocks[block.block_key] = block, record.place


def rebuild(table: MapTable, end: MapEnd | None) -> RebuiltMap:
    """Rebuild a map; ``end`` is its end in the newest report, None without one."""
    if end == NO_BLOCKS:
        return RebuiltMap(garbage=(*table.blocks, *table.damaged))
    last = _last(table, end)
    if isinstance(last, BlockKey):
        return _without(table, last)
    if last is None:
        damaged = min(table.damaged, key=lambda key: key.target_start, default=None)
        return RebuiltMap(missing=damaged, garbage=tuple(table.damaged))
    block, place = last
    if block.previous is None:
        return _tree_of(table, MapTree(block, place))
    return _tree_from_index(table, last, block.previous) or _tree_from_chain(table, block)


def _last(table: MapTable, end: MapEnd | None) -> PlacedBlock | BlockKey | None:
    """Return the last block, or only its key if it is known to be missing."""
    if end is None:
        return newest_head(table.blocks.values())
    key = BlockKey(table.topic_id, table.partition, end.target_start, end.owner)
    return table.blocks.get(key, key)


def producer_ids_of(blocks: Iterable[PlacedBlock]) -> frozenset[int]:
    return frozenset(producer_id for block, _ in blocks for producer_id in block.producer_ids)


def newest_head(blocks: Iterable[PlacedBlock]) -> PlacedBlock | None:
    """Return the block without a successor; of one producer id that of its latest claim.

    Different producer ids have no order: of those, the block that reaches furthest on the target.
    """
    known = list(blocks)
    followed = {block.previous for block, _ in known}
    heads = [found for found in known if found[0].block_key not in followed] or known
    latest: dict[int, PlacedBlock] = {}
    for found in heads:
        producer, order = found[0].owner[0], _claim_order(found[0])
        if producer not in latest or order > _claim_order(latest[producer][0]):
            latest[producer] = found
    return max(latest.values(), key=lambda found: _reach(found[0]), default=None)


def _claim_order(block: MapBlock) -> tuple[int, int]:
    return block.owner[1], _reach(block)


def _reach(block: MapBlock) -> int:
    return int(block.runs.target_ends.max())


def _tree_from_index(table: MapTable, last: PlacedBlock, before: BlockKey) -> RebuiltMap | None:
    """Return the tree whose index holds all blocks before the last one, if there is one."""
    for chunk, chunk_place in _chunks(table):
        number = _numbers(chunk).get((before.target_start, before.owner))
        if number is None:
            continue
        found = _whole(table, chunk, chunk_place, number + 1)
        if found is not None:
            return _tree_of(table, replace(found, last=last[0], last_place=last[1]))
    return None


def _tree_of(table: MapTable, tree: MapTree) -> RebuiltMap:
    """Return a tree from the index of the topic, which may list more blocks after it."""
    chunk = tree.chunk
    stored = table.index.get(chunk.key) if chunk else None
    later = tree.last.block_key.target_start if tree.last else -1
    garbage = (key for key in (*table.blocks, *table.damaged) if key.target_start > later)
    return RebuiltMap(
        tree, rewrite=stored is not None and stored[0] != chunk, garbage=tuple(garbage)
    )


def _chunks(table: MapTable) -> list[tuple[IndexRecord, int]]:
    found = [known for key, known in table.index.items() if key.kind is IndexKind.CHUNK]
    return sorted(found, key=lambda known: known[1], reverse=True)


def _numbers(record: IndexRecord) -> dict[tuple[int, tuple[int, int]], int]:
    entries = ((record.entries[number], number) for number in record.in_use)
    return {(entry.key_start, entry.owner): number for entry, number in entries}


def _whole(table: MapTable, chunk: IndexRecord, place: int, count: int) -> MapTree | None:
    """Return the tree up to an entry of a chunk, if all earlier blocks and chunks are in place."""
    cut = replace(chunk, entries=chunk.entries.slice(0, count), deleted=min(chunk.deleted, count))
    if not _holds(table, cut):
        return None
    if chunk.root_place < 0:
        return MapTree(chunk=cut, chunk_place=place)
    for key, (root, root_place) in table.index.items():
        if key.kind is not IndexKind.ROOT:
            continue
        own = _numbers(root).get((chunk.key.number, chunk.key.owner))
        if own is None and root_place != chunk.root_place:
            continue
        kept = replace(root, entries=root.entries.slice(0, own))
        if all(_holds_chunk(table, kept, n) for n in kept.in_use):
            return MapTree(None, -1, replace(cut, root_place=root_place), place, kept)
    return None


def _holds_chunk(table: MapTable, root: IndexRecord, number: int) -> bool:
    found = table.index.get(root.chunk_key(number))
    return found is not None and found[1] == root.entries[number].place and _holds(table, found[0])


def _holds(table: MapTable, chunk: IndexRecord) -> bool:
    found = ((table.blocks.get(chunk.block_key(n)), chunk.entries[n].place) for n in chunk.in_use)
    return all(block is not None and block[1] == place for block, place in found)


def _tree_from_chain(table: MapTable, last: MapBlock) -> RebuiltMap:
    chain = [table.blocks[last.block_key]]
    seen = {last.block_key}
    before = last.previous
    while before is not None and before not in seen:
        found = table.blocks.get(before)
        if found is None:
            return _without(table, before)
        seen.add(before)
        chain.append(found)
        before = found[0].previous
    chain.reverse()
    end = last.block_key.target_start
    damaged = [key for key in table.damaged if key.target_start < end]
    if damaged:
        return _without(table, min(damaged, key=lambda key: key.target_start))
    return _tree(table, chain, None)


def _without(table: MapTable, missing: BlockKey) -> RebuiltMap:
    """Return the blocks before a missing block, as far as they are complete."""
    lost = min((missing, *table.damaged), key=lambda key: key.target_start)
    for chunk, place in _chunks(table):
        known = _numbers(chunk)
        before = [n for (start, _), n in known.items() if start < lost.target_start]
        for number in sorted(before, reverse=True):
            tree = _whole(table, chunk, place, number)
            last = table.blocks.get(chunk.block_key(number))
            if tree is not None and last is not None:
                found = replace(tree, last=last[0], last_place=last[1])
                return replace(_tree_of(table, found), missing=lost)
    whole: list[PlacedBlock] = []
    kept: set[BlockKey | None] = {None}
    for key, found_block in sorted(table.blocks.items(), key=lambda item: item[0].target_start):
        if key.target_start < lost.target_start and found_block[0].previous in kept:
            whole.append(found_block)
            kept.add(key)
    return _tree(table, whole, lost)


def _tree(table: MapTable, blocks: list[PlacedBlock], missing: BlockKey | None) -> RebuiltMap:
    """Return a tree of blocks in order, none of which is in an index."""
    if not blocks:
        return RebuiltMap(missing=missing, garbage=(*table.blocks, *table.damaged))
    last, place = blocks[-1]
    entries = Entries.of(IndexEntry.of_block(block, at) for block, at in blocks[:-1])
    ids = last.topic_id, last.partition, last.target_topic_id
    chunk = IndexRecord(IndexKey(IndexKind.CHUNK, *ids, NO_OWNER, -1), entries)
    kept = {block.block_key for block, _ in blocks}
    garbage = (*(key for key in table.blocks if key not in kept), *table.damaged)
    if not len(entries):
        return RebuiltMap(MapTree(last, place), missing=missing, garbage=garbage)
    tree = MapTree(last, place, chunk)
    return RebuiltMap(tree, rewrite=True, missing=missing, garbage=garbage)


def blocks_of(table: MapTable, tree: MapTree) -> list[MapBlock]:
    """Return all blocks of a tree rebuilt from a table, in order."""
    chunks: list[IndexRecord] = []
    if tree.root is not None:
        chunks = [table.index[tree.root.chunk_key(number)][0] for number in tree.root.in_use]
    if tree.chunk is not None:
        chunks.append(tree.chunk)
    blocks = [table.blocks[chunk.block_key(n)][0] for chunk in chunks for n in chunk.in_use]
    return [*blocks, tree.last] if tree.last is not None else blocks
