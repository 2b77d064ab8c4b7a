"""The embedded stack: Kafka clusters, Airflow, Spark, SRM service; started, found again, stopped.

All state is in one folder, and every process carries that folder in its environment: a later
command finds by it what an earlier one started, also what a component detached from its process
group (the replicator that Airflow submits outlives its task on purpose).
"""

from __future__ import annotations

import fcntl
import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

from srm.errors import NotFoundError, StackError
from srm.files import disk_errors, write_atomically
from srm_airflow import folder
from srm_lab.processes import end_processes, marked_processes
from srm_lab.stack.airflow import COMPONENTS, EmbeddedAirflow
from srm_lab.stack.jars import kafka_class_path, require_free_space
from srm_lab.stack.java import find_java
from srm_lab.stack.kafka import KafkaBroker, archive_broker_classes
from srm_lab.stack.process import HOME_MARK, free_port
from srm_lab.stack.service import NAME as SERVICE
from srm_lab.stack.service import EmbeddedService
from srm_lab.stack.spark import archive_spark_classes, check_spark


@dataclass(frozen=True)
class StackState:
    """Stored state of a stack: its ports, and whether it has Airflow and the SRM service."""

    airflow_port: int
    with_airflow: bool = False
    service_port: int = 0


class StackHome:
    """One stack's folder; at most one command changes a stack at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def config(self) -> Path:
        """The properties file of the stack."""
        return self.path / "srm.properties"

    @property
    def logs(self) -> Path:
        """Folder with one log file per component."""
        return self.path / "logs"

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for one command; created when absent.

        StackError: another command holds it, or the folder cannot be written.
        """
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("w")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StackError(
                    f"another srm stack command works on {self.path}: wait until it has ended"
                ) from None
            yield

    def require(self) -> None:
        """Check that a stack was started here before.

        NotFoundError: it was not.
        """
        if not self._state_file.exists():
            raise NotFoundError(f"no stack in {self.path}: start one with 'srm stack up'")

    def state(self) -> StackState:
        """Return the remembered state; what has no port yet gets a free one."""
        if not self._state_file.exists():
            return StackState(free_port(), service_port=free_port())
        state = StackState(**json.loads(self._state_file.read_text(encoding="utf-8")))
        return state if state.service_port else replace(state, service_port=free_port())

    def remember(self, state: StackState, *, with_airflow: bool) -> None:
        """Write the state down; Airflow, once part of the stack, stays part of it."""
        kept = replace(state, with_airflow=state.with_airflow or with_airflow)
        write_atomically(self._state_file, json.dumps(asdict(kept)).encode())

    @property
    def _state_file(self) -> Path:
        return self.path / "stack.json"


_AIRFLOW_URL: Final = "service.airflow.url"
_TEMPLATE: Final = """\
# The two embedded clusters and both flows between them, in MirrorMaker 2's syntax.
# Written once by 'srm stack up': edit it as you like, it is kept.

clusters = P, B
P.bootstrap.servers = {P}
B.bootstrap.servers = {B}

P->B.enabled = true
B->P.enabled = true

# What is copied, and whose progress is carried over.
topics = Payments.*
groups = .*
tasks.max = 2

# Progress on the replica goes back to the original, so that a failback loses and repeats nothing.
reverse.checkpointing.enabled = true
B->P.reverse.checkpointed.topics = P\\\\.Payments.*
P->B.reverse.checkpointed.topics = B\\\\.Payments.*

emit.checkpoints.interval.seconds = 15
sync.group.offsets.enabled = true
refresh.topics.interval.seconds = 2
emit.heartbeats.interval.seconds = 1

# One broker each.
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
"""


def write_config(path: Path, addresses: Mapping[str, str]) -> None:
    """Write the properties file unless there is one; ``addresses`` by alias, ``P`` and ``B``.

    StackError: the file cannot be written.
    """
    if not path.exists():
        write_atomically(path, _TEMPLATE.format(**addresses).encode())


def name_airflow(path: Path, url: str) -> None:
    """Let the file say where Airflow is, for links from the pages, unless it says so already.

    StackError: the file cannot be read or written.
    """
    with disk_errors(path):
        text = path.read_text("utf-8")
    if _AIRFLOW_URL not in text:
        said = f"# Where the pages of srm-service find it.\n{_AIRFLOW_URL} = {url}\n"
        write_atomically(path, f"{text.rstrip()}\n\n{said}".encode())


logger = logging.getLogger(__name__)

