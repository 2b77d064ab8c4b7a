"""Wire format of the offset map topic: blocks of runs.

A block is rewritten while it grows, at most once a second, and never after it is full. Its key
names the claim of its writer. So a stopped owner that resumes late can overwrite its own blocks,
but not those of its successor, which may have found the same runs in the logs.

Key   ``>B 16s i q q q``: format (2), source topic id, partition, target offset of the first run,
producer id and epoch of the claim.
Value ``>B B 16s H``: format (5), flags (1: the last run is open, 2: another block precedes this
one), target topic id, length of the source topic's name; the name in UTF-8; ``>H`` number of
producer ids, ``>q`` each; with flag 2 ``>qqq``, the end of the key of the block before; ``>BH``
number of leader epochs and of the bytes that follow, the source's lineage before the end of the
last run (folded distances); ``>iqq`` number of runs, source and target offset of the first one;
then three columns (:mod:`srm.domain.offset_map.integer_columns`): the gaps before
the other runs on the source (folded) and on the target (folded), and the counts of all of them.

So the blocks of a partition are a chain, and a missing block in the middle is detected. A map with
a hole would translate to older offsets. A separate index has the places of the blocks
(:mod:`srm.domain.offset_map.map_index`).
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass
from typing import Final

import numpy as np

from srm.domain.offset_map import integer_columns, varints
from srm.domain.offset_map.lineage import UNKNOWN, Lineage
from srm.domain.offset_map.runs import Runs
from srm.errors import IntegrityError

CopyId = tuple[str, int, str]
"""Source topic id, partition number, target topic id: the identity of a copy."""


@dataclass(frozen=True, slots=True)
class MapEnd:
    """End of a partition's offset map, which a reader must find or report as missing.

    ``target_start`` and ``owner`` are from the last block's key. ``place`` and ``index_place`` are
    offsets in the partition of the map topic, -1 if unknown. They locate the last written version
    of the last block and the newest index record.
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


def topic_id_bytes(topic_id: str) -> bytes:
    """Turn Kafka's printed topic id (base64 without padding) into its 16 bytes."""
    return base64.urlsafe_b64decode(topic_id + "==")


def topic_id_text(topic_id: bytes) -> str:
    """Turn the 16 bytes of a topic id into the text Kafka prints."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


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
        """Encode the record key."""
        topic_id = topic_id_bytes(self.topic_id)
        return _KEY.pack(KEY_FORMAT, topic_id, self.partition, self.target_start, *self.owner)


@dataclass(frozen=True, slots=True)
class MapBlock:
    """Runs of one source partition, with the producer ids that wrote them.

    ``open_end``: the last run continues up to the slot's reported position, so that a run that only
    grows is not rewritten.
    ``owner`` is producer id and epoch of the claim. Without a claim it is -1 and the target offset
    of the run's end.
    ``previous`` is the map's last block when this one was begun.
    ``source_lineage`` is the source's lineage before the end of the last run, as long as that run
    is in this block. It reveals a truncation even without a report.

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
    source_lineage: Lineage = UNKNOWN

    def __post_init__(self) -> None:
        object.__setattr__(self, "runs", Runs.of(self.runs))

    @property
    def block_key(self) -> BlockKey:
        """Key of the record; the block must hold at least one run."""
        return BlockKey(self.topic_id, self.partition, int(self.runs.targets[0]), self.owner)

    def key(self) -> bytes:
        """Encode the record key; the block must hold at least one run."""
        return self.block_key.encode()

    def value(self) -> bytes:
        """Encode the record value; the block must hold at least one run."""
        name, before, runs = self.topic.encode(), self.previous, self.runs
        flags = self.open_end * _OPEN | (before is not None) * _HAS_PREVIOUS
        ids = self.producer_ids
        gaps = (
            varints.fold(starts[1:] - ends[:-1])
            for starts, ends in (
                (runs.sources, runs.source_ends),
                (runs.targets, runs.target_ends),
            )
        )
        return b"".join(
            (
                _HEAD.pack(FORMAT, flags, topic_id_bytes(self.target_topic_id), len(name)),
                name,
                struct.pack(f">H{len(ids)}q", len(ids), *ids),
                _PREVIOUS.pack(before.target_start, *before.owner) if before else b"",
                _pack_lineage(self.source_lineage, int(runs.source_ends[-1])),
                _RUNS.pack(len(runs), int(runs.sources[0]), int(runs.targets[0])),
                integer_columns.encode((*gaps, runs.counts)),
            )
        )


def decode_block_key(key: bytes) -> BlockKey:
    """Decode a record key."""
    try:
        key_format, topic_id, partition, start, *owner = _KEY.unpack(key)
    except struct.error as error:
        raise IntegrityError(f"offset map key {key.hex()} is damaged: {error}") from error
    if key_format != KEY_FORMAT:
        raise IntegrityError(f"offset map key {key.hex()} has format {key_format}: upgrade srm")
    return BlockKey(topic_id_text(topic_id), partition, start, (owner[0], owner[1]))


def decode_block(key: bytes, value: bytes) -> MapBlock:
    """Decode one record of the offset map topic."""
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
    runs, before, lineage = _runs(value, at)
    return MapBlock(
        name,
        found.topic_id,
        found.partition,
        topic_id_text(target_topic_id),
        producer_ids,
        runs,
        bool(flags & _OPEN),
        found.owner,
        BlockKey(found.topic_id, found.partition, before[0], before[1:]) if before else None,
        lineage,
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


_Tail = tuple[Runs, tuple[int, int, int] | None, Lineage]


def _runs(value: bytes, at: int) -> _Tail:
    before = None
    if value[1] & _HAS_PREVIOUS:
        before = _PREVIOUS.unpack_from(value, at)
        at += _PREVIOUS.size
    epochs, size = _LINEAGE.unpack_from(value, at)
    at += _LINEAGE.size
    lineage = value[at : at + size]
    at += size
    count, source, target = _RUNS.unpack_from(value, at)
    if not 0 < count <= _MOST_RUNS:
        raise IntegrityError(f"{count} runs")
    at += _RUNS.size
    sizes = (count - 1, count - 1, count)
    source_gaps, target_gaps, counts = integer_columns.decode(memoryview(value)[at:], sizes)
    integer_columns.running_total(0, counts)
    sources, targets = (
        integer_columns.running_total(first, counts[:-1] + varints.unfold(gaps))
        for first, gaps in ((source, source_gaps), (target, target_gaps))
    )
    runs = Runs(sources, targets, counts)
    return runs, before, _unpack_lineage(lineage, epochs, int(runs.source_ends[-1]))
