"""Producers of one application, one per cluster, each replaced after a fatal error."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from srm.client.settings import ClientSettings
from srm.kafka.wire.errors import fatal_cause

log = logging.getLogger(__name__)

_FATAL: Final = KafkaError._FATAL  # noqa: SLF001 -- librdkafka's local codes are named so


def is_fatal(error: KafkaError) -> bool:
    """Return whether a producer is unusable after this error."""
    return error.fatal() or error.code() == _FATAL


class Reports:
    """Queue between the producer's own thread and the application's threads that poll.

    An exception of a callback is logged and raised from the call that served it; later ones wait.
    """

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

    def later(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that queues the callback."""

        def add(*arguments: Any) -> None:
            self.add(callback, *arguments)

        return add

    def serve(self, timeout_s: float) -> int:
        """Run queued callbacks; wait up to ``timeout_s`` for the first (less than 0: no limit).

        Returns the number of callbacks run.
        """
        with self._changed:
            limit = None if timeout_s < 0 else timeout_s
            self._changed.wait_for(lambda: self._waiting, limit)
        served = 0
        for _ in range(len(self._waiting)):
            if not self._run():
                break
            served += 1
        return served

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

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` for a callback."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._waiting, max(0.0, deadline - time.monotonic()))

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


class ClusterProducers:
    """confluent-kafka's producers by cluster; safe to share between threads.

    An idempotent producer whose sequence of a partition is broken has a fatal error and refuses
    all further calls. A new one replaces it, and its records in flight fail. A transactional
    producer is not replaced: its error shows whether another instance has taken over. The producer
    of an abandoned cluster is dropped in the same way. ``serve`` wraps an application's callback
    for use by librdkafka.
    """

    def __init__(
        self,
        settings: ClientSettings,
        serve: Callable[[Callable[..., Any]], Callable[..., Any]],
        logger: Any,
        *,
        transactional: bool,
    ) -> None:
        self._settings = settings
        self._serve = serve
        self._logger = logger
        self._transactional = transactional
        self._lock = threading.RLock()
        self._producers: dict[str, Producer] = {}
        self._retired: list[Producer] = []
        self._given_up: set[str] = set()

    def on(self, cluster: str) -> Producer:
        """Return the producer of a cluster."""
        with self._lock:
            if cluster not in self._producers:
                properties = self._wrap(self._settings.on(cluster))
                reported = properties.get("error_cb")

                def on_error(error: KafkaError) -> None:
                    if is_fatal(error):
                        self.replace(cluster, error)
                    if reported is not None:
                        reported(error)

                properties["error_cb"] = on_error
                self._producers[cluster] = Producer(properties, logger=self._logger)
                self._given_up.discard(cluster)
            return self._producers[cluster]

    def hand_over(self, cluster: str, topic: str, **record: Any) -> None:
        """Produce a record, with a new producer if the present one had a fatal error.

        BufferError: the queue is full.
        """
        try:
            self.on(cluster).produce(topic, **record)
        except KafkaException as error:
            if not self.replace(cluster, error.args[0]):
                raise
            self.on(cluster).produce(topic, **record)

    def replace(self, cluster: str, error: KafkaError) -> bool:
        """Retire the producer of a cluster after a fatal error; return whether it was retired."""
        if self._transactional or not is_fatal(error):
            return False
        if self._retire(cluster):
            log.error(
                "the producer on cluster %s had a fatal error, a new one takes over, records in "
                "flight fail: %s",
                cluster,
                error,
            )
            return True
        return False

    def give_up(self, cluster: str) -> None:
        """Drop the producer of a cluster at once; its records in flight fail.

        Records in librdkafka's queue fail too: each may have been sent before, on a connection
        that broke.
        """
        with self._lock:
            under_way = len(self._producers.get(cluster, ()))
            if self._retire(cluster):
                self._given_up.add(cluster)
                log.warning(
                    "%s is abandoned: %d records in flight to it fail, whether it has written them "
                    "is unknown",
                    cluster,
                    under_way,
                )

    def is_given_up(self, cluster: str) -> bool:
        """Return whether :meth:`give_up` dropped the cluster's producer and none has followed."""
        with self._lock:
            return cluster in self._given_up

    def is_current(self, producer: Producer) -> bool:
        """Return whether a producer is still in use for its cluster."""
        with self._lock:
            return any(producer is one for one in self._producers.values())

    def _retire(self, cluster: str) -> bool:
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

    def _wrap(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        served = ("error_cb", "stats_cb", "throttle_cb")
        return {
            name: self._serve(value) if name in served and callable(value) else value
            for name, value in properties.items()
        }
