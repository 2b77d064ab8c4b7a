"""A producer that follows its topics from cluster to cluster, losing and doubling nothing.

Each topic's route decides: on *hold* every record of the topic handed over before is brought to
its end on the old cluster (acknowledged, or failed and reported), further calls wait, and the hold
is acknowledged; on *go* writing continues on the route's cluster. A record is given to one cluster
only: one whose fate on the old side is unknown is reported as failed, never sent to the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from srm.client.routing import RoutingWatcher, default_client_id, now_ms
from srm.config.model import Config
from srm.domain.move.routes import Ack, AckState, Route, topic_subject
from srm.errors import ConflictError, SrmError, UnavailableError, UsageError
from srm.kafka.clients import ClientLog
from srm.kafka.errors import kafka_errors, translate

log = logging.getLogger(__name__)

DeliveryCallback = Callable[[Any, Any], None]

_SLICE_S = 0.05
_DELIVERY_TIMEOUT_MS = 120_000


class FailoverProducer:
    """Idempotent producer that moves with its topics; safe to share between threads.

    Delivery callbacks run in a thread of the producer.

    Args:
        config: the clusters.
        topics: the topics it may write to, original names.
        home: cluster to start on while no route is set; the first in ``clusters`` by default.
        properties: librdkafka producer properties on top of those in the configuration;
            ``delivery.timeout.ms`` also limits how long :meth:`produce` waits in a hold.
        client_id: shown by the brokers; unique by default.
        watcher: a watcher shared with other clients, started or not; not closed by this one.
    """

    def __init__(
        self,
        config: Config,
        topics: Sequence[str],
        *,
        home: str | None = None,
        properties: Mapping[str, str] | None = None,
        client_id: str | None = None,
        watcher: RoutingWatcher | None = None,
    ) -> None:
        if not topics:
            raise UsageError("producer has no topics")
        self.topics = tuple(topics)
        self.client_id = client_id or default_client_id("producer")
        self._config = config
        self._properties = dict(properties or {})
        timeout_ms = self._properties.get("delivery.timeout.ms", _DELIVERY_TIMEOUT_MS)
        self._wait_s = float(timeout_ms) / 1000
        self._watcher = watcher or RoutingWatcher(config, home)
        self._owns_watcher = watcher is None
        self._changed = threading.Condition()
        self._producers: dict[str, Any] = {}
        self._followed: dict[str, Route] = {}
        self._outstanding = dict.fromkeys(self.topics, 0)
        self._failure: SrmError | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self) -> None:
        """Find out where the topics are; the first :meth:`produce` does it otherwise.

        Raises:
            UnavailableError: no cluster answers.
        """
        self._watcher.start()
        with self._changed:
            if self._stop.is_set():
                raise ConflictError("this producer is closed")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="srm-producer", daemon=True)
                self._thread.start()

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        headers: Any = None,
        *,
        partition: int = -1,
        timestamp: int = 0,
        on_delivery: DeliveryCallback | None = None,
    ) -> None:
        """Hand over one record; waits while the topic is held or the queue is full.

        Without ``on_delivery`` a failure is raised by the next :meth:`flush` or :meth:`close`.

        Raises:
            UsageError: the topic was not named at construction.
            UnavailableError: the hold, or a full queue, outlasted ``delivery.timeout.ms``; the
                record was not handed over.
        """
        if topic not in self._outstanding:
            raise UsageError(
                f"topic {topic!r} was not named when this producer was made: {self.topics}"
            )
        if self._thread is None:
            self.start()
        deadline = time.monotonic() + self._wait_s
        delivered = partial(self._delivered, topic, on_delivery)
        with self._changed:
            while not self._try(topic, value, key, headers, partition, timestamp, delivered):
                if self._stop.is_set():
                    raise ConflictError("this producer is closed")
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"topic {topic} was held, or its queue full, for {self._wait_s:g} s: the "
                        f"record was not handed over"
                    )
                self._changed.wait(_SLICE_S)

    def flush(self, timeout: float | None = None) -> int:
        """Wait until all records are delivered; return how many are still under way.

        Raises:
            SrmError: the first failure of a record without a callback since the last call.
        """
        deadline = time.monotonic() + (self._wait_s if timeout is None else timeout)
        while self._under_way() and time.monotonic() < deadline:
            for producer in self._all():
                producer.flush(_SLICE_S)
        with self._changed:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return self._under_way()

    def close(self) -> None:
        """Deliver what was handed over, then stop.

        Raises:
            SrmError: a record without a callback has failed.
        """
        if self._stop.is_set():
            return
        try:
            self.flush()
        finally:
            self._stop.set()
            if self._thread is not None:
                self._thread.join()
            if self._owns_watcher:
                self._watcher.close()

    def cluster(self, topic: str) -> str | None:
        """Alias of the cluster records of the topic go to now, None while it is held."""
        with self._changed:
            route = self._followed.get(topic)
            return route.cluster if route is not None and route.state == "go" else None

    def _try(self, topic: str, *record: Any) -> bool:
        """Hand over a record if the topic's route is one that was followed, and says go."""
        value, key, headers, partition, timestamp, delivered = record
        route = self._followed.get(topic)
        if (
            route is None
            or route.state == "hold"
            or self._watcher.route(topic_subject(topic)) != route
        ):
            return False
        try:
            with kafka_errors(f"writing to {topic} on cluster {route.cluster}"):
                self._producer(route.cluster).produce(
                    topic,
                    value,
                    key,
                    partition=partition,
                    timestamp=timestamp,
                    headers=headers,
                    on_delivery=delivered,
                )
        except BufferError:
            return False
        self._outstanding[topic] += 1
        return True

    def _delivered(
        self, topic: str, on_delivery: DeliveryCallback | None, error: Any, message: Any
    ) -> None:
        try:
            if on_delivery is not None:
                on_delivery(error, message)
            elif error is not None:
                failure = translate(error, f"writing to {topic}")
                log.error("a record was not written: %s", failure)
                with self._changed:
                    self._failure = self._failure or failure
        finally:
            with self._changed:
                self._outstanding[topic] -= 1
                self._changed.notify_all()

    def _run(self) -> None:
        """Serve delivery callbacks and follow the routes until closed."""
        while not self._stop.is_set():
            for topic in self.topics:
                route = self._watcher.route(topic_subject(topic))
                if route != self._followed.get(topic):
                    self._switch(topic, route)
            producers = self._all()
            for producer in producers:
                producer.poll(_SLICE_S)
            if not producers:
                subject = topic_subject(self.topics[0])
                self._watcher.wait_change(subject, self._watcher.route(subject), _SLICE_S)

    def _switch(self, topic: str, route: Route) -> None:
        old = self._followed.get(topic)
        if old is not None and old.state == "go" and _leaves(old, route):
            self._drain(topic, old)
        with self._changed:
            self._followed[topic] = route
            self._changed.notify_all()
        if route.generation:
            state: AckState = "held" if route.state == "hold" else "resumed"
            log.info("topic %s: %s on %s", topic, state, route.cluster)
            self._watcher.acknowledge(
                Ack(
                    topic_subject(topic),
                    self.client_id,
                    route.generation,
                    state,
                    route.cluster,
                    now_ms(),
                )
            )

    def _drain(self, topic: str, old: Route) -> None:
        """Bring every record of the topic to its end on the cluster that is left.

        No new one can come: :meth:`_try` runs under the lock and sees the route has changed. Ends
        by itself, since each record is acknowledged or fails within its delivery timeout.
        """
        producer = self._producer(old.cluster)
        while not self._stop.is_set():
            with self._changed:
                if not self._outstanding[topic]:
                    return
            producer.flush(_SLICE_S)

    def _producer(self, alias: str) -> Any:
        with self._changed:
            if alias not in self._producers:
                properties = {
                    "linger.ms": "5",
                    "delivery.timeout.ms": str(_DELIVERY_TIMEOUT_MS),
                    **self._config.client(alias, "producer"),
                    **self._properties,
                    "client.id": self.client_id,
                    "enable.idempotence": "true",
                    "acks": "all",
                    "allow.auto.create.topics": "false",
                }
                self._producers[alias] = Producer(properties, logger=ClientLog())
            return self._producers[alias]

    def _all(self) -> list[Any]:
        with self._changed:
            return list(self._producers.values())

    def _under_way(self) -> int:
        with self._changed:
            return sum(self._outstanding.values())


def _leaves(old: Route, new: Route) -> bool:
    return new.state == "hold" or new.cluster != old.cluster
