"""Compacted topics as tables, srm's only state store: read at each call, or kept in memory."""

from __future__ import annotations

import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final, Protocol, cast

import confluent_kafka as confluent

from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import Row, Stamped
from srm.errors import DataLossError, SrmError, UnavailableError
from srm.kafka.admin.clients import Clients, drain, is_stranded, open_reader, position_after
from srm.kafka.admin.offsets import log_ends
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES, describe
from srm.kafka.tables.single_records import records_at
from srm.kafka.wire.errors import kafka_errors, on_topic, translate

_POLL_S: Final = 1.0
_FOLLOW_POLL_S: Final = 0.5
_READING_POLL_S: Final = 0.05
"""Short, so that further partitions start soon while a caller waits for one."""
_LOOK_S: Final = 10.0
_SILENCE_S: Final = 20.0
_AGAIN_S: Final = 1.0
_TOMBSTONES_S: Final = 3600.0
"""After so long without the cluster everything is read again: tombstones may be gone by then."""
_GONE_AFTER: Final = 2
"""Answers in a row that lack a topic before it is absent: a new broker does not know all yet."""
_LARGE: Final = 1 << 14
_logger = logging.getLogger(__name__)

_Place = tuple[str, int]
_Latest = dict[bytes, deque[Stamped]]


class KafkaCompactedTopic:
    """One partition of a compacted topic as a table (implements the engine's CompactedTopic)."""

    def __init__(self, clients: Clients, topic: str, partition: int) -> None:
        self._clients = clients
        self._topic = topic
        self._partition = partition
        self._name = f"{topic}-{partition}"
        self._reading = clients.label(f"reading {self._name}")
        self._writing = clients.label(f"writing {self._name}")

    def read(self) -> dict[bytes, bytes]:
        return {key: row.value for key, row in self.read_stamped().items()}

    def read_stamped(self) -> dict[bytes, Stamped]:
        return {key: rows[-1] for key, rows in self._rows(most=1).items()}

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        return {key: tuple(rows) for key, rows in self._rows(most=None).items()}

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        def show(message: confluent.Message) -> None:
            key = message.key()
            if key is not None:
                visit(int(message.offset()), key, message.value())

        self._each(show)

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        return records_at(self._clients, TopicPartition(self._topic, self._partition), offsets)

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """After an error some of the records may be written."""
        if not records:
            return None
        producer = self._clients.producer()
        failures: list[confluent.KafkaError] = []
        stamps: list[int] = []
        needs = on_topic("Write", self._topic)

        def on_delivery(error: confluent.KafkaError | None, message: confluent.Message) -> None:
            if error is not None:
                failures.append(error)
            else:
                stamps.extend(broker_time(message))

        try:
            with self._clients.patient(), kafka_errors(self._writing, needs):
                for key, value in records.items():
                    record = self._topic, value, key, self._partition, on_delivery
                    try:
                        producer.produce(*record)
                    except BufferError:
                        if producer.flush(self._clients.timeout_s):
                            what = f"{self._writing}: the queue stays full; retry"
                            raise UnavailableError(what) from None
                        producer.produce(*record)
                left = producer.flush(self._clients.timeout_s)
                if failures:
                    raise translate(failures[0], self._writing, needs)
                if left:
                    raise UnavailableError(f"{self._writing}: no acknowledgement in time; retry")
        except SrmError:
            self._clients.discard_producer()
            raise
        return max(stamps, default=None)

    def _rows(self, most: int | None) -> _Latest:
        table: _Latest = {}

        def apply(message: confluent.Message) -> None:
            key, row = message.key(), row_of(message)
            if key is None:
                return
            # A row moves to the end when it is written again, as in the log.
            rows = table.pop(key, deque(maxlen=most))
            if row is not None:
                rows.append(row)
                table[key] = rows

        self._each(apply, table.clear)
        return table

    def _each(
        self, visit: Callable[[confluent.Message], None], begin: Callable[[], None] = lambda: None
    ) -> None:
        """Show all records; a try that begins again shows them again, after ``begin``."""
        lock = self._clients.reader_lock

        def read(timeout_s: float) -> None:
            if not lock.acquire(timeout=timeout_s):  # by a read of a cluster that hangs
                raise UnavailableError(f"{self._reading}: an earlier read lasts; retry")
            try:
                begin()
                self._read(timeout_s, visit)
            finally:
                lock.release()

        self._clients.call(f"reading {self._name}", read, on_topic("Read", self._topic))

    def _read(self, timeout_s: float, visit: Callable[[confluent.Message], None]) -> None:
        reader = self._clients.reader()
        partition = confluent.TopicPartition(self._topic, self._partition)
        try:
            start, end = reader.get_watermark_offsets(partition, timeout=timeout_s, cached=False)
        except confluent.KafkaException as error:
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

    def _read_up_to(
        self, reader: confluent.Consumer, end: int, visit: Callable[[confluent.Message], None]
    ) -> None:
        progress = time.monotonic()
        while True:
            messages = drain(reader, _POLL_S)
            for message in messages:
                offset = position_after(message, self._clients.label(f"reading {self._topic}"))
                if message.error() is None:
                    progress = time.monotonic()
                    visit(message)
                if offset is not None and offset >= end:
                    return
            limit_s = self._clients.silence_s
            if time.monotonic() - progress > limit_s:
                self._clients.discard_reader()
                raise UnavailableError(f"{self._reading}: no record for {limit_s:g} s; retry")

    def _require_absent(self) -> None:
        """Never read as empty a table that exists but lacks a leader, or is hidden from srm."""
        found = describe(self._clients, [self._topic], "Read").get(self._topic)
        if found is not None and self._partition < found.partitions:
            self._clients.discard_reader()
            brokers = " or ".join(map(str, found.leaderless.get(self._partition, ())))
            action = f"retry, or start broker {brokers or '?'}"
            raise UnavailableError(f"{self._reading}: no leader yet", action)


