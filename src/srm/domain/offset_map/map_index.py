"""Index of an offset map: places of blocks in the map topic.

A full block gets an entry in the partition's *chunk*, a full chunk one in its *root*. The newest
report names the last block and the newest chunk, which leads to the others by places: offsets in
the partition of the map topic, which compaction keeps. A place is stale if its record is gone or
has another key; a later version of the record may follow.

Chunks and roots have keys of their own kind, which name the claim of their writer. A stopped owner
can overwrite only its own records.

Key   ``>B 16s i 16s q q q``: kind (67 chunk, 82 root), source topic id, partition, target topic id,
producer id and epoch of the claim, number of the chunk (0 for a root).
Value ``>B q i i q q q``: format (1), place of the root (-1: none), number of entries, number of
first entries being deleted, source offset, target offset and place of the first entry. Columns
follow (:mod:`srm.domain.offset_map.integer_columns`), folded except spans: gaps before the others
on the source, spans of all, gaps and spans on the target, spans minus records, steps of the places,
key minus first target offset, steps of the owners' producer ids and epochs (from 0).

An entry that begins before the end of the previous one, on either side, cuts all entries there. The
source or the target was truncated, and their records from there on are gone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from srm.domain.offset_map import integer_columns, varints
from srm.domain.offset_map.map_records import (
    BlockKey,
    MapBlock,
    decode_block_key,
    topic_id_bytes,
    topic_id_text,
)
from srm.domain.offset_map.runs import Offsets, solid_runs
from srm.errors import IntegrityError

ENTRIES_PER_CHUNK: Final = 1024

_FORMAT: Final = 1
_MOST_ENTRIES: Final = 1 << 20  # bounds the memory for a damaged number: 512 million blocks
_KEY = struct.Struct(">B16si16sqqq")
_HEAD = struct.Struct(">Bqiiqqq")


class IndexKind(IntEnum):
    """Kind of an index record; no format of a block's key has the same number."""

    CHUNK = ord("C")
    ROOT = ord("R")


@dataclass(frozen=True, slots=True)
class IndexKey:
    """Key of an index record."""

    kind: IndexKind
    topic_id: str
    partition: int
    target_topic_id: str
    owner: tuple[int, int]
    number: int = 0

    def encode(self) -> bytes:
        """Encode the record key."""
        source, target = topic_id_bytes(self.topic_id), topic_id_bytes(self.target_topic_id)
        return _KEY.pack(self.kind, source, self.partition, target, *self.owner, self.number)


