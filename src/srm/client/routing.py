"""Routes as clients follow them: the watcher of all clusters, decisions, announcements.

One thread per cluster tails ``__srm-routing`` there; the record of the highest rank ever read
wins. While a cluster is down the others are followed; it is read again when it is back.
Announcements go to ``__srm-clients`` on every cluster, which no client reads.

A hold has a lease: without heartbeats of the move, clients continue on their old cluster. This
process's monotonic clock counts the lease from the newest beat it has read. Before the hold lapses,
the topic of the old cluster is read to its end again, because this process may have been slow to
read. A hold does not lapse while that cluster cannot be read.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Literal, Self

from confluent_kafka import KafkaError, KafkaException

from srm.client.forking import keep_for_good, survive_fork
from srm.client.messages import PRINCIPAL, with_place
from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.moves.announcements import Ack, AckMoment, AckState
from srm.domain.moves.routing import ERA, KnownRoutes, Route, decode_route, is_home, is_subject
from srm.domain.names import internal_topics
from srm.errors import IntegrityError, SrmError, UnavailableError
from srm.kafka.admin.clients import open_writer
from srm.kafka.admin.topics import UNKNOWN_TOPIC_CODES
from srm.kafka.tables.topic_tail import PATIENT, KafkaTopicTail
from srm.kafka.wire.errors import on_topic
from srm.threads import start_thread

Step = Literal["stay", "finish", "leave", "hold", "open"]
Counts = Mapping[str, int]
"""Offsets or numbers of records by partition, or numbers by the reason."""


def next_step(works_on: str | None, route: Route, *, busy: bool = False) -> Step:
    """Decide what a client does about the present route; ``works_on`` is None if it has left.

    ``stay``: do nothing; ``finish``: wait for the open transaction (``busy``), which can only end
    on the old cluster, then decide again; ``leave``: commit or flush, leave, decide again;
    ``hold``: wait and announce it; ``open``: start there.
    """
    if works_on is None:
        return "hold" if route.state == "hold" else "open"
    if route.state == "go" and route.cluster == works_on:
        return "stay"
    return "finish" if busy else "leave"


def is_given_up(works_on: str, followed: Route | None, route: Route) -> bool:
    """Return whether an unplanned move has abandoned the cluster that ``followed`` led to.

    The client then leaves it at once. This includes an unplanned move the client missed, because
    the cluster that took over could not be read at the time.
    """
    missed = followed is not None and route.generation % ERA and route.era > followed.era
    return route.gives_up(works_on) or (bool(missed) and route.cluster != works_on)


_order = attrgetter("generation", "state", "cluster")


def same_order(one: Route | None, other: Route | None) -> bool:
    """Return whether two routes require the same of a client, as a renewed hold does."""
    return one is not None and other is not None and _order(one) == _order(other)


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by the two clocks: epoch milliseconds and monotonic seconds."""

    wall_ms: int
    monotonic_s: float