def row_of(message: confluent.Message) -> Stamped | None:
    value = message.value()
    if value is None:
        return None
    kind, time_ms = message.timestamp()
    return Stamped(value, time_ms, by_broker=kind == confluent.TIMESTAMP_LOG_APPEND_TIME)


def broker_time(message: confluent.Message) -> tuple[int, ...]:
    """Return the timestamp of a record that was delivered, nothing if it is not the broker's."""
    kind, time_ms = message.timestamp()
    return (time_ms,) if kind == confluent.TIMESTAMP_LOG_APPEND_TIME else ()


class Sink(Protocol):
    """Takes the records of one partition of a compacted topic in order.

    A second read from the start replaces the rows once it reaches the end. One thread calls it;
    other threads need copies of its rows.
    """

    def begin(self) -> None:
        """Expect records from the first one on."""

    def take(self, key: bytes, row: Stamped | None) -> None:
        """Apply a record; None: the key is deleted."""

    def end(self) -> None:
        """Show what was taken since the beginning, and from here on each record at once."""


class _Packed:
    """A row with a compressed value: plans and reports of past moves are megabytes of JSON."""

    def __init__(self, row: Stamped) -> None:
        self.timestamp_ms, self.by_broker = row.timestamp_ms, row.by_broker
        self._value = zlib.compress(row.value, level=1)

    @property
    def value(self) -> bytes:
        return zlib.decompress(self._value)


class _Rows:
    """Keeps the latest row of each key, large values compressed."""

    def __init__(self) -> None:
        self.rows: dict[bytes, Stamped] = {}
        self.changes = 0
        self.history: tuple[int, dict[bytes, tuple[Stamped, ...]]] | None = None
        self._read: dict[bytes, Stamped] = {}

    def begin(self) -> None:
        self._read = {}

    def take(self, key: bytes, row: Stamped | None) -> None:
        self._read.pop(key, None)  # written again, a row moves to the end, as in the log
        if row is not None:
            self._read[key] = cast("Stamped", _Packed(row)) if len(row.value) > _LARGE else row
        self.changes += 1

    def end(self) -> None:
        self.rows = self._read


