"""Clients of one cluster, librdkafka's and srm's own: built when first needed, closed together."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from srm import patience
from srm.clock import pauses
from srm.config.keys import CLIENT_KEYS
from srm.config.model import CLIENT_KINDS, ClientKind, ClusterClients
from srm.config.values import ClientProperties
from srm.domain.text.amount import some
from srm.errors import SrmError, UnavailableError
from srm.kafka.wire.brokers import Brokers, refusals_of
from srm.kafka.wire.errors import (
    ERROR_CLASSES,
    NOTHING,
    OWN_PRINCIPAL,
    Needs,
    kafka_errors,
    on_topic,
    translate,
)

_K = TypeVar("_K")
_T = TypeVar("_T")
Call = Callable[[Brokers], Awaitable[_T]]
_CLOSE_S: Final = 1.0
DEFAULT_TIMEOUT_S: Final = 30.0
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0
_FIRST_ATTEMPT: Final = 0.5  # of the time that is left, so that a second one has some
_LOOK_S: Final = 1.0
_SILENCE_S: Final = 10.0
"""Limit of one answer: a frozen broker is replaced after 9 s (broker.session.timeout.ms)."""
_REFUSAL_S: Final = 3.0
_OVERDUE_S: Final = 5.0
"""librdkafka answers within the time that it was given: much later it has lost the answer."""
_logger = logging.getLogger(__name__)
STATE_RECORDS: Final[Mapping[str, object]] = {
    # An assignment or a report of thousands of partitions is one record. Brokers limit its
    # compressed size, librdkafka the uncompressed one.
    "compression.type": "zstd",
    "message.max.bytes": 128 << 20,
}
"""Producer settings for the records of the state topics."""
NO_SETTINGS: Final[Mapping[str, object]] = MappingProxyType({})
_OF_RECORDS: Final = {name for name, key in CLIENT_KEYS.items() if key.reason}
"""Settings about the treatment of users' records; some would keep a client from opening."""
_BATCH: Final = 5000


class BrokerCalls:
    """A thread with an event loop for the connections of one cluster; started when first needed."""

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self._alias = alias
        self._properties = properties
        self._lock = threading.Lock()
        self._started: tuple[asyncio.AbstractEventLoop, threading.Thread, Brokers] | None = None

    def run(self, request: Call[_T], timeout_s: float) -> _T:
        with self._lock:
            if self._started is None:
                self._started = self._start()
            loop, _, brokers = self._started

        async def answer() -> _T:
            async with asyncio.timeout(timeout_s):
                return await request(brokers)

        try:
            return asyncio.run_coroutine_threadsafe(answer(), loop).result()
        except CancelledError:
            raise UnavailableError(
                f"cluster {self._alias}: closed during the request; retry"
            ) from None
        except TimeoutError as error:
            raise UnavailableError(
                f"cluster {self._alias}: no answer within {timeout_s:g} s; retry"
            ) from error
        finally:
            if brokers.replaced_by:
                self.close()  # a cluster rebuilt in its place is met by the next call

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster that the open connections lead to, None before its first answer."""
        started = self._started
        return None if started is None else started[2].cluster_id

    def close(self) -> None:
        """Close the connections and end the thread; the next call starts another."""
        with self._lock:
            started, self._started = self._started, None
        if started is None:
            return
        loop, thread, brokers = started
        loop.call_soon_threadsafe(brokers.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_S)

    def _start(self) -> tuple[asyncio.AbstractEventLoop, threading.Thread, Brokers]:
        brokers, loop = Brokers(self._alias, self._properties), asyncio.new_event_loop()
        name = f"srm-{self._alias}"
        thread = threading.Thread(target=_serve, args=(loop,), name=name, daemon=True)
        thread.start()
        return loop, thread, brokers


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):  # a caller waits for each of them
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


class ClientLog:
    """Logger at debug level: librdkafka reports each refused connection as an error, often."""

    def log(self, _level: int, message: str, *values: object) -> None:
        _logger.debug(message, *values)


def connection(props: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of clients that srm's own readers and writers take, too."""
    return {name: value for name, value in props.items() if name not in _OF_RECORDS}


def open_reader(props: Mapping[str, str], more: Mapping[str, object] = NO_SETTINGS) -> Consumer:
    """Open a consumer that assigns partitions to itself and commits nothing.

    The end of a partition is reported: after transaction markers the position never gets there.
    """
    settings = {
        "group.id": "srm-reader",
        "fetch.wait.max.ms": 10,
        **connection(props),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        **more,
    }
    return Consumer(settings, logger=ClientLog())


def open_writer(props: Mapping[str, str], more: Mapping[str, object] = NO_SETTINGS) -> Producer:
    """Open a producer that loses no record and writes none twice."""
    settings = {
        "linger.ms": 0,
        **connection(props),
        "acks": "all",
        "enable.idempotence": True,
        "allow.auto.create.topics": False,
        **more,
    }
    if "transactional.id" in more:  # librdkafka derives it from transaction.timeout.ms
        settings.pop("socket.timeout.ms", None)
    return Producer(settings, logger=ClientLog())


