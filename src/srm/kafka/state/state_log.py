"""Asynchronous writes of a slot to the internal topics: many records in flight."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from srm.errors import SrmError, UnavailableError
from srm.kafka.admin.clients import STATE_RECORDS, ClientLog, is_stranded, writer_props
from srm.kafka.admin.errors import kafka_errors, translate
from srm.kafka.wire.rights import CLUSTER, on_topic
from srm.replication.ports import Place, WriteResult

_POLL_S: Final = 0.05
_LOOK_EVERY_S: Final = 5.0


class KafkaStateLog:
    """Writes through one idempotent producer (implements StateLog).

    A fatal error loses pending records: :meth:`settle` returns it, the next write starts another
    one.
    """

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self._where = f"writing state to cluster {alias}"
        self._properties = {**writer_props(properties), **STATE_RECORDS}
        self._lock = threading.Lock()
        self._failed: dict[Place, SrmError] = {}
        self._offsets: dict[Place, dict[bytes, int]] = {}
        self._look_again_at = 0.0
        self._session = self._new_session()

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """See the port."""
        place, session = (topic, partition), self._session
        with self._lock:
            session.waiting[place] += 1
        try:
            session.producer.produce(
                topic,
                value,
                key,
                partition=partition,
                on_delivery=lambda error, message: self._on_delivery(
                    session, place, error, message
                ),
            )
            session.producer.poll(0)  # serves callbacks of places without a caller
        except BufferError as error:
            self._settle_one(session, place)
            raise UnavailableError(f"{self._where}: the queue is full") from error
        except KafkaException as error:
            self._settle_one(session, place)
            self._fail(session, place, self._real(session, error.args[0]))

    def waiting(self, place: Place) -> int:
        """See the port."""
        with self._lock:
            return self._session.waiting[place]

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        """See the port."""
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
        """See the port."""
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
        self._session.producer.purge()

    def _leave_stranded(self, topic: str) -> None:
        session, now = self._session, time.monotonic()
        if now < self._look_again_at:
            return
        self._look_again_at = now + _LOOK_EVERY_S  # it may take a second to find out
        if is_stranded(session.producer, topic):
            session.producer.purge()
            self._replace(session, UnavailableError(f"{self._where}: all known brokers are gone"))

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
            return _Session(Producer(self._properties, logger=ClientLog()))


class _Session:
    """One producer, and how much it has not delivered yet."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.waiting: Counter[Place] = Counter()
