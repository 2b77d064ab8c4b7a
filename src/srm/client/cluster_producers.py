"""Producers of one application, one per cluster, their records and their transactions."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from srm.client.forking import keep_for_good
from srm.client.messages import must_abort, named_errors
from srm.client.settings import SERVED, ClientSettings
from srm.client.threads import Aside
from srm.errors import GivenUpError
from srm.kafka.wire.errors import Needs, fatal_cause, on_transactional_id

log = logging.getLogger(__name__)

STUCK_S: Final = 2.0
"""Seconds without an acknowledged record before a cluster is queried for the reason, and again."""
SILENT_S: Final = 30.0
"""Seconds after which records that wait without a known reason count as unwritten."""
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001 -- librdkafka's local codes are named so


def is_fatal(error: KafkaError) -> bool:
    """Return whether a producer is unusable after this error."""
    return error.fatal() or error.code() == _FATAL


@dataclass(slots=True)
class Record:
    """A record of the application, until its result is known.

    ``fields``: the arguments of produce; ``deadline``: end of its delivery timeout, in seconds by a
    monotonic clock.
    ``cluster``: the last that it was handed over to, ``message``: of its last report.
    """

    number: int
    topic: str
    fields: Mapping[str, Any]
    callback: Callable[[Any, Any], None] | None
    deadline: float
    cluster: str = ""
    error: Any = None
    message: Any = None

    def __lt__(self, other: Record) -> bool:
        return self.number < other.number


@dataclass(slots=True)
class Deliveries:
    """State of a topic's records on the cluster that its producer follows to.

    Times are seconds by a monotonic clock.

    ``ended``: end of the last record, or the start of the producer.
    ``calls``: calls in progress, which may wait for the end of a hold.
    ``in_flight``: records that the cluster's producer has; ``failure``: error of the last failure.
    ``again``: heap of records that the producer returned, as the cluster does not have the topic.
    ``is_missing``: so it was for the last record; those in flight are returned, too.
    ``since``: since then records wait or failed, and none was acknowledged; None without such.
    ``queried``: last query for the reason.
    ``reported``: reason that was announced, empty if the topic is written; None before the first
    record of a route.
    """

    ended: float
    calls: int = 0
    in_flight: int = 0
    again: list[Record] = field(default_factory=list)
    is_missing: bool = False
    failure: str = ""
    since: float | None = None
    queried: float = 0.0
    reported: str | None = ""

    def follow(self, generation: int) -> None:
        """Begin on the cluster of another route."""
        self.failure, self.since, self.is_missing = "", None, False
        self.reported = None if generation else ""

    def add(self, now: float) -> None:
        """Take a record that was handed over."""
        self.in_flight, self.is_missing = self.in_flight + 1, False
        self.since = now if self.since is None else self.since

    def acknowledge(self, now: float) -> None:
        """Take a record that the cluster has written."""
        self._end(now)
        self.failure, self.since = "", now if self.pending else None

    def fail(self, now: float, failure: str = "") -> None:
        """Take a failed record; without ``failure`` it does not concern the cluster."""
        self._end(now)
        self.refuse(now, failure)

    def refuse(self, now: float, failure: str = "") -> None:
        """Take an error of a record that was not handed over, or of none."""
        self.failure = failure or self.failure
        if failure and self.since is None:
            self.since = now
        if not (self.pending or self.failure):
            self.since = None

    def retract(self, failure: str) -> bool:
        """Take back a failure after which nothing failed; return whether it was announced."""
        if not failure or failure != self.failure:
            return False
        was_announced = bool(self.reported)
        self.failure, self.since = "", self.since if self.pending else None
        self.reported = None if was_announced else self.reported
        return was_announced

    def _end(self, now: float) -> None:
        self.in_flight -= 1
        self.ended = now

    @property
    def is_returning(self) -> bool:
        """True while the producer may still return records that come before any other."""
        return self.is_missing and self.in_flight > 0

    @property
    def pending(self) -> int:
        """Number of records without a result."""
        return self.in_flight + len(self.again)

    @property
    def waiting(self) -> int:
        """Number of records without a result, with those of calls in progress."""
        return self.pending + self.calls

    def is_stuck(self, now: float) -> bool:
        """Return whether the reason has to be found, or found again."""
        is_open = self.since is not None and (self.waiting or not self.reported)
        return bool(is_open) and now - max(self.since or 0, self.queried) >= STUCK_S

    def reason(self, now: float, doing: str, refusal: str) -> str:
        """Return why records are not written; ``refusal``: error in the topic's metadata."""
        silent = self.since is not None and now - self.since >= SILENT_S
        late = f"{doing}: no record was acknowledged for {SILENT_S:g} s" if silent else ""
        return refusal or self.failure or late

    @property
    def unwritten(self) -> int:
        """Number of records that wait for a known reason."""
        return self.waiting if self.reported else 0


