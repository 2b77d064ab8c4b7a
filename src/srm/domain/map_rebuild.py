"""The offset map of a partition put together from all its records in the map topic.

For when no report names places, or those it names are stale: written by a former version, lost, or
left behind by a process that was killed. Everything here is what the topic holds, by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from srm.domain.map_index import (
    Entries,
    Entry,
    IndexKey,
    IndexKind,
    IndexRecord,
    decode_index,
    decode_index_key,
    is_index_key,
)
from srm.domain.map_reach import MapTree
from srm.domain.map_records import (
    BlockKey,
    MapBlock,
    decode_block,
    decode_block_key,
)
from srm.domain.replication_records import MapEnd
from srm.errors import IntegrityError


@dataclass(frozen=True, slots=True)
class Placed:
    """A record of the map topic and its place."""

    place: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What is left of a map, as a tree; with ``rewrite`` no index leads to its blocks.

    ``missing`` is the first block that it lacks, which is not there, or cannot be read: what came
    after it is not in the tree. ``garbage`` are blocks that are not in the tree.
    """

    tree: MapTree = MapTree()  # noqa: RUF009 - immutable
    rewrite: bool = False
    missing: BlockKey | None = None
    garbage: tuple[BlockKey, ...] = ()


@dataclass(slots=True)
class MapTable:
    """All records of one copy's map; what cannot be read is in ``damaged``."""

    blocks: dict[BlockKey, tuple[MapBlock, int]] = field(default_factory=dict)
    index: dict[IndexKey, tuple[IndexRecord, int]] = field(default_factory=dict)
    damaged: set[BlockKey] = field(default_factory=set)
    reasons: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, records: Mapping[bytes, Placed], target_topic_id: str) -> MapTable:
        """Decode what can be decoded of one source topic id and partition."""
        found = cls()
        for key, record in records.items():
            try:
                found._add(key, record, target_topic_id)
            except IntegrityError as error:
                found.reasons.append(str(error))
                if not is_index_key(key):
                    found.damaged.add(decode_block_key(key))
        return found

    def _add(self, key: bytes, record: Placed, target_topic_id: str) -> None:
        if is_index_key(key):
            known = decode_index_key(key)
            if known.target_topic_id == target_topic_id:
                self.index[known] = decode_index(key, record.value), record.place
            return
        block = decode_block(key, record.value)
        if block.target_topic_id == target_topic_id:
            self.blocks[block.block_key] = block, record.place


def rebuild(table: MapTable, end: MapEnd | None) -> Rebuilt:
    """Put a map together; ``end`` is what the newest report says of it, if anything."""
    last = _last(table, end)
    if isinstance(last, BlockKey):
        return _without_last(table, last)
    if last is None:
        damaged = min(table.damaged, key=lambda key: key.target_start, default=None)
        return Rebuilt(missing=damaged, garbage=tuple(table.damaged))
    block, place = last
    indexed = _indexed(table, block, place)
    if indexed is not None:
        return Rebuilt(indexed, garbage=_garbage(table, indexed))
    return _chained(table, block)


def _last(table: MapTable, end: MapEnd | None) -> tuple[MapBlock, int] | BlockKey | None:
    """Return the last block; its key only if it is known to be missing."""
    if end is not None and end.place >= 0:
        for key, found in table.blocks.items():
            if (key.target_start, key.owner) == (end.target_start, end.owner):
                return found
        for some in (*table.blocks, *table.damaged):
            return BlockKey(some.topic_id, some.partition, end.target_start, end.owner)
        return None
    return newest_head(table.blocks.values())


def newest_head(
    blocks: Iterable[tuple[MapBlock, int]],
) -> tuple[MapBlock, int] | None:
    """Return the block that none follows: of one producer id that of its latest claim.

    Of claims under different producer ids, which tell no order, it is the one that reaches
    furthest along the target.
    """
    known = list(blocks)
    followed = {block.previous for block, _ in known}
    heads = [found for found in known if found[0].block_key not in followed] or known
    latest: dict[int, tuple[MapBlock, int]] = {}
    for found in heads:
        producer, order = found[0].owner[0], _claim_order(found[0])
        if producer not in latest or order > _claim_order(latest[producer][0]):
            latest[producer] = found
    return max(latest.values(), key=lambda found: _reach(found[0]), default=None)