class Announcement:
    """State of one client on one subject, with the time each state was reached; builds its Acks.

    All states belong to one generation. A hold discards the states after an earlier hold of it.
    """

    def __init__(self, subject: str, client: str, home: str = "", instance: str = "") -> None:
        self._subject = subject
        self._client = client
        self._home = home
        self._instance = instance
        self.members: dict[str, str] = {}
        self._route: Route | None = None
        self._state: AckState = "resumed"
        self._reached: dict[AckState, Moment] = {}
        self._positions: dict[str, int] = {}
        self._uncommitted = Counter[str]()
        self._written_s: float | None = None
        self.unwritten: Counts = {}

    def reach(
        self,
        route: Route,
        state: AckState,
        now: Moment,
        positions: Counts | None = None,
        idle_s: float | None = None,
        unwritten: Counts | None = None,
    ) -> None:
        """Record a state; the first position of each partition is kept.

        ``idle_s``: time since a producer's last record.
        """
        if self._route is None or self._route.generation != route.generation or state == "held":
            self._reached.clear()
            self._positions.clear()
        elif self._route.cluster != route.cluster:
            self._positions.clear()
            self._reached.pop("processed", None)
        # A new assignment does not undo "processed".
        further = state == "resumed" and "processed" in self._reached
        self._route, self._state = route, "processed" if further else state
        self._written_s = self._written_s if idle_s is None else now.monotonic_s - idle_s
        self.unwritten = unwritten or {}
        self._reached.setdefault(state, now)
        for partition, offset in (positions or {}).items():
            self._positions.setdefault(partition, offset)

    def lose(self, uncommitted: Counts) -> None:
        """Add records that were processed and could not be committed."""
        self._uncommitted.update(uncommitted)

    def forget_losses(self) -> None:
        """Reset the count: the client leaves a cluster on which nothing is lost yet."""
        self._uncommitted.clear()

    def has_reached(self, state: AckState) -> bool:
        """Return whether a state was reached in the present generation."""
        return state in self._reached

    def ack(self, now: Moment) -> Ack | None:
        """Build the record of the present state, None before the first."""
        if self._route is None:
            return None
        began: dict[AckMoment, float] = {one: at.monotonic_s for one, at in self._reached.items()}
        if self._state == "held" and self._written_s is not None:
            began["written"] = self._written_s
        ages = {one: max(0, round((now.monotonic_s - at) * 1000)) for one, at in began.items()}
        return Ack(
            *(self._subject, self._client, self._route.generation, self._state),
            *(self._route.cluster, self._reached[self._state].wall_ms, dict(self._positions)),
            socket.gethostname(),
            dict(self._uncommitted),
            ages,
            self._home,
            dict(self.unwritten),
            self._instance,
            dict(self.members),
        )


log = logging.getLogger(__name__)

_ALL_ANSWER_S = 10.0  # one of the clusters may be down for days
_OTHERS_ANSWER_S = 1.0  # for an abandoned one: if it answers with newer routes, that is soon read
_POLL_S = 0.5
_SLICE_S = 0.1
_RETRY_S = 1.0
_END_S = 5.0


def default_client_id(role: str) -> str:
    """Return a unique client id that names the client's host and process."""
    return f"srm-{role}-{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}"


