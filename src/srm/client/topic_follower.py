"""The part of a producer that follows its topics: waiting, draining, leaving."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from srm.client.cluster_producers import ClusterProducers
from srm.client.errors import ClosedError, HeldError
from srm.client.routing.client_heartbeat import Announcer
from srm.client.routing.following import is_given_up, next_step, same_order
from srm.client.routing.routing import RoutingWatcher
from srm.client.thread_registry import let_consumers_leave
from srm.domain.moves.routing import Route, topic_subject

log = logging.getLogger(__name__)

SLICE_S: Final = 0.05
"""Seconds after which a waiting producer checks again."""


class TopicFollower:
    """Target cluster and number of records in flight of each topic.

    Invariants: a record is handed over only while the followed route is the present one, or within
    an open transaction. A new route of a topic is followed only when none of its records is in
    flight and no transaction is open. An abandoned cluster is the exception: records in flight to
    it fail at once, and its transaction ends. ``wait_s`` limits the wait of a call for the end of a
    hold.
    """

    def __init__(
        self,
        producers: ClusterProducers,
        topics: Sequence[str],
        client_id: str,
        watcher: RoutingWatcher,
        wait_s: float,
    ) -> None:
        self.client_id = client_id
        self._producers = producers
        self._watcher = watcher
        self._wait_s = wait_s
        self._announcer = Announcer(watcher, client_id, "producer")
        self._changed = threading.Condition()
        self._followed: dict[str, Route] = {}
        self._outstanding = dict.fromkeys(topics, 0)
        self._reserved = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics it has written to or was created with."""
        with self._changed:
            return tuple(self._outstanding)

    def start(self) -> None:
        """Find the topics' clusters; by default the first :meth:`produce` does."""
        self._watcher.start(subjects=[topic_subject(topic) for topic in self.topics])
        with self._changed:
            self._check_open()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="srm-producer", daemon=True)
                self._thread.start()

    def cluster(self, topic: str) -> str | None:
        """Return the alias of the cluster the topic is written to, None while it is held."""
        with self._changed:
            route = self._followed.get(topic)
            return route.cluster if route is not None and route.state == "go" else None

    def cluster_for_transaction(self, timeout_s: float, *, reserve: bool) -> str:
        """Return the cluster of all topics; wait for the end of a hold.

        ``reserve``: a transaction is open from now on, so no route is followed until
        :meth:`transaction_over`. HeldError: a topic is held, or the topics are on several clusters.
        """
        found: list[str] = []

        def together() -> bool:
            clusters = {self._settle_cluster(topic) for topic in self._outstanding}
            if not self._outstanding:
                clusters = {self._watcher.home}
            if len(clusters) != 1 or None in clusters:
                return False
            found.append(str(clusters.pop()))
            self._reserved = self._reserved or reserve
            return True

        with self._changed:
            if not together():
                self._wait(
                    together,
                    "its topics were held, or not all on one cluster,",
                    self._wait_s if timeout_s < 0 else timeout_s,
                )
        return found[-1]

    def transaction_over(self) -> None:
        """Follow the routes again."""
        with self._changed:
            self._reserved = False
            self._changed.notify_all()

    def _settle_cluster(self, topic: str) -> str | None:
        """Return the cluster a topic may be written to, None while its route is not followed."""
        route = self._followed.get(topic)
        if route is None or route.state == "hold":
            return None
        if not same_order(self._watcher.route(topic_subject(topic)), route):
            return None
        return route.cluster

    def _wait(self, done: Callable[[], bool], what: str, wait_s: float | None = None) -> None:
        limit_s = self._wait_s if wait_s is None else wait_s
        deadline = time.monotonic() + limit_s
        while not done():
            self._check_open()
            if time.monotonic() >= deadline:
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
            if not self._producers.poll(SLICE_S):
                with self._changed:
                    self._changed.wait(SLICE_S)

    def _look(self, topic: str) -> None:
        with self._changed:
            route = self._watcher.route(topic_subject(topic))
            old = self._followed.get(topic)
            if same_order(route, old):
                return
            works_on = old.cluster if old is not None and old.state == "go" else None
            if works_on is not None and is_given_up(works_on, old, route):
                self._producers.give_up(works_on)
                self._follow(topic, route)
                return
            step = next_step(works_on, route, busy=self._reserved)
            # No new record can be added: the route is not the followed one.
            if step == "finish" or (step == "leave" and self._outstanding[topic]):
                wait = True
            else:
                wait = False
                self._follow(topic, route)
        if wait:
            self._producers.flush(SLICE_S)  # sends lingering records now

    def _follow(self, topic: str, route: Route) -> None:
        self._followed[topic] = route
        state: Any = "held" if route.state == "hold" else "resumed"
        if route.generation:
            log.info("topic %s: %s on %s", topic, state, route.cluster)
        self._announcer.reach(topic_subject(topic), route, state)
        self._changed.notify_all()

    def _check_open(self) -> None:
        if self._stop.is_set():
            raise ClosedError("Producer has been closed")
