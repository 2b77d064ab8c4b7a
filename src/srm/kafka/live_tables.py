"""Compacted topics kept in memory, seconds fresh: for whoever reads them all the time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, Consumer, Message
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.engine.ports import Row, Stamped
from srm.errors import SrmError, UnavailableError
from srm.kafka import topics as topic_calls
from srm.kafka.clients import ClientLog, Clients, is_stranded, reader_props
from srm.kafka.compacted import KafkaCompactedTopic
from srm.kafka.errors import kafka_errors
from srm.kafka.polling import drain, position_after
from srm.kafka.topics import UNKNOWN_TOPIC_CODES

_FETCH_WAIT_MS: Final = 500
_POLL_S: Final = 0.5
_LOOK_S: Final = 10.0
_SILENCE_S: Final = 20.0
_AGAIN_S: Final = 1.0
_TOMBSTONES_S: Final = 3600.0
"""After so long without the cluster everything is read again: tombstones may be gone by then."""
_Place = tuple[str, int]
_logger = logging.getLogger(__name__)


class LiveTable:
    """One partition of a compacted topic in memory (implements the engine's CompactedTopic).

    What it says is as old as the last fetch, not as of the call. Everything but the latest values
    comes from the topic itself.
    """

    def __init__(self, tables: LiveTables, topic: KafkaCompactedTopic, place: _Place) -> None:
        self._tables = tables
        self._topic = topic
        self._place = place

    def read(self) -> dict[bytes, bytes]:
        """Return the latest value of each key.

        Raises:
            UnavailableError: it was not read to its end yet, and is not in time.
        """
        return {key: row.value for key, row in self.read_stamped().items()}

    def read_stamped(self) -> dict[bytes, Stamped]:
        """Return what :meth:`read` returns, with timestamps."""
        return self._tables.rows(self._place)

    def read_history(self) -> dict[bytes, tuple[Stamped, ...]]:
        """Read all values from the topic itself."""
        return self._topic.read_history()

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records of the topic itself."""
        self._topic.scan(visit)

    def at(self, offsets: Collection[int]) -> dict[int, Row]:
        """Read records of the topic itself."""
        return self._topic.at(offsets)

    def write(self, records: Mapping[bytes, bytes | None]) -> int | None:
        """Write to the topic; the table shows it when it comes back."""
        return self._topic.write(records)


class _Rows:
    """What was read of one partition.

    Read again from its first record on, it replaces what was known only when its end is reached.
    """

    def __init__(self) -> None:
        self.rows: dict[bytes, Stamped] = {}
        self.topic_id = ""
        self.complete = threading.Event()
        self.error: SrmError | None = None
        self._read: dict[bytes, Stamped] = {}

    def begin(self, topic_id: str) -> None:
        """Take records from the first one on."""
        self._read = {}
        self.topic_id, self.error = topic_id, None

    def take(self, message: Message) -> None:
        """Apply a record."""
        key, value = message.key(), message.value()
        if key is None:
            return
        self._read.pop(key, None)  # written again, a row moves to the end, as in the log
        if value is not None:
            kind, time_ms = message.timestamp()
            self._read[key] = Stamped(value, time_ms, by_broker=kind == TIMESTAMP_LOG_APPEND_TIME)

    def end(self) -> None:
        """Show what was read: from here on each record as it comes."""
        self.rows, self.error = self._read, None
        self.complete.set()

    def gone(self) -> None:
        """The partition does not exist: it reads empty."""
        self.rows, self.topic_id, self.error = {}, "", None
        self.complete.set()

    def fail(self, error: SrmError) -> None:
        """Say why it cannot be read."""
        self.error = error
        self.complete.set()


class LiveTables:
    """Follows partitions of one cluster from the first time that somebody reads them.

    One consumer and one thread for all of them. A cluster that does not answer leaves what was
    read; the table of a topic that was deleted is empty.

    Args:
        clients: of the cluster; the caller closes them.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._tables: dict[_Place, _Rows] = {}
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._version = 0
        self._heard = self._looked = 0.0

    @property
    def version(self) -> int:
        """Number of changes seen so far: who has seen it knows whether there is news."""
        return self._version

    def table(self, topic: str, partition: int = 0) -> LiveTable:
        """Give access to one partition; it is followed from its first read on."""
        return LiveTable(
            self, KafkaCompactedTopic(self._clients, topic, partition), (topic, partition)
        )

    def rows(self, place: _Place) -> dict[bytes, Stamped]:
        """Return the rows of a partition, and follow it from now on.

        Raises:
            SrmError: the cluster refuses the read, or it was not read to its end in time.
        """
        with self._lock:
            found = self._tables.get(place)
            if found is None:
                found = self._tables[place] = _Rows()
                self._begin()
        self._wake.set()
        if not found.complete.wait(self._clients.timeout_s):
            where = self._clients.where(f"following {place[0]}-{place[1]}")
            raise found.error or UnavailableError(f"{where}: its end was not reached; retry")
        if found.error is not None:
            raise found.error
        with self._lock:
            return dict(found.rows)

    def close(self) -> None:
        """End the thread; what was read stays readable."""
        self._closed.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _begin(self) -> None:
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
                finally:
                    with suppress(RuntimeError):
                        consumer.close()
            self._forget_assignment()
            self._closed.wait(_AGAIN_S)

    def _open(self) -> Consumer | None:
        props = {**reader_props(self._clients.consumer_props), "fetch.wait.max.ms": _FETCH_WAIT_MS}
        try:
            with kafka_errors(self._clients.where("creating a consumer")):
                return Consumer(props, logger=ClientLog())
        except SrmError as error:
            self._fail(list(self._tables), error)
            return None

    def _read(self, consumer: Consumer) -> None:
        """Follow until the consumer is of no more use."""
        self._heard = self._looked = time.monotonic()
        look_at = 0.0
        while not self._closed.is_set():
            if self._wake.is_set() or time.monotonic() >= look_at:
                self._wake.clear()
                look_at = time.monotonic() + _LOOK_S
                self._look(consumer)
            for message in drain(consumer, _POLL_S):
                self._take(message)
            now = time.monotonic()
            if now - self._looked > _TOMBSTONES_S:
                return
            if now - self._heard > _SILENCE_S:
                self._heard = now
                if is_stranded(consumer, next(iter(self._tables))[0]):
                    return

    def _look(self, consumer: Consumer) -> None:
        """Assign what exists and is not read yet, drop what is gone or was made anew."""
        with self._lock:
            tables = dict(self._tables)
        try:
            found = topic_calls.describe(self._clients, {topic for topic, _ in tables})
        except SrmError as error:
            self._fail([place for place, rows in tables.items() if not rows.topic_id], error)
            return
        self._looked = time.monotonic()
        for (topic, partition), rows in tables.items():
            known = found.get(topic)
            topic_id = known.topic_id if known is not None and partition < known.partitions else ""
            if topic_id == rows.topic_id and topic_id:
                continue
            place = KafkaTopicPartition(topic, partition, OFFSET_BEGINNING)
            with self._lock:
                if rows.topic_id:
                    consumer.incremental_unassign([place])
                    self._version += 1
                if topic_id:
                    rows.begin(topic_id)
                else:
                    rows.gone()
            if topic_id:
                consumer.incremental_assign([place])

    def _take(self, message: Message) -> None:
        place = (message.topic(), message.partition())
        rows = self._tables.get(place)
        if rows is None:
            return
        error = message.error()
        if error is not None and error.code() in UNKNOWN_TOPIC_CODES:
            self._wake.set()
            return
        try:
            position = position_after(message, self._clients.where(f"following {place[0]}"))
        except SrmError as refused:
            self._fail([place], refused)
            return
        if position is None:
            return
        self._heard = time.monotonic()
        with self._lock:
            if error is None:
                rows.take(message)
                self._version += 1
            else:  # the end of the partition
                rows.end()

    def _fail(self, places: Collection[_Place], error: SrmError) -> None:
        with self._lock:
            for place in places:
                self._tables[place].fail(error)

    def _forget_assignment(self) -> None:
        with self._lock:
            for rows in self._tables.values():
                rows.topic_id = ""