def _claim_order(block: MapBlock) -> tuple[int, int]:
    return block.owner[1], _reach(block)


def _reach(block: MapBlock) -> int:
    return int(block.runs.target_ends.max())


def _indexed(table: MapTable, last: MapBlock, place: int) -> MapTree | None:
    """Return the tree whose chunk ends before the last block, if there is one."""
    if last.previous is None:
        return MapTree(last, place)
    before = last.previous
    chunks = [
        found
        for key, found in table.index.items()
        if key.kind is IndexKind.CHUNK
        and _last_key(found[0]) == (before.target_start, before.owner)
    ]
    for chunk, chunk_place in sorted(chunks, key=lambda found: found[1], reverse=True):
        if not _holds(table, chunk):
            continue
        if chunk.root_place < 0:
            return MapTree(last, place, chunk, chunk_place)
        for key, (root, root_place) in table.index.items():
            if key.kind is IndexKind.ROOT and root_place == chunk.root_place:
                return MapTree(last, place, chunk, chunk_place, root)
    return None


def _last_key(chunk: IndexRecord) -> tuple[int, tuple[int, int]] | None:
    if not len(chunk.entries):
        return None
    entry = chunk.entries[len(chunk.entries) - 1]
    return entry.key_start, entry.owner


def _holds(table: MapTable, chunk: IndexRecord) -> bool:
    """Whether all blocks of a chunk stand where it says."""
    for number in range(chunk.deleted, len(chunk.entries)):
        entry = chunk.entries[number]
        key = BlockKey(chunk.key.topic_id, chunk.key.partition, entry.key_start, entry.owner)
        found = table.blocks.get(key)
        if found is None or found[1] != entry.place:
            return False
    return True


def _chained(table: MapTable, last: MapBlock) -> Rebuilt:
    """Follow the chain of blocks back, and those of the first format, which is none."""
    chain: list[tuple[MapBlock, int]] = [table.blocks[last.block_key]]
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
    first = int(chain[0][0].runs.targets[0])
    unchained = sorted(
        (
            found
            for key, found in table.blocks.items()
            if found[0].previous is None and key not in seen and key.target_start < first
        ),
        key=lambda found: int(found[0].runs.targets[0]),
    )
    damaged = [key for key in table.damaged if key.target_start < last.block_key.target_start]
    if damaged:
        return _without(table, min(damaged, key=lambda key: key.target_start))
    return _tree(table, [*unchained, *chain], None)


def _without_last(table: MapTable, missing: BlockKey) -> Rebuilt:
    """The last block is not there: take the longest chain that ends before it."""
    return _without(table, missing)


def _without(table: MapTable, missing: BlockKey) -> Rebuilt:
    """Return what comes before a block that is missing, and misses nothing itself."""
    lost = min((missing, *table.damaged), key=lambda key: key.target_start)
    whole: list[tuple[MapBlock, int]] = []
    kept: set[BlockKey | None] = {None}
    for key, found in sorted(table.blocks.items(), key=lambda item: item[0].target_start):
        if key.target_start < lost.target_start and found[0].previous in kept:
            whole.append(found)
            kept.add(key)
    return _tree(table, whole, lost)


def _tree(table: MapTable, blocks: list[tuple[MapBlock, int]], missing: BlockKey | None) -> Rebuilt:
    if not blocks:
        return Rebuilt(missing=missing, garbage=(*table.blocks, *table.damaged))
    last, place = blocks[-1]
    entries = Entries.of(Entry.of_block(block, at) for block, at in blocks[:-1])
    key = IndexKey(
        IndexKind.CHUNK, last.topic_id, last.partition, last.target_topic_id, (-1, -1), -1
    )
    chunk = IndexRecord(key, entries) if len(entries) else None
    kept = {block.block_key for block, _ in blocks}
    garbage = (*(k for k in table.blocks if k not in kept), *table.damaged)
    return Rebuilt(MapTree(last, place, chunk), chunk is not None, missing, garbage)


def _garbage(table: MapTable, tree: MapTree) -> tuple[BlockKey, ...]:
    """Return blocks behind the map's last one, which it does not reach."""
    if tree.last is None:
        return ()
    kept = tree.last.block_key
    return tuple(
        key for key in (*table.blocks, *table.damaged) if key.target_start > kept.target_start
    )
