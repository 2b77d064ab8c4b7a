"""Records of the offset map topic: blocks of runs, and the index with their places.

**A block** is rewritten while it grows, at most once a second, and never after it is full. Its key
names the claim of its writer. So a stopped owner that resumes late can overwrite its own blocks,
but not those of its successor, which may have found the same runs in the logs.

Key   ``>B 16s i q q q``: format (2), source topic id, partition, target offset of the first run,
producer id and epoch of the claim.
Value ``>B B 16s H``: format (5), flags (1: the last run is open, 2: another block precedes this
one), target topic id, length of the source topic's name; the name in UTF-8; ``>H`` number of
producer ids, ``>q`` each; with flag 2 ``>qqq``, the end of the key of the block before; ``>BH``
number of leader epochs and of the bytes that follow, the source's lineage before the end of the
last run (folded distances); ``>iqq`` number of runs, source and target offset of the first one;
then three columns (:mod:`.varints`): the gaps before the other runs on the source (folded) and on
the target (folded), and the counts of all of them.

So the blocks of a partition are a chain, and a missing block in the middle is detected. A map with
a hole would translate to older offsets.

**The index**: a full block gets an entry in the partition's *chunk*, a full chunk one in its
*root*. The newest report names the last block and the newest chunk, which leads to the others by
places: offsets in the partition of the map topic, which compaction keeps. A place is stale if its
record is gone or has another key; a later version of the record may follow.

Key   ``>B 16s i 16s q q q``: kind (67 chunk, 82 root), source topic id, partition, target topic id,
producer id and epoch of the claim, number of the chunk (0 for a root).
Value ``>B q i i q q q``: format (1), place of the root (-1: none), number of entries, number of
first entries being deleted, source offset, target offset and place of the first entry. Columns
follow, folded except spans: gaps before the others on the source, spans of all, gaps and spans on
the target, spans minus records, steps of the places, key minus first target offset, steps of the
owners' producer ids and epochs (from 0).

An entry that begins before the end of the previous one, on either side, cuts all entries there. The
source or the target was truncated, and their records from there on are gone.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

import numpy as np

from srm.domain.names.topics import topic_id_bytes, topic_id_text
from srm.domain.offset_map import varints
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage, Offsets, Run, Runs, solid_runs
from srm.errors import IntegrityError

CopyId = tuple[str, int, str]
"""Source topic id, partition number, target topic id: the identity of a copy."""


@dataclass(frozen=True, slots=True)
class MapEnd:
    """End of a partition's offset map, which a reader must find or report as missing.

    ``target_start`` and ``owner`` are from the last block's key. Places, -1 if unknown, locate the
    last written version of that block and of the newest index record.
    """

    target_start: int
    owner: tuple[int, int]
    place: int = -1
    index_place: int = -1


FORMAT: Final = 5
KEY_FORMAT: Final = 2
RUNS_PER_BLOCK: Final = 512
MAP_PARTITIONS: Final = 8

_MOST_RUNS: Final = 1 << 16  # bounds the memory for a damaged number
_OPEN, _HAS_PREVIOUS = 1, 2

_KEY = struct.Struct(">B16siqqq")
NO_OWNER = (-1, -1)
_HEAD = struct.Struct(">BB16sH")
_IDS = struct.Struct(">H")
_PREVIOUS = struct.Struct(">qqq")
_RUNS = struct.Struct(">iqq")
_LINEAGE = struct.Struct(">BH")


def map_partition(topic: str, partition: int) -> int:
    """Return the partition of the map topic; by name, so a re-created topic finds former blocks."""
    return zlib.crc32(topic.encode() + struct.pack(">i", partition)) % MAP_PARTITIONS


@dataclass(frozen=True, slots=True)
class BlockKey:
    """Key of a block's record."""

    topic_id: str
    partition: int
    target_start: int
    owner: tuple[int, int]

    def encode(self) -> bytes:
        topic_id = topic_id_bytes(self.topic_id)
        return _KEY.pack(KEY_FORMAT, topic_id, self.partition, self.target_start, *self.owner)


