"""Offset maps of any length, written like those of slots: real records of the real codec.

A block is encoded once and written many times with other offsets in its header. So hundreds of
millions of runs take a minute or two.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from bench.data import encode
from bench.wire import BrokerSocket
from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.offset_map.map_records import (
    ENTRIES_PER_CHUNK,
    RUNS_PER_BLOCK,
    BlockKey,
    Entries,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapBlock,
    MapEnd,
    decode_block,
)
from srm.domain.offset_map.offset_map import Position, Runs

_OWNER: Final = (7, 1)
_PATTERNS: Final = 512
_BATCH_BYTES: Final = 16_000
_STARTS: Final = struct.Struct(">qq")
_SEED: Final = 1_234_567


@dataclass(frozen=True)
class Copied:
    """One partition and its copy, both by topic id."""

    topic: str
    topic_id: str
    partition: int
    target_topic_id: str

    @property
    def copy_id(self) -> tuple[str, int, str]:
        """Name as in a report."""
        return self.topic_id, self.partition, self.target_topic_id


class _Pattern:
    """Runs of one block from offset 0 on both sides, and the place of these offsets in it."""

    def __init__(self, copied: Copied, runs: Runs) -> None:
        self.records = runs.records
        self.source_span = int(runs.source_ends[-1])
        self.target_span = int(runs.target_ends[-1])
        values = [self._block(copied, runs, start).value() for start in (0, 2**40)]
        self._at = next(n for n, (a, b) in enumerate(zip(*values, strict=True)) if a != b) - 2
        self._value = bytearray(values[0])

    @staticmethod
    def _block(copied: Copied, runs: Runs, start: int) -> MapBlock:
        moved = Runs(runs.sources + start, runs.targets + start, runs.counts)
        ids = copied.topic_id, copied.partition, copied.target_topic_id
        return MapBlock(copied.topic, *ids, _OWNER[:1], moved, open_end=False, owner=_OWNER)

    def value(self, source: int, target: int) -> bytes:
        """Return a block's value that begins at these offsets."""
        _STARTS.pack_into(self._value, self._at, source, target)
        return bytes(self._value)


class MapWriter:
    """Writes the map of one partition block by block, and its index."""

    def __init__(self, copied: Copied, *, regular: bool) -> None:
        self._copied = copied
        rng = np.random.default_rng(_SEED)
        self._patterns = [
            _Pattern(copied, _runs(rng, regular=regular))
            for _ in range(1 if regular else _PATTERNS)
        ]
        self._chosen = rng.integers(0, len(self._patterns), 1 << 16)
        self.source = self.target = 0
        self._blocks = self._number = 0
        self._chunk: list[tuple[int, ...]] = []
        self._root: list[tuple[int, ...]] = []
        self._root_place = self._index_place = -1
        self._last = (0, -1)

    def next_records(self, place: int, *, last: bool = False) -> list[tuple[bytes, bytes]]:
        """Return the next block for a place, and the index records that follow it."""
        pattern = self._patterns[self._chosen[self._blocks % len(self._chosen)]]
        source, target = self.source, self.target
        key = BlockKey(self._copied.topic_id, self._copied.partition, target, _OWNER).encode()
        records = [(key, pattern.value(source, target))]
        self._blocks += 1
        self.source, self.target = (
            source + pattern.source_span + 1,
            target + pattern.target_span + 1,
        )
        self._last = target, place
        if not last:
            span = pattern.source_span, pattern.target_span
            entry = (source, source + span[0], target, target + span[1], pattern.records, place)
            self._chunk.append((*entry, target, *_OWNER))
            if len(self._chunk) == ENTRIES_PER_CHUNK:
                records += self._full_chunk(place + 1)
        return records

    def index(self, place: int) -> list[tuple[bytes, bytes]]:
        """Return the newest chunk for a place."""
        if not self._chunk:
            return []
        self._index_place = place
        return [self._record(IndexKind.CHUNK, self._chunk)]

    def position(self) -> PartitionPosition:
        """Return the report of the slot."""
        end = MapEnd(self._last[0], _OWNER, self._last[1], self._index_place)
        position = Position(self.source, self.target, self.source)
        return PartitionPosition(*self._copied.copy_id, position, *_OWNER, map_end=end)

    def _full_chunk(self, place: int) -> list[tuple[bytes, bytes]]:
        chunk = self._record(IndexKind.CHUNK, self._chunk)
        first, last = self._chunk[0], self._chunk[-1]
        records = sum(entry[4] for entry in self._chunk)
        bounds = first[0], last[1], first[2], last[3]
        self._root.append((*bounds, records, place, self._number, *_OWNER))
        self._chunk, self._number, self._root_place = [], self._number + 1, place + 1
        return [chunk, self._record(IndexKind.ROOT, self._root)]

    def _record(self, kind: IndexKind, rows: Sequence[tuple[int, ...]]) -> tuple[bytes, bytes]:
        number = self._number if kind is IndexKind.CHUNK else 0
        key = IndexKey(kind, *self._copied.copy_id, _OWNER, number)
        root_place = self._root_place if kind is IndexKind.CHUNK else -1
        table = np.array(rows, np.int64)
        entries = Entries([np.ascontiguousarray(column) for column in table.T])
        return key.encode(), IndexRecord(key, entries, root_place=root_place).value()


def _runs(rng: np.random.Generator, *, regular: bool) -> Runs:
    """Draw the runs of a block: transactions of 1 to 20 records, or of 10 each, with markers."""
    size = RUNS_PER_BLOCK
    counts = np.full(size, 10) if regular else rng.integers(1, 21, size)
    markers = np.ones(size, np.int64) if regular else rng.integers(1, 4, size)
    ends = np.cumsum(counts + markers)
    sources = np.concatenate(([0], ends[:-1]))
    targets = np.concatenate(([0], np.cumsum(counts)[:-1]))
    return Runs(sources.astype(np.int64), targets.astype(np.int64), counts.astype(np.int64))


def write_maps(
    connection: BrokerSocket,
    topic: str,
    number: int,
    copies: Sequence[Copied],
    runs: int,
    *,
    regular: bool,
) -> list[PartitionPosition]:
    """Write the maps of several partitions into one partition of the map topic, side by side."""
    writers = [MapWriter(copied, regular=regular) for copied in copies]
    connection.fill(topic, _requests(writers, number, -(-runs // RUNS_PER_BLOCK)))
    return [writer.position() for writer in writers]


def _requests(
    writers: Sequence[MapWriter], number: int, blocks: int
) -> Iterator[Mapping[int, bytes]]:
    place = 0
    waiting: list[tuple[bytes | None, bytes]] = []
    size = 0
    for step in range(blocks + 1):
        for writer in writers:
            last = step == blocks - 1
            records = (
                writer.index(place) if step == blocks else writer.next_records(place, last=last)
            )
            place += len(records)
            waiting += records
            size += sum(len(key) + len(value) for key, value in records)
            if size >= _BATCH_BYTES:
                yield {number: encode(waiting, "none")}
                waiting, size = [], 0
    if waiting:
        yield {number: encode(waiting, "none")}


def check(copied: Copied) -> None:
    """Check that the codec reads the blocks as intended."""
    for regular in (True, False):
        [(key, value)] = MapWriter(copied, regular=regular).next_records(0)
        block = decode_block(key, value)
        if len(block.runs) != RUNS_PER_BLOCK or int(block.runs.sources[0]) != 0:
            raise ValueError("the bench's blocks are not what srm reads")