class Reports:
    """Queue of callbacks to the application's threads that poll; a call may raise one's error."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Queue a callback."""
        with self._changed:
            self._waiting.append((callback, arguments))
            self._changed.notify_all()

    def serve(self, timeout_s: float) -> int:
        """Run queued callbacks, and return how many; wait for the first (less than 0: no limit)."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, None if timeout_s < 0 else timeout_s)
        return sum(self._run() for _ in range(len(self._waiting)))

    def serve_all(self) -> None:
        """Run all queued callbacks, then raise the first exception."""
        first: BaseException | None = None
        while self._waiting:
            try:
                self._run()
            except Exception as error:  # noqa: BLE001 -- the application's, raised below
                first = first or error
        if first is not None:
            raise first

    def _run(self) -> bool:
        with self._changed:
            if not self._waiting:
                return False
            callback, arguments = self._waiting.popleft()
        try:
            callback(*arguments)
        except Exception:
            log.exception("a callback of the application raised")
            raise
        return True


@dataclass(eq=False)
class ClusterProducers:
    """confluent-kafka's producers by cluster; safe to share between threads.

    After a fatal error, such as a broken sequence, a new producer replaces an idempotent one, and
    its records in flight fail. A transactional one is not replaced: its error shows whether another
    instance has taken over. The producer of an abandoned cluster is dropped in the same way.
    """

    settings: ClientSettings
    reports: Reports
    logger: Any
    transactional: bool
    _lock: Any = field(default_factory=threading.RLock)
    _producers: dict[str, Producer] = field(default_factory=dict)
    _retired: list[Producer] = field(default_factory=list)
    _given_up: set[str] = field(default_factory=set)

    def after_fork(self) -> None:
        """Keep the parent's producers as they are in a child process."""
        keep_for_good(*self._producers.values(), *self._retired)
        self._lock = threading.RLock()

    def on(self, cluster: str) -> Producer:
        """Return the producer of a cluster."""
        with self._lock:
            if cluster not in self._producers:
                properties = self.settings.on(cluster)
                for name in SERVED:
                    if callable(callback := properties.get(name)):
                        properties[name] = partial(self.reports.add, callback)
                reported = properties.get("error_cb")

                def on_error(error: KafkaError) -> None:
                    if is_fatal(error):
                        self.replace(cluster, error)
                    if reported is not None:
                        reported(error)

                properties["error_cb"] = on_error
                self._producers[cluster] = Producer(properties, logger=self.logger)
                self._given_up.discard(cluster)
            return self._producers[cluster]

    def hand_over(self, cluster: str, topic: str, **record: Any) -> None:
        """Produce a record, with a new producer if the present one had a fatal error."""
        try:
            self.on(cluster).produce(topic, **record)
        except KafkaException as error:
            if not self.replace(cluster, error.args[0]):
                raise
            self.on(cluster).produce(topic, **record)

    def replace(self, cluster: str, error: KafkaError) -> bool:
        """Retire the producer of a cluster after a fatal error; return whether it was retired."""
        if self.transactional or not is_fatal(error):
            return False
        retired = self.retire(cluster)
        if retired:
            log.error(
                "the producer on cluster %s had a fatal error, a new one takes over, records in "
                "flight fail: %s",
                *(cluster, error),
            )
        return retired

    def give_up(self, cluster: str) -> None:
        """Drop the producer of a cluster at once; all its records fail: each may be sent."""
        with self._lock:
            under_way = len(self._producers.get(cluster, ()))
            if self.retire(cluster):
                self._given_up.add(cluster)
                log.warning(
                    "%s is abandoned: %d records in flight to it fail, whether it has written them "
                    "is unknown",
                    *(cluster, under_way),
                )

    def is_given_up(self, cluster: str) -> bool:
        """Return whether :meth:`give_up` dropped the cluster's producer and none has followed."""
        with self._lock:
            return cluster in self._given_up

    def is_current(self, producer: Producer) -> bool:
        """Return whether a producer is still in use for its cluster."""
        with self._lock:
            return any(producer is one for one in self._producers.values())

    def retire(self, cluster: str) -> bool:
        """Drop the producer of a cluster; a later call makes a new one."""
        with self._lock:
            retired = self._producers.pop(cluster, None)
            if retired is None:
                return False
            self._retired.append(retired)
        retired.purge(blocking=False)
        return True

    def poll(self, timeout_s: float) -> bool:
        """Serve librdkafka's reports; return False if there is no producer yet."""
        with self._lock:
            retired = self._retired
        producers = self._all()
        for cluster, producer in producers:
            self._survive(cluster, producer.poll, timeout_s)
        with self._lock:
            self._retired = [p for p in self._retired if len(p) or p not in retired]
        return bool(producers)

    def flush(self, timeout_s: float) -> None:
        """Send buffered records; wait up to ``timeout_s`` on each cluster for acknowledgements."""
        for cluster, producer in self._all():
            self._survive(cluster, producer.flush, timeout_s)

    def purge(self, **which: bool) -> None:
        """Drop records as confluent-kafka's purge does."""
        for _, producer in self._all():
            producer.purge(**which)

    def _survive(self, cluster: str, call: Callable[[float], object], timeout_s: float) -> None:
        """Make a call that may raise a fatal error, which each record's report also carries."""
        try:
            call(timeout_s)
        except (KafkaException, SystemError) as error:
            fatal = fatal_cause(error)
            if fatal is None:
                raise
            if not self.replace(cluster, fatal.args[0]):
                log.debug("producer on cluster %s: %s", cluster, fatal)

    def _all(self) -> list[tuple[str, Producer]]:
        with self._lock:
            return [*self._producers.items(), *(("", producer) for producer in self._retired)]