def is_stranded(client: AdminClient | Consumer | Producer, topic: str) -> bool:
    """Return whether a client knows no reachable broker, so that only a new client helps.

    librdkafka forgets brokers that a metadata answer omits, and a cluster that lost sight of all
    its brokers names none. librdkafka does not always return to its bootstrap.servers (issue 5301).
    The result is also True while the cluster is down.
    """
    try:
        client.list_topics(topic, timeout=_LOOK_S)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError._TRANSPORT)  # noqa: SLF001 - its name
    return False


def drain(consumer: Consumer, wait_s: float) -> list[Message]:
    """Return available messages, waiting up to ``wait_s`` seconds for the first message or event.

    Consumer.consume(n, timeout) waits for all n, and returns at once for less than a millisecond.
    """
    first = consumer.poll(math.ceil(wait_s * 1000) / 1000)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]


def position_after(message: Message, where: str, principal: str = OWN_PRINCIPAL) -> int | None:
    """Return the position after a record or an end-of-partition event, None after other events."""
    error = message.error()
    if error is None:
        return int(message.offset()) + 1
    code = error.code()
    if code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
        return int(message.offset())
    # A reader without a group needs no right to its group.id, and librdkafka reconnects by itself.
    passes = ERROR_CLASSES.get(code, SrmError).retriable
    if code != KafkaError.GROUP_AUTHORIZATION_FAILED and not passes:
        needs = on_topic("Read", message.topic() or "that is followed")
        raise translate(error, where, needs, principal)
    _logger.debug("%s: %s", where, error)
    return None