ALIASES: Final = ("P", "B")
_NEEDED_BYTES: Final = 1_000_000_000
_DETACHED_STOP_SECONDS: Final = 20.0

ComponentState = Literal["ready", "starting", "stopped"]
OnProgress = Callable[[str, str], None]
"""Called, from several threads, with a component's name and a word or two on its state."""


@dataclass(frozen=True)
class StackOptions:
    """Options of a stack; ``project`` is the folder with ``dags``: by default the package's."""

    home: Path
    kafka_only: bool = False
    project: Path = field(default_factory=lambda: folder("dags").parent)


@dataclass(frozen=True)
class ComponentStatus:
    """One part of the stack; ``address`` is empty where it accepts no connections."""

    name: str
    state: ComponentState
    address: str
    pid: int | None
    log: str


@dataclass(frozen=True)
class StackStatus:
    """The whole stack; ``already_running``: ``up`` found everything ready.

    ``airflow_login``: name and password, None without Airflow.
    """

    home: str
    ready: bool
    config: str
    bootstrap: dict[str, str]
    airflow_url: str | None
    airflow_login: tuple[str, str] | None
    service_url: str | None
    logs: str
    components: tuple[ComponentStatus, ...]
    already_running: bool = False


class Stack:
    """The stack in ``options.home``, running or not."""

    def __init__(self, options: StackOptions) -> None:
        self.options = options
        self.home = StackHome(self.options.home)
        self._state = self.home.state()
        self._mark = {HOME_MARK: str(self.home.path)}
        self.brokers = {
            alias: KafkaBroker(
                self.home.path / "kafka" / alias,
                alias,
                environ=self._mark,
                log=self.home.logs / f"kafka-{alias}.log",
            )
            for alias in ALIASES
        }
        self.airflow = EmbeddedAirflow(
            self.home.path,
            self.options.project.absolute(),
            self._state.airflow_port,
            self.home.config,
            self._mark,
        )
        self.service = EmbeddedService(
            self.home.path, self._state.service_port, self.home.config, self._mark
        )

    @property
    def config_path(self) -> Path:
        """The properties file that the stack writes."""
        return self.home.config

    def up(self, on_progress: OnProgress | None = None) -> StackStatus:
        """Start what does not run yet and wait until everything is ready.

        What this call started is stopped again when it fails or is interrupted. StackError: a
        prerequisite is missing or a component does not get ready.
        """
        report = on_progress or _report_nothing
        require_free_space(self.home.path, _NEEDED_BYTES)
        with self.home.lock():
            self.home.remember(self._state, with_airflow=not self.options.kafka_only)
            self._state = self.home.state()
            before = self._status()
            if before.ready:
                return replace(before, already_running=True)
            self._check_prerequisites(report)
            write_config(self.config_path, self._addresses())
            if self._state.with_airflow:
                name_airflow(self.config_path, self.airflow.url)
            self._start(report)
            return self._status()

    def down(self, on_progress: OnProgress | None = None) -> tuple[str, ...]:
        """Stop everything the stack started; data and settings stay.

        Returns the names of the components that were running. NotFoundError: the folder has no
        stack.
        """
        report = on_progress or _report_nothing
        self.home.require()
        with self.home.lock():
            running = self._running()
            self._stop(running, report, detached=True)
            return tuple(sorted(running))

    def status(self) -> StackStatus:
        """Return the state of every component.

        NotFoundError: the folder has no stack.
        """
        self.home.require()
        return self._status()

    def _check_prerequisites(self, report: OnProgress) -> None:
        find_java()
        if self._state.with_airflow:
            report("Spark", check_spark().version)
            archive_spark_classes(lambda words: report("Spark", words))

        shown = -1

        def on_progress(present: int, total: int) -> None:
            nonlocal shown
            tenths = present * 10 // total
            if tenths > shown:
                shown = tenths
                report("Kafka's jars", f"{tenths * 10} % of {total // 1_000_000} MB")

        kafka_class_path(on_progress)
        archive_broker_classes(environ=self._mark, on_begin=lambda words: report("Kafka", words))

    def _start(self, report: OnProgress) -> None:
        before = self._running()
        cancelled = threading.Event()
        with ThreadPoolExecutor(len(ALIASES) + 2) as pool:
            futures: list[Future[None]] = [
                pool.submit(self._start_broker, broker, report, cancelled)
                for broker in self.brokers.values()
            ]
            if self._state.with_airflow:
                futures.append(pool.submit(self._start_airflow, report, cancelled))
                futures.append(pool.submit(self._start_service, report, cancelled))
            try:
                done, _ = wait(futures, return_when=FIRST_EXCEPTION)
                for future in done:
                    future.result()
            except BaseException:
                # Stopping ends the waits of the other threads; what one of them started in the
                # meantime is stopped in the second round.
                cancelled.set()
                self._stop(self._running() - before, report, detached=not before)
                wait(futures)
                self._stop(self._running() - before, report, detached=not before)
                raise

    def _start_broker(
        self, broker: KafkaBroker, report: OnProgress, cancelled: threading.Event
    ) -> None:
        name = f"Kafka {broker.alias}"
        if cancelled.is_set() or broker.ready:
            return
        report(name, "starting")
        broker.start()
        broker.wait_ready()
        report(name, "ready")

    def _start_airflow(self, report: OnProgress, cancelled: threading.Event) -> None:
        for name, process in self.airflow.processes.items():
            if not process.running:
                report(f"Airflow {name}", "starting")
        self.airflow.prepare()
        if cancelled.is_set():
            return
        self.airflow.start()
        self.airflow.wait_ready(lambda name: report(f"Airflow {name}", "ready"))

    def _start_service(self, report: OnProgress, cancelled: threading.Event) -> None:
        if not self.service.process.running:
            report(SERVICE, "starting")
        if cancelled.is_set():
            return
        self.service.start()
        self.service.wait_ready()
        report(SERVICE, "ready")

    def _stop(self, names: set[str], report: OnProgress, *, detached: bool) -> None:
        """Stop the named components, clients of the clusters first."""
        stopping = {name for name in COMPONENTS if f"Airflow {name}" in names}
        for name in stopping:
            report(f"Airflow {name}", "stopping")
        if SERVICE in names:
            report(SERVICE, "stopping")
            self.service.stop()
        self.airflow.stop(stopping)
        if detached:
            brokers = {broker.pid for broker in self.brokers.values()}
            marked = marked_processes(HOME_MARK, str(self.home.path))
            end_processes((p for p in marked if p.pid not in brokers), _DETACHED_STOP_SECONDS)
        affected = [b for a, b in self.brokers.items() if f"Kafka {a}" in names]
        with ThreadPoolExecutor(len(ALIASES)) as pool:
            list(pool.map(lambda broker: broker.stop(), affected))
        for name in sorted(names):
            report(name, "stopped")

    def _running(self) -> set[str]:
        kafka = {f"Kafka {alias}" for alias, broker in self.brokers.items() if broker.running}
        airflow = {
            f"Airflow {n}" for n, process in self.airflow.processes.items() if process.running
        }
        return kafka | airflow | ({SERVICE} if self.service.process.running else set())

    def _status(self) -> StackStatus:
        with_airflow = self._state.with_airflow
        components = tuple(self._broker_status(broker) for broker in self.brokers.values())
        if with_airflow:
            components += (*self._airflow_statuses(), self._service_status())
        return StackStatus(
            home=str(self.home.path),
            ready=all(component.state == "ready" for component in components),
            config=str(self.config_path),
            bootstrap=self._addresses(),
            airflow_url=self.airflow.url if with_airflow else None,
            airflow_login=self.airflow.login if with_airflow else None,
            service_url=self.service.url if with_airflow else None,
            logs=str(self.home.logs),
            components=components,
        )

    def _addresses(self) -> dict[str, str]:
        return {alias: broker.bootstrap for alias, broker in self.brokers.items()}

    def _broker_status(self, broker: KafkaBroker) -> ComponentStatus:
        name, log = f"Kafka {broker.alias}", str(broker.log)
        pid = broker.pid
        state = _state(running=pid is not None, ready=broker.ready)
        return ComponentStatus(name, state, broker.bootstrap, pid, log)

    def _service_status(self) -> ComponentStatus:
        process = self.service.process
        state = _state(running=process.running, ready=self.service.ready)
        return ComponentStatus(SERVICE, state, self.service.url, process.pid, str(process.log))

    def _airflow_statuses(self) -> tuple[ComponentStatus, ...]:
        health = self.airflow.health()
        return tuple(
            ComponentStatus(
                name=f"Airflow {name}",
                state=_state(running=process.running, ready=health[name]),
                address=self.airflow.url if name == "api-server" else "",
                pid=process.pid,
                log=str(process.log),
            )
            for name, process in self.airflow.processes.items()
        )


def _state(*, running: bool, ready: bool) -> ComponentState:
    if not running:
        return "stopped"
    return "ready" if ready else "starting"


def _report_nothing(_component: str, _state: str) -> None:
    pass
