"""Record formats shared with MirrorMaker 2: offset syncs, checkpoints, heartbeats.

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
so srm never deletes these records with a tombstone.

The metadata of a checkpoint is free text, which MM2 copies from the commit. srm stores the ids of
both topics in it: ``srm:<id on the source>:<id on the target>``, and ``:share`` for a share group.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import IntegrityError

VERSION = 0
MAX_STRING_BYTES = 32767

_IDS: Final = "srm:"
_SHARE: Final = ":share"
_OFFSETS = struct.Struct(">qq")
_PARTITION = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_VERSION = struct.Struct(">h")
_TIME = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """Both offsets of one copied record; the topic is named as on the flow's source."""

    topic_partition: TopicPartition
    upstream_offset: int
    downstream_offset: int

    def key(self) -> bytes:
        """Encode the record key."""
        return _string(self.topic_partition.topic) + _PARTITION.pack(self.topic_partition.partition)

    def value(self) -> bytes:
        """Encode the record value."""
        return _OFFSETS.pack(self.upstream_offset, self.downstream_offset)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> OffsetSync:
        """Decode one record of an offset syncs topic."""
        fields = _Fields("offset sync", key)
        topic_partition = fields.partition()
        fields.read_value(value, is_versioned=False)
        upstream, downstream = fields.numbers(_OFFSETS)
        fields.end()
        return cls(topic_partition, upstream, downstream)


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
        source, _, target = text.removeprefix(_IDS).removesuffix(_SHARE).partition(":")
        return cls(source, target) if text.startswith(_IDS) and target else None


NO_IDS: Final = TopicIds("", "")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Offsets at which a group continues after a move: both are "next to read".

    The topic is named as on the flow's *target*: ``P.Payments`` for a forward checkpoint of P->B,
    ``Payments`` for a reverse one.
    """

    group: str
    topic_partition: TopicPartition
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""

    def key(self) -> bytes:
        """Encode the record key."""
        return (
            _string(self.group)
            + _string(self.topic_partition.topic)
            + _PARTITION.pack(self.topic_partition.partition)
        )

    def value(self) -> bytes:
        """Encode the record value."""
        return (
            _VERSION.pack(VERSION)
            + _OFFSETS.pack(self.upstream_offset, self.downstream_offset)
            + _string(self.metadata)
        )

    @property
    def topic_ids(self) -> TopicIds | None:
        """Ids of the topics of the offsets, None in a checkpoint of MM2."""
        return TopicIds.of_metadata(self.metadata)

    @property
    def is_share(self) -> bool:
        """True for the start offset of a share group."""
        return self.topic_ids is not None and self.metadata.endswith(_SHARE)

    def at_the_start(self) -> Checkpoint:
        """Return the checkpoint of a group that has read no record of these topics."""
        return replace(self, upstream_offset=0, downstream_offset=0, metadata="")

    @staticmethod
    def group_of(key: bytes) -> str:
        """Return the group of a record key."""
        return _Fields("checkpoint", key).string()

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Checkpoint:
        """Decode one record of a checkpoints topic."""
        fields = _Fields("checkpoint", key)
        group, topic_partition = fields.string(), fields.partition()
        fields.read_value(value)
        upstream, downstream = fields.numbers(_OFFSETS)
        metadata = fields.string()
        fields.end()
        return cls(group, topic_partition, upstream, downstream, metadata)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat of a flow; the record's own timestamp is the same ``time_ms``."""

    flow: Flow
    time_ms: int

    def key(self) -> bytes:
        """Encode the record key."""
        return _string(self.flow.source) + _string(self.flow.target)

    def value(self) -> bytes:
        """Encode the record value."""
        return _VERSION.pack(VERSION) + _TIME.pack(self.time_ms)

    @classmethod
    def decode(cls, key: bytes, value: bytes) -> Heartbeat:
        """Decode one record of a heartbeats topic."""
        fields = _Fields("heartbeat", key)
        flow = Flow(fields.string(), fields.string())
        fields.read_value(value)
        (time_ms,) = fields.numbers(_TIME)
        fields.end()
        return cls(flow, time_ms)


class _Fields:
    """Reader of fields in order from a key and then a value; errors name the damaged record."""

    def __init__(self, kind: str, key: bytes) -> None:
        self._kind = kind
        self._key = self._data = key
        self._at = 0

    def read_value(self, value: bytes, *, is_versioned: bool = True) -> None:
        """Go to the value, after the end of the key."""
        self.end()
        self._data, self._at = value, 0
        if is_versioned and (version := self.numbers(_VERSION)[0]) != VERSION:
            self._fail(f"it has version {version}, this version of srm knows {VERSION}")

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            numbers = layout.unpack_from(self._data, self._at)
        except struct.error as error:
            self._fail(str(error))
        self._at += layout.size
        return numbers

    def string(self) -> str:
        length = self.numbers(_LENGTH)[0]
        start, self._at = self._at, self._at + length
        if length < 0 or self._at > len(self._data):
            self._fail(f"a string of {length} bytes exceeds the record")
        try:
            return self._data[start : self._at].decode()
        except UnicodeDecodeError as error:
            self._fail(str(error))

    def partition(self) -> TopicPartition:
        return TopicPartition(self.string(), self.numbers(_PARTITION)[0])

    def end(self) -> None:
        if surplus := len(self._data) - self._at:
            self._fail(f"{surplus} bytes follow the last field")

    def _fail(self, why: str) -> NoReturn:
        raise IntegrityError(f"{self._kind} record with key {self._key.hex()} is damaged: {why}")


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise IntegrityError(
            f"name {text[:40]!r}... has {len(raw)} bytes, the MM2 format takes {MAX_STRING_BYTES}"
        )
    return _LENGTH.pack(len(raw)) + raw
