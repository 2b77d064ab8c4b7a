"""Wire format of the offset map topic: blocks of runs.

A block is written again while it grows, at most once a second, and left alone once it is full. Its
key names the claim under which it is written. So an owner that was stopped and wakes up late can
overwrite its own blocks, never its successor's, who may have found the same runs in the logs.

Key   ``>B 16s i q q q``: format (2), source topic id, partition, target offset of the first run,
producer id and epoch of the claim. Format 1 ends before the producer id, and is read.
Value ``>B ? 16s H``: format (3), whether the last run is open, target topic id, length of the
source topic's name; the name in UTF-8; ``>H`` number of producer ids, ``>q`` each; ``>i`` number
of runs, ``>qqq`` each run; ``>Bqqq`` 1 and the end of the key of the block before this one, 0
for none; ``>i`` source leader epoch at the end of the last run. Format 2 ends before the epoch,
format 1 before the block before; both are read.

So the blocks of a partition are a chain, and one that is missing in the middle is found out: a map
with a hole would take older offsets for later ones.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from srm.domain.offset_map import Run
from srm.errors import IntegrityError

FORMAT = 3
KEY_FORMAT = 2
RUNS_PER_BLOCK = 512
MAP_PARTITIONS = 8

_KEY = struct.Struct(">B16siqqq")
_KEY_1 = struct.Struct(">B16siq")
_NO_OWNER = (-1, -1)
_HEAD = struct.Struct(">B?16sH")
_PREVIOUS = struct.Struct(">Bqqq")
_EPOCH = struct.Struct(">i")
_UNKNOWN_EPOCH = -1


def topic_id_bytes(topic_id: str) -> bytes:
    """Turn Kafka's printed topic id (base64 without padding) into its 16 bytes."""
    return base64.urlsafe_b64decode(topic_id + "==")


def topic_id_text(topic_id: bytes) -> str:
    """Turn the 16 bytes of a topic id into the text Kafka prints."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def map_partition(topic: str, partition: int) -> int:
    """Partition of the map topic that holds the blocks of one source partition.

    By name, so that whoever copies a topic that was created anew finds what its former self left.
    """
    return zlib.crc32(topic.encode() + struct.pack(">i", partition)) % MAP_PARTITIONS


@dataclass(frozen=True, slots=True)
class BlockKey:
    """What a record key says."""

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

    While ``open_end`` is set, the last run goes on up to the position that the slot reports: so a
    run that only grows is not written again and again. ``owner`` is producer id and epoch of the
    claim; -1 and the target offset of its end for a run that was written without one. ``previous``
    is the block that was the map's last one when this one was begun. ``source_epoch`` is the leader
    epoch of the source where the last run ends, as long as it is here: with it a truncation is seen
    even when no report is left; -1 if not known.
    """

    topic: str
    topic_id: str
    partition: int
    target_topic_id: str
    producer_ids: tuple[int, ...]
    runs: tuple[Run, ...]
    open_end: bool = True
    owner: tuple[int, int] = _NO_OWNER
    previous: BlockKey | None = None
    source_epoch: int = _UNKNOWN_EPOCH

    @property
    def block_key(self) -> BlockKey:
        """What the record key says; the block must hold at least one run."""
        return BlockKey(self.topic_id, self.partition, self.runs[0].target_start, self.owner)

    def key(self) -> bytes:
        """Encode the record key; the block must hold at least one run."""
        return self.block_key.encode()

    def value(self) -> bytes:
        """Encode the record value."""
        name = self.topic.encode()
        numbers = [n for run in self.runs for n in (run.source_start, run.target_start, run.count)]
        before = self.previous
        return b"".join(
            (
                _HEAD.pack(FORMAT, self.open_end, topic_id_bytes(self.target_topic_id), len(name)),
                name,
                struct.pack(
                    f">H{len(self.producer_ids)}q", len(self.producer_ids), *self.producer_ids
                ),
                struct.pack(f">i{len(numbers)}q", len(self.runs), *numbers),
                _PREVIOUS.pack(1, before.target_start, *before.owner)
                if before
                else bytes(_PREVIOUS.size),
                _EPOCH.pack(self.source_epoch),
            )
        )


def decode_block_key(key: bytes) -> BlockKey:
    """Decode a record key.

    Raises:
        IntegrityError: the bytes are not a key of this topic, of a format this version knows.
    """
    try:
        if len(key) == _KEY_1.size:
            key_format, topic_id, partition, start = _KEY_1.unpack(key)
            owner, known = _NO_OWNER, 1
        else:
            key_format, topic_id, partition, start, *claim = _KEY.unpack(key)
            owner, known = (claim[0], claim[1]), KEY_FORMAT
    except struct.error as error:
        raise IntegrityError(f"offset map key {key.hex()} is damaged: {error}") from error
    if key_format != known:
        raise IntegrityError(f"offset map key {key.hex()} has format {key_format}: upgrade srm")
    return BlockKey(topic_id_text(topic_id), partition, start, owner)


def decode_block(key: bytes, value: bytes) -> MapBlock:
    """Decode one record of the offset map topic.

    Raises:
        IntegrityError: the bytes are not a block of a format this version knows.
    """
    found = decode_block_key(key)
    try:
        value_format, open_end, target_topic_id, name_length = _HEAD.unpack_from(value)
        at = _HEAD.size + name_length
        name = value[_HEAD.size : at].decode()
        (id_count,) = struct.unpack_from(">H", value, at)
        producer_ids = struct.unpack_from(f">{id_count}q", value, at + 2)
        at += 2 + 8 * id_count
        (run_count,) = struct.unpack_from(">i", value, at)
        numbers = struct.unpack_from(f">{3 * run_count}q", value, at + 4)
        at += 4 + 24 * run_count
        has_previous, start, *claim = (
            (False, 0, 0, 0) if value_format == 1 else _PREVIOUS.unpack_from(value, at)
        )
        (epoch,) = (
            (_UNKNOWN_EPOCH,)
            if value_format in (1, 2)
            else _EPOCH.unpack_from(value, at + _PREVIOUS.size)
        )
    except (struct.error, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"offset map record with key {key.hex()} is damaged: {error}"
        ) from error
    if value_format not in (1, 2, FORMAT):
        raise IntegrityError(
            f"offset map record with key {key.hex()} has format {value_format}, "
            f"this version of srm knows {FORMAT}: upgrade srm"
        )
    runs = tuple(Run(*numbers[i : i + 3]) for i in range(0, len(numbers), 3))
    before = BlockKey(found.topic_id, found.partition, start, (claim[0], claim[1]))
    return MapBlock(
        name,
        found.topic_id,
        found.partition,
        topic_id_text(target_topic_id),
        producer_ids,
        runs,
        open_end,
        found.owner,
        before if has_previous else None,
        epoch,
    )


def last_block(blocks: Iterable[MapBlock]) -> MapBlock:
    """Return the block that reaches furthest along the target, of the latest claim among equals."""
    return max(blocks, key=lambda block: (block.runs[-1].target_end, block.owner))


def missing_before(last: MapBlock, blocks: Iterable[MapBlock]) -> BlockKey | None:
    """Follow the chain back from the last block of a partition; return the first one missing.

    A block off the chain (of an owner that was stopped, say) may miss what it likes.
    """
    known = {block.block_key: block for block in blocks}
    before = last.previous
    while before is not None:
        block = known.pop(before, None)
        if block is None:
            return before
        before = block.previous
    return None
