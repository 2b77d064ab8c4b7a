"""The replicator: one Spark application that copies any number of flows.

::

    driver process                              Spark                     Python workers
    per flow:  driver thread, discovery thread
               heartbeats thread, metrics windows thread
    per slot:  thread --- submits one job ----> one task per job -------> SlotTask: run_slot
               ^    (again when it dies)                                   |
               +--- slot reports, raw metrics (Kafka topics on the target) +

One job per slot: in a common job the first lost worker would take the others along. Nothing that
matters travels through Spark, so that any part may die at any time.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext

from srm import logs
from srm.config.model import Config
from srm.domain.replication_records import DriverHeartbeat
from srm.domain.topics import Flow
from srm.engine.ports import FlowContext
from srm.engine.supervision import standing_request
from srm.errors import ConfigError, SrmError, UnavailableError
from srm.kafka.driver_log import KafkaDriverLog
from srm.kafka.raw_log import follow_raw_metrics
from srm.replication.driver.catch_up import CatchUp
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.driver import FlowDriver, Timing
from srm.replication.driver.heartbeats import emit_heartbeats
from srm.replication.driver.jobs import keep_running
from srm.replication.driver.progress import FlowProgress
from srm.replication.driver.windows import keep_windows
from srm.replication.slot.slot import SlotSpec
from srm.spark.session import spark_context, submitted
from srm.spark.slot_task import DEFAULT_SLOT, SlotTask, slot_function
from srm.wiring import open_flow

logger = logging.getLogger(__name__)

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*(\d+))?\])?")
_OWN_ERROR: Final = re.compile(r"^srm\.errors\.(\w+: .+)$", re.MULTILINE)
_CAUSE: Final = re.compile(
    r"(?:SparkException|^\w*Error): ([^\n]+?)(?: Consider setting|$)", re.MULTILINE
)
_TICK_S: Final = 0.25
_ALIVE_S: Final = 1.0
_JOIN_S: Final = 2.0
_CONF: Final = {
    # A slot lives as long as its worker: nothing of an earlier slot may be left in it.
    "spark.python.worker.reuse": "false",
    "spark.python.task.killTimeout": "500ms",
    # A second copy of a slot would only fence the first one.
    "spark.speculation": "false",
    # A task that fails ends its job: one place submits again, says why and pauses in between.
    "spark.task.maxFailures": "1",
}


@dataclass(frozen=True)
class _FlowWork:
    context: FlowContext
    driver: FlowDriver
    specs: tuple[SlotSpec, ...]


def fitted_master(master: str | None, slots: int) -> str:
    """Return a local master with a core for each slot and one to spare; others are left alone.

    Slots hold their core for good but mostly wait, so there may be more of them than real cores.
    """
    match = _LOCAL.fullmatch(master or "local")
    if match is None:
        return master or "local"
    cores, failures = match.groups()
    known = (os.cpu_count() or 1) if cores == "*" else int(cores or 1)
    count = max(known, slots + 1)
    return f"local[{count},{failures}]" if failures else f"local[{count}]"


def placement(given: Mapping[str, str], master: str | None, slots: int) -> dict[str, str]:
    """Return where the slots run: the master, and on a standalone cluster as many cores as slots.

    A standalone cluster deals cores out one worker after the other, and would give an application
    all of its cores; with just one for each slot the slots are spread over the workers.

    Args:
        given: settings of spark-submit, which win.
        master: the caller's master.
        slots: how many slots there are.
    """
    fitted = fitted_master(given.get("spark.master", master), slots)
    chosen = {"spark.master": fitted}
    if fitted.startswith("spark://"):
        chosen["spark.cores.max"] = given.get("spark.cores.max", str(slots))
    return chosen


class Replicator:
    """Runs drivers and slots of the given flows until it is stopped."""

    def __init__(
        self,
        config: Config,
        flows: Sequence[Flow],
        *,
        master: str | None = None,
        function: str = DEFAULT_SLOT,
        timing: Timing | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            config: the resolved configuration.
            flows: the flows to copy, at least one.
            master: Spark master; spark-submit's wins, a local one is given enough cores.
            function: the slot function, ``module:function``, importable on the executors.
            timing: intervals of the drivers; from the configuration where nothing is said.

        Raises:
            ConfigError: there is no flow, or one is not enabled.
            UsageError: the slot function does not exist.
        """
        disabled = [flow for flow in flows if not config.flow(flow).enabled]
        if disabled or not flows:
            names = ", ".join(map(str, disabled)) or "none of the flows"
            key = f"{disabled[0] if disabled else 'A->B'}.enabled = true"
            raise ConfigError(f"{names} in {config.path} is enabled: set {key}")
        slot_function(function)
        for warning in config.warnings:
            logger.warning("%s", warning)
        self._config = config
        self._flows = tuple(dict.fromkeys(flows))
        self._master = master
        self._function = function
        self._timing = timing
        self._work: tuple[_FlowWork, ...] = ()
        self._stop = threading.Event()
        self._slots_ended = threading.Event()
        self._failure: SrmError | None = None
        self._application_id = ""
        self._id = uuid.uuid4().hex
        self._started_ms = _now_ms()

    @property
    def flows(self) -> tuple[Flow, ...]:
        """The flows that are copied."""
        return self._flows

    def stop(self) -> None:
        """Ask :meth:`run` to end; may be called from a signal handler and before it started."""
        self._stop.set()

    @property
    def stopped(self) -> bool:
        """Whether the end was asked for, or came by a failure."""
        return self._stop.is_set()

    @property
    def asked_to_end(self) -> bool:
        """Whether a request in a flow's state topic has ended it."""
        return any(work.driver.obeyed for work in self._work)

    def progress(self) -> tuple[FlowProgress, ...]:
        """Return how far each flow is; empty before the start."""
        return tuple(work.driver.progress.snapshot() for work in self._work)

    def run(self, *, until_caught_up: bool = False) -> None:
        """Copy until :meth:`stop`, or until everything is copied that was there at the start.

        A request in the state topic of one flow ends the application with all its flows.

        Raises:
            FencedError: another replicator has taken over one of the flows.
            StackError: Spark does not start.
            SrmError: a cluster refuses something, or the copy cannot catch up.
        """
        with ExitStack() as stack:
            self._work = tuple(self._prepare(stack, flow) for flow in self._flows)
            slots = sum(len(work.specs) for work in self._work)
            given = dict(SparkConf().getAll()) if submitted() else {}
            conf = _CONF | placement(given, self._master, slots)
            with _context(conf) as spark:
                self._application_id = spark.applicationId
                if not logger.isEnabledFor(logging.DEBUG):
                    # A slot that ends is one line here; Spark has four stack traces for it.
                    spark.setLogLevel("FATAL")
                try:
                    threads = self._start(spark)
                    self._watch(spark, until_caught_up=until_caught_up)
                finally:
                    self._stop.set()
                    _hush(spark)
            self._slots_ended.set()  # the drivers' last heartbeats say so
            for thread in threads:
                thread.join(_JOIN_S)
        if self._failure is not None:
            raise self._failure

    def _prepare(self, stack: ExitStack, flow: Flow) -> _FlowWork:
        config, flow_config = self._config, self._config.flow(flow)
        context = stack.enter_context(open_flow(config, flow))
        slots = [str(number) for number in range(flow_config.tasks_max)]
        source = config.cluster_clients(flow.source, flow)
        target = config.cluster_clients(flow.target, flow)
        log = KafkaDriverLog(flow, target.consumer, target.producer)
        refresh_s = flow_config.refresh_topics_interval.total_seconds()
        driver = FlowDriver(
            flow,
            log,
            Discovery(context, flow_config),
            slots=slots,
            identity=self._identity,
            started_after=standing_request(context),
            timing=self._timing or Timing(refresh_s=refresh_s),
        )
        specs = tuple(SlotSpec(flow_config, slot, source, target) for slot in slots)
        return _FlowWork(context, driver, specs)

    def _identity(self) -> DriverHeartbeat:
        beat = DriverHeartbeat(
            self._id,
            self._application_id,
            socket.gethostname(),
            os.getpid(),
            _now_ms(),
            started_ms=self._started_ms,
        )
        for work in self._work:
            request = work.driver.obeyed
            if request is not None and request.action == "stop":
                flow = str(work.context.config.flow)
                return replace(beat, stopped_by=request.by, stopped_flow=flow)
        return beat

    def _start(self, spark: SparkContext) -> list[threading.Thread]:
        """Start everything; return the threads that end by themselves once stopped."""
        threads = []
        for work in self._work:
            flow = work.context.config.flow
            threads.append(_thread(f"driver {flow}", partial(self._drive, work)))
            beat = partial(emit_heartbeats, work.context, self._stop)
            threads.append(_thread(f"heartbeats {flow}", beat))
            target = self._config.cluster_clients(flow.target, flow)
            follow = partial(follow_raw_metrics, flow, target.consumer)
            windows = partial(keep_windows, work.context, follow, self._stop)
            threads.append(_thread(f"metrics windows {flow}", windows))
            for spec in work.specs:
                name = f"slot {spec.slot} of {flow}"
                _thread(name, partial(self._keep_running, name, spark, spec))
        return threads

    def _drive(self, work: _FlowWork) -> None:
        try:
            with logs.about(flow=str(work.context.config.flow)):
                work.driver.run(self._stop, self._slots_ended)
        except SrmError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("%s: the driver failed", work.context.config.flow)
            self._fail(SrmError(f"driver of {work.context.config.flow}: {error!r}"))

    def _fail(self, error: SrmError) -> None:
        self._failure = self._failure or error
        self._stop.set()

    def _keep_running(self, name: str, spark: SparkContext, spec: SlotSpec) -> None:
        level = logging.getLogger("srm").getEffectiveLevel()
        task = SlotTask(spec, self._function, level, logs.log_format())
        number = int(spec.slot)

        def job() -> None:
            """One job with one task, which returns when the slot ends."""
            spark.setJobGroup(name, f"srm {name}", interruptOnCancel=True)
            spark.parallelize([number], 1).foreachPartition(task)

        keep_running(name, job, self._stop, describe=_one_line)

    def _watch(self, spark: SparkContext, *, until_caught_up: bool) -> None:
        goals = [CatchUp(work.driver, work.context.source) for work in self._work]
        is_stopped = _question(spark)
        while not self._stop.wait(_TICK_S if until_caught_up else _ALIVE_S):
            if is_stopped():
                raise UnavailableError("Spark's JVM has ended: start the replicator again")
            if until_caught_up and not [goal for goal in goals if not goal.done()]:
                return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"srm {name}", daemon=True)
    thread.start()
    return thread


