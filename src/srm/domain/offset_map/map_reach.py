"""Offset map of a partition as its newest report reaches it: last block, chunk, root.

Records out of its reach are not part of the map: a stopped owner wrote them, or they were cut off.
A place is stale if its owner was killed before it reported a newer version of the record, and the
log cleaner has run since. Then a record with another key, or none, is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from srm.domain.offset_map.map_index import (
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    chunk_key,
    decode_index,
    decode_index_key,
    is_index_key,
)
from srm.domain.offset_map.map_index import block_key as block_key_of
from srm.domain.offset_map.map_records import (
    BlockKey,
    CopyId,
    MapBlock,
    MapEnd,
    decode_block,
    decode_block_key,
)
from srm.errors import IntegrityError

Rows = Mapping[int, tuple[bytes, bytes | None]]
"""Records of one partition of the map topic by their places: key and value."""

NO_ENTRIES: Final = Entries.of(())
NO_BLOCKS: Final = MapEnd(-1, (-1, -1))
"""End in a report of a map without blocks; without any MapEnd the map is unknown."""


class StalePlaceError(IntegrityError):
    """A record is not at its reported place: the place is stale, or the record is lost."""


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
        """Place of the root, -1 if there is none."""
        return self.chunk.root_place if self.chunk else -1

    @property
    def end(self) -> MapEnd:
        """End of the map as a report names it."""
        if self.last is None:
            return NO_BLOCKS
        key = self.last.block_key
        return MapEnd(key.target_start, key.owner, self.last_place, self.chunk_place)

    @property
    def chunks(self) -> Entries:
        """Entries of the full chunks in use."""
        return self.root.entries.slice(self.root.deleted) if self.root else NO_ENTRIES

    @property
    def blocks(self) -> Entries:
        """Entries of the newest chunk in use."""
        return self.chunk.entries.slice(self.chunk.deleted) if self.chunk else NO_ENTRIES

    def entries(self, chunks: Mapping[int, IndexRecord] | None = None) -> Entries:
        """Return the entries of the whole map in order, the last block included.

        Args:
            chunks: the loaded full chunks, by the number of their entry in :attr:`chunks`; the
                result has the entries of the others themselves.
        """
        loaded = chunks or {}
        found, done, full = NO_ENTRIES, 0, self.chunks
        for number in sorted(loaded):
            chunk = loaded[number]
            found = found + full.slice(done, number) + chunk.entries.slice(chunk.deleted)
            done = number + 1
        found = found + full.slice(done) + self.blocks
        if self.last is None:
            return found
        return found + Entries.of([IndexEntry.of_block(self.last, self.last_place)])


def first_places(ends: Iterable[MapEnd]) -> set[int]:
    """Return the places of last blocks and newest chunks, which are read first."""
    found = {place for end in ends for place in (end.place, end.index_place)}
    return found - {-1}


def reach(copy_id: CopyId, end: MapEnd, rows: Rows) -> MapTree:
    """Return the tree without its root, from the records at :func:`first_places`."""
    topic_id, partition, target_id = copy_id
    if end == NO_BLOCKS:
        return MapTree()
    last = block_at(BlockKey(topic_id, partition, end.target_start, end.owner), end.place, rows)
    if last.target_topic_id != target_id:
        raise StalePlaceError(f"the offset map record at place {end.place} is of another topic")
    if end.index_place < 0:
        return MapTree(last, end.place)
    chunk = _index_at(copy_id, IndexKind.CHUNK, end.index_place, rows)
    if not leads_to(chunk, last):
        raise _stale(end.index_place)
    return MapTree(last, end.place, chunk, end.index_place)


def with_root(copy_id: CopyId, tree: MapTree, rows: Rows) -> MapTree:
    """Return the tree with its root, from the record at :attr:`MapTree.root_place`."""
    if tree.root_place < 0:
        return tree
    root = _index_at(copy_id, IndexKind.ROOT, tree.root_place, rows)
    if tree.chunk is not None and not lists_before(root, tree.chunk):
        raise _stale(tree.root_place)
    return MapTree(tree.last, tree.last_place, tree.chunk, tree.chunk_place, root)


def leads_to(chunk: IndexRecord, last: MapBlock | None) -> bool:
    """Return True if a chunk ends where the map's last block begins, or lists that block, too.

    A report names only the chunk's place. If the map topic was truncated since, an unrelated chunk
    may be there.
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
    """Return a full chunk, by the number of its entry in the root."""
    place = root.entries[number].place
    key, value = _row(place, rows)
    if not is_index_key(key) or decode_index_key(key) != chunk_key(root, number):
        raise _stale(place)
    return decode_index(key, value)


def entry_block(chunk: IndexRecord, number: int, rows: Rows) -> MapBlock:
    """Return the block of a chunk's entry."""
    return block_at(block_key_of(chunk, number), chunk.entries[number].place, rows)


def block_at(wanted: BlockKey, place: int, rows: Rows) -> MapBlock:
    """Return the block with a key at a place; StalePlaceError for another record, or none."""
    key, value = _row(place, rows)
    if is_index_key(key) or decode_block_key(key) != wanted:
        raise _stale(place)
    return decode_block(key, value)


def _index_at(copy_id: CopyId, kind: IndexKind, place: int, rows: Rows) -> IndexRecord:
    key, value = _row(place, rows)
    if not is_index_key(key):
        raise _stale(place)
    found: IndexKey = decode_index_key(key)
    if (
        found.topic_id,
        found.partition,
        found.target_topic_id,
    ) != copy_id or found.kind is not kind:
        raise _stale(place)
    return decode_index(key, value)


def _row(place: int, rows: Rows) -> tuple[bytes, bytes]:
    key, value = rows.get(place, (b"", None))
    if value is None:
        raise _stale(place)
    return key, value


def _stale(place: int) -> StalePlaceError:
    return StalePlaceError(
        f"the record at place {place} of the offset map topic is missing or has another key"
    )