class Clients:
    """Lazy admin, reader and producer of one cluster; ``timeout_s`` bounds every call.

    ``recheck_s``: after so long without a result it must answer again, or the call ends: it may
    have died. One that then answers is slow, as with thousands of groups, and has ``timeout_s``.
    """

    def __init__(
        self,
        alias: str,
        props: ClusterClients,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        recheck_s: float = math.inf,
    ) -> None:
        self.alias = alias
        late_ms = str(round(min(_SILENCE_S, timeout_s / 2) * 1000))
        soon = {"socket.timeout.ms": late_ms, "api.version.request.timeout.ms": "3000"}
        every = [ClientProperties({**soon, **getattr(props, kind)}) for kind in CLIENT_KINDS]
        self.props = ClusterClients(*every)
        self.timeout_s = timeout_s
        self.silence_s = min(timeout_s, recheck_s)
        self._patience = patience.current()
        self.reader_lock = threading.RLock()
        self.silent_groups: set[str] = set()  # no coordinator within a whole time limit
        self._calls = {kind: BrokerCalls(alias, getattr(self.props, kind)) for kind in CLIENT_KINDS}
        self._lock = threading.Lock()
        self._current = threading.local()
        self._admitted: list[Mapping[str, str]] = []
        self._admin: AdminClient | None = None
        self._reader: Consumer | None = None
        self._producer: Producer | None = None

    def admin(self) -> AdminClient:
        with self._lock, kafka_errors(self.label("creating an admin client")):
            if self._admin is None:
                self._require_admission(self.props.admin)
                self._admin = AdminClient(dict(self.props.admin), logger=ClientLog())
            self._admin.poll(0)  # gets or renews a token that librdkafka makes itself
            # Kept until this thread has its answer, which a discarded client never gets.
            self._current.client = self._admin
            return self._admin

    def reader(self) -> Consumer:
        """Return the shared reader; hold ``reader_lock`` from assigning to the last record."""
        with self._lock, kafka_errors(self.label("creating a consumer")):
            if self._reader is None:
                self._require_admission(self.props.consumer)
                self._reader = open_reader(self.props.consumer)
            return self._reader

    def producer(self) -> Producer:
        with self._lock, kafka_errors(self.label("creating a producer")):
            if self._producer is None:
                self._require_admission(self.props.producer)
                more = {
                    "topic.metadata.propagation.max.ms": 3000,
                    "delivery.timeout.ms": round(self.timeout_s * 1000),
                }
                self._producer = open_writer(self.props.producer, more)
            return self._producer

    def producer_properties(self) -> Mapping[str, str]:
        """Return the settings for a producer of its own, once the cluster would let it in."""
        with self._lock:
            self._require_admission(self.props.producer)
        return self.props.producer

    def discard_admin(self) -> None:
        """Drop the admin client: it may be stranded, or remember outdated leader epochs."""
        with self._lock:
            self._admin = None

    def discard_reader(self) -> None:
        """Drop the reader, which may miss a topic or a new leader, and the producer, as it may."""
        with self._lock:
            reader, self._reader, self._producer = self._reader, None, None
        if reader is not None:
            reader.close()

    def discard_producer(self) -> None:
        """Drop the producer after an error: an idempotent one may be of no more use."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def close(self) -> None:
        """Close everything but what a thread still waits for; the next call builds new clients."""
        if self.reader_lock.acquire(timeout=_CLOSE_S):
            try:
                self.discard_reader()
            finally:
                self.reader_lock.release()
        for calls in self._calls.values():
            calls.close()
        with self._lock:
            self._admin = self._reader = self._producer = None

    def _require_admission(self, props: Mapping[str, str]) -> None:
        """Raise at once the refusal that librdkafka would retry until timeout and then not name."""
        if props in self._admitted or "security.protocol" not in props:
            return
        [refusal] = refusals_of([(self.alias, props)])
        if refusal is None:
            self._admitted.append(props)
        elif not refusal.retriable:
            raise refusal

    @property
    def _key(self) -> tuple[str, str]:
        return self.alias, self.props.admin.get("bootstrap.servers", "")

    @contextmanager
    def patient(self) -> Iterator[None]:
        """Let a command wait for a first answer, then in vain once; raise what is wrong."""
        limit = self._patience
        if limit is not None and (self._key not in limit.known or limit.known[self._key]):
            self._require_answer(limit.seconds)
        try:
            yield
        except UnavailableError as error:
            self._require_answer(_REFUSAL_S, error)
            raise

    def _require_answer(self, limit_s: float, error: SrmError | None = None) -> None:
        limit = self._patience
        if limit is None or (refusal := limit.recent_refusal(self._key)) is None:
            [refusal] = refusals_of([(self.alias, self.props.admin)], limit_s)
            refusal = refusal if limit is None else limit.note(self._key, refusal)
        if refusal is not None:
            raise type(refusal)(refusal.what, refusal.action) from error

    @property
    def known_id(self) -> str | None:
        """Id of the cluster, None before its first answer; after a rebuild it is the new one."""
        return self._calls["admin"].cluster_id

    def label(self, doing: str) -> str:
        return f"{doing} on cluster {self.alias}"

    def call(self, doing: str, request: Callable[[float], _T], needs: Needs = NOTHING) -> _T:
        """Run an idempotent request until it succeeds, fails for good, or the time is up.

        It is given the seconds it may take, at first half of them all. ``doing`` and ``needs`` are
        for messages.
        """
        deadline = time.monotonic() + self.silence_s
        pause_s = pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        with self.patient():
            while True:
                began = time.monotonic()
                limit_s = max(1.0, (deadline - began) * _FIRST_ATTEMPT)
                try:
                    with kafka_errors(self.label(doing), needs):
                        return request(limit_s)
                except UnavailableError as error:
                    now = time.monotonic()
                    if now - began >= limit_s:
                        self.discard_admin()  # it may be stranded
                    if now >= deadline:
                        if self.silence_s >= self.timeout_s:
                            raise
                        self._require_answer(self.silence_s, error)
                        self.silence_s = self.timeout_s
                        deadline = time.monotonic() + self.timeout_s
                finally:
                    self._current.client = None
                time.sleep(next(pause_s))

    def request(
        self, doing: str, request: Call[_T], needs: Needs = NOTHING, *, client: ClientKind = "admin"
    ) -> _T:
        """Do the same with a request for the brokers themselves, see :meth:`call`.

        ``client``: log in as this kind does; the consumer may read topics.
        """
        return self.call(doing, partial(self._calls[client].run, request), needs)

    def wait_until(
        self, what: str, condition: Callable[[], bool], timeout_s: float | None = None
    ) -> None:
        """Poll a condition until it holds, by default as long as any call may take."""
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + limit_s
        pause_s = pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while not condition():
            if time.monotonic() >= deadline:
                raise UnavailableError(
                    f"{what} on cluster {self.alias}: not seen within {limit_s:g} s; retry"
                )
            time.sleep(next(pause_s))


def batches(
    items: Iterable[_T], limit: int, weigh: Callable[[_T], int] = lambda _: 1
) -> Iterator[list[_T]]:
    """Split items in order; each list has at most the weight ``limit``, or one item."""
    batch: list[_T] = []
    weight = 0
    for item in items:
        weight += weigh(item)
        if batch and weight > limit:
            yield batch
            batch, weight = [], weigh(item)
        batch.append(item)
    if batch:
        yield batch


def answers_of(
    futures: Mapping[_K, Future[_T]],
    limit_s: float,
    error_of: Callable[[_K, KafkaError], SrmError | None],
) -> dict[_K, _T]:
    """Wait for several answers; those whose error is None, as it was expected, are left out."""
    found: dict[_K, _T] = {}
    failures: dict[str, SrmError] = {}
    for key, future in futures.items():
        try:
            found[key] = answer_of(future, limit_s)
        except KafkaException as error:
            failure = error_of(key, error.args[0])
            if failure is not None:
                failures[str(getattr(key, "name", key))] = failure
    raise_first(failures)
    return found


def raise_first(failures: dict[str, SrmError]) -> None:
    """Raise one of the failures by name, if any, that lists the others."""
    if failures:
        # What cannot succeed must not be tried again because of what can.
        first = failures.pop(min(failures, key=lambda name: failures[name].retriable))
        others = f"; also failed: {some(sorted(failures))}" if failures else ""
        raise type(first)(f"{first.what}{others}", first.action)


def answer_of(future: Future[_T], limit_s: float) -> _T:
    """Wait for the answer of an admin client that has its own timeout."""
    try:
        return future.result(limit_s + _OVERDUE_S)
    except TimeoutError as error:
        raise UnavailableError("the client never got its answer; retry") from error