@contextmanager
def _context(conf: dict[str, str]) -> Iterator[SparkContext]:
    """Give a context whose end is no error, as its JVM may have been stopped before us."""
    interrupt = signal.getsignal(signal.SIGINT)
    with ExitStack() as stack:
        spark = stack.enter_context(spark_context("srm-replicator", conf))
        leave = stack.pop_all().close
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, interrupt)  # Spark's own cancels jobs and raises
    try:
        yield spark
    finally:
        with suppress(Py4JError, OSError):
            leave()


def _hush(spark: SparkContext) -> None:
    """Keep quiet from now on: the end of Spark breaks off every job and call, with traces."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with suppress(Py4JError, OSError):
        spark.setLogLevel("OFF")


def _question(spark: SparkContext) -> Callable[[], bool]:
    """Return what asks whether Spark's JVM has ended, with one call each time."""
    try:
        context = spark._jsc.sc()  # noqa: SLF001 -- no public question
    except (Py4JError, OSError):
        return lambda: True

    def is_stopped() -> bool:
        try:
            return bool(context.isStopped())
        except (Py4JError, OSError):
            return True

    return is_stopped


def _one_line(error: Exception) -> str:
    """Return what ended a job: the slot's own error where there is one, else Spark's last cause."""
    text = str(error)
    found = _OWN_ERROR.findall(text) or _CAUSE.findall(text) or [type(error).__name__]
    return str(found[-1]).rpartition("SparkException: ")[2].strip()[:300]
