"""Writers of state: a slot's, with many records in flight, and the fenced one of controls."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import CONTROL_ABORT_S, CONTROL_TRANSACTION_S
from srm.errors import FencedError, SrmError, UnavailableError
from srm.kafka.admin.clients import STATE_RECORDS, Clients, is_stranded, open_writer
from srm.kafka.admin.offsets import log_ends
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.tables.compacted import broker_time
from srm.kafka.wire.errors import CLUSTER, kafka_errors, on_topic, on_transactional_id, translate
from srm.replication.ports import Place, WriteResult

_POLL_S: Final = 0.05
_LOOK_EVERY_S: Final = 5.0
_COMMIT_S: Final = CONTROL_TRANSACTION_S + CONTROL_ABORT_S
"""Time limit of a commit: the check of ``before_commit`` is valid no longer."""
_Tables = Mapping[str, Mapping[bytes, bytes | None]]
_logger = logging.getLogger(__name__)
OVERTAKEN: Final = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001 - librdkafka's local code: all it says after being fenced
        KafkaError.UNKNOWN,  # a coordinator's answer while a newer producer takes over (4.3)
    }
)
"""Codes of a fenced producer of transactions, where brokers do not report fencing."""


class KafkaStateLog:
    """Writes through one idempotent producer (implements StateLog).

    A fatal error loses pending records: :meth:`settle` returns it, the next write uses another one.
    """

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self._where = f"writing state to cluster {alias}"
        self._properties = properties
        self._lock = threading.Lock()
        self._failed: dict[Place, SrmError] = {}
        self._offsets: dict[Place, dict[bytes, int]] = {}
        self._look_again_at = 0.0
        self._session = self._new_session()

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        place, session = (topic, partition), self._session
        with self._lock:
            session.waiting[place] += 1
        try:
            delivered = partial(self._on_delivery, session, place)
            session.producer.produce(topic, value, key, partition, on_delivery=delivered)
            session.producer.poll(0)  # serves callbacks of places without a caller
        except BufferError as error:
            self._settle_one(session, place)
            raise UnavailableError(f"{self._where}: the queue is full") from error
        except KafkaException as error:
            self._settle_one(session, place)
            self._fail(session, place, self._real(session, error.args[0]))

    def waiting(self, place: Place) -> int:
        with self._lock:
            return self._session.waiting[place]

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        deadline = time.monotonic() + timeout_s
        wanted = frozenset(places)
        while True:
            session, left = self._session, deadline - time.monotonic()
            try:
                session.producer.poll(min(_POLL_S, max(0.0, left)))
            except KafkaException as error:
                for place in wanted:
                    self._fail(session, place, error.args[0])
            with self._lock:
                waiting = self._session.waiting
                pending = frozenset(p for p in wanted if waiting[p] and p not in self._failed)
            if not pending or left <= 0:
                break
        if pending:
            self._leave_stranded(next(iter(pending))[0])
        with self._lock:
            failed = {p: self._failed.pop(p) for p in wanted if p in self._failed}
            offsets = {p: self._offsets.pop(p) for p in wanted if p in self._offsets}
        if any(isinstance(error, UnavailableError) for error in failed.values()):
            self._leave_stranded(next(iter(failed))[0])
        return WriteResult(failed, pending - failed.keys(), offsets)

    def flush(self, timeout_s: float) -> None:
        with self._lock:
            waiting = {place for place, count in self._session.waiting.items() if count}
            places = waiting | self._failed.keys()
        settled = self.settle(places, timeout_s)
        for failure in settled.failed.values():
            raise failure
        if settled.pending:
            late = ", ".join(f"{topic}-{n}" for topic, n in sorted(settled.pending))
            raise UnavailableError(f"{self._where}: not acknowledged in time: {late}")

    def close(self) -> None:
        """Forget what is not sent yet: a cluster that is rebuilt must not get it later."""
        _drop(self._session)

    def _leave_stranded(self, topic: str) -> None:
        session, now = self._session, time.monotonic()
        if now < self._look_again_at:
            return
        self._look_again_at = now + _LOOK_EVERY_S  # it may take a second to find out
        if is_stranded(session.producer, topic):
            self._replace(session, UnavailableError(f"{self._where}: all known brokers are gone"))
            _drop(session)

    def _on_delivery(
        self, session: _Session, place: Place, error: KafkaError | None, message: Message
    ) -> None:
        self._settle_one(session, place)
        if error is not None:
            self._fail(session, place, error)
            return
        offset, key = message.offset(), message.key()
        if offset is not None and key is not None:
            with self._lock:
                self._offsets.setdefault(place, {})[key] = offset

    def _settle_one(self, session: _Session, place: Place) -> None:
        with self._lock:
            session.waiting[place] -= 1

    def _fail(self, session: _Session, place: Place, error: KafkaError) -> None:
        topic = place[0]
        without_topic = f"Write on topic {topic}, or IdempotentWrite on the cluster"
        needs = {**on_topic("Write", topic), CLUSTER: without_topic}
        failure = translate(error, self._where, needs)
        with self._lock:
            self._failed.setdefault(place, failure)
        if error.fatal():
            self._replace(session, failure)

    def _replace(self, session: _Session, failure: SrmError) -> None:
        """Begin with a new producer; what the old one holds is lost."""
        if self._session is not session:
            return
        new = self._new_session()
        with self._lock:
            for place, count in session.waiting.items():
                if count:
                    self._failed.setdefault(place, failure)
            self._session = new

    def _real(self, session: _Session, error: KafkaError) -> KafkaError:
        """Return the cause of librdkafka's "fatal error", which the next callback raises."""
        if error.code() == KafkaError._FATAL:  # noqa: SLF001 - librdkafka's local codes are so named
            try:
                session.producer.poll(0)
            except KafkaException as fatal:
                return fatal.args[0]
        return error

    def _new_session(self) -> _Session:
        with kafka_errors(self._where):
            return _Session(open_writer(self._properties, STATE_RECORDS))