class IndexEntry(NamedTuple):
    """A stretch of the map: a block, or in a root a whole chunk, whose number is ``key_start``."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    records: int
    place: int
    key_start: int
    owner_id: int
    owner_epoch: int

    @property
    def owner(self) -> tuple[int, int]:
        """Producer id and epoch of the claim in the key."""
        return self.owner_id, self.owner_epoch

    @classmethod
    def of_block(cls, block: MapBlock, place: int) -> IndexEntry:
        """Return the entry of a block at a place."""
        solid = solid_runs(block.runs)
        held = solid if len(solid) else block.runs
        lowest = int(block.runs.sources.min())  # a cut in the block cuts others from there on
        return cls(
            lowest,
            max(held[-1].source_end, lowest),
            held[0].target_start,
            held[-1].target_end,
            solid.records,
            place,
            block.runs[0].target_start,
            *block.owner,
        )


class Entries:
    """An immutable table of entries in map order, as arrays."""

    __slots__ = IndexEntry._fields

    def __init__(self, arrays: Sequence[Offsets]) -> None:
        for name, array in zip(IndexEntry._fields, arrays, strict=True):
            setattr(self, name, array)

    source_start: Offsets
    source_end: Offsets
    target_start: Offsets
    target_end: Offsets
    records: Offsets
    place: Offsets
    key_start: Offsets
    owner_id: Offsets
    owner_epoch: Offsets

    @classmethod
    def of(cls, entries: Iterable[IndexEntry]) -> Entries:
        """Build the table."""
        table = np.array(list(entries), np.int64).reshape(-1, len(IndexEntry._fields))
        return cls([np.ascontiguousarray(table[:, n]) for n in range(len(IndexEntry._fields))])

    @property
    def arrays(self) -> tuple[Offsets, ...]:
        """The columns, in the order of the fields of an entry."""
        return tuple(getattr(self, name) for name in IndexEntry._fields)

    def __len__(self) -> int:
        return len(self.place)

    def __getitem__(self, index: int) -> IndexEntry:
        return IndexEntry(*(int(array[index]) for array in self.arrays))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entries):
            return NotImplemented
        return all(map(np.array_equal, self.arrays, other.arrays))

    __hash__ = None  # type: ignore[assignment] # arrays have none

    def __repr__(self) -> str:
        return f"Entries({len(self)})"

    def slice(self, start: int, end: int | None = None) -> Entries:
        """Return the entries from one number to another."""
        return Entries([array[start:end] for array in self.arrays])

    def with_key(self, key_start: int, owner: tuple[int, int]) -> Offsets:
        """Return the numbers of the entries with this end of a key, in order."""
        owned = (self.owner_id == owner[0]) & (self.owner_epoch == owner[1])
        return np.flatnonzero(owned & (self.key_start == key_start))

    def with_records(self) -> Entries:
        """Leave out entries without records, which are only cuts."""
        kept = self.records > 0
        return self if kept.all() else Entries([array[kept] for array in self.arrays])

    def __add__(self, other: Entries) -> Entries:
        return Entries(
            [np.concatenate(pair) for pair in zip(self.arrays, other.arrays, strict=True)]
        )


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """A chunk or a root; the first ``deleted`` entries are before both logs and being deleted."""

    key: IndexKey
    entries: Entries
    deleted: int = 0
    root_place: int = -1

    def value(self) -> bytes:
        """Encode the record value."""
        entries = self.entries
        first = entries[0] if len(entries) else IndexEntry(*[0] * len(IndexEntry._fields))
        source, target = entries.source_start, entries.target_start
        target_span = entries.target_end - target
        steps = (np.diff(owner, prepend=0) for owner in (entries.owner_id, entries.owner_epoch))
        return _HEAD.pack(
            _FORMAT,
            self.root_place,
            len(entries),
            self.deleted,
            first.source_start,
            first.target_start,
            first.place,
        ) + integer_columns.encode(
            (
                varints.fold(source[1:] - entries.source_end[:-1]),
                entries.source_end - source,
                varints.fold(target[1:] - entries.target_end[:-1]),
                target_span,
                varints.fold(target_span - entries.records),
                varints.fold(np.diff(entries.place)),
                varints.fold(entries.key_start - target),
                *map(varints.fold, steps),
            )
        )


def is_index_key(key: bytes) -> bool:
    """Return True for the key of an index record, False for the key of a block."""
    return len(key) == _KEY.size and key[0] in IndexKind.__members__.values()


def decode_index_key(key: bytes) -> IndexKey:
    """Decode the key of an index record."""
    try:
        kind, topic_id, partition, target_id, owner, epoch, number = _KEY.unpack(key)
        found = IndexKind(kind)
    except (struct.error, ValueError) as error:
        raise IntegrityError(f"key {key.hex()} is not of an offset map's index: {error}") from None
    ids = topic_id_text(topic_id), partition, topic_id_text(target_id)
    return IndexKey(found, *ids, (owner, epoch), number)


def decode_key(key: bytes) -> IndexKey | BlockKey:
    """Decode the key of any record of the map topic."""
    return decode_index_key(key) if is_index_key(key) else decode_block_key(key)


def decode_index(key: bytes, value: bytes) -> IndexRecord:
    """Decode an index record."""
    found = decode_index_key(key)
    if value[:1] > bytes([_FORMAT]):
        raise IntegrityError(
            f"index of an offset map with key {key.hex()} has format {value[0]}, "
            f"this version of srm knows {_FORMAT}: upgrade srm"
        )
    try:
        return _decode(found, value)
    except (struct.error, IntegrityError) as error:
        raise IntegrityError(
            f"index of an offset map with key {key.hex()} is damaged: {error}"
        ) from error


def _decode(key: IndexKey, value: bytes) -> IndexRecord:
    version, root_place, count, deleted, source, target, place = _HEAD.unpack_from(value)
    if version != _FORMAT or not 0 <= deleted <= count <= _MOST_ENTRIES:
        raise IntegrityError(f"format {version}, {count} entries, {deleted} of them deleted")
    rest = memoryview(value)[_HEAD.size :]
    if not count:
        integer_columns.decode(rest, ())
        return IndexRecord(key, Entries.of(()), 0, root_place)
    gaps = count - 1
    read = integer_columns.decode(
        rest, (gaps, count, gaps, count, count, gaps, count, count, count)
    )
    source_gaps, source_spans, target_gaps, target_spans = read[:4]
    unrecorded, place_steps, key_steps, owner_ids, owner_epochs = map(varints.unfold, read[4:])
    sources, source_ends = _bounds(source, source_spans, source_gaps)
    targets, target_ends = _bounds(target, target_spans, target_gaps)
    entries = Entries(
        (
            sources,
            source_ends,
            targets,
            target_ends,
            target_spans - unrecorded,
            integer_columns.running_total(place, place_steps),
            targets + key_steps,
            np.cumsum(owner_ids),
            np.cumsum(owner_epochs),
        )
    )
    if int(entries.records.min()) < 0:
        raise IntegrityError("an entry has a negative number of records")
    return IndexRecord(key, entries, deleted, root_place)


def _bounds(first: int, spans: Offsets, gaps: Offsets) -> tuple[Offsets, Offsets]:
    starts = integer_columns.running_total(first, spans[:-1] + varints.unfold(gaps))
    integer_columns.running_total(0, spans)
    if float(starts.max()) + float(spans.max()) > varints.LARGEST:
        raise IntegrityError("an offset is larger than 2^62 - 1")
    return starts, starts + spans


def block_key(record: IndexRecord, number: int) -> BlockKey:
    """Return the key of the block of a chunk's entry."""
    entry = record.entries[number]
    return BlockKey(record.key.topic_id, record.key.partition, entry.key_start, entry.owner)


def chunk_key(root: IndexRecord, number: int) -> IndexKey:
    """Return the key of the chunk of a root's entry."""
    entry, key = root.entries[number], root.key
    return IndexKey(
        IndexKind.CHUNK,
        key.topic_id,
        key.partition,
        key.target_topic_id,
        entry.owner,
        entry.key_start,
    )
