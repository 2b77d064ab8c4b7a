"""The index of one partition's offset map, written as its blocks are acknowledged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.map_index import (
    ENTRIES_PER_CHUNK,
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
)
from srm.domain.offset_map.map_reach import NO_ENTRIES, MapTree
from srm.domain.offset_map.map_records import BlockKey, MapBlock, MapEnd, map_partition

Record = tuple[bytes, bytes | None]
"""Key and value of a record of the map topic; None is a tombstone."""


class IndexWriter:
    """Yields the records to write for one map, in an order that survives a crash at any step.

    A report is written once nothing is :meth:`due`: so it reaches the last block, the newest chunk,
    the root, and through them the rest. Unreachable records are deleted after that. Entries of
    blocks below the starts of both logs are marked, then reported, then their blocks are deleted,
    and finally the entries. A killed process leaves the mark to the next one.

    A block is in the index once another one follows it, and is not written after that. Chunk and
    root are written under the claim of the newest block, and those of former claims deleted.

    For the writing thread; this class does no I/O.
    """

    def __init__(
        self, assigned: AssignedPartition, tree: MapTree, *, rewrite: bool = False
    ) -> None:
        """Continue the index of a map; ``rewrite``: its records are not on the log like this.

        What has no number yet is not there at all, and may have any number of entries.
        """
        self.copy_id = assigned.copy_id
        self.partition = map_partition(assigned.topic, assigned.partition)
        chunk, root = tree.chunk, tree.root
        self._later = NO_ENTRIES
        if chunk and chunk.key.number < 0:
            self._later, chunk, root = chunk.entries, None, None
        self._owner = chunk.key.owner if chunk else (-1, -1)
        self._number = chunk.key.number if chunk else -1
        self._chunk = chunk.entries if chunk else NO_ENTRIES
        self._chunk_deleted = chunk.deleted if chunk else 0
        self._chunk_place = tree.chunk_place if chunk else -1
        self._root = root.entries if root else NO_ENTRIES
        self._root_deleted = root.deleted if root else 0
        self._root_place = tree.root_place if root else -1
        self._chunk_due = self._root_due = False
        self._blocks: dict[bytes, tuple[MapBlock, int]] = {}
        self._newest = (-1, tree.last_place) if rewrite else self._owner
        self._end = tree.end
        self._rewrite = rewrite
        self._former: set[bytes] = set()
        self._superseded: set[bytes] = set()
        self._leaving: set[bytes] = set()
        self._dying: set[bytes] | None = None
        self._droppable: IndexRecord | None = None
        self._dying_chunk: set[bytes] | None = None

    @property
    def end(self) -> MapEnd:
        """End of the map for a report, once nothing is due."""
        return self._end

    @property
    def has_news(self) -> bool:
        """True if something is to be written, or would be after a report."""
        return bool(
            self._leaving
            or self._superseded
            or self._chunk_due
            or self._root_due
            or len(self._later)
            or len(self._blocks) > 1
            or self.waiting
            or (self._droppable is not None and self._has_claim)
            or (self._rewrite and self._newest != self._owner)
        )

    @property
    def waiting(self) -> int:
        """Number of blocks that wait for acknowledgement."""
        return sum(place < 0 for _, place in self._blocks.values())

    @property
    def records(self) -> tuple[IndexRecord, IndexRecord]:
        """Root and newest chunk as they are now, perhaps not on the log yet."""
        root = IndexRecord(self._key(IndexKind.ROOT), self._root, self._root_deleted)
        return root, IndexRecord(self._key(IndexKind.CHUNK), self._chunk, self._chunk_deleted)

    @property
    def _has_claim(self) -> bool:
        return self._newest[0] >= 0

    # ----- what is new

    def take(self, blocks: Iterable[MapBlock], replaced: Iterable[BlockKey] = ()) -> None:
        """Take over what changed, in the order of the map, and what does not count any more."""
        gone = {key.encode() for key in replaced}
        for block in blocks:
            key = block.key()
            self._blocks[key] = block, -1
            self._newest = block.owner
            for keys in (gone, self._leaving, self._superseded):
                keys.discard(key)
        self._superseded |= gone
        for key in gone & self._blocks.keys():
            del self._blocks[key]

    def forget_below(self, source_start: int, target_start: int) -> None:
        """Mark the entries of blocks that lie below the starts of both logs."""
        if not self._has_claim:
            return
        # The last entry stays: the last block names its block, and by that its chunk is known.
        below = min(_count_below(self._chunk, source_start, target_start), len(self._chunk) - 1)
        if below > self._chunk_deleted and self._dying is None:
            self._chunk_deleted, self._chunk_due = below, True

    def drop_chunk(self, chunk: IndexRecord) -> None:
        """Delete the oldest full chunk, below the starts of both logs; from another thread."""
        self._droppable = chunk

    # ----- step by step

    def due(self) -> list[Record]:
        """Return what has to be written, and acknowledged, before anything else is."""
        records: list[Record] = [
            (key, block.value()) for key, (block, place) in self._blocks.items() if place < 0
        ]
        records += [(key, None) for key in sorted(self._leaving)]
        if records:
            return records
        self._collect()
        self._mark_chunk()
        if self._newest != self._owner and (self._has_claim or len(self._later) or self._rewrite):
            self._own_index()
        if len(self._later) and not (self._root_due or self._chunk_due):
            self._grow()
        if self._root_due:
            return [self._root_record()]
        if self._chunk_due:
            return [self._chunk_record()]
        self._end = self._written_end()
        return []

    def written(self, places: Mapping[bytes, int]) -> None:
        """Record the offsets of acknowledged records."""
        root, chunk = (self._key(kind).encode() for kind in (IndexKind.ROOT, IndexKind.CHUNK))
        for key, place in places.items():
            if key in self._leaving:
                self._leaving.discard(key)
            elif key in self._blocks:
                self._blocks[key] = self._blocks[key][0], place
            elif key == root:
                self._root_place, self._root_due, self._chunk_due = place, False, True
            elif key == chunk:
                self._chunk_place, self._chunk_due = place, False
        if self._dying is not None and not self._dying & self._leaving:
            self._chunk = self._chunk.slice(self._chunk_deleted)
            self._chunk_deleted, self._dying = 0, None
            self._chunk_due = len(self._chunk) > 0
        if self._dying_chunk is not None and not self._dying_chunk & self._leaving:
            self._root = self._root.slice(1)
            self._root_deleted, self._dying_chunk = 0, None
            self._root_due = True

    def on_report(self) -> None:
        """A report that names :attr:`end` is acknowledged: what it does not reach can go."""
        self._leaving |= self._superseded
        self._superseded = set()
        if self._chunk_deleted and self._has_claim and self._dying is None:
            self._dying = self._deleted_keys()
            self._leaving |= self._dying
        if self._root_deleted and self._droppable is not None and self._dying_chunk is None:
            keys = self._keys(self._droppable.entries)
            self._dying_chunk = keys | {self._droppable.key.encode()}
            self._leaving |= self._dying_chunk
            self._droppable = None

    # ----- inside

    def _own_index(self) -> None:
        """Write chunk and root under the claim of the newest block from now on."""
        if self._chunk_place >= 0:
            self._former.add(self._key(IndexKind.CHUNK).encode())
        if self._root_place >= 0:
            self._former.add(self._key(IndexKind.ROOT).encode())
        self._owner = self._newest
        # Empty ones too: the former ones go, and nothing may lead to them any more.
        self._chunk_due = len(self._chunk) > 0 or self._chunk_place >= 0
        self._root_due = len(self._root) > 0 or self._root_place >= 0
        if self._has_claim:  # until then a former owner may still be at work
            self._superseded |= self._former
            self._former = set()

    def _collect(self) -> None:
        """Put blocks that another one follows on the list of entries."""
        final = [self._blocks.pop(key) for key in list(self._blocks)[:-1]]
        if final:
            entries = Entries.of(IndexEntry.of_block(block, place) for block, place in final)
            self._later = self._later + entries

    def _grow(self) -> None:
        """Move entries to the chunk; one that is full, or cut by what follows, is not changed.

        So a cut is always seen between two entries of the root, or within the newest chunk's end.
        """
        chunk, first = self._chunk, self._later[0]
        if len(chunk):
            last = chunk[len(chunk) - 1]
            is_cut = first.source_start < last.source_end or first.target_start < last.target_end
            if is_cut or len(chunk) >= ENTRIES_PER_CHUNK:
                self._root = self._root + Entries.of([self._chunk_entry()])
                self._root_due = True
                chunk = NO_ENTRIES
        elif self._chunk_place >= 0:
            self._superseded.add(self._key(IndexKind.CHUNK).encode())
        if not len(chunk):
            # Two chunks may begin at one offset, where what was copied from there on was cut off.
            self._number, self._chunk_place = max(first.key_start, self._number + 1), -1
            self._chunk_deleted, self._dying = 0, None
        count = _count_uncut(self._later, ENTRIES_PER_CHUNK - len(chunk))
        self._chunk = chunk + self._later.slice(0, count)
        self._later = self._later.slice(count)
        self._chunk_due = True

    def _written_end(self) -> MapEnd:
        if self._blocks:
            block, place = next(reversed(self._blocks.values()))
            key = block.block_key
            return MapEnd(key.target_start, key.owner, place, self._chunk_place)
        end = self._end
        return MapEnd(end.target_start, end.owner, end.place, self._chunk_place)

    def _mark_chunk(self) -> None:
        """Mark the oldest chunk if its blocks are to be deleted."""
        chunk = self._droppable
        if chunk is None or self._root_deleted or not self._has_claim or self._root_due:
            return
        first = self._root[0] if len(self._root) else None
        if first is None or (first.key_start, first.owner) != (chunk.key.number, chunk.key.owner):
            self._droppable = None
            return
        self._root_deleted, self._root_due = 1, True

    def _deleted_keys(self) -> set[bytes]:
        return self._keys(self._chunk.slice(0, self._chunk_deleted))

    def _keys(self, entries: Entries) -> set[bytes]:
        topic_id, partition, _ = self.copy_id
        return {
            BlockKey(topic_id, partition, entry.key_start, entry.owner).encode()
            for entry in (entries[number] for number in range(len(entries)))
        }

    def _key(self, kind: IndexKind) -> IndexKey:
        number = self._number if kind is IndexKind.CHUNK else 0
        return IndexKey(kind, *self.copy_id, self._owner, number)

    def _chunk_record(self) -> Record:
        key = self._key(IndexKind.CHUNK)
        record = IndexRecord(key, self._chunk, self._chunk_deleted, self._root_place)
        return key.encode(), record.value()

    def _root_record(self) -> Record:
        key = self._key(IndexKind.ROOT)
        return key.encode(), IndexRecord(key, self._root, self._root_deleted).value()

    def _chunk_entry(self) -> IndexEntry:
        """Return what a root says of the chunk, whose entries do not cut each other."""
        first, last = self._chunk[0], self._chunk[len(self._chunk) - 1]
        return IndexEntry(
            first.source_start,
            last.source_end,
            first.target_start,
            last.target_end,
            int(self._chunk.records.sum()),
            self._chunk_place,
            self._number,
            *self._owner,
        )


def _count_below(entries: Entries, source_start: int, target_start: int) -> int:
    """Count the first entries that lie below both offsets."""
    below = (entries.source_end <= source_start) & (entries.target_end <= target_start)
    return len(entries) if below.all() else int(below.argmin())


def _count_uncut(entries: Entries, most: int) -> int:
    """Count the first entries, ``most`` of them, that do not cut those before them."""
    grows = (entries.source_start[1:] >= entries.source_end[:-1]) & (
        entries.target_start[1:] >= entries.target_end[:-1]
    )
    return min(most, len(entries) if grows.all() else int(grows.argmin()) + 1)