class _Followed:
    """One partition that is read, its sink, and its progress.

    ``error``: why no rows are shown, until the end is reached. ``has_failed``: no retry since.
    ``is_begun``: it is read from the start, and the rows are those of before.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.topic_id = ""
        self.next = 0
        self.has_skipped = self.is_shown = self.has_failed = self.is_begun = False
        self.without = 0
        self.complete = threading.Event()
        self.error: SrmError | None = None

    def begin(self, topic_id: str) -> None:
        """Read from the first record on; without an id there is nothing to read."""
        self.topic_id, self.has_failed, self.next = topic_id, False, 0
        self.is_begun = True
        self.sink.begin()
        if not topic_id:
            self.end()

    def take(self, place: _Place, message: confluent.Message, key: bytes) -> None:
        """Apply a record; one that its sink rejects does not block the others."""
        try:
            self.sink.take(key, row_of(message))
        except Exception:
            if not self.has_skipped:
                _logger.exception("%s-%d: the record at %d is skipped", *place, self.next - 1)
            self.has_skipped = True

    def is_as_it_was(self, topic_id: str) -> bool:
        """Return whether an answer, with a topic id or without the topic, needs no new reading."""
        self.without = 0 if topic_id else self.without + 1
        if (self.is_shown or not self.complete.is_set()) and 0 < self.without < _GONE_AFTER:
            return True
        is_same = topic_id == self.topic_id and not self.has_failed
        return is_same and bool(topic_id or (self.complete.is_set() and not self.is_shown))

    def end(self) -> None:
        self.error, self.is_shown, self.is_begun = None, bool(self.topic_id), False
        self.sink.end()
        self.complete.set()

    def fail(self, error: SrmError) -> None:
        self.error, self.has_failed = error, True
        self.complete.set()


class LiveTable(KafkaCompactedTopic):
    """One partition of a compacted topic in memory, as of the last fetch unless fresh."""

    def __init__(self, tables: LiveTables, clients: Clients, place: _Place) -> None:
        super().__init__(clients, *place)
        self._tables = tables
        self._place = place

    def read_stamped(self) -> dict[bytes, Stamped]:
        with self._tables.reading(self._place) as rows:
            return dict(rows.rows)

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Read all values from the topic itself, if it has new records since the last read."""
        with self._tables.reading(self._place) as rows:
            changes, known = rows.changes, rows.history
        if known is None or known[0] != changes:
            known = rows.history = (changes, super().read_history())
        return known[1]


