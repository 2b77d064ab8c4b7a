"""Requests of the hot path: Fetch version 13 (topics by id), its sessions, and Produce version 8.

All are served by Kafka 3.1 and later: KIP-516 topic ids, KIP-227 sessions, KIP-595 epochs.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError
from srm.kafka.wire.connection import Api, Part
from srm.kafka.wire.messages import Cursor, uvarint
from srm.replication import codes
from srm.replication.buffers import PooledBuffer
from srm.replication.ports import Fetched, FetchedPartition, FetchFrom, ProduceAnswer, Produced

NO_SESSION: Final = (0, -1)
"""Session id and epoch of a fetch without a session."""
SESSION_LOST: Final = frozenset({70, 71, 110})
"""FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR."""

_FETCH_HEAD: Final = struct.Struct(">iiiibii")
_FETCH_PARTITION: Final = struct.Struct(">iiqiqib")
_FETCHED_HEAD: Final = struct.Struct(">ihi")
_FETCHED_PARTITION: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_PRODUCED: Final = struct.Struct(">ihqqqi")
_LENGTH: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">i")
_ANSWER_BYTES: Final = 12
"""Correlation id, count of topics, throttle time; without topics and partitions."""
_TOPIC_BYTES: Final = 6
_PARTITION_BYTES: Final = _PRODUCED.size + 2
_EMPTY: Final = memoryview(b"")
_DIVERGING_EPOCH: Final = 0
"""Tag of a partition whose log does not hold the epoch that was fetched last up to the offset."""
_LAST_EPOCH: Final = 2**31 - 1
_Batches = Sequence[tuple[TopicPartition, memoryview]]


def fetch_request(
    partitions: Sequence[FetchFrom],
    max_wait_ms: int,
    max_bytes: int,
    *,
    read_committed: bool,
    session: tuple[int, int] = NO_SESSION,
    forgotten: Collection[tuple[bytes, int]] = (),
) -> bytes:
    """Encode a fetch; the first partition with data gets at least one batch.

    ``session`` is (id, epoch): epoch 0 opens a session, a higher one sends only changes, with the
    ``forgotten`` partitions as (topic id, number).
    """
    out = bytearray(_FETCH_HEAD.pack(-1, max_wait_ms, 1, max_bytes, int(read_committed), *session))
    topics: dict[bytes, list[FetchFrom]] = {}
    for wanted in partitions:
        topics.setdefault(wanted.topic_id, []).append(wanted)
    out += uvarint(len(topics) + 1)
    for topic_id, group in topics.items():
        out += topic_id
        out += uvarint(len(group) + 1)
        for p in group:
            out += _FETCH_PARTITION.pack(
                p.partition, p.leader_epoch, p.offset, p.epoch, -1, p.max_bytes, 0
            )
        out += b"\x00"
    left: dict[bytes, list[int]] = {}
    for topic_id, number in forgotten:
        left.setdefault(topic_id, []).append(number)
    out += uvarint(len(left) + 1)
    for topic_id, numbers in left.items():
        out += topic_id + uvarint(len(numbers) + 1)
        out += struct.pack(f">{len(numbers)}i", *numbers) + b"\x00"
    out += b"\x01\x00"  # empty rack id, no tags
    return bytes(out)


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """A decoded fetch response; ``session_id`` 0: no session; ``error``: refused as a whole."""

    error: int
    session_id: int
    fetched: Fetched

    @property
    def throttle_time_ms(self) -> int:
        return self.fetched.throttle_time_ms


def fetch_response(body: PooledBuffer) -> FetchResponse:
    """Decode a fetch response; the records are views into ``body``."""
    reader = Cursor(body.view, 4)
    reader.skip_tags()
    throttle_time_ms, error, session_id = reader.take(_FETCHED_HEAD)
    partitions: list[FetchedPartition] = []
    for _ in range(reader.uvarint() - 1):
        topic_id = bytes(reader.raw(16))
        count = reader.uvarint() - 1
        partitions.extend(_fetched_partition(reader, topic_id) for _ in range(count))
        reader.skip_tags()
    return FetchResponse(error, session_id, Fetched(partitions, body, throttle_time_ms))


def _fetched_partition(reader: Cursor, topic_id: bytes) -> FetchedPartition:
    index, error, high_watermark, last_stable, log_start = reader.take(_FETCHED_PARTITION)
    aborted = []
    for _ in range(reader.uvarint() - 1):
        producer_id, first_offset = reader.take(_ABORTED)
        reader.skip_tags()
        aborted.append((producer_id, first_offset))
    reader.at += 4  # preferred read replica
    length = reader.uvarint() - 1
    records = reader.raw(length) if length > 0 else _EMPTY
    if _DIVERGING_EPOCH in reader.skip_tags():
        error = error or codes.OFFSET_OUT_OF_RANGE
    return FetchedPartition(
        topic_id, index, error, high_watermark, last_stable, log_start, tuple(aborted), records
    )


def _text(reader: Cursor) -> str:
    """Read a string, empty for null."""
    return str(reader.raw(max(0, reader.take(_LENGTH)[0])), "utf-8")


def produce_request(batches: _Batches, timeout_ms: int) -> list[Part]:
    """Encode a produce request as parts; the batches themselves are not copied."""
    ordered = sorted(batches, key=lambda batch: batch[0])
    topics = [(topic, list(group)) for topic, group in groupby(ordered, lambda b: b[0].topic)]
    parts: list[Part] = []
    head = bytearray(struct.pack(">hhii", -1, -1, timeout_ms, len(topics)))
    for topic, group in topics:
        name = topic.encode()
        head += struct.pack(">h", len(name)) + name + struct.pack(">i", len(group))
        for partition, view in group:
            head += struct.pack(">ii", partition.partition, len(view))
            parts.append(bytes(head))
            parts.append(view)
            head = bytearray()
    return parts


def least_produced(batches: _Batches) -> int:
    topics = {partition.topic for partition, _ in batches}
    names = sum(_TOPIC_BYTES + len(topic.encode()) for topic in topics)
    return _ANSWER_BYTES + names + _PARTITION_BYTES * len(batches)


def produce_response(body: PooledBuffer) -> ProduceAnswer:
    reader = Cursor(body.view, 4)
    answers = {}
    for _ in range(reader.take(_COUNT)[0]):
        topic = _text(reader)
        for _ in range(reader.take(_COUNT)[0]):
            index, error, base_offset, _, _, refused = reader.take(_PRODUCED)
            records = [(reader.take(_COUNT)[0], _text(reader)) for _ in range(refused)]
            message = _text(reader)
            if records:
                message = "; ".join(filter(None, (message, records[0][1])))
            answers[TopicPartition(topic, index)] = Produced(
                error, base_offset, message, tuple([at for at, _ in records])
            )
    return ProduceAnswer(answers, throttle_time_ms=reader.take(_COUNT)[0])


FETCH: Final = Api(1, 13, flexible=True, decode=fetch_response)
PRODUCE: Final = Api(0, 8, flexible=False, decode=produce_response)
Send = Callable[[bytes, int], Awaitable[FetchResponse]]
"""Sends an encoded fetch with its maximum wait in milliseconds; raises top-level errors."""


class WireFetchSession:
    """Implements :class:`srm.replication.ports.FetchSession`.

    A broker whose session cache is full answers with session id 0: then every poll is a full one,
    and the partitions take turns at being first, which within a session the broker sees to.
    """

    def __init__(self, send: Send, *, read_committed: bool) -> None:
        self._send = send
        self._read_committed = read_committed
        self._wanted: dict[tuple[bytes, int], FetchFrom] = {}
        self._changed: dict[tuple[bytes, int], FetchFrom] = {}
        self._forgotten: set[tuple[bytes, int]] = set()
        self._id = 0
        self._epoch = 0
        self._turn = 0

    def want(self, partition: FetchFrom) -> None:
        key = partition.topic_id, partition.partition
        self._wanted[key] = self._changed[key] = partition
        self._forgotten.discard(key)

    def forget(self, topic_id: bytes, partition: int) -> None:
        key = topic_id, partition
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten.add(key)

    async def poll(self, *, max_wait_ms: int, max_bytes: int) -> Fetched:
        while True:
            body = self._request(max_wait_ms, max_bytes)
            try:
                response = await self._send(body, max_wait_ms)
            except SrmError:
                self._reset()
                raise
            if response.error in SESSION_LOST:
                self._reset()
                continue
            if response.session_id != 0:
                self._id = response.session_id
                self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
            else:
                self._reset()
            return response.fetched

    def _request(self, max_wait_ms: int, max_bytes: int) -> bytes:
        if self._epoch == 0:
            everything = list(self._wanted.values())
            self._turn = (self._turn + 1) % max(1, len(everything))
            partitions = everything[self._turn :] + everything[: self._turn]
            forgotten: set[tuple[bytes, int]] = set()
        else:
            partitions, forgotten = list(self._changed.values()), self._forgotten
        self._changed, self._forgotten = {}, set()
        return fetch_request(
            partitions,
            max_wait_ms,
            max_bytes,
            read_committed=self._read_committed,
            session=(self._id, self._epoch),
            forgotten=forgotten,
        )

    def _reset(self) -> None:
        self._id = self._epoch = 0
