"""Compacted topics as tables: srm's only state store."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.domain.names.topics import TopicPartition
from srm.engine.table_ports import Row, Stamped
from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import Clients, drain, position_after
from srm.kafka.admin.errors import kafka_errors, translate
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES, describe
from srm.kafka.tables.single_records import records_at
from srm.kafka.wire.rights import on_topic

_POLL_S: Final = 1.0
_QUEUE_FULL_POLL_S: Final = 0.1
_logger = logging.getLogger(__name__)

_Rows = dict[bytes, deque[Stamped]]


class KafkaCompactedTopic:
    """One partition of a compacted topic as a table (implements the engine's CompactedTopic)."""

    def __init__(self, clients: Clients, topic: str, partition: int) -> None:
        self._clients = clients
        self._topic = topic
        self._partition = partition

    def read(self) -> dict[bytes, bytes]:
        """Return the latest committed values by key to the end of now; a missing topic is empty."""
        return {key: row.value for key, row in self.read_stamped().items()}

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return what :meth:`read` returns, with timestamps."""
        return {key: rows[-1] for key, rows in self._rows(most=1).items()}

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Return all values of each key that the log still holds, oldest first."""
        return {key: tuple(rows) for key, rows in self._rows(most=None).items()}

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records up to the end at call time, in order, and keep none."""

        def show(message: Message) -> None:
            key = message.key()
            if key is not None:
                visit(int(message.offset()), key, message.value())

        self._each(show)

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Return the records at these offsets; offsets without a record are omitted."""
        return records_at(self._clients, TopicPartition(self._topic, self._partition), offsets)

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """Write in order and wait for all acknowledgements; None is a tombstone.

        Returns the broker's time of the last record, None with CreateTime. After an error some may
        be written.
        """
        if not records:
            return None
        where = self._clients.where(f"writing {self._topic}-{self._partition}")
        producer = self._clients.producer()
        failures: list[KafkaError] = []
        stamps: list[int] = []
        needs = on_topic("Write", self._topic)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                stamps.extend(broker_time(message))

        try:
            with kafka_errors(where, needs):
                for key, value in records.items():
                    self._produce(producer, key, value, on_delivery)
                left = producer.flush(self._clients.timeout_s)
            if failures:
                raise translate(failures[0], where, needs)
            if left:
                raise UnavailableError(f"{where}: no acknowledgement in time; retry")
        except SrmError:
            self._clients.discard_producer()
            raise
        return max(stamps, default=None)

    def _produce(
        self, producer: Producer, key: bytes, value: bytes | None, delivered: object
    ) -> None:
        deadline = time.monotonic() + self._clients.timeout_s
        while True:
            try:
                producer.produce(
                    self._topic, value, key, partition=self._partition, on_delivery=delivered
                )
            except BufferError:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"writing {self._topic}-{self._partition} on cluster "
                        f"{self._clients.alias}: the queue stays full; retry"
                    ) from None
                producer.poll(_QUEUE_FULL_POLL_S)
            else:
                return

    def _rows(self, most: int | None) -> _Rows:
        """Read the latest values of each key, ``most`` of them."""
        table: _Rows = {}
        self._each(lambda message: _apply(table, message, most), table.clear)
        return table

    def _each(
        self, visit: Callable[[Message], None], begin: Callable[[], None] = lambda: None
    ) -> None:
        """Show all records; a try that begins again shows them again, after ``begin``."""
        doing = f"reading {self._topic}-{self._partition}"

        def read(timeout_s: float) -> None:
            begin()
            self._read(timeout_s, visit)

        with self._clients.reader_lock:
            self._clients.call(doing, read, on_topic("Read", self._topic))

    def _read(self, timeout_s: float, visit: Callable[[Message], None]) -> None:
        reader = self._clients.reader()
        partition = KafkaTopicPartition(self._topic, self._partition)
        try:
            start, end = reader.get_watermark_offsets(partition, timeout=timeout_s, cached=False)
        except KafkaException as error:
            if error.args[0].code() not in UNKNOWN_TOPIC_CODES:
                self._clients.discard_reader()  # it may be stranded
                raise
            self._require_absent()
            return
        if start >= end:
            return
        partition.offset = start
        reader.assign([partition])
        try:
            self._read_up_to(reader, end, visit)
        finally:
            with suppress(RuntimeError):  # it was closed
                reader.unassign()

    def _read_up_to(self, reader: Consumer, end: int, visit: Callable[[Message], None]) -> None:
        progress = time.monotonic()
        while True:
            messages = drain(reader, _POLL_S)
            for message in messages:
                offset = position_after(message, self._clients.where(f"reading {self._topic}"))
                if message.error() is None:
                    progress = time.monotonic()
                    visit(message)
                if offset is not None and offset >= end:
                    return
            if time.monotonic() - progress > self._clients.timeout_s:
                self._clients.discard_reader()
                raise UnavailableError(
                    f"reading {self._topic}-{self._partition} on cluster {self._clients.alias}: "
                    f"no record for {self._clients.timeout_s:g} s; retry"
                )

    def _require_absent(self) -> None:
        """Never read as empty a table that exists but lacks a leader, or is hidden from srm."""
        found = describe(self._clients, [self._topic], "Read").get(self._topic)
        if found is not None and self._partition < found.partitions:
            self._clients.discard_reader()
            raise UnavailableError(
                f"reading {self._topic}-{self._partition} on cluster {self._clients.alias}: "
                "no leader yet; retry"
            )


def row_of(message: Message) -> Stamped | None:
    """Return a record's value with its time, None for a tombstone."""
    value = message.value()
    if value is None:
        return None
    kind, time_ms = message.timestamp()
    return Stamped(value, time_ms, by_broker=kind == TIMESTAMP_LOG_APPEND_TIME)


def broker_time(message: Message) -> tuple[int, ...]:
    """Return the timestamp of a record that was delivered, nothing if it is not the broker's."""
    kind, time_ms = message.timestamp()
    return (time_ms,) if kind == TIMESTAMP_LOG_APPEND_TIME else ()


def _apply(table: _Rows, message: Message, most: int | None) -> None:
    key, row = message.key(), row_of(message)
    if key is None:
        return
    # A row moves to the end when it is written again, as in the log.
    rows = table.pop(key, deque(maxlen=most))
    if row is not None:
        rows.append(row)
        table[key] = rows