class LiveTables:
    """Follows partitions of one cluster from their first use on, with one consumer and thread.

    While a cluster does not answer, the rows read before stay. The table of a deleted topic is
    empty. ``fresh``: a partition is followed from its first read on, and each read goes to its end.
    """

    def __init__(self, clients: Clients, *, fresh: bool = False) -> None:
        self._clients = clients
        self._fresh = fresh
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._followed: dict[_Place, _Followed] = {}
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._heard = self._looked = 0.0

    def table(self, topic: str, partition: int = 0) -> LiveTable:
        """Give access to one partition; it is followed from now on, or from its first read."""
        if not self._fresh:
            self._table((topic, partition))
        return LiveTable(self, self._clients, (topic, partition))

    def follow(self, topic: str, sink: Sink | None = None, partition: int = 0) -> None:
        """Read a partition into a table, or into something of the caller's own, from now on."""
        with self._lock:
            self._expect((topic, partition), sink or _Rows())

    @contextmanager
    def reading(self, place: _Place) -> Iterator[_Rows]:
        """Yield the rows of a partition while no other thread changes them."""
        found = self._table(place)
        if self._fresh:
            self._read_to_end(place, found)
        if not found.complete.wait(self._clients.timeout_s):
            raise found.error or self._late(place)
        if found.error is not None:
            raise found.error
        with self._lock:
            yield cast("_Rows", found.sink)

    def _table(self, place: _Place) -> _Followed:
        with self._lock:
            if place not in self._followed:
                self._expect(place, _Rows())
            return self._followed[place]

    def _read_to_end(self, place: _Place, one: _Followed) -> None:
        """Wait until all that the partition holds now is in its table."""
        partition = TopicPartition(*place)
        end = log_ends(self._clients, [partition]).get(partition, 0)
        with self._news:
            if end and not one.topic_id:
                self._wake.set()  # it was created since the last look
            if not self._news.wait_for(
                lambda: one.error is not None or (one.next >= end and not one.is_begun),
                self._clients.timeout_s,
            ):
                raise self._late(place)

    def _label(self, place: _Place) -> str:
        return self._clients.label(f"following {place[0]}-{place[1]}")

    def _late(self, place: _Place) -> SrmError:
        return UnavailableError(f"{self._label(place)}: its end was not reached; retry")

    def close(self) -> None:
        """End the thread; what was read stays readable."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _expect(self, place: _Place, sink: Sink) -> None:
        self._followed[place] = _Followed(sink)
        self._wake.set()
        if self._thread is None:
            name = f"srm-tables-{self._clients.alias}"
            self._thread = threading.Thread(target=self._follow, name=name, daemon=True)
            self._thread.start()

    def _follow(self) -> None:
        while not self._closed.is_set():
            consumer = self._open()
            if consumer is not None:
                try:
                    self._read(consumer)
                except SrmError as error:
                    _logger.warning("%s", error)
                except Exception:  # else reading would end unnoticed
                    _logger.exception("%s failed, starting again", self._clients.label("following"))
                finally:
                    with suppress(RuntimeError):
                        consumer.close()
            with self._lock:
                for one in self._followed.values():
                    one.topic_id = ""  # nothing is assigned
            self._closed.wait(_AGAIN_S)

    def _open(self) -> confluent.Consumer | None:
        try:
            with kafka_errors(self._clients.label("creating a consumer")):
                return open_reader(self._clients.props.consumer, {"fetch.wait.max.ms": 200})
        except SrmError as error:
            self._fail(list(self._followed), error)
            return None

    def _read(self, consumer: confluent.Consumer) -> None:
        """Follow until the consumer is of no more use; DataLossError if all is to be read again."""
        self._heard = self._looked = time.monotonic()
        look_at = 0.0
        while not self._closed.is_set():
            if self._wake.is_set() or time.monotonic() >= look_at:
                self._wake.clear()
                look_at = time.monotonic() + _LOOK_S
                self._look(consumer)
                if any(one.without for one in self._unread()):
                    look_at = time.monotonic() + _AGAIN_S
            is_reading = bool(self._unread())
            for message in drain(consumer, _READING_POLL_S if is_reading else _FOLLOW_POLL_S):
                self._take(message)
            now = time.monotonic()
            if now - self._looked > _TOMBSTONES_S:
                return
            if now - self._heard > _SILENCE_S:
                self._heard = now
                if is_stranded(consumer, next(iter(self._followed))[0]):
                    return

    def _unread(self) -> list[_Followed]:
        """Return what is not read to its end yet, nor known to be absent."""
        return [one for one in [*self._followed.values()] if not one.complete.is_set()]

    def _look(self, consumer: confluent.Consumer) -> None:
        """Assign new partitions, drop those that are gone or were re-created."""
        with self._lock:
            followed = dict(self._followed)
        try:
            found = describe(self._clients, {topic for topic, _ in followed})
        except SrmError as error:
            self._fail([place for place, one in followed.items() if not one.topic_id], error)
            return
        self._looked = time.monotonic()
        for (topic, partition), one in followed.items():
            known = found.get(topic)
            topic_id = known.topic_id if known is not None and partition < known.partitions else ""
            if one.is_as_it_was(topic_id):
                continue
            place = confluent.TopicPartition(topic, partition, confluent.OFFSET_BEGINNING)
            with self._lock:
                if one.topic_id:
                    consumer.incremental_unassign([place])
                one.begin(topic_id)
            if topic_id:
                consumer.incremental_assign([place])

    def _take(self, message: confluent.Message) -> None:
        place = (message.topic(), message.partition())
        one = self._followed.get(place)
        if one is None:
            return
        error = message.error()
        if error is not None and error.code() in UNKNOWN_TOPIC_CODES:
            self._wake.set()
            return
        try:
            position = position_after(message, self._clients.label(f"following {place[0]}"))
        except SrmError as refused:
            self._fail([place], refused)
            return
        if position is None:
            return
        self._heard = time.monotonic()
        if position < one.next:
            what = f"{self._label(place)}: records already read are gone: log truncated; read again"
            raise DataLossError(what)
        with self._lock:
            one.next = position
            if error is not None:
                one.end()
            elif (key := message.key()) is not None:
                one.take(place, message, key)
            self._news.notify_all()

    def _fail(self, places: Collection[_Place], error: SrmError) -> None:
        with self._lock:
            for place in places:
                self._followed[place].fail(error)
            self._news.notify_all()
