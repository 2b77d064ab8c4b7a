"""Commits of consumer groups as brokers keep them in ``__consumer_offsets``.

Layouts: OffsetCommitKey.json and OffsetCommitValue.json of Apache Kafka, versions 0 to 4. Other
records of the topic (members, the state of groups) have other versions of the key.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import topic_id_text

TOPIC: Final = "__consumer_offsets"
_KEYS: Final = (b"\0\0", b"\0\1")
_FIRST_FLEXIBLE: Final = 4
_TOPIC_ID: Final = 0
_OFFSET_END: Final = 10  # the version and the offset, in each version
_LENGTH: Final = struct.Struct(">h")
_NUMBER: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A partition for which a group has committed; ``topic_id`` is empty in older records."""

    group: str
    partition: TopicPartition
    topic_id: str = ""


def decode_commit(key: bytes, value: bytes) -> OffsetCommit | None:
    """Decode a record with a value; None for another record, or one that is damaged."""
    if key[:2] not in _KEYS:
        return None
    try:
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        place = TopicPartition(topic, *_NUMBER.unpack_from(key, at))
        return OffsetCommit(group, place, _topic_id(value))
    except (struct.error, ValueError, IndexError):
        return None


@dataclass
class NewCommits:
    """Picks commits that change an offset: consumers repeat theirs every few seconds."""

    _known: dict[bytes, bytes] = field(default_factory=dict)

    def take(self, key: bytes, value: bytes | None) -> OffsetCommit | None:
        """Return the commit of a record if it is one, and new."""
        if value is None:
            self._known.pop(key, None)
            return None
        offset = value[:_OFFSET_END]
        if key[:2] not in _KEYS or self._known.get(key) == offset:
            return None
        self._known[key] = offset
        return decode_commit(key, value)


def _text(data: bytes, at: int) -> tuple[str, int]:
    start = at + _LENGTH.size
    end = start + _LENGTH.unpack_from(data, at)[0]
    if end < start or end > len(data):
        raise ValueError(data)
    return data[start:end].decode(), end


def _topic_id(value: bytes) -> str:
    """Return the tagged field with the id, which only flexible versions have."""
    if _LENGTH.unpack_from(value)[0] < _FIRST_FLEXIBLE:
        return ""
    size, at = _varint(value, _OFFSET_END + _NUMBER.size)  # of the metadata, and one
    count, at = _varint(value, at + max(0, size - 1) + 8)  # a timestamp is between them
    for _ in range(count):
        tag, at = _varint(value, at)
        size, at = _varint(value, at)
        if tag == _TOPIC_ID:
            return topic_id_text(value[at : at + size])
        at += size
    return ""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte <= 0x7F:
            return value, at
