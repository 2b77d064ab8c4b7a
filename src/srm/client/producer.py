"""A producer that follows its topics from cluster to cluster, used like confluent-kafka's.

On *hold* further calls wait. The old cluster acknowledges every record of the topic handed over
before, or the record is reported as failed; then the producer acknowledges the hold. A record is
sent to one cluster only: one whose result on the old cluster is unknown has failed.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

from srm.client import routing
from srm.client.cluster_producers import (
    ClusterProducers,
    Deliveries,
    Record,
    Reports,
    Transactions,
    is_fatal,
)
from srm.client.forking import survive_fork
from srm.client.messages import (
    ClosedError,
    ForkedError,
    HeldError,
    must_abort,
    named_errors,
    stamp,
    with_place,
    with_text,
)
from srm.client.settings import ClientSettings, float_of, load_client_config
from srm.client.threads import let_consumers_leave
from srm.config.model import Config
from srm.domain.moves.routing import Route, topic_subject
from srm.kafka.admin.clients import ClientLog
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.wire.errors import on_topic, on_transactional_id
from srm.threads import start_thread

log = logging.getLogger(__name__)

SLICE_S: Final = 0.05
"""Seconds after which a waiting producer checks again."""


DeliveryCallback = Callable[[Any, Any], None]

_DELIVERY_TIMEOUT_MS: Final = 120_000
_LONGEST_WAIT_MS: Final = 3_600_000
_PURGED: Final = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}  # noqa: SLF001 -- librdkafka's local codes are named so
_DEFAULTS: Final = {"linger.ms": "5", "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS)}
_LATE: Final = {KafkaError._MSG_TIMED_OUT, KafkaError._INCONSISTENT}  # noqa: SLF001 -- librdkafka's local codes are named so
_QUERY_S: Final = 0.5
_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")


class FailoverProducer:
    """Idempotent producer that moves with its topics; safe to share between threads.

    Called like ``confluent_kafka.Producer``, with its exceptions; docs/clients.md lists the
    differences. Callbacks run in :meth:`poll`, :meth:`flush` and :meth:`close`; the ``cluster`` of
    their messages is the one written to.

    Args:
        conf: properties as for ``confluent_kafka.Producer``, callbacks included;
            ``bootstrap.servers`` is not used. ``delivery.timeout.ms`` also limits the wait of
            :meth:`produce` in a hold.
        clusters: the clusters, or the file that names them; see
            :func:`srm.client.settings.load_client_config`.
        topics: topics it will write to, announced before their first record; others are
            announced with it.
        home: cluster to start on while no route is set; the first of ``clusters`` by default.
        watcher: a watcher shared with other clients, started or not; not closed by this one.
        logger: as for ``confluent_kafka.Producer``.

    Raises:
        ConfigError: the clusters are not known.
        KafkaException: a property is invalid.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        *,
        clusters: Config | Path | str | None = None,
        topics: Sequence[str] = (),
        home: str | None = None,
        watcher: routing.RoutingWatcher | None = None,
        logger: Any = None,
    ) -> None:
        given = dict(conf)
        client_id = str(given.get("client.id") or routing.default_client_id("producer"))
        self._on_delivery = given.pop("on_delivery", None)
        self._only_errors = str(given.pop("delivery.report.only.error", False)).lower() == "true"
        self._limit = int(given.get("queue.buffering.max.messages", 100_000))
        config = watcher.config if clusters is None and watcher else load_client_config(clusters)
        set_by = given, config.client(config.clusters[0], "producer")
        waits = [one[name] for one in set_by for name in _TIMEOUTS if name in one]
        # As for librdkafka, 0 is no limit.
        self._wait_s = float(waits[0] if waits else _DELIVERY_TIMEOUT_MS) / 1000 or math.inf
        # librdkafka uses the transaction timeout for both if only that is set.
        own_timeout = waits or "transactional.id" in given
        defaults = {k: v for k, v in _DEFAULTS.items() if not (own_timeout and k in _TIMEOUTS)}
        forced = {
            "client.id": client_id,
            "enable.idempotence": "true",
            "acks": "all",
            "allow.auto.create.topics": "false",
        }
        # A topic that its cluster gets after a move is waited for as a leader is, not for 30 s.
        wait_ms = min(self._wait_s * 1000, _LONGEST_WAIT_MS)
        defaults["topic.metadata.propagation.max.ms"] = str(round(wait_ms))
        settings = ClientSettings(config, "producer", given, defaults, forced)
        logger = logger or ClientLog()
        Producer(settings.without_cluster(), logger=logger)
        self.client_id = client_id
        self._transactional_id = own_id = given.get("transactional.id")
        self._reports = Reports()
        self._producers = ClusterProducers(
            settings, self._reports, logger, transactional=own_id is not None
        )
        self._transactions = Transactions(
            self._producers, self._find_cluster, self._end_transaction, own_id
        )
        self._watcher = watcher or routing.RoutingWatcher(config, home)
        self._owns_watcher = watcher is None
        self._announcer = routing.Announcer(self._watcher, client_id)
        self._changed = threading.Condition()
        self._followed: dict[str, Route] = {}
        self._numbers = count()
        self._began = time.monotonic()
        self._deliveries = {topic: Deliveries(self._began) for topic in topics}
        self._reserved = False
        self._failure: KafkaException | None = None
        self._refusal = ""
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._forked = False
        survive_fork(self)

    def after_fork(self) -> None:
        """Refuse all use in a child process if it was started in the parent."""
        self._forked = self._forked or self._thread is not None
        self._changed, self._thread = threading.Condition(), None
        self._producers.after_fork()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of records in flight, or delivered with their callback still to run."""
        with self._changed:
            return sum(one.pending for one in self._deliveries.values()) + len(self._reports)

    def __bool__(self) -> bool:
        return True

    # ----- writing

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
        timestamp: int = 0,
        headers: Any = None,
    ) -> None:
        """Hand over one record; wait while the topic is held.

        Without a callback the next :meth:`flush` or :meth:`close` raises a failure. BufferError:
        the queue is full, or (HeldError) the topic was held, or missing on its cluster, for longer
        than ``delivery.timeout.ms``; the record was not handed over.
        """
        if not isinstance(topic, str):
            raise TypeError(f"argument 1 must be str, not {type(topic).__name__}")
        fields: dict[str, Any] = {"value": value, "key": key, "partition": partition}
        fields |= {"timestamp": timestamp, "headers": headers}
        chosen = on_delivery or callback or self._on_delivery
        until = time.monotonic() + self._wait_s
        record = Record(next(self._numbers), topic, fields, chosen, until)
        self._check_open()
        with self._changed:
            own = self._deliveries.setdefault(topic, Deliveries(self._began))
        if self._thread is None:
            self.start()
        if len(self._reports) > self._limit:
            raise BufferError("Local: Queue full: call poll() to serve delivery reports")
        with self._changed:
            own.calls += 1
            try:
                what = f"topic {topic} was held"
                self._wait(partial(self._try, record), what, self._wait_s, own)
            finally:
                own.calls -= 1

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: DeliveryCallback | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> int:
        """Hand over several records, given as the keyword arguments of :meth:`produce`.

        Returns the number accepted; the others have the reason under ``_error``.
        """
        taken, held = 0, None
        for message in messages:
            if held is not None:  # the whole batch waits once
                message["_error"] = held
                continue
            own = message.get("callback") or message.get("on_delivery") or on_delivery or callback
            record = {
                k: v for k, v in message.items() if k in {"value", "key", "timestamp", "headers"}
            }
            try:
                self.produce(
                    topic, partition=message.get("partition", partition), on_delivery=own, **record
                )
            except KafkaException as error:
                message["_error"] = error.args[0]
            except BufferError as error:
                full = KafkaError._QUEUE_FULL  # noqa: SLF001 -- librdkafka's local codes are named so
                message["_error"] = KafkaError(full, str(error))
                held = message["_error"] if isinstance(error, HeldError) else None
            else:
                taken += 1
        return taken

    def poll(self, timeout: float = -1) -> int:
        """Run callbacks; wait up to ``timeout`` seconds for the first (less than 0: no limit)."""
        self._check_open()
        return self._reports.serve(float_of(timeout))

    def flush(self, timeout: float = -1) -> int:
        """Wait until all records are delivered and their callbacks have run.

        Returns the number still in flight after ``timeout`` seconds. Raises what a callback raised
        first, else the first failure of a record without a callback.
        """
        self._check_open()
        limit = float_of(timeout)
        deadline = None if limit < 0 else time.monotonic() + limit
        first: BaseException | None = None
        while True:
            try:
                self._reports.serve_all()
            except Exception as error:  # noqa: BLE001 -- the application's, raised below
                first = first or error
            if not len(self) or (deadline is not None and time.monotonic() >= deadline):
                break
            self._producers.flush(SLICE_S)
            with self._changed:
                if any(one.again for one in self._deliveries.values()):
                    self._changed.wait(SLICE_S)
        with self._changed:
            failure, self._failure = self._failure, None
        first = first or failure
        if first is not None:
            raise first
        return len(self)

    def purge(
        self,
        in_queue: bool = True,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
        in_flight: bool = True,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
        blocking: bool = True,  # noqa: FBT001, FBT002 -- confluent-kafka's signature
    ) -> None:
        """Drop undelivered records; each is reported as failed."""
        self._check_open()
        with self._changed:
            for own in self._deliveries.values():
                while in_queue and own.again:
                    purged = KafkaError(KafkaError._PURGE_QUEUE)  # noqa: SLF001 -- librdkafka's local codes are named so
                    self._give_back(heappop(own.again), purged)
        self._producers.purge(in_queue=in_queue, in_flight=in_flight, blocking=blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the topics of the home cluster, or of the cluster the given topic is on."""
        self._check_open()
        self.start()
        route = self._watcher.route(topic_subject(topic)) if topic else None
        native = self._producers.on(route.cluster if route else self._watcher.home)
        which = {} if topic is None else {"topic": topic}
        return native.list_topics(**which, timeout=timeout)

    def close(self) -> bool:
        """Deliver what was handed over, run the callbacks, then stop."""
        if self._stop.is_set() or self._forked:
            return True
        try:
            self.flush()
        finally:
            self._stop.set()
            if self._thread is not None:
                self._thread.join()
            self._announcer.close()
            if self._owns_watcher:
                self._watcher.close()
        return True

    # ----- transactions

    def init_transactions(self, timeout: float = -1) -> None:
        """As in confluent-kafka; repeated automatically on another cluster."""
        self._begin_call()
        with self._counted_refusal():
            self._transactions.init(float_of(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction; wait in a hold, at most ``delivery.timeout.ms``."""
        self._begin_call()
        with self._counted_refusal():
            self._transactions.begin(self._wait_s)

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commit a consumer's offsets with the transaction.

        ``group_metadata``: of a FailoverConsumer or of confluent-kafka's Consumer. KafkaException,
        requiring an abort: the offsets were read before a move and the transaction began after it.
        """
        self._begin_call()
        self._transactions.send_offsets(positions, group_metadata, float_of(timeout))

    def commit_transaction(self, timeout: float = -1) -> None:
        """As in confluent-kafka; a move that waits for the commit continues."""
        self._begin_call()
        self._transactions.commit(float_of(timeout))

    def abort_transaction(self, timeout: float = -1) -> None:
        """As in confluent-kafka; a move that waits for the abort continues."""
        self._begin_call()
        self._transactions.abort(float_of(timeout))

    def _begin_call(self) -> None:
        self._check_open()
        if self._transactional_id is None:
            unset = KafkaError._NOT_CONFIGURED  # noqa: SLF001 -- librdkafka's local codes are named so
            text = "The Transactional API requires transactional.id to be configured"
            raise KafkaException(KafkaError(unset, text))
        if self._thread is None:
            self.start()

    @contextmanager
    def _counted_refusal(self) -> Iterator[None]:
        """Count a refused producer id, until it is given: none of its topics can be written."""
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:  # noqa: SLF001 -- librdkafka's local codes are named so
                with self._changed:
                    self._refusal = error.args[0].str()
                    for topic in self._followed:
                        self._deliveries[topic].refuse(time.monotonic(), self._refusal)
            raise
        with self._changed:
            for topic, route in self._followed.items():
                if self._deliveries[topic].retract(self._refusal):
                    self._announcer.reach(topic_subject(topic), route, "resumed")
            self._refusal = ""

    # ----- handing over, under the lock

    def _try(self, record: Record) -> bool:
        """Hand over a record if the topic's route is followed, its state is go and it exists."""
        cluster, own = self._target(record.topic), self._deliveries[record.topic]
        if cluster is None or own.again or own.is_returning:
            return False
        return self._hand_over(record, cluster)

    def _hand_over(self, record: Record, cluster: str) -> bool:
        """Hand over a record; return False if its cluster does not have the topic (yet).

        A transaction fails with its first record, and a partition that the topic does not have is
        an error of the record.
        """
        topic, own = record.topic, self._deliveries[record.topic]
        record.cluster, delivered = cluster, partial(self._report_delivery, record)
        try:
            with named_errors(_writing(topic, cluster), self._needs(topic)):
                self._producers.hand_over(cluster, topic, **record.fields, on_delivery=delivered)
        except KafkaException as error:
            code = error.args[0].code()
            own.refuse(time.monotonic(), error.args[0].str())
            is_its_own = code == KafkaError._UNKNOWN_PARTITION and record.fields["partition"] >= 0  # noqa: SLF001 -- librdkafka's local codes are named so
            waits = code in UNKNOWN_TOPIC_CODES and self._transactional_id is None
            if is_its_own or not waits:
                raise
            own.is_missing = True
            return False
        own.add(time.monotonic())
        return True

    def _retry(self, topic: str) -> None:
        """Hand over what was returned, in order; give it back at its deadline or after a move."""
        with self._changed:
            own = self._deliveries[topic]
            while own.again:
                record = own.again[0]
                is_late = time.monotonic() >= record.deadline
                try:
                    if is_late or self.cluster(topic) != record.cluster:
                        self._give_back(record, record.error)
                    elif own.is_returning or not self._hand_over(record, record.cluster):
                        return
                except KafkaException as refusal:
                    self._give_back(record, refusal.args[0])
                except BufferError:
                    return
                heappop(own.again)

    def _target(self, topic: str) -> str | None:
        open_on = self._transactions.cluster
        if open_on is None:
            return self._settle_cluster(topic)
        self._transactions.require_alive()
        followed = self._followed.get(topic)
        if followed is None:
            route = self._watcher.route(topic_subject(topic))
            if route.state == "go" and route.cluster == open_on:
                self._follow(topic, route)
            followed = route
        if followed.state == "hold" or followed.cluster != open_on:
            raise must_abort(
                f"topic {topic} is not on cluster {open_on}, where the transaction is open: abort "
                "it, and name all topics with topics= when the producer is made"
            )
        return open_on

    def _report_delivery(self, record: Record, error: Any, message: Any) -> None:
        with self._changed:
            failure, cluster = "", record.cluster
            if error is not None:
                failure, error = self._explain(record.topic, cluster, error)
            self._settle(record.topic, cluster, error, failure)
            record.error, record.message = error, message
            missing = failure and error.code() in UNKNOWN_TOPIC_CODES
            if missing and self._transactional_id is None:
                own = self._deliveries[record.topic]
                own.is_missing = True
                heappush(own.again, record)
            else:
                self._give_back(record, error)
            self._changed.notify_all()
        if error is not None and is_fatal(error):
            self._producers.replace(cluster, error)

    def _explain(self, topic: str, cluster: str, error: Any) -> tuple[str, Any]:
        """Return why the topic's present cluster does not write records, and a record's error."""
        where, own = _writing(topic, cluster), self._deliveries[topic]
        if error.code() in _PURGED and self._producers.is_given_up(cluster):
            text = f"{where}: a move abandoned the cluster, whether it was written is unknown"
            return "", KafkaError(error.code(), text)
        is_present = self.cluster(topic) == cluster and error.code() not in _PURGED
        if error.code() in _LATE and is_present and (reason := own.reported or own.failure):
            return reason, with_text(error, f"{reason}; not written in time ({error.name()})")
        error = with_place(error, where, self._needs(topic))
        return error.str() if is_present else "", error

    def _give_back(self, record: Record, error: Any) -> None:
        """Report the result of a record."""
        # In a transaction the commit reports it, and an abort fails unsent records on purpose.
        callback = record.callback
        if callback is None and error is not None and self._transactional_id is None:
            if self._failure is None:
                log.error("a record was not written, nor may later ones be: %s", error.str())
            self._failure = self._failure or KafkaException(error)
        if callback is not None and not (self._only_errors and error is None):
            self._reports.add(callback, error, stamp(record.message, record.cluster))

    def _settle(self, topic: str, cluster: str, error: Any, failure: str) -> None:
        own, now = self._deliveries[topic], time.monotonic()
        is_present = self.cluster(topic) == cluster
        if error is not None:
            own.fail(now, failure)
            return
        own.acknowledge(now)
        if is_present and own.reported != "":
            if own.reported:
                log.info("topic %s is written on cluster %s again", topic, cluster)
            own.reported = ""
            self._announcer.reach(topic_subject(topic), self._followed[topic], "processed")

    def _needs(self, topic: str) -> dict[int, str]:
        needs = dict(on_topic("Write", topic))
        if self._transactional_id is not None:
            needs |= on_transactional_id("Write", self._transactional_id)
        return needs

    # ----- following: a record is handed over only while the followed route is the present one, or
    # within an open transaction. A new route of a topic is followed only when none of its records
    # is in flight and no transaction is open, except from an abandoned cluster.

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it has written to or was created with."""
        with self._changed:
            return tuple(self._deliveries)

    def start(self) -> None:
        """Find the topics' clusters; by default the first :meth:`produce` does."""
        self._watcher.start(subjects=[topic_subject(topic) for topic in self.topics])
        with self._changed:
            self._check_open()
            if self._thread is None:
                self._thread = start_thread("srm-producer", self._run)

    def cluster(self, topic: str) -> str | None:
        """Return the alias of the cluster the topic is written to, None while it is held."""
        with self._changed:
            route = self._followed.get(topic)
            return route.cluster if route is not None and route.state == "go" else None

    def count_unwritten(self, topic: str) -> int:
        """Return how many records wait because the topic's cluster refuses them or does not answer.

        They are retried until ``delivery.timeout.ms``.
        """
        with self._changed:
            return own.unwritten if (own := self._deliveries.get(topic)) else 0

    def _find_cluster(self, timeout_s: float, *, reserve: bool) -> str:
        """Return the cluster of all topics; ``reserve``: until :meth:`_end_transaction`."""
        found: list[str] = []

        def together() -> bool:
            clusters = {self._settle_cluster(topic) for topic in self._deliveries}
            if not self._deliveries:
                clusters = {self._watcher.home}
            if len(clusters) != 1 or None in clusters:
                return False
            found.append(str(clusters.pop()))
            self._reserved = self._reserved or reserve
            return True

        with self._changed:
            what = "its topics were held, or not all on one cluster,"
            self._wait(together, what, self._wait_s if timeout_s < 0 else timeout_s)
        return found[-1]

    def _end_transaction(self) -> None:
        with self._changed:
            self._reserved = False
            self._changed.notify_all()

    def _settle_cluster(self, topic: str) -> str | None:
        """Return the cluster a topic may be written to, None while its route is not followed."""
        route = self._followed.get(topic)
        if route is None or route.state == "hold":
            return None
        is_present = routing.same_order(self._watcher.route(topic_subject(topic)), route)
        return route.cluster if is_present else None

    def _wait(
        self, done: Callable[[], bool], what: str, limit_s: float, own: Deliveries | None = None
    ) -> None:
        deadline = time.monotonic() + limit_s
        while not done():
            self._check_open()
            if time.monotonic() >= deadline:
                if own is not None and own.failure:
                    raise HeldError(f"{own.failure}; not handed over for {limit_s:g} s")
                raise HeldError(
                    f"{what} for {limit_s:g} s: nothing was handed over; a move is in progress, "
                    "see srm failover status"
                )
            self._changed.release()
            try:
                let_consumers_leave()
            finally:
                self._changed.acquire()
            self._changed.wait(SLICE_S)

    def _run(self) -> None:
        """Poll the producers and follow the routes until closed."""
        while not self._stop.is_set():
            for topic in self.topics:
                self._look(topic)
                if self._deliveries[topic].again:
                    self._retry(topic)
            self._look_at_stuck()
            if not self._producers.poll(SLICE_S):
                with self._changed:
                    self._changed.wait(SLICE_S)

    def _look(self, topic: str) -> None:
        with self._changed:
            route = self._watcher.route(topic_subject(topic))
            old = self._followed.get(topic)
            if routing.same_order(route, old):
                return
            works_on = old.cluster if old is not None and old.state == "go" else None
            if works_on is not None and routing.is_given_up(works_on, old, route):
                self._producers.give_up(works_on)
                self._follow(topic, route)
                return
            step = routing.next_step(works_on, route, busy=self._reserved)
            # No new record can be added: the route is not the followed one.
            wait = step == "finish" or (step == "leave" and self._deliveries[topic].pending)
            if not wait:
                self._follow(topic, route)
        if wait:
            self._producers.flush(SLICE_S)  # sends lingering records now

    def _follow(self, topic: str, route: Route) -> None:
        self._followed[topic] = route
        state: Any = "held" if route.state == "hold" else "resumed"
        if route.generation:
            log.info("topic %s: %s on %s", topic, state, route.cluster)
        own = self._deliveries[topic]
        own.follow(route.generation)
        unwritten = None
        if own.calls and route.generation and state == "resumed":
            reason = f"{_writing(topic, route.cluster)}: no record is acknowledged yet"
            unwritten = {reason: own.calls}
        idle_s = time.monotonic() - own.ended
        self._announcer.reach(
            topic_subject(topic), route, state, idle_s=idle_s, unwritten=unwritten
        )
        self._changed.notify_all()

    def _look_at_stuck(self) -> None:
        """Find why records are not written, of one topic: the query delays the others."""
        now = time.monotonic()
        with self._changed:
            stuck = [name for name, one in self._deliveries.items() if one.is_stuck(now)]
            if not stuck:
                return
            topic = min(stuck, key=lambda name: self._deliveries[name].queried)
            own, route = self._deliveries[topic], self._followed[topic]
            own.queried = now
        refusal = self._find_refusal(topic, route.cluster)
        with self._changed:
            if self._followed[topic] is not route or own.since is None or own.since > now:
                return
            if not (reason := own.reason(now, _writing(topic, route.cluster), refusal)):
                return
            unwritten = {reason: own.waiting}
            if reason == own.reported:
                self._announcer.recount(topic_subject(topic), unwritten)
                return
            own.reported = reason
            log.warning("%d records wait: %s", own.waiting, reason)
            self._announcer.reach(topic_subject(topic), route, "resumed", unwritten=unwritten)

    def _find_refusal(self, topic: str, cluster: str) -> str:
        """Return the error in the metadata of a topic, empty without one or without an answer."""
        try:
            found = self._producers.on(cluster).list_topics(topic, timeout=_QUERY_S).topics[topic]
        except (KafkaException, KeyError):
            return ""
        leaderless = (one.error for one in found.partitions.values() if one.leader < 0)
        error = next((one for one in (found.error, *leaderless) if one is not None), None)
        where = _writing(topic, cluster)
        return "" if error is None else with_place(error, where, self._needs(topic)).str()

    def _check_open(self) -> None:
        if self._forked:
            raise ForkedError("producer")
        if self._stop.is_set():
            raise ClosedError("Producer has been closed")


def _writing(topic: str, cluster: str) -> str:
    return f"writing to {topic} on cluster {cluster}"