@dataclass(frozen=True, slots=True)
class MapBlock:
    """Runs of one source partition, with the producer ids that wrote them.

    ``open_end``: the last run continues up to the slot's reported position, so that a run that only
    grows is not rewritten. ``owner``: producer id and epoch of the claim; without one -1 and the
    target offset of the run's end. ``previous``: the map's last block when this one was begun.
    ``source_lineage``: before the end of the last run; it reveals a truncation even without a
    report.

    Runs of a block grow on both sides. A run that begins before the end of the previous block, on
    either side, cuts all blocks there.
    """

    topic: str
    topic_id: str
    partition: int
    target_topic_id: str
    producer_ids: tuple[int, ...]
    runs: Runs
    open_end: bool = True
    owner: tuple[int, int] = NO_OWNER
    previous: BlockKey | None = None
    source_lineage: Lineage = UNKNOWN_LINEAGE

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", Runs.of(self.runs))

    @property
    def block_key(self) -> BlockKey:
        """Key of the record; the block must hold at least one run."""
        return BlockKey(self.topic_id, self.partition, int(self.runs.targets[0]), self.owner)

    def key(self) -> bytes:
        return self.block_key.encode()

    def value(self) -> bytes:
        name, before, runs = self.topic.encode(), self.previous, self.runs
        flags = self.open_end * _OPEN | (before is not None) * _HAS_PREVIOUS
        ids = self.producer_ids
        gaps = (
            varints.fold(starts[1:] - ends[:-1])
            for starts, ends in ((runs.sources, runs.source_ends), (runs.targets, runs.target_ends))
        )
        return b"".join(
            (
                _HEAD.pack(FORMAT, flags, topic_id_bytes(self.target_topic_id), len(name)),
                name,
                struct.pack(f">H{len(ids)}q", len(ids), *ids),
                _PREVIOUS.pack(before.target_start, *before.owner) if before else b"",
                _pack_lineage(self.source_lineage, int(runs.source_ends[-1])),
                _RUNS.pack(len(runs), int(runs.sources[0]), int(runs.targets[0])),
                varints.encode_columns((*gaps, runs.counts)),
            )
        )


def decode_block_key(key: bytes) -> BlockKey:
    try:
        key_format, topic_id, partition, start, *owner = _KEY.unpack(key)
    except struct.error as error:
        raise IntegrityError(f"offset map key {key.hex()} is damaged: {error}") from error
    if key_format != KEY_FORMAT:
        raise IntegrityError(f"offset map key {key.hex()} has format {key_format}: upgrade srm")
    return BlockKey(topic_id_text(topic_id), partition, start, (owner[0], owner[1]))


def decode_block(key: bytes, value: bytes) -> MapBlock:
    found = decode_block_key(key)
    if value and value[0] != FORMAT:
        raise IntegrityError(
            f"offset map record with key {key.hex()} has format {value[0]}, "
            f"this version of srm knows {FORMAT}: upgrade srm"
        )
    try:
        return _decode(found, value)
    except (struct.error, ValueError, IntegrityError) as error:
        raise IntegrityError(
            f"offset map record with key {key.hex()} is damaged: {error}"
        ) from error


def _decode(found: BlockKey, value: bytes) -> MapBlock:
    _, flags, target_topic_id, name_length = _HEAD.unpack_from(value)
    at = _HEAD.size + name_length
    name = value[_HEAD.size : at].decode()
    (id_count,) = _IDS.unpack_from(value, at)
    producer_ids = struct.unpack_from(f">{id_count}q", value, at + _IDS.size)
    at += _IDS.size + 8 * id_count
    before = None
    if flags & _HAS_PREVIOUS:
        start, *owner = _PREVIOUS.unpack_from(value, at)
        before = BlockKey(found.topic_id, found.partition, start, (owner[0], owner[1]))
        at += _PREVIOUS.size
    epochs, size = _LINEAGE.unpack_from(value, at)
    at += _LINEAGE.size + size
    lineage = value[at - size : at]
    count, source, target = _RUNS.unpack_from(value, at)
    if not 0 < count <= _MOST_RUNS:
        raise IntegrityError(f"{count} runs")
    sizes, rest = (count - 1, count - 1, count), memoryview(value)[at + _RUNS.size :]
    source_gaps, target_gaps, counts = varints.decode_columns(rest, sizes)
    varints.running_total(0, counts)
    sources, targets = (
        varints.running_total(first, counts[:-1] + varints.unfold(gaps))
        for first, gaps in ((source, source_gaps), (target, target_gaps))
    )
    runs = Runs(sources, targets, counts)
    return MapBlock(
        topic=name,
        topic_id=found.topic_id,
        partition=found.partition,
        target_topic_id=topic_id_text(target_topic_id),
        producer_ids=producer_ids,
        runs=runs,
        open_end=bool(flags & _OPEN),
        owner=found.owner,
        previous=before,
        source_lineage=_unpack_lineage(lineage, epochs, int(runs.source_ends[-1])),
    )


