"""Records of other programs: MirrorMaker 2, Kafka Connect, and commits that brokers keep.

Bit for bit those of MM2's OffsetSync, Checkpoint and Heartbeat classes (unchanged from Kafka 2.4 to
4.4), so that MirrorClient, RemoteClusterUtils and users' tools read srm's records. Integers are
big-endian and signed; a string is an INT16 length in bytes and UTF-8.

===========  ==================================  ==================================================
record       key                                 value
===========  ==================================  ==================================================
OffsetSync   topic, INT32 partition              INT64 upstream, INT64 downstream
Checkpoint   group, topic, INT32 partition       INT16 0, INT64 upstream, INT64 downstream, metadata
Heartbeat    source alias, target alias          INT16 0, INT64 epoch ms
===========  ==================================  ==================================================

All are in partition 0 of their topic. MM2's readers fail on null values in two of the three topics,
so srm never deletes these records with a tombstone. The checkpoint of a commit that its source no
longer has gets the mark ``:gone:<epoch ms>`` behind its metadata; a forgotten one is at offset 0,
with nothing else in them.

The metadata of a checkpoint is free text, which MM2 copies from the commit. srm stores the ids of
both topics in it: ``srm:<id on the source>:<id on the target>``, and ``:share`` for a share group.

MM2's source offsets are in Connect's offsets topic, as JSON without schemas. Connect looks keys up
by their bytes, in the order of a Java HashMap; so a known key is written again as it is::

    key     ["MirrorSourceConnector",{"cluster":"P","partition":0,"topic":"Payments"}]
    value   {"offset":41}                                  the last copied record

Commits in ``__consumer_offsets``: OffsetCommitKey.json and OffsetCommitValue.json of Apache Kafka,
versions 0 to 4. Other records of that topic have other versions of the key.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from srm.domain.names.topics import Flow, TopicPartition, topic_id_text
from srm.errors import IntegrityError

VERSION = 0
MAX_STRING_BYTES = 32767

_IDS: Final = "srm:"
_SHARE: Final = ":share"
_GONE: Final = ":gone:"


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """Both offsets of one copied record; the topic is named as on the flow's source."""

    topic_partition: TopicPartition
    upstream_offset: int
    downstream_offset: int

    def key(self) -> bytes:
        return _pack("si", *self.topic_partition)

    def value(self) -> bytes:
        return _pack("qq", self.upstream_offset, self.downstream_offset)


@dataclass(frozen=True, slots=True)
class TopicIds:
    """Ids of one topic on a flow's source and on its target; empty if unknown or not existing."""

    source: str
    target: str

    def metadata(self, *, is_share: bool = False) -> str:
        """Encode them as the metadata of a checkpoint, of a share group if so."""
        kind = _SHARE if is_share else ""
        return f"{_IDS}{self.source}:{self.target}{kind}" if self.target else ""

    @classmethod
    def of_metadata(cls, text: str) -> TopicIds | None:
        """Decode the metadata of a checkpoint, None if srm did not write it."""
        ids = text.partition(_GONE)[0].removesuffix(_SHARE)
        source, _, target = ids.removeprefix(_IDS).partition(":")
        return cls(source, target) if text.startswith(_IDS) and target else None


NO_IDS: Final = TopicIds("", "")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets at which a group continues after a move, both "next to read".

    The topic is as on the *target*: ``P.Payments`` forward on P->B, ``Payments`` in reverse.
    ``time_ms`` is the timestamp of its record, 0 before it is written.
    """

    group: str
    topic_partition: TopicPartition
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""
    time_ms: int = field(default=0, compare=False)

    def key(self) -> bytes:
        return _pack("ssi", self.group, *self.topic_partition)

    def value(self) -> bytes:
        offsets = self.upstream_offset, self.downstream_offset
        return _pack("hqqs", VERSION, *offsets, self.metadata)

    @property
    def topic_ids(self) -> TopicIds | None:
        """Ids of the topics of the offsets, None in a checkpoint of MM2."""
        return TopicIds.of_metadata(self.metadata)

    @property
    def is_share(self) -> bool:
        return self.topic_ids is not None and _SHARE in self.metadata

    @property
    def gone_since_ms(self) -> int:
        """When the commit was first missing on the source, 0 unless it was in the last look."""
        since = self.metadata.rpartition(_GONE)[2]
        return int(since) if _GONE in self.metadata and since.isdecimal() else 0

    @property
    def is_forgotten(self) -> bool:
        return self.gone_since_ms > 0 and self.metadata.startswith(_GONE)

    def without_commit(self, now_ms: int, forget_after_ms: int) -> Checkpoint:
        """Return what replaces this once its commit is gone: it lives as long as that.

        A first look marks it. A later one, after this time, forgets it.
        """
        since = self.gone_since_ms
        if not since:
            return replace(self, metadata=f"{self.metadata}{_GONE}{now_ms}")
        if self.is_forgotten or now_ms - since < forget_after_ms:
            return self
        return self.at_the_start()

    def at_the_start(self) -> Checkpoint:
        """Return the checkpoint of a group that has read no record of these topics."""
        since = self.gone_since_ms
        mark = f"{_GONE}{since}" if since else ""
        return replace(self, upstream_offset=0, downstream_offset=0, metadata=mark)

    @staticmethod
    def group_of(key: bytes) -> str:
        group: str = _unpack(key, b"", "")[0]
        return group

    @classmethod
    def decode(cls, key: bytes, value: bytes, time_ms: int = 0) -> Checkpoint:
        group, topic, number, _, *rest = _unpack(key, value, "hqqs")
        upstream, downstream, metadata = rest
        return cls(group, TopicPartition(topic, number), upstream, downstream, metadata, time_ms)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of a flow; the record's own timestamp is the same ``time_ms``."""

    flow: Flow
    time_ms: int

    def key(self) -> bytes:
        return _pack("ss", self.flow.source, self.flow.target)

    def value(self) -> bytes:
        return _pack("hq", VERSION, self.time_ms)


