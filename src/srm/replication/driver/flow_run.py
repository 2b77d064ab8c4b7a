"""One flow in an application: its driver, its jobs, and the settings that it takes up."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from srm import logs
from srm.clock import now_ms
from srm.config.model import (
    OF_APPLICATION,
    OF_RUN,
    ClusterClients,
    Config,
    FlowConfig,
    SettingsRecord,
    differences,
    key_of,
    plain_settings,
)
from srm.domain.flow_state.replication_records import AssignedPartition, DriverRequest
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import Cluster
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, DataLossError, FencedError, SrmError, SupersededError
from srm.files import file_stamp
from srm.replication.driver.driver import SIGN_OFF_S, FlowDriver, keep_running
from srm.threads import start_thread

logger = logging.getLogger(__name__)

LOOK_S: Final = 3.0

_Clients = tuple[tuple[ClusterClients, ...], Mapping[str, object]]


@dataclass
class _Followed:
    driver: FlowDriver
    clients: _Clients
    in_force: FlowConfig
    written: FlowConfig
    takers: Sequence[Callable[[FlowConfig], None]]
    again: Callable[[Config], object]


@dataclass(eq=False)
class SettingsReload:
    """Reads the file again and again, with the secrets and lists that it refers to.

    A flow takes its own changes only. It starts again where slots or clients have what has changed,
    and no other flow does. A change of the file, or of a file that it names, counts once two reads
    in a row agree: an editor may be half way through.
    """

    load: Callable[[], Config]
    clock: Callable[[], float] = time.monotonic
    _flows: dict[Flow, _Followed] = field(default_factory=dict)
    _failure: str = ""
    _read: tuple[Config, Mapping[Flow, _Clients]] | None = None

    def __post_init__(self) -> None:
        self._look_at = self.clock() + LOOK_S

    def follow(
        self,
        driver: FlowDriver,
        config: Config,
        flow: Flow,
        takers: Sequence[Callable[[FlowConfig], None]],
        again: Callable[[Config], object],
    ) -> None:
        """Keep a flow up to date; ``again`` starts it with a configuration and follows it here."""
        started, before = config.flow(flow), self._flows.get(flow)
        was = {} if before is None else plain_settings(before.in_force)
        written = started if before is None else before.written
        clients = _clients_of(config, flow)
        self._flows[flow] = _Followed(driver, clients, started, written, takers, again)
        driver.settings = SettingsRecord(plain_settings(started), was, now_ms()).value()

    def look(self) -> None:
        if self.clock() < self._look_at:
            return
        try:
            found = self.load()
        except SrmError as error:
            if str(error) != self._failure:
                logger.warning("keeping the previous settings: %s", error)
            self._failure, self._read = str(error), None
        else:
            self._failure = ""
            followed = [flow for flow in self._flows if flow in found.flow_configs]
            read = found, {flow: _clients_of(found, flow) for flow in followed}
            for flow in followed if read == self._read else ():
                self._take(flow, self._flows[flow], *read)
            self._read = read
        self._look_at = self.clock() + LOOK_S

    def _take(
        self, flow: Flow, one: _Followed, found: Config, clients_of: Mapping[Flow, _Clients]
    ) -> None:
        written, clients = found.flow(flow), clients_of[flow]
        if (written, clients) == (one.written, one.clients):
            return
        changes = differences(plain_settings(one.written), plain_settings(written))
        for name, (before, after) in changes.items():
            waits = "waits for srm replicator restart" if name in OF_APPLICATION else "in force"
            logger.warning("%s: %s: %s becomes %s, %s", flow, key_of(name), before, after, waits)
        kept = {name: getattr(one.in_force, name) for name in OF_APPLICATION}
        was, in_force = plain_settings(one.in_force), replace(written, **kept)
        one.written, known, one.clients = written, one.clients, clients
        if clients != known or not OF_RUN.isdisjoint(changes):
            what = "clients" if clients != known else "slots"
            logger.warning("%s: new settings of its %s: it starts again", flow, what)
            one.again(replace(found, flow_configs={**found.flow_configs, flow: in_force}))
            return
        one.in_force = in_force
        for take in one.takers:
            take(in_force)
        one.driver.settings = SettingsRecord(plain_settings(in_force), was, now_ms()).value()


def _clients_of(config: Config, flow: Flow) -> _Clients:
    """Return the clients' settings, and the stamps of the files that they name."""
    clients = tuple(config.cluster_clients(alias, flow) for alias in (flow.source, flow.target))
    paths = {
        str(value)
        for one in clients
        for properties in (one.admin, one.consumer, one.producer)
        for name, value in properties.items()
        if name.endswith(".location")
    }
    return clients, {path: file_stamp(Path(path)) for path in paths}


Work = Callable[[threading.Event], object]
"""Does something for the flow until the event is set; raises nothing."""

_JOIN_S = 2.0
STUCK_S: Final = 40.0  # longer than a slot waits before it tries a stopped partition again


@dataclass
class FlowHost:
    """The application: how it cancels a job, and its events; ``ready``: jobs may be submitted."""

    cancel: Callable[[str], None]
    describe: Callable[[Exception], str] = str
    ready: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    slots_ended: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False)