def _pack_lineage(lineage: Lineage, end: int) -> bytes:
    numbers = np.array(list(lineage.distances(end)), np.int64)
    packed = varints.encode(varints.fold(numbers))
    return _LINEAGE.pack(len(lineage.starts), len(packed)) + packed


def _unpack_lineage(packed: bytes, count: int, end: int) -> Lineage:
    numbers = varints.unfold(varints.decode(packed)).tolist()
    if len(numbers) != 2 * count:
        raise IntegrityError(f"{len(numbers)} numbers for {count} leader epochs")
    return Lineage.from_distances(iter(numbers), count, end)


ENTRIES_PER_CHUNK: Final = 1024

_INDEX_FORMAT: Final = 1
_MOST_ENTRIES: Final = 1 << 20  # bounds the memory for a damaged number: 512 million blocks
_INDEX_KEY = struct.Struct(">B16si16sqqq")
_INDEX_HEAD = struct.Struct(">Bqiiqqq")


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
        source, target = topic_id_bytes(self.topic_id), topic_id_bytes(self.target_topic_id)
        return _INDEX_KEY.pack(self.kind, source, self.partition, target, *self.owner, self.number)


class IndexEntry(NamedTuple):
    """A stretch of the map: a block, or in a root a whole chunk, whose number is ``key_start``."""

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    records: int
    place: int = -1
    key_start: int = 0
    owner_id: int = 0
    owner_epoch: int = 0

    @property
    def owner(self) -> tuple[int, int]:
        return self.owner_id, self.owner_epoch

    @classmethod
    def spanning(cls, first: Run | IndexEntry, last: Run | IndexEntry, count: int) -> IndexEntry:
        """Return the stretch from the start of one to the end of another, without its place."""
        return cls(first.source_start, last.source_end, first.target_start, last.target_end, count)

    def with_place(self, place: int, key_start: int, owner: tuple[int, int]) -> IndexEntry:
        return self._replace(
            place=place, key_start=key_start, owner_id=owner[0], owner_epoch=owner[1]
        )

    @classmethod
    def of_block(cls, block: MapBlock, place: int) -> IndexEntry:
        solid = solid_runs(block.runs)
        held = solid if len(solid) else block.runs
        lowest = int(block.runs.sources.min())  # a cut in the block cuts others from there on
        whole = cls.spanning(held[0], held[-1], solid.records)
        whole = whole._replace(source_start=lowest, source_end=max(whole.source_end, lowest))
        return whole.with_place(place, block.runs[0].target_start, block.owner)


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
        table = np.array(list(entries), np.int64).reshape(-1, len(IndexEntry._fields))
        return cls([np.ascontiguousarray(table[:, n]) for n in range(len(IndexEntry._fields))])

    @property
    def arrays(self) -> tuple[Offsets, ...]:
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
        return Entries([*map(np.concatenate, zip(self.arrays, other.arrays, strict=True))])


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """A chunk or a root; the first ``deleted`` entries are before both logs and being deleted."""

    key: IndexKey
    entries: Entries
    deleted: int = 0
    root_place: int = -1

    @property
    def in_use(self) -> range:
        """Numbers of the entries that are not being deleted."""
        return range(self.deleted, len(self.entries))

    def block_key(self, number: int) -> BlockKey:
        entry = self.entries[number]
        return BlockKey(self.key.topic_id, self.key.partition, entry.key_start, entry.owner)

    def chunk_key(self, number: int) -> IndexKey:
        entry = self.entries[number]
        return replace(self.key, kind=IndexKind.CHUNK, owner=entry.owner, number=entry.key_start)

    def value(self) -> bytes:
        entries = self.entries
        first = entries[0] if len(entries) else IndexEntry(0, 0, 0, 0, records=0, place=0)
        source, target = entries.source_start, entries.target_start
        target_span = entries.target_end - target
        steps = (np.diff(owner, prepend=0) for owner in (entries.owner_id, entries.owner_epoch))
        return _INDEX_HEAD.pack(
            _INDEX_FORMAT,
            self.root_place,
            len(entries),
            self.deleted,
            first.source_start,
            first.target_start,
            first.place,
        ) + varints.encode_columns(
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
    return len(key) == _INDEX_KEY.size and key[0] in IndexKind.__members__.values()


def decode_index_key(key: bytes) -> IndexKey:
    try:
        kind, topic_id, partition, target_id, owner, epoch, number = _INDEX_KEY.unpack(key)
        found = IndexKind(kind)
    except (struct.error, ValueError) as error:
        raise IntegrityError(f"key {key.hex()} is not of an offset map's index: {error}") from None
    ids = topic_id_text(topic_id), partition, topic_id_text(target_id)
    return IndexKey(found, *ids, (owner, epoch), number)


def decode_key(key: bytes) -> IndexKey | BlockKey:
    return decode_index_key(key) if is_index_key(key) else decode_block_key(key)


def decode_index(key: bytes, value: bytes) -> IndexRecord:
    found = decode_index_key(key)
    if value[:1] > bytes([_INDEX_FORMAT]):
        raise IntegrityError(
            f"index of an offset map with key {key.hex()} has format {value[0]}, "
            f"this version of srm knows {_INDEX_FORMAT}: upgrade srm"
        )
    try:
        return _decode_entries(found, value)
    except (struct.error, IntegrityError) as error:
        raise IntegrityError(
            f"index of an offset map with key {key.hex()} is damaged: {error}"
        ) from error


def _decode_entries(key: IndexKey, value: bytes) -> IndexRecord:
    version, root_place, count, deleted, source, target, place = _INDEX_HEAD.unpack_from(value)
    if version != _INDEX_FORMAT or not 0 <= deleted <= count <= _MOST_ENTRIES:
        raise IntegrityError(f"format {version}, {count} entries, {deleted} of them deleted")
    rest = memoryview(value)[_INDEX_HEAD.size :]
    if not count:
        varints.decode_columns(rest, ())
        return IndexRecord(key, Entries.of(()), 0, root_place)
    gaps = count - 1
    read = varints.decode_columns(
        rest, (gaps, count, gaps, count, count, gaps, count, count, count)
    )
    source_gaps, source_spans, target_gaps, target_spans = read[:4]
    unrecorded, place_steps, key_steps, owner_ids, owner_epochs = map(varints.unfold, read[4:])
    sources, source_ends = _bounds(source, source_spans, source_gaps)
    targets, target_ends = _bounds(target, target_spans, target_gaps)
    bounds, records = (sources, source_ends, targets, target_ends), target_spans - unrecorded
    places, key_starts = varints.running_total(place, place_steps), targets + key_steps
    owners = np.cumsum(owner_ids), np.cumsum(owner_epochs)
    entries = Entries([*bounds, records, places, key_starts, *owners])
    if int(entries.records.min()) < 0:
        raise IntegrityError("an entry has a negative number of records")
    return IndexRecord(key, entries, deleted, root_place)


def _bounds(first: int, spans: Offsets, gaps: Offsets) -> tuple[Offsets, Offsets]:
    starts = varints.running_total(first, spans[:-1] + varints.unfold(gaps))
    varints.running_total(0, spans)
    if float(starts.max()) + float(spans.max()) > varints.LARGEST:
        raise IntegrityError("an offset is larger than 2^62 - 1")
    return starts, starts + spans
