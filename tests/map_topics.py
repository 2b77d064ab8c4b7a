"""The records of an offset map with its index, as an owner leaves them, with small chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from srm.domain.offset_map.map_records import (
    CopyId,
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapBlock,
    MapEnd,
)
from srm.domain.offset_map.offset_map import Cuts


@dataclass
class MapTopic:
    """Collects the records of one partition of a map topic; places count from ``first``."""

    first: int = 0
    rows: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def put(self, key: bytes, value: bytes | None) -> int:
        """Append a record; return its place."""
        self.rows.append((key, value))
        return self.first + len(self.rows) - 1

    def write(
        self, copy: CopyId, blocks: Sequence[MapBlock], per_chunk: int, deleted: int = 0
    ) -> MapEnd:
        """Write blocks in order and the index of all but the last one; return the map's end.

        ``deleted`` is how many of the first blocks are being deleted.
        """
        owner = blocks[-1].owner
        root: list[IndexEntry] = []
        chunk: list[IndexEntry] = []
        number = done = 0
        root_place = index_place = -1
        for block in blocks[:-1]:
            chunk.append(IndexEntry.of_block(block, self.put(block.key(), block.value())))
            if len(chunk) > per_chunk:
                full = chunk[:per_chunk]
                gone = min(len(full), max(0, deleted - done))
                place = self._index(IndexKind.CHUNK, copy, owner, number, full, gone, root_place)
                root.append(_entry_of(full, place, number, owner))
                done += len(full)
                deleted_chunks = sum((n + 1) * per_chunk <= deleted for n in range(len(root)))
                root_place = self._index(IndexKind.ROOT, copy, owner, 0, root, deleted_chunks)
                chunk, number = chunk[per_chunk:], number + 1
        if chunk:
            gone = min(len(chunk), max(0, deleted - done))
            index_place = self._index(IndexKind.CHUNK, copy, owner, number, chunk, gone, root_place)
        last = blocks[-1]
        place = self.put(last.key(), last.value())
        return MapEnd(last.block_key.target_start, last.owner, place, index_place)

    def _index(
        self,
        kind: IndexKind,
        copy: CopyId,
        owner: tuple[int, int],
        number: int,
        entries: Sequence[IndexEntry],
        deleted: int = 0,
        root_place: int = -1,
    ) -> int:
        key = IndexKey(kind, *copy, owner, number)
        record = IndexRecord(key, Entries.of(entries), deleted, root_place)
        return self.put(key.encode(), record.value())


def _entry_of(
    blocks: Sequence[IndexEntry], place: int, number: int, owner: tuple[int, int]
) -> IndexEntry:
    """Return the entry of a full chunk: without records where its blocks cut each other."""
    cuts = Cuts.between(Entries.of(blocks))
    return IndexEntry(
        min(entry.source_start for entry in blocks),
        max(entry.source_end for entry in blocks),
        min(entry.target_start for entry in blocks),
        max(entry.target_end for entry in blocks),
        0 if (cuts.cut | cuts.gone).any() else sum(entry.records for entry in blocks),
        place,
        number,
        *owner,
    )