def _pack(layout: str, *fields: str | int) -> bytes:
    """Encode fields of the kinds ``s`` string, ``h`` version, ``i`` INT32, ``q`` INT64."""
    return b"".join(
        _string(field) if isinstance(field, str) else struct.pack(f">{kind}", field)
        for kind, field in zip(layout, fields, strict=True)
    )


def _unpack(key: bytes, value: bytes, of_value: str) -> list[Any]:
    """Decode the key of a checkpoint, and as much of its value."""
    try:
        return [*_fields(key, "ssi"), *_fields(value, of_value)]
    except (struct.error, ValueError) as error:
        reason = f"checkpoint record with key {key.hex()} is damaged: {error}"
        raise IntegrityError(reason) from error


def _fields(data: bytes, layout: str) -> Iterator[str | int]:
    at = 0
    for kind in layout:
        if kind == "s":
            text, at = _text(data, at)
            yield text
            continue
        number = struct.unpack_from(f">{kind}", data, at)[0]
        if kind == "h" and number != VERSION:
            raise ValueError(f"it has version {number}, this version of srm knows {VERSION}")
        at += struct.calcsize(f">{kind}")
        yield number
    if surplus := len(data) - at:
        raise ValueError(f"{surplus} bytes follow the last field")


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise IntegrityError(
            f"name {text[:40]!r}... has {len(raw)} bytes, the MM2 format takes {MAX_STRING_BYTES}"
        )
    return struct.pack(">h", len(raw)) + raw


CONNECTOR: Final = "MirrorSourceConnector"
"""Name of the connector in a dedicated MirrorMaker 2."""
_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ConnectOffset:
    """Source offset: connector, source partition, last copied record (None: a tombstone)."""

    connector: str
    cluster: str
    partition: TopicPartition
    offset: int | None

    def key(self) -> bytes:
        topic, number = self.partition
        return _json(
            [self.connector, {"cluster": self.cluster, "partition": number, "topic": topic}]
        )

    def value(self) -> bytes | None:
        return None if self.offset is None else _json({"offset": self.offset})

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> ConnectOffset | None:
        """Decode a record, None if it is of another connector's form."""
        try:
            connector, place = json.loads(key)
            offset = json.loads(value)["offset"]
            partition = TopicPartition(place["topic"], place["partition"])
            found = cls(str(connector), place["cluster"], partition, int(offset))
        except (ValueError, TypeError, KeyError):
            return None
        kinds = {"cluster": str, "topic": str, "partition": int}
        is_place = place.keys() == kinds.keys() and all(
            isinstance(place[name], kind) for name, kind in kinds.items()
        )
        return found if is_place else None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition into which Kafka's default partitioner puts a key."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Hash as org.apache.kafka.common.utils.Utils does."""
    hashed = (_SEED ^ len(data)) & _MASK
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _FACTOR & _MASK
        word = (word ^ word >> 24) * _FACTOR & _MASK
        hashed = (hashed * _FACTOR & _MASK) ^ word
    if rest := data[whole:]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


_KEYS: Final = (b"\0\0", b"\0\1")
_FIRST_FLEXIBLE: Final = 4
_TOPIC_ID: Final = 0
_OFFSET_END: Final = 10  # the version and the offset, in each version


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """A partition for which a group has committed; ``topic_id`` is empty in older records."""

    group: str
    partition: TopicPartition
    topic_id: str = ""


def _place_of(key: bytes) -> tuple[str, TopicPartition] | None:
    """Return what a record's key names; None for another record, or one that is damaged."""
    if key[:2] not in _KEYS:
        return None
    try:
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        return group, TopicPartition(topic, *struct.unpack_from(">i", key, at))
    except (struct.error, ValueError):
        return None


def decode_commit(key: bytes, value: bytes) -> OffsetCommit | None:
    """Decode a record with a value; None for another record, or one that is damaged."""
    found = _place_of(key)
    try:
        return None if found is None else OffsetCommit(*found, _topic_id(value))
    except (struct.error, ValueError, IndexError):
        return None


def commits_after_deletion(
    rows: Iterable[tuple[bytes, bytes | None]],
) -> set[tuple[str, TopicPartition, int]]:
    """Return the commits, with their offsets, that are the first after a tombstone.

    ``rows`` are keys and values of one partition of ``__consumer_offsets``, in order.
    """
    deleted, found = set[bytes](), set[tuple[str, TopicPartition, int]]()
    for key, value in rows:
        if value is None:
            deleted.add(key)
        elif key in deleted and len(value) >= _OFFSET_END and (commit := _place_of(key)):
            deleted.remove(key)
            found.add((*commit, *struct.unpack_from(">q", value, 2)))
    return found


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
    length = struct.unpack_from(">h", data, at)[0]
    start, end = at + 2, at + 2 + length
    if end < start or end > len(data):
        raise ValueError(f"a string of {length} bytes exceeds the record")
    return data[start:end].decode(), end


def _topic_id(value: bytes) -> str:
    """Return the tagged field with the id, which only flexible versions have."""
    if struct.unpack_from(">h", value)[0] < _FIRST_FLEXIBLE:
        return ""
    size, at = _varint(value, _OFFSET_END + 4)  # of the metadata, and one
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