class _Native:
    """One producer of confluent-kafka, its initialisation and its background calls."""

    def __init__(self, producer: Producer, producers: ClusterProducers) -> None:
        self.producer = producer
        self.is_initialised = False
        self.aside = Aside("srm-transactions", lambda: not producers.is_current(producer))


@dataclass(eq=False)
class Transactions:
    """The transactions of one producer; one at a time, as in Kafka.

    The producer acquires a producer id at each move. An open transaction keeps its ``cluster``: a
    hold is followed after its commit or abort. Only if that cluster is abandoned, the transaction
    ends at once, and the next call raises without a request.
    """

    producers: ClusterProducers
    find_cluster: Callable[..., str]
    on_end: Callable[[], None]
    own_id: str | None
    cluster: str | None = None
    _natives: dict[str, _Native] = field(default_factory=dict)
    _is_initialized: bool = False
    _init_timeout: float = -1.0
    _open: _Native | None = None
    _sent: list[tuple[Any, Sequence[TopicPartition]]] = field(default_factory=list)

    def init(self, timeout: float) -> None:
        """Acquire the producer id; HeldError: a hold outlasted the producer's timeout."""
        while True:
            cluster = self.find_cluster(timeout, reserve=False)
            self._is_initialized, self._init_timeout = True, timeout
            if self._init_on(cluster):
                return

    def begin(self, patience_s: float) -> None:
        """Begin a transaction; HeldError: a hold outlasted ``patience_s``, nothing was begun."""
        self.require_alive()
        if self._open is not None:
            self._open.producer.begin_transaction()  # raises what confluent-kafka raises
        while True:
            cluster = self.find_cluster(patience_s, reserve=False)
            if self._is_initialized and not self._init_on(cluster):
                continue
            native = self._native_on(cluster)
            self.cluster = self.find_cluster(patience_s, reserve=True)
            if self.cluster == cluster and self.producers.is_current(native.producer):
                break
            self._end()  # it has moved since
        self._open = native
        try:
            with self._naming("beginning a transaction"):
                native.producer.begin_transaction()
        except BaseException:
            self._end()
            raise

    def send_offsets(
        self, positions: Sequence[TopicPartition], metadata: Any, timeout: float
    ) -> None:
        """Commit a consumer's offsets, unless they are of another cluster or an earlier stay."""
        native = getattr(metadata, "native", None)
        stale = native is not None and (
            metadata.cluster != self.cluster or not metadata.covers(positions)
        )
        if self.cluster is not None and stale:
            raise must_abort(
                f"offsets read on cluster {metadata.cluster} before a move cannot be committed in "
                f"a transaction on cluster {self.cluster}: abort it; the records are read again. "
                "If that repeats, a move took the group or its output topics alone: move both"
            )
        theirs = metadata if native is None else native
        try:
            self._call(
                "sending offsets to the transaction",
                lambda producer: producer.send_offsets_to_transaction(positions, theirs, timeout),
            )
        except GivenUpError as error:
            raise self._over() from error
        if native is not None:
            self._sent.append((metadata, positions))

    def commit(self, timeout: float) -> None:
        """Commit; KafkaException, requiring an abort: the cluster is abandoned."""
        self.require_alive()
        doing, sent = "committing the transaction", [*self._sent]
        try:
            self._finish(doing, lambda producer: producer.commit_transaction(timeout))
        except GivenUpError as error:
            raise must_abort(
                f"{doing} on cluster {self.cluster}: a move abandoned the cluster, whether the "
                "transaction was committed there is unknown; abort it here and continue"
            ) from error
        for metadata, positions in sent:
            metadata.confirm(positions)

    def abort(self, timeout: float) -> None:
        """Abort; on an abandoned cluster without a request."""
        doing = "aborting the transaction"
        try:
            self._finish(doing, lambda producer: producer.abort_transaction(timeout))
        except GivenUpError:
            if self._open is not None:  # readers wait for its end, where its cluster still answers
                abort_late = partial(self._open.producer.abort_transaction, 30.0)
                self._open.aside.leave(abort_late)
            self._end()

    def require_alive(self) -> None:
        """Refuse a transaction on an abandoned cluster: it has to be aborted, without a request."""
        if self._is_lost:
            raise self._over()

    @property
    def _is_lost(self) -> bool:
        """True if the cluster of the open transaction is abandoned."""
        return self._open is not None and not self.producers.is_current(self._open.producer)

    def _over(self) -> KafkaException:
        return must_abort(
            f"a move abandoned cluster {self.cluster}, where the transaction is open: nothing of "
            "it was committed; abort it and continue"
        )

    def _native_on(self, cluster: str) -> _Native:
        """Return the producer of a cluster, a new one after each move.

        librdkafka's send_offsets would wait for ever on the earlier one if brokers have restarted.
        """
        producer, native = self.producers.on(cluster), self._natives.get(cluster)
        if native is None or native.producer is not producer:
            for other in self._natives.keys() - {cluster}:
                self.producers.retire(other)
            native = self._natives[cluster] = _Native(producer, self.producers)
        return native

    def _init_on(self, cluster: str) -> bool:
        """Acquire the producer id once; return False if the cluster is abandoned."""
        native = self._native_on(cluster)
        if native.is_initialised:
            return True
        with self._naming(f"initialising transactions on cluster {cluster}"):
            try:
                native.aside.call(lambda: native.producer.init_transactions(self._init_timeout))
            except GivenUpError:
                return False
        native.is_initialised = True
        return True

    def _call(self, doing: str, call: Callable[[Producer], object]) -> None:
        if self._is_lost:
            raise GivenUpError(f"{doing}: cluster {self.cluster} is abandoned")
        native = self._open or self._native_on(self.find_cluster(0.0, reserve=False))
        with self._naming(doing):
            try:
                native.aside.call(lambda: call(native.producer))
            except KafkaException as error:
                if self._is_lost:  # abandoning the cluster dropped its records
                    raise GivenUpError(f"{doing}: {error}") from error
                raise

    def _finish(self, doing: str, call: Callable[[Producer], object]) -> None:
        try:
            self._call(doing, call)
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._end()  # the broker aborts the open one; the application starts again
            raise
        self._end()

    def _end(self) -> None:
        self.cluster = self._open = None
        self._sent.clear()
        self.on_end()

    def _naming(self, doing: str) -> Any:
        needs: Needs = on_transactional_id("Write", self.own_id) if self.own_id else {}
        where = f"{doing} on cluster {self.cluster}" if self.cluster else doing
        return named_errors(where, needs)
