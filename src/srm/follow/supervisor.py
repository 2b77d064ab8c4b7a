"""Run one program on the cluster of its routes: start it, stop it, announce its state."""

from __future__ import annotations

import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from srm.client.routing import Announcer, RoutingWatcher, is_given_up, same_order
from srm.config.model import Config
from srm.domain.moves.announcements import AckState
from srm.domain.moves.gate import is_member_of
from srm.domain.moves.routing import Route, group_subject
from srm.errors import SrmError, UsageError
from srm.follow.program import Program, ProgramEvent, Restarts, Stopping, exit_code, reap_orphans
from srm.follow.values import ProgramSettings, Template, Values, render_arguments
from srm.logs import json_line, log_format
from srm.threads import start_thread

if TYPE_CHECKING:
    from srm.kafka.cluster import KafkaCluster


event_log = logging.getLogger("srm.follow")


def say(event: str, message: str, level: int = logging.INFO, **fields: object) -> None:
    """Log one event; only JSON shows the fields, so the message repeats the important ones."""
    event_log.log(level, message, extra={"event": event, "fields": fields})


class EventFormatter(logging.Formatter):
    """Formats events and all other log records of srm as one line each."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        if self._as_json:
            record.event = getattr(record, "event", "log")
            return json_line(record)
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        message = " ".join(record.getMessage().split())
        if record.exc_info:
            message += f" ({self.formatException(record.exc_info).splitlines()[-1]})"
        level = "" if record.levelno <= logging.INFO else f"{record.levelname} "
        return f"{time} srm follow: {level}{message}"


def use_event_log(*, as_json: bool) -> None:
    """Write all log lines of this process as events, those of srm.follow from level INFO."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(EventFormatter(as_json=as_json or log_format() == "json"))
    if not event_log.isEnabledFor(logging.INFO):
        event_log.setLevel(logging.INFO)


log = logging.getLogger(__name__)

_IDLE_S: Final = 10.0  # without a look: then connections are closed

_Wanted = tuple[str, str]  # the cluster to read, and the client id of an ended run


@dataclass(frozen=True, slots=True)
class MembersLook:
    """The members of a group as ``client id@host``, ``own`` by client id, or the ``error``."""

    cluster: str
    own: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    error: str = ""


@dataclass(eq=False)
class MemberLooks:
    """Reads a group's members in its own thread, so an unavailable cluster blocks no caller."""

    open_cluster: Callable[[str], AbstractContextManager[KafkaCluster]]
    group: str
    client_id: str
    report: Callable[[MembersLook], None]
    _wanted: queue.SimpleQueue[_Wanted] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None

    def look(self, cluster: str, dead: str = "") -> None:
        """Request one look for ``report``; members of the ``dead`` client id are removed first."""
        self._wanted.put((cluster, dead))
        if self._thread is None:
            self._thread = start_thread("srm-members", self._run)

    def _run(self) -> None:
        wanted: _Wanted | None = None
        while True:
            wanted = wanted or self._wanted.get()
            with self.open_cluster(wanted[0]) as opened:
                wanted = self._stay(wanted, opened)

    def _stay(self, wanted: _Wanted, opened: KafkaCluster) -> _Wanted | None:
        """Serve requests for one cluster; return the first for another one, None when idle."""
        cluster = wanted[0]
        while wanted[0] == cluster:
            self.report(self._look_at(*wanted, opened))
            try:
                wanted = self._wanted.get(timeout=_IDLE_S)
            except queue.Empty:
                return None
        return wanted

    def _look_at(self, cluster: str, dead: str, opened: KafkaCluster) -> MembersLook:
        try:
            found = opened.groups([self.group])[self.group]
            gone = [one for one, name in found.by_id if dead and is_member_of(dead, name)]
            if gone:
                opened.remove_members(self.group, gone)
                found = opened.groups([self.group])[self.group]
        except SrmError as error:
            return MembersLook(cluster, error=str(error))
        if found.state == "unknown":
            return MembersLook(cluster, error=found.reason)
        own = tuple(one for one in found.members if is_member_of(self.client_id, one))
        return MembersLook(cluster, own, tuple(one for one in found.members if one not in own))


FORWARDED: Final = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
ENDING: Final = (signal.SIGTERM, signal.SIGINT)

_FIRST_LOOK_S: Final = 0.1
_UNNAMED_S: Final = 3.0  # to join with its client id, before other members count
_CANNOT_START: Final = 1
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126


