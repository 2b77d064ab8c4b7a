"""Wire format of the offset map topic: blocks of runs.

A block is written again while it grows, at most once a second, and left alone once it is full. Its
key names the claim under which it is written. So an owner that was stopped and wakes up late can
overwrite its own blocks, never its successor's, who may have found the same runs in the logs.

Key   ``>B 16s i q q q``: format (2), source topic id, partition, target offset of the first run,
producer id and epoch of the claim. Format 1 ends before the producer id, and is read.
Value ``>B ? 16s H``: format (1), whether the last run is open, target topic id, length of the
source topic's name; the name in UTF-8; ``>H`` number of producer ids, ``>q`` each; ``>i`` number
of runs, ``>qqq`` each run.
"""

from __future__ import annotations

import base64
import struct
import zlib
from dataclasses import dataclass

from srm.domain.offset_map import Run
from srm.errors import IntegrityError

FORMAT = 1
KEY_FORMAT = 2
RUNS_PER_BLOCK = 512
MAP_PARTITIONS = 8

_KEY = struct.Struct(">B16siqqq")
_KEY_1 = struct.Struct(">B16siq")
_NO_OWNER = (-1, -1)
_HEAD = struct.Struct(">B?16sH")


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
class MapBlock:
    """Runs of one source partition, with the producer ids that wrote them.

    While ``open_end`` is set, the last run goes on up to the position that the slot reports: so a
    run that only grows is not written again and again. ``owner`` is producer id and epoch of the
    claim; -1 and the target offset of its end for a run that was written without one.
    """

    topic: str
    topic_id: str
    partition: int
    target_topic_id: str
    producer_ids: tuple[int, ...]
    runs: tuple[Run, ...]
    open_end: bool = True
    owner: tuple[int, int] = _NO_OWNER

    def key(self) -> bytes:
        """Encode the record key; the block must hold at least one run."""
        first = self.runs[0].target_start
        topic_id = topic_id_bytes(self.topic_id)
        return _KEY.pack(KEY_FORMAT, topic_id, self.partition, first, *self.owner)

    def value(self) -> bytes:
        """Encode the record value."""
        name = self.topic.encode()
        numbers = [n for run in self.runs for n in (run.source_start, run.target_start, run.count)]
        return b"".join(
            (
                _HEAD.pack(FORMAT, self.open_end, topic_id_bytes(self.target_topic_id), len(name)),
                name,
                struct.pack(
                    f">H{len(self.producer_ids)}q", len(self.producer_ids), *self.producer_ids
                ),
                struct.pack(f">i{len(numbers)}q", len(self.runs), *numbers),
            )
        )


@dataclass(frozen=True, slots=True)
class BlockKey:
    """What a record key says."""

    topic_id: str
    partition: int
    target_start: int
    owner: tuple[int, int]


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
    except (struct.error, UnicodeDecodeError) as error:
        raise IntegrityError(
            f"offset map record with key {key.hex()} is damaged: {error}"
        ) from error
    if value_format != FORMAT:
        raise IntegrityError(
            f"offset map record with key {key.hex()} has format {value_format}, "
            f"this version of srm knows {FORMAT}: upgrade srm"
        )
    runs = tuple(Run(*numbers[i : i + 3]) for i in range(0, len(numbers), 3))
    return MapBlock(
        name,
        found.topic_id,
        found.partition,
        topic_id_text(target_topic_id),
        producer_ids,
        runs,
        open_end,
        found.owner,
    )