class _Session:
    """One producer, and how much it has not delivered yet."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.waiting: Counter[Place] = Counter()


def _drop(session: _Session) -> None:
    """Drop what a producer holds; a callback that is not served would keep it and its threads."""
    with suppress(KafkaException):  # a fatal error that its writes have reported already
        session.producer.purge()
        session.producer.flush(_POLL_S)


@contextmanager
def _overtaken() -> Iterator[None]:
    """Restart the step; the next process sees what it wrote."""
    try:
        yield
    except KafkaException as error:
        if error.args[0].code() in OVERTAKEN:
            raise FencedError(error.args[0].str()) from error
        raise


class KafkaControlWriter:
    """Writes control records in transactions (implements the engine's ControlWriter).

    InitProducerId raises the epoch of the transactional id (KIP-98): brokers refuse whatever a
    producer of an older epoch sends from then on, its commit included. It returns when the markers
    of the transaction before it are written, so reads that begin afterwards see all of it.

    No method binds the producer to a name of its own, :meth:`close` aside: a traceback would keep
    it alive until some later exception unwinds, and it calls back when it is destroyed, which must
    not be while Python unwinds.
    """

    def __init__(self, clients: Clients, transactional_id: str) -> None:
        self._clients = clients
        self._id = transactional_id
        self._needs = on_transactional_id("Write", transactional_id)
        where = clients.label(f"taking over {transactional_id}")
        limit_ms = round(CONTROL_TRANSACTION_S * 1000)
        more = {
            **STATE_RECORDS,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": limit_ms,
            "delivery.timeout.ms": limit_ms,
            "request.timeout.ms": limit_ms,
            "topic.metadata.propagation.max.ms": 3000,
        }
        with kafka_errors(where, self._needs):
            self._producer: Producer | None = open_writer(clients.producer_properties(), more)
        try:
            with clients.patient(), kafka_errors(where, self._needs):
                self._take_over()
        except SrmError:
            self.close()
            raise

    def write(
        self, tables: _Tables, before_commit: Callable[[], None] = lambda: None
    ) -> dict[str, int]:
        topics = [topic for topic, records in tables.items() if records]
        if not topics:
            return {}
        where = self._clients.label(f"writing {', '.join(topics)}")
        needs = {**self._needs, **on_topic("Write", *topics)}
        try:
            with self._clients.patient(), kafka_errors(where, needs), _overtaken():
                self._open.begin_transaction()
                ends, stamps = self._send(tables, where, needs)
                before_commit()
                self._open.commit_transaction(min(self._clients.timeout_s, _COMMIT_S))
        except FencedError as error:
            raise FencedError(f"{where}: a newer step of a move is running ({error})") from error
        except BaseException:
            self._abort()
            raise
        self._wait_visible(ends)
        return stamps

    def close(self) -> None:
        """Drop the producer; what it has begun is ended by the next one or by its time."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            with suppress(KafkaException, SystemError):  # a fenced one has nothing else to say
                producer.poll(0)

    @property
    def _open(self) -> Producer:
        if self._producer is None:
            raise FencedError(self._clients.label(f"the writer {self._id} is closed"))
        return self._producer

    def _take_over(self) -> None:
        # librdkafka looks for the coordinator as soon as init_transactions is called, and if it is
        # not connected by then, half a second later.
        deadline = time.monotonic() + self._clients.timeout_s
        with suppress(KafkaException):
            self._open.list_topics(internal_topics.MOVES, timeout=self._clients.timeout_s / 2)
            self._open.poll(0.05)
        self._open.init_transactions(deadline - time.monotonic())

    def _send(
        self, tables: _Tables, where: str, needs: Mapping[int, str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Bring all records to the brokers; return by topic the offset after them, and the time."""
        failures: list[KafkaError] = []
        ends: dict[str, int] = {}
        stamps: dict[str, int] = {}

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
                return
            ends[message.topic()] = max(ends.get(message.topic(), 0), message.offset() + 1)
            for time_ms in broker_time(message):
                stamps[message.topic()] = time_ms

        for topic, records in tables.items():
            for key, value in records.items():
                self._open.produce(topic, value, key, partition=0, on_delivery=on_delivery)
        left = self._open.flush(CONTROL_TRANSACTION_S)
        if not failures and not left:
            return ends, stamps
        unknown = [error for error in failures if error.code() in UNKNOWN_TOPIC_CODES]
        if unknown:
            raise translate(unknown[0], where, needs)
        # The commit knows why: a record that was purged after the producer was fenced says nothing.
        self._open.commit_transaction(self._clients.timeout_s)
        raise UnavailableError(f"{where}: no acknowledgement in time; retry")

    def _wait_visible(self, ends: Mapping[str, int]) -> None:
        """Wait until reads see it: the markers follow shortly after the commit's answer."""
        partitions = {TopicPartition(topic, 0): end for topic, end in ends.items()}

        def visible() -> bool:
            stable = log_ends(self._clients, list(partitions))
            return all(stable.get(place, 0) > end for place, end in partitions.items())

        self._clients.wait_until(f"what {self._id} has written", visible)

    def _abort(self) -> None:
        try:
            self._open.abort_transaction(2.0)
        except KafkaException as error:  # it is ended by the next one or by its time
            _logger.debug("%s: %s", self._clients.label(f"ending {self._id}"), error)