class FlowRun:
    """The life of one flow: its driver, then slots (``jobs``) and ``works``, both by name.

    ``resources`` are closed at its end. ``before``: the run that this one replaces.
    """

    host: FlowHost
    context: FlowContext
    driver: FlowDriver
    jobs: Mapping[str, Callable[[], None]]
    works: Mapping[str, Work]
    resources: ExitStack = field(default_factory=ExitStack)
    before: FlowRun | None = None
    _failure: SrmError | None = None
    _threads: list[threading.Thread] = field(default_factory=list)
    _slots: dict[str, threading.Thread] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._goal = CatchUp(self.driver, self.context.source)
        self._over = threading.Event()

    @property
    def flow(self) -> Flow:
        return self.context.config.flow

    @property
    def request(self) -> DriverRequest | None:
        """The request that ends the application, which the replaced run may have read last."""
        before = self.before  # once: the thread of this run lets go of it
        return self.driver.obeyed or (None if before is None else before.request)

    @property
    def failure(self) -> SrmError | None:
        """Error that stopped the flow; settings are tried again while other flows run."""
        return self._failure or self.driver.refusal

    def start(self) -> None:
        self._threads.append(start_thread(f"srm driver {self.flow}", self._drive))

    def is_over(self, *, until_caught_up: bool) -> bool:
        if self.failure is None and until_caught_up:
            try:
                return self._goal.done()
            except SrmError as error:
                self._fail(error)
        return self.failure is not None

    def end(self) -> None:
        self._over.set()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _drive(self) -> None:
        host = self.host
        with logs.about(flow=str(self.flow)):
            try:
                if self.before is not None:
                    self.before.leave()
                    self.driver.succeed(self.before.driver)
                    failure, self.before = self.before.failure, None
                    if isinstance(failure, FencedError | SupersededError):
                        raise failure
                self.driver.run(self._over, self._application_ends, host.ready.wait, self._copy)
            except SrmError as error:
                self._fail(error)
                self._cancel_slots()

    def leave(self) -> None:
        """End the flow, wait for all its threads, and close what it uses: another run follows."""
        self._over.set()
        self._wait_for(self._threads[:1])  # the driver, which starts all others
        self._cancel_slots()
        self._wait_for(self._threads)
        self.resources.close()

    def _wait_for(self, threads: Sequence[threading.Thread]) -> None:
        for thread in threads:
            while thread.is_alive() and not self.host.stop.is_set():
                thread.join(_JOIN_S)

    def _application_ends(self) -> bool:
        """Wait for the end of all slots if the application ends; False if this flow alone does."""
        if self.driver.obeyed is not None:
            self.host.stop.set()
        return self.host.stop.is_set() and self.host.slots_ended.wait(SIGN_OFF_S)

    def _copy(self) -> None:
        if self._over.is_set() or self._slots:
            return
        self._threads += [
            start_thread(f"srm {name} {self.flow}", partial(self._do, work))
            for name, work in self.works.items()
        ]
        for name, job in self.jobs.items():
            run = partial(self._keep_running, name, job)
            self._slots[name] = start_thread(f"srm {name}", run)

    def _do(self, work: Work) -> None:
        with logs.about(flow=str(self.flow)):
            work(self._over)

    def _keep_running(self, name: str, job: Callable[[], None]) -> None:
        try:
            keep_running(name, job, self._over, describe=self.host.describe)
        except SupersededError as error:
            self._over.set()
            if self._failure is None:  # its driver may be cut off from the target, and not know
                self._fail(error)

    def _fail(self, error: SrmError) -> None:
        logger.error("flow %s has ended; the other flows continue: %s", self.flow, error)
        self._failure = error
        self.driver.progress.troubles["the flow"] = error

    def _cancel_slots(self) -> None:
        self._over.set()
        for name, thread in self._slots.items():
            while thread.is_alive() and not self.host.stop.is_set():
                self.host.cancel(name)  # again: its job may only be submitted just now
                thread.join(1.0)


@dataclass(eq=False)
class CatchUp:
    """Compares the positions of one flow with the source's last stable offsets after the start."""

    driver: FlowDriver
    source: Cluster
    clock: Callable[[], float] = time.monotonic
    _goal: dict[AssignedPartition, int] | None = None
    _behind: Mapping[AssignedPartition, int] = field(default_factory=dict)
    _stuck_since: float | None = None

    def done(self) -> bool:
        progress = self.driver.progress
        if self._goal is None:
            self._goal = self._ends()
        if self._goal is None:
            self._check_stuck(progress.troubles.first or self._pending())
            return False
        behind = progress.behind(self._goal)
        moves, self._behind = bool(self._behind) and behind != self._behind, behind
        if behind:
            self._check_stuck(None if moves else progress.troubles.first or self._reasons(behind))
        return not behind

    def _ends(self) -> dict[AssignedPartition, int] | None:
        found = self.driver.discovered
        if found is None or found.pending:
            return None
        names = {p: TopicPartition(p.topic, p.partition) for p in found.partitions}
        try:
            starts = self.source.log_starts(names.values())
            ends = self.source.log_ends(names.values())
        except SrmError:
            return None  # discovery meets the same, and waits
        return {p: ends[at] for p, at in names.items() if ends.get(at, 0) > starts.get(at, 0)}

    def _pending(self) -> SrmError | None:
        found = self.driver.discovered
        if found is None or not found.pending:
            return None
        names = ", ".join(found.pending)
        return ConflictError(f"the remote topics of {names} cannot be created, see the log")

    def _reasons(self, behind: Collection[AssignedPartition]) -> SrmError | None:
        stopped = self.driver.progress.stopped_partitions()
        names = [TopicPartition(p.topic, p.partition) for p in behind]
        if not all(name in stopped for name in names):
            return None
        lost = any(status.lost_from is not None for status in stopped.values())
        reasons = "; ".join(f"{name}: {stopped[name].why}" for name in names)
        return (DataLossError if lost else ConflictError)(reasons)

    def _check_stuck(self, reason: SrmError | None) -> None:
        if reason is None:
            self._stuck_since = None
            return
        now = self.clock()
        self._stuck_since = now if self._stuck_since is None else self._stuck_since
        if now - self._stuck_since <= STUCK_S:
            return
        raise type(reason)(f"the copy cannot catch up: {reason}")
