"""Follow the routing topic on all clusters: what tells clients where to go.

One thread per cluster tails ``srm-routing.internal`` there; of all that they ever read the record
of the highest rank counts. A cluster that is down is no reason to stop: the others are followed,
and it is read when it is back.

A hold has a lease: if whoever holds gives no sign any more, clients continue where they were. The
time is counted by this process's monotonic clock from when it saw the newest beat, and before the
hold counts as lapsed the topic of the cluster to go back to is read to its end once more: this
process may just have been slow to read. A cluster that cannot be read is no place to go back to.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer

from srm.config.model import Config
from srm.domain.moves.routing.routes import (
    Ack,
    Route,
    decode_route,
    home_route,
    home_subject,
    is_subject,
    merge,
)
from srm.domain.names import internal_topics
from srm.errors import IntegrityError, SrmError, UnavailableError
from srm.kafka.admin.clients import ClientLog
from srm.kafka.admin.errors import translate
from srm.kafka.admin.rights import on_topic
from srm.kafka.tables.topic_tail import KafkaTopicTail

log = logging.getLogger(__name__)

_ALL_ANSWER_S = 10.0  # one of the clusters may be down for days
_OTHERS_ANSWER_S = 1.0  # where it was given up: that it lives and knows better is found out soon
_POLL_S = 0.5
_SLICE_S = 0.1
_RETRY_S = 1.0
_ACK_FLUSH_S = 2.0
_END_S = 5.0


def default_client_id(role: str) -> str:
    """Make a client id that tells people where the client runs, unique per client."""
    return f"srm-{role}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


class RoutingWatcher:
    """The merged routing table, kept up to date in the background.

    Several clients of one process may share a watcher. ``home`` is the cluster of a subject that
    no record names, unless a move of everything has led elsewhere those at home there: by default
    the first in the configuration's ``clusters``. Nothing is
    opened before :meth:`start`. ``clock`` are seconds by a clock that is never set.
    """

    def __init__(
        self,
        config: Config,
        home: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.home = home or config.clusters[0]
        config.client(self.home, "consumer")
        self._changed = threading.Condition()
        self._clock = clock
        self._routes: dict[str, Route] = {}
        self._seen_at: dict[str, float] = {}
        self._lapsed: set[str] = set()
        self._waiting = set(config.clusters)
        self._began = 0.0
        self._told = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ack_producers: dict[str, Any] = {}

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

    def start(self, timeout_s: float = 60.0, subjects: Collection[str] = ()) -> None:
        """Start following, and wait until the present routes are known.

        A cluster that does not answer within ten seconds of the first start is left to the
        background, once another has; within one second where the other knows of an unplanned move
        of all these subjects.

        Raises:
            UnavailableError: no cluster answered in time.
        """
        with self._changed:
            if not self._threads:
                self._began = time.monotonic()
                for alias in self.config.clusters:
                    thread = threading.Thread(
                        target=self._follow, args=(alias,), name=f"srm-routing-{alias}", daemon=True
                    )
                    self._threads.append(thread)
                    thread.start()
            deadline = time.monotonic() + timeout_s
            while not self._is_settled(subjects) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, _SLICE_S))
            if len(self._waiting) == len(self.config.clusters):
                raise UnavailableError(
                    f"none of the clusters {', '.join(self.config.clusters)} answered within "
                    f"{timeout_s:g} s: check their addresses in {self.config.path}"
                )
            if self._waiting and not self._told:
                self._told = True
                log.warning("routes of %s are not known yet", ", ".join(sorted(self._waiting)))

    def _is_settled(self, subjects: Collection[str]) -> bool:
        """Whether the routes can be taken as known, with those who have answered by now."""
        if not self._waiting:
            return True
        if len(self._waiting) == len(self.config.clusters):
            return False
        waited = time.monotonic() - self._began
        unplanned = bool(subjects) and all(
            any(route.gives_up(alias) for alias in self._waiting)
            for route in map(self.route, subjects)
        )
        return waited >= (_OTHERS_ANSWER_S if unplanned else _ALL_ANSWER_S)

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        for producer in self._ack_producers.values():
            producer.flush(_ACK_FLUSH_S)
        self._ack_producers.clear()

    def route(self, subject: str) -> Route:
        """Return the present route of a subject; one whose hold was renewed is the same route."""
        with self._changed:
            route = self._routes.get(subject) or self._routes.get(home_subject(self.home))
            if route is None:
                return home_route(self.home)
            if subject in self._lapsed:
                return route.expire()
            return replace(route, beat=0, time_ms=0) if route.state == "hold" else route

    def wait_change(self, subject: str, known: Route, timeout_s: float) -> Route:
        """Wait until the route of a subject is another than ``known``; return the present one."""
        return self.wait_changes({subject: known}, timeout_s)[subject]

    def wait_changes(
        self, known: Mapping[str, Route | None], timeout_s: float | None
    ) -> dict[str, Route]:
        """Wait until the route of a subject is another than the known one; return all of them."""

        def present() -> dict[str, Route]:
            return {subject: self.route(subject) for subject in known}

        with self._changed:
            self._changed.wait_for(lambda: present() != known, timeout_s)
            return present()

    def acknowledge(self, ack: Ack) -> None:
        """Tell all clusters what was done; only a report, so a failure is only logged.

        The cluster of the route needs to know; the others in case that one is lost. The record is
        sent in the background.
        """
        self._tell(ack, ack.value())

    def withdraw(self, ack: Ack) -> None:
        """Take back what was acknowledged: its client is closed. As :meth:`acknowledge`."""
        self._tell(ack, None)

    def _tell(self, ack: Ack, value: bytes | None) -> None:
        for alias in self.config.clusters:
            level = logging.WARNING if alias == ack.cluster else logging.DEBUG
            try:
                producer = self._ack_producer(alias)
                producer.produce(
                    internal_topics.ROUTING,
                    value,
                    ack.key(),
                    partition=0,
                    on_delivery=partial(_log_failure, level, alias),
                )
                producer.poll(0)
            except (KafkaException, BufferError, SrmError) as error:
                log.log(level, "%s could not be reported to %s: %s", ack.state, alias, error)

    def _ack_producer(self, alias: str) -> Any:
        with self._changed:
            if alias not in self._ack_producers:
                properties = {
                    **self.config.client(alias, "producer"),
                    "enable.idempotence": True,
                    "linger.ms": 0,
                    "allow.auto.create.topics": False,
                }
                self._ack_producers[alias] = Producer(properties, logger=ClientLog())
            return self._ack_producers[alias]

    def _follow(self, alias: str) -> None:
        while not self._stop.is_set():
            try:
                properties = self.config.client(alias, "consumer")
                with KafkaTopicTail(properties, internal_topics.ROUTING) as tail:
                    self._tail(alias, tail)
            except SrmError as error:
                log.warning("routes of %s cannot be followed: %s", alias, error)
                self._stop.wait(_RETRY_S)

    def _tail(self, alias: str, tail: KafkaTopicTail) -> None:
        while not self._stop.is_set():
            pairs = tail.poll(_POLL_S)
            self._take([(key, value) for key, value in pairs if value is not None], alias)
            if tail.caught_up and alias in self._waiting:
                with self._changed:
                    self._waiting.discard(alias)
                    self._changed.notify_all()
            if overdue := self._overdue(alias):
                self._lapse(alias, tail, overdue)

    def _overdue(self, alias: str) -> dict[str, Route]:
        """Return the holds on a cluster's clients that have given no sign for their lease."""
        with self._changed:
            return {
                subject: route
                for subject, route in self._routes.items()
                if (route.state, route.cluster) == ("hold", alias)
                and route.lease_ms
                and subject not in self._lapsed
                and self._clock() - self._seen_at[subject] >= route.lease_ms / 1000
            }

    def _lapse(self, alias: str, tail: KafkaTopicTail, overdue: dict[str, Route]) -> None:
        pairs, at_end = tail.read_to_end(_END_S)
        self._take([(key, value) for key, value in pairs if value is not None], alias)
        if not at_end:
            return
        with self._changed:
            for subject, route in overdue.items():
                if self._routes[subject] == route:
                    log.warning(
                        "%s: move %s holds it and gave no sign for %d s, continuing on %s",
                        subject,
                        route.move_id,
                        route.lease_ms // 1000,
                        alias,
                    )
                    self._lapsed.add(subject)
            self._changed.notify_all()

    def _take(self, pairs: Collection[tuple[bytes, bytes]], alias: str) -> None:
        for key, value in pairs:
            if not is_subject(key):
                continue
            try:
                route = decode_route(key, value)
            except IntegrityError as error:
                log.error("route on %s is passed over: %s", alias, error)  # noqa: TRY400 -- one line
                continue
            with self._changed:
                subject = key.decode()
                known = self._routes.get(subject)
                merged = merge(known, route)
                if merged is not None and merged != known:
                    self._routes[subject] = merged
                    self._seen_at[subject] = self._clock()
                    self._lapsed.discard(subject)
                    self._changed.notify_all()


def _log_failure(level: int, alias: str, error: KafkaError | None, message: Any) -> None:
    if error is not None:
        why = translate(error, f"writing on {alias}", on_topic("Write", message.topic()))
        log.log(level, "a client's sign of life was not taken: %s", why)


def now_ms() -> int:
    """Epoch milliseconds, for acknowledgements."""
    return time.time_ns() // 1_000_000