@dataclass(frozen=True)
class Job:
    """A program to run, with its settings."""

    config: Config
    work: ProgramSettings
    command: Sequence[str]
    client_id: str
    templates: Sequence[Template] = ()
    stopping: Stopping = field(default_factory=Stopping)
    json_logs: bool = False

    def check(self) -> None:
        for cluster in self.config.clusters:
            values = self.values(cluster, 0)
            render_arguments(self.command, values)
            for template in self.templates:
                template.render(values)
        for template in self.templates:
            folder = template.output.absolute().parent
            if not (folder.is_dir() and os.access(folder, os.W_OK)):
                raise UsageError(f"{template.output}: folder {folder} is missing or not writable")
        if not Path("/proc/self/stat").exists():
            raise UsageError("srm follow needs Linux: /proc, and a kernel that ends orphans")

    def values(self, cluster: str, generation: int, run: int = 1) -> Values:
        return Values(self.config, self.work, cluster, self.client_id_of(run), generation)

    def client_id_of(self, run: int) -> str:
        """Return the client id for a run; an ended run differs from the next one."""
        return f"{self.client_id}-{run}"


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of the program: its start, and the routes of that moment."""

    program: Program
    number: int
    cluster: str
    since: float
    routes: Mapping[str, Route]

    def is_lost(self, routes: Mapping[str, Route]) -> bool:
        """Return whether, by the present routes, an unplanned move has abandoned its cluster."""
        known = self.routes
        return any(is_given_up(self.cluster, known[one], route) for one, route in routes.items())


class ProgramSupervisor:
    """Runs a job until its program ends for good, or a signal requests the end.

    Invariants: at most one run exists. It is started only on the cluster that all routes name with
    *go*. *held* is announced only while no run exists, and for a group only when the broker shows
    no member of the program. The watcher is started here, and closed by the caller.
    """

    def __init__(
        self,
        job: Job,
        watcher: RoutingWatcher,
        restarts: Restarts,
        make_looks: Callable[[str, Callable[[MembersLook], None]], MemberLooks],
    ) -> None:
        self._job = job
        self._watcher = watcher
        self._restarts = restarts
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        group = job.work.group
        self._group = group_subject(group) if group else None
        self._looks = make_looks(group, partial(self._queue, self._take_look)) if group else None
        self._announcers = {
            subject: Announcer(watcher, job.client_id) for subject in job.work.subjects
        }
        self._watching = False
        self._said: dict[str, Route] = {}
        self._order: Order | None = None
        self._run: _Run | None = None
        self._runs = 0
        self._stopping = False
        self._ending = self._killing = False
        self._result: int | None = None
        self._last_code = 0
        self._start_at = 0.0
        self._left: str | None = None
        self._dead: tuple[str, str] | None = None
        self._ran_on: set[str] = set()
        self._started = self._arrived = False
        self._named = False
        self._looking = False
        self._look_of = (0, False)
        self._look_at = 0.0
        self._look_pause = _FIRST_LOOK_S
        self._look_error = ""

    def signal(self, number: int) -> None:
        """Queue a signal; may be called from a signal handler."""
        self._queue(self._take_signal, number)

    def run(self) -> int:
        """Run until the end; return the exit code."""
        config = self._job.config
        say("reading", f"reading the routes of {', '.join(config.clusters)} ({config.path})")
        start_thread("srm-follow-routes", self._watch)
        try:
            while self._result is None:
                self._take_event()
                if self._result is None and (self._watching or self._ending):
                    self._steer()
            return self._result
        finally:
            self._end_run()
            for announcer in self._announcers.values():
                announcer.close()

    # ----- events

    def _watch(self) -> None:
        known: Mapping[str, Route | None] = dict.fromkeys(self._job.work.subjects)
        try:
            self._watcher.start(subjects=self._job.work.subjects)
            while True:
                known = self._watcher.wait_changes(known, None)
                self._queue(self._begin, None)
        except SrmError as error:
            self._queue(self._begin, error)

    def _queue(self, take: Callable[..., None], *event: Any) -> None:
        self._events.put(partial(take, *event))

    def _take_event(self) -> None:
        try:
            take = self._events.get(timeout=self._timeout())
        except queue.Empty:
            return
        take()

    def _timeout(self) -> float | None:
        due = []
        if self._run is None and self._order is not None and self._order.cluster is not None:
            due.append(self._start_at)
        if not self._looking and self._wants_look() is not None:
            due.append(self._look_at)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _begin(self, error: SrmError | None) -> None:
        """Announce the program before it has followed a route; raise why routes are not read."""
        if error is not None:
            raise error
        if not self._watching:
            self._watching = True
            for subject in self._job.work.subjects:
                route = replace(self._watcher.route(subject), generation=0)
                self._announcers[subject].reach(subject, route, "resumed")

    def _take_signal(self, number: int) -> None:
        if number == signal.SIGCHLD:
            reap_orphans(self._run.program.guard_pid if self._run else None)
        elif number in FORWARDED:
            if self._run is not None:
                self._run.program.signal(number)
        elif self._ending and self._run is not None:
            say("killing", "second signal to end: killing the program", logging.WARNING)
            self._killing = True
            self._run.program.kill()
        else:
            self._ending = True
            say("ending", f"{signal.Signals(number).name}: stopping the program", signal=number)

    def _take_program(self, number: int, event: ProgramEvent) -> None:
        run = self._run
        if run is None or run.number != number:
            return
        if event.kind == "started":
            text = f"started {self._job.command[0]} (pid {event.value}) on {run.cluster}"
            say("started", text, pid=event.value, cluster=run.cluster)
            self._started = True
            self._look_soon()
        elif event.kind == "killed" and not self._killing:
            say("killed", "program not ended within its grace time: killed", logging.WARNING)
        elif event.kind == "failed":
            self._run = None
            self._result = _NOT_EXECUTABLE if event.value != 2 else _NOT_FOUND
            reason = os.strerror(event.value)
            say("failed", f"{self._job.command[0]} cannot be run: {reason}", logging.ERROR)
        elif event.kind == "ended":
            self._on_exit(run, exit_code(event.value))

    def _on_exit(self, run: _Run, code: int) -> None:
        self._run, self._left = None, None
        self._last_code = code if self._ending else 0
        on_purpose, self._stopping = self._stopping, False
        ran_s = time.monotonic() - run.since
        text = f"the program has ended with exit code {code} on {run.cluster}"
        say("ended", text, code=code, cluster=run.cluster, ran_seconds=round(ran_s, 1))
        dead = (run.cluster, self._job.client_id_of(run.number))
        self._dead = None if run.is_lost(self._routes()) else dead
        self._look_soon()
        if on_purpose or self._ending:
            self._restarts.forget()
            self._start_at = 0.0
            return
        pause = self._restarts.pause_after(code, ran_s)
        if pause is None:
            self._result = code
        else:
            self._start_at = time.monotonic() + pause
            say("restarting", f"restarting the program in {pause:g} s", seconds=pause)

    # ----- decisions

    def _steer(self) -> None:
        routes = self._routes()
        order = order_of(routes)
        if order != self._order:
            self._order = order
            self._look_soon()
            _say_order(order, routes)
        if self._run is not None:
            self._steer_run(self._run, order, routes)
        elif self._ending:
            self._result = self._last_code
        else:
            self._say_held(order, routes)
            if order.cluster is not None and time.monotonic() >= self._start_at:
                self._start(order.cluster, routes)
        self._look_if_due()

    def _routes(self) -> dict[str, Route]:
        return {subject: self._watcher.route(subject) for subject in self._job.work.subjects}

    def _steer_run(self, run: _Run, order: Order, routes: Mapping[str, Route]) -> None:
        if self._ending or order.cluster != run.cluster:
            lost = run.is_lost(routes)
            if not self._stopping or lost:
                stopping, self._stopping = self._job.stopping, True
                lost_s = min(stopping.lost_s, stopping.grace_s)
                run.program.stop(lost_s if lost else stopping.grace_s)
            return
        # Also after a hold that ended before it was read: the move waits for its generation.
        for subject, route in routes.items():
            if self._arrived if subject == self._group else self._started:
                self._reach(subject, route, "resumed")

    def _say_held(self, order: Order, routes: Mapping[str, Route]) -> None:
        for subject in order.held:
            route = routes[subject]
            # The members on an abandoned cluster are not checked.
            left = self._left == route.cluster or route.gives_up(route.cluster)
            if subject != self._group or left:
                self._reach(subject, route, "held")

    def _reach(self, subject: str, route: Route, state: AckState) -> None:
        if not same_order(self._said.get(subject), route):
            self._said[subject] = route
            self._announcers[subject].reach(subject, route, state)
            if route.generation:
                text = f"{subject}: {state} on {route.cluster}"
                say(state, text, subject=subject, cluster=route.cluster, move=route.move_id)

    def _start(self, cluster: str, routes: Mapping[str, Route]) -> None:
        self._runs += 1
        generation = max(route.generation for route in routes.values())
        try:
            values = self._job.values(cluster, generation, self._runs)
            for template in self._job.templates:
                template.write(values)
            program = Program(
                render_arguments(self._job.command, values),
                {**os.environ, **values.environ()},
                self._job.stopping,
                partial(self._queue, self._take_program, self._runs),
                mark="SRM_CLIENT_ID",
                json_logs=self._job.json_logs,
            )
        except (SrmError, OSError) as error:
            say("failed", f"the program cannot be started on {cluster}: {error}", logging.ERROR)
            pause = self._restarts.pause_after(_CANNOT_START, 0.0)
            self._result = _CANNOT_START if pause is None else None
            self._start_at = time.monotonic() + (pause or 0.0)
            return
        self._started = self._arrived = False
        self._ran_on.add(cluster)
        self._run = _Run(program, self._runs, cluster, time.monotonic(), routes)

    def _end_run(self) -> None:
        """Stop the program, so that it does not outlive its supervisor."""
        if self._run is not None:
            self._run.program.stop(self._job.stopping.grace_s)
            while self._run is not None:
                self._events.get()()

    # ----- looks at the group

    def _wants_look(self) -> str | None:
        """Return the cluster whose members the supervisor needs now, None for none."""
        if self._looks is None or self._group is None or not self._watching:
            return None
        if self._dead is not None:
            return self._dead[0]
        if self._run is not None:
            return None if self._arrived or self._stopping else self._run.cluster
        route = self._watcher.route(self._group)
        if route.state != "hold" or route.gives_up(route.cluster):
            return None
        return route.cluster if self._left != route.cluster else None

    @property
    def _phase(self) -> tuple[int, bool]:
        return self._runs, self._run is not None

    def _look_soon(self) -> None:
        self._look_at, self._look_pause = time.monotonic(), _FIRST_LOOK_S

    def _look_if_due(self) -> None:
        cluster = self._wants_look()
        due = cluster is not None and not self._looking and time.monotonic() >= self._look_at
        if due and cluster is not None and self._looks is not None:
            self._looking, self._look_of = True, self._phase
            self._looks.look(cluster, self._dead[1] if self._dead else "")
            self._dead = None  # once: a process that still lives must not be removed repeatedly

    def _take_look(self, seen: MembersLook) -> None:
        self._looking = False
        self._look_at = time.monotonic() + self._look_pause
        self._look_pause = min(5.0, self._look_pause * 1.5)
        self._named = self._named or bool(seen.own)
        if seen.error and seen.error != self._look_error:
            say("unseen", f"members cannot be read: {seen.error}", logging.WARNING)
        self._look_error = seen.error
        late = self._look_of != self._phase or self._wants_look() != seen.cluster
        if seen.error or late or self._group is None:
            return
        if self._run is None:
            # Every member may belong to a program that uses another client id.
            alone = self._named or seen.cluster not in self._ran_on
            if not seen.own and (alone or not seen.others):
                self._left = seen.cluster
        else:
            unnamed = not self._named and time.monotonic() - self._run.since >= _UNNAMED_S
            self._arrived = self._arrived or bool(seen.own or (unnamed and seen.others))


def _say_order(order: Order, routes: Mapping[str, Route]) -> None:
    if order.held:
        first = routes[order.held[0]]
        named = ", ".join(order.held)
        say("hold", f"{named}: hold of move {first.move_id}", subjects=order.held)
    elif order.apart:
        where = ", ".join(f"{subject} on {route.cluster}" for subject, route in routes.items())
        say(
            "apart",
            f"not all on one cluster ({where}): the program waits until they are; move them "
            "together",
            logging.WARNING,
        )
    else:
        say("go", f"go to {order.cluster}", cluster=order.cluster)


@dataclass(frozen=True, slots=True)
class Order:
    """The cluster the program runs on, None for none; ``apart``: its subjects are on several."""

    cluster: str | None
    held: tuple[str, ...] = ()
    apart: bool = False


def order_of(routes: Mapping[str, Route]) -> Order:
    held = tuple(subject for subject, route in routes.items() if route.state == "hold")
    clusters = {route.cluster for route in routes.values()}
    if held or len(clusters) > 1:
        return Order(None, held, apart=not held)
    return Order(clusters.pop())