class RoutingWatcher:
    """The merged routing table, kept up to date in the background.

    Several clients of one process may share a watcher. Nothing is opened before :meth:`start`.
    ``home``: cluster of a subject without a record, unless a move of everything has routed its
    subjects to another one; by default the first in the configuration's ``clusters``.
    ``clock``: seconds by a clock that is never set.
    """

    def __init__(
        self, config: Config, home: str | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config = config
        self.home = home or config.clusters[0]
        config.client(self.home, "consumer")
        self._changed = threading.Condition()
        self._clock = clock
        self._known = KnownRoutes(self.home)
        self._routes: dict[str, Route] = {}
        self._seen_at: dict[str, float] = {}
        self._lapsed: set[str] = set()
        self._waiting = set(config.clusters)
        self._began = 0.0
        self._is_reported = False
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._ack_producers: dict[str, Any] = {}
        survive_fork(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, timeout_s: float = 60.0, subjects: Collection[str] = ()) -> None:
        """Start following, and wait until the present routes are known.

        Once another cluster has answered, one that does not answer within ten seconds of the first
        start is followed in the background. The limit is one second if the other knows of an
        unplanned move of all these subjects. UnavailableError: no cluster answered in time.
        """
        with self._changed:
            if not self._threads:
                self._began = time.monotonic()
                self._threads = [
                    start_thread(f"srm-routing-{alias}", partial(self._follow, alias))
                    for alias in self.config.clusters
                ]
            deadline = time.monotonic() + timeout_s
            while not self._is_settled(subjects) and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(min(left, _SLICE_S))
            if len(self._waiting) == len(self.config.clusters):
                raise UnavailableError(
                    f"none of the clusters {', '.join(self.config.clusters)} answered within "
                    f"{timeout_s:g} s: check their addresses in {self.config.path}"
                )
            if self._waiting and not self._is_reported:
                self._is_reported = True
                log.warning("routes of %s are not known yet", ", ".join(sorted(self._waiting)))

    def _is_settled(self, subjects: Collection[str]) -> bool:
        """Return whether the clusters that have answered suffice to know the routes."""
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

    def after_fork(self) -> None:
        """Start over in a child process, with threads and connections of its own."""
        keep_for_good(*self._ack_producers.values())
        self._changed, self._ack_producers, self._threads = threading.Condition(), {}, []
        self._waiting = set(self.config.clusters)

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        for producer in self._ack_producers.values():
            producer.flush(2.0)
        self._ack_producers.clear()

    def route(self, subject: str) -> Route:
        """Return the present route of a subject; a renewed hold is the same route."""
        with self._changed:
            route = self._routes.get(subject) or self._known.of(subject)
            if subject in self._lapsed:
                return route.expire()
            return replace(route, beat=0, time_ms=0) if route.state == "hold" else route

    def wait_change(self, subject: str, known: Route, timeout_s: float) -> Route:
        """Wait until the route of a subject differs from ``known``; return the present one."""
        return self.wait_changes({subject: known}, timeout_s)[subject]

    def wait_changes(
        self, known: Mapping[str, Route | None], timeout_s: float | None
    ) -> dict[str, Route]:
        """Wait until the route of a subject differs from the known one; return all of them."""

        def present() -> dict[str, Route]:
            return {subject: self.route(subject) for subject in known}

        with self._changed:
            self._changed.wait_for(lambda: present() != known, timeout_s)
            return present()

    def acknowledge(self, ack: Ack) -> None:
        """Send an acknowledgement to all clusters in the background; a failure is only logged."""
        self._send(ack, ack.value())

    def withdraw(self, ack: Ack) -> None:
        """Withdraw an acknowledgement of a closed client; as :meth:`acknowledge`."""
        self._send(ack, None)

    def _send(self, ack: Ack, value: bytes | None) -> None:
        # The cluster of the route needs it; the others get it in case that one is lost.
        for alias in self.config.clusters:
            failed = partial(_log_failure, alias, ack)
            try:
                producer = self._ack_producer(alias)
                producer.produce(
                    *(internal_topics.CLIENTS, value, ack.key()),
                    on_delivery=lambda error, _, failed=failed: error and failed(error),
                )
                producer.poll(0)
            except KafkaException as error:
                failed(error.args[0])
            except (BufferError, SrmError) as error:
                failed(error)

    def _ack_producer(self, alias: str) -> Any:
        with self._changed:
            if alias not in self._ack_producers:
                self._ack_producers[alias] = open_writer(self.config.client(alias, "producer"))
            return self._ack_producers[alias]

    def _follow(self, alias: str) -> None:
        while not self._stop.is_set():
            try:
                properties = self.config.client(alias, "consumer")
                tail = KafkaTopicTail(
                    properties, internal_topics.ROUTING, later=PATIENT, principal=PRINCIPAL
                )
                with tail:
                    self._tail(alias, tail)
            except SrmError as error:
                log.warning("routes of %s cannot be followed: %s", alias, error)
                self._stop.wait(_RETRY_S)

    def _tail(self, alias: str, tail: KafkaTopicTail) -> None:
        while not self._stop.is_set():
            self._take(tail.poll(_POLL_S), alias)
            if tail.caught_up and alias in self._waiting:
                with self._changed:
                    self._waiting.discard(alias)
                    self._changed.notify_all()
            if overdue := self._overdue(alias):
                self._lapse(alias, tail, overdue)

    def _overdue(self, alias: str) -> dict[str, Route]:
        """Return the holds on a cluster's clients without a beat during their lease."""
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
        self._take(pairs, alias)
        if not at_end:
            return
        with self._changed:
            for subject, route in overdue.items():
                if self._routes[subject] == route:
                    log.warning(
                        "%s: move %s holds it and sent no heartbeat for %d s, continuing on %s",
                        *(subject, route.move_id, route.lease_ms // 1000, alias),
                    )
                    self._lapsed.add(subject)
            self._changed.notify_all()

    def _take(self, pairs: Iterable[tuple[bytes, bytes | None]], alias: str) -> None:
        for key, value in pairs:
            if value is None or not is_subject(key):
                continue
            try:
                route = decode_route(key, value)
            except IntegrityError as error:
                log.error("route on %s is skipped: %s", alias, error)  # noqa: TRY400 -- one line
                continue
            with self._changed:
                subject = key.decode()
                self._known.add(subject, route)
                others = self._routes if is_home(subject) else ()
                for each in {subject, *others}:
                    if (led := self._known.of(each)) != self._routes.get(each):
                        self._routes[each] = led
                        self._seen_at[each] = self._clock()
                        self._lapsed.discard(each)
                        self._changed.notify_all()


def _log_failure(alias: str, ack: Ack, error: Any) -> None:
    """Log a failed heartbeat; before a move a cluster may lack the topic, and others get it too."""
    is_expected, why = alias != ack.cluster, error
    if isinstance(error, KafkaError):
        is_expected |= error.code() in UNKNOWN_TOPIC_CODES and not ack.generation
        where = f"writing on {alias}"
        why = with_place(error, where, on_topic("Write", internal_topics.CLIENTS)).str()
    level = logging.DEBUG if is_expected else logging.WARNING
    log.log(level, "%s is not announced: %s", ack.state, why)


REPEAT_S: Final = 30.0
"""Seconds after which a client repeats its announcements."""


def now() -> Moment:
    """Read both clocks."""
    return Moment(now_ms(), time.monotonic())


class Announcer:
    """Writes one client's announcements, repeats them, and withdraws them when it is closed.

    They only report: a refusal is logged. Nothing is opened before the first. Thread-safe.
    """

    def __init__(self, watcher: RoutingWatcher, client_id: str) -> None:
        self._watcher = watcher
        self._client_id = client_id
        self._instance = os.urandom(8).hex()
        self._lock = threading.Lock()
        self._said: dict[str, Announcement] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        survive_fork(self)

    def after_fork(self) -> None:
        """Be another instance in a child process; the parent's announcements are its own."""
        self._instance, self._lock = os.urandom(8).hex(), threading.Lock()
        self._said, self._thread = {}, None

    def reach(
        self,
        subject: str,
        route: Route,
        state: AckState,
        positions: Counts | None = None,
        idle_s: float | None = None,
        unwritten: Counts | None = None,
    ) -> None:
        """Announce a state."""
        with self._lock:
            self._of(subject).reach(route, state, now(), positions, idle_s, unwritten)
            self._write(subject)
            if self._thread is None and not self._closed.is_set():
                self._thread = start_thread("srm-announcer", self._repeat)

    def join(self, subject: str, cluster: str, member_id: str) -> None:
        """Note the broker's id of a membership; the next announcement has it."""
        with self._lock:
            self._of(subject).members[cluster] = member_id

    def recount(self, subject: str, unwritten: Counts) -> None:
        """Replace the numbers of unwritten records; the next repetition announces them."""
        with self._lock:
            self._of(subject).unwritten = unwritten

    def has_reached(self, subject: str, state: AckState) -> bool:
        """Return whether a state of the present generation was announced."""
        with self._lock:
            return self._of(subject).has_reached(state)

    def forget_losses(self, subject: str) -> None:
        """Reset the count of losses."""
        with self._lock:
            self._of(subject).forget_losses()

    def lose(self, subject: str, uncommitted: Counts) -> None:
        """Announce records that were processed and could not be committed."""
        if any(uncommitted.values()):
            with self._lock:
                self._of(subject).lose(uncommitted)
                self._write(subject)

    def close(self) -> None:
        """Withdraw all announcements."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            for said in self._said.values():
                if (ack := said.ack(now())) is not None:
                    self._watcher.withdraw(ack)
            self._said.clear()

    def _of(self, subject: str) -> Announcement:
        if subject not in self._said:
            home = self._watcher.home
            of = (subject, self._client_id, home, self._instance)
            self._said[subject] = Announcement(*of)
        return self._said[subject]

    def _write(self, subject: str) -> None:
        ack = self._said[subject].ack(now())
        if ack is not None and not self._closed.is_set():
            self._watcher.acknowledge(ack)

    def _repeat(self) -> None:
        while not self._closed.wait(REPEAT_S):
            with self._lock:
                for subject in self._said:
                    self._write(subject)
