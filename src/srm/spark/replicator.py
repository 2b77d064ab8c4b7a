"""The replicator: one Spark application that copies any number of flows.

::

    driver process                              Spark                     Python workers
    per flow:  driver thread, discovery thread
               threads of its works: heartbeats, metrics windows, duties
    per cluster: heartbeats thread, of flows that are off
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
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from math import ceil
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from srm import errors, logs
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.config.model import Config, FlowConfig
from srm.domain.flow_state.replication_records import DUTIES, DriverHeartbeat, Duty
from srm.domain.names.topics import Flow
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.driver_log import KafkaDriverLog
from srm.kafka.tables.topic_tail import KafkaCommitTail, follow_raw_metrics
from srm.replication.copy.slot import SlotSpec
from srm.replication.driver import duties
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.flow_run import FlowHost, FlowRun, SettingsReload, Work
from srm.replication.driver.state_book import FlowProgress
from srm.spark.session import file_settings, spark_context, submit_options
from srm.spark.slot import SlotTask
from srm.threads import on_signals, share_heaps, start_thread
from srm.wiring import open_configured_flow

STOP_S: Final = 5.0

logger = logging.getLogger(__name__)

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*(\d+))?\])?")
_SUPERSEDED: Final = re.compile(r"^srm\.errors\.SupersededError: (.+)$", re.MULTILINE)
_OWN_ERROR: Final = re.compile(r"^srm\.errors\.(\w+: .+)$", re.MULTILINE)
_CAUSE: Final = re.compile(
    r"(?:SparkException|^\w*Error): ([^\n]+?)(?: Consider setting|$)", re.MULTILINE
)
_TICK_S: Final = 0.25
_ALIVE_S: Final = 1.0
_CONF: Final = {
    # A slot lives as long as its worker: nothing of an earlier slot may be left in it.
    "spark.python.worker.reuse": "false",
    "spark.python.task.killTimeout": "500ms",
    # A second copy of a slot would only fence the first one.
    "spark.speculation": "false",
    # A task that fails ends its job: one place submits again, says why and pauses in between.
    "spark.task.maxFailures": "1",
}


def fitted_master(master: str | None, slots: int) -> str:
    """Return a local master with a core for each slot and one to spare; others stay as is."""
    match = _LOCAL.fullmatch(master or "local")
    if match is None:
        return master or "local"
    cores, failures = match.groups()
    known = (os.cpu_count() or 1) if cores == "*" else int(cores or 1)
    count = max(known, slots + 1)
    return f"local[{count},{failures}]" if failures else f"local[{count}]"


def placement(given: Mapping[str, str], master: str | None, slots: int) -> dict[str, str]:
    """Return where the slots run, with a core for each; ``given`` settings win."""
    fitted = fitted_master(given.get("spark.master", master), slots)
    chosen = {"spark.master": fitted}
    if fitted.startswith("spark://"):
        chosen["spark.cores.max"] = given.get("spark.cores.max", str(slots))
    elif not fitted.startswith("local"):
        executors = ceil(slots / int(given.get("spark.executor.cores", 1)))
        chosen["spark.executor.instances"] = given.get("spark.executor.instances", str(executors))
    return chosen


@dataclass(eq=False)
class Replicator:
    """Runs drivers and slots of the given flows until it is stopped.

    ``without``: duties that something else does, such as Airflow.
    """

    config: Config
    flows: Sequence[Flow]
    _: KW_ONLY
    master: str | None = None
    without: Collection[Duty] = ()
    _runs: dict[Flow, FlowRun] = field(default_factory=dict)
    _spark: SparkContext | None = None
    _application_id: str = ""  # Spark forgets it when it ends

    def __post_init__(self) -> None:
        config = self.config
        disabled = [flow for flow in self.flows if not config.flow(flow).enabled]
        if disabled or not self.flows:
            names = ", ".join(map(str, disabled)) or "none of the flows"
            key = f"{disabled[0] if disabled else 'A->B'}.enabled = true"
            raise errors.ConfigError(f"{names} in {config.path} is enabled: set {key}")
        for warning in config.warnings:
            logger.warning("%s", warning)
        self.flows = tuple(dict.fromkeys(self.flows))
        self._spark_conf = file_settings(config.spark, self.master)
        self._duties = frozenset(DUTIES) - frozenset(self.without)
        self._host = FlowHost(self._cancel, _one_line)
        self._id = uuid.uuid4().hex
        self._started_ms = now_ms()
        self._reload = SettingsReload(partial(load_config, config.path))

    def stop(self) -> None:
        """Request the end of :meth:`run`, which need not have started."""
        self._host.stop.set()

    @property
    def is_end_requested(self) -> bool:
        """True if a request in a flow's state topic has ended it."""
        return any(run.request for run in self._runs.values())

    def progress(self) -> tuple[FlowProgress, ...]:
        return tuple(run.driver.progress.snapshot() for run in self._runs.values())

    def run(self, *, until_caught_up: bool = False) -> None:
        """Copy until :meth:`stop`, or until everything is copied that was there at the start.

        Each flow begins when its target answers, and ends by itself where another replicator has
        taken it over. A request in the state topic of one flow ends all. SrmError: no flow is left
        to copy.
        """
        host = self._host
        with ExitStack() as stack:
            self._runs = {flow: self._flow_run(stack, self.config, flow) for flow in self.flows}
            slots = sum(self.config.flow(flow).tasks_max for flow in self.flows)
            given = self._spark_conf | (submit_options() or {})
            conf = self._spark_conf | _CONF | placement(given, self.master, slots)
            try:
                for run in self._runs.values():
                    run.start()
                with _context(conf) as spark:
                    self._spark, self._application_id = spark, spark.applicationId
                    if not logger.isEnabledFor(logging.DEBUG):
                        # A slot that ends is one line here; Spark has four stack traces for it.
                        spark.setLogLevel("FATAL")
                    host.ready.set()
                    self._beat_for_disabled_flows(stack)
                    try:
                        failure = self._watch(spark, until_caught_up=until_caught_up)
                    finally:
                        self._end()
                        # The end of Spark breaks off every job and call, with traces.
                        logging.getLogger("py4j").setLevel(logging.CRITICAL)
                        with suppress(Py4JError, OSError):
                            spark.setLogLevel("OFF")
                host.slots_ended.set()  # the drivers' last heartbeats say so
                for run in self._runs.values():
                    run.join()
            finally:
                self._end()
        if failure is not None:
            raise failure

    def _end(self) -> None:
        self._host.stop.set()
        self._host.ready.set()  # a driver that waits for it sees that this is the end
        for run in self._runs.values():
            run.end()

    def _start_again(self, stack: ExitStack, flow: Flow, config: Config) -> None:
        """Replace the run of a flow, unless the flow belongs to another replicator now."""
        if not isinstance(self._runs[flow].failure, errors.FencedError | errors.SupersededError):
            run = self._flow_run(stack, config, flow)
            self._runs = {**self._runs, flow: run}
            run.start()

    def _flow_run(self, stack: ExitStack, config: Config, flow: Flow) -> FlowRun:
        flow_config, resources = config.flow(flow), stack.enter_context(ExitStack())
        context = resources.enter_context(open_configured_flow(config, flow))
        source = config.cluster_clients(flow.source, flow)
        target = config.cluster_clients(flow.target, flow)
        slots = [str(number) for number in range(flow_config.tasks_max)]
        discovery = Discovery(context)
        driver = FlowDriver(
            flow,
            KafkaDriverLog(flow, target),
            discovery,
            slots=slots,
            identity=self._identity,
            duties=self._duties,
            refresh_s=flow_config.refresh_topics_interval.total_seconds(),
        )
        jobs = {
            name: partial(self._job, name, SlotSpec(flow_config, slot, source, target, self._id))
            for slot, name in ((slot, f"slot {slot} of {flow}") for slot in slots)
        }
        works: dict[str, Work] = {
            "heartbeats": partial(
                duties.emit_heartbeats, context.target, [context.config], context.now_ms
            ),
            "metrics windows": partial(
                duties.keep_windows, context, partial(follow_raw_metrics, flow, target.consumer)
            ),
        }
        if "topics" in self._duties:
            works["topics"] = partial(duties.keep_topics, driver, lambda: discovery.context)
        takers: list[Callable[[FlowConfig], None]] = [discovery.take]
        if self._duties & {"checkpoints", "group-offsets"}:
            own = resources.enter_context(open_configured_flow(config, flow, follow=True))
            groups = duties.GroupDuty(driver, own, partial(KafkaCommitTail, source.consumer))
            works["groups"] = groups.keep
            takers.append(groups.take)
        again = partial(self._start_again, stack, flow)
        self._reload.follow(driver, config, flow, takers, again)
        before = self._runs.get(flow)
        return FlowRun(self._host, context, driver, jobs, works, resources, before)

    def _beat_for_disabled_flows(self, stack: ExitStack) -> None:
        for alias, flows in duties.disabled_flows(self.config, self.flows).items():
            cluster = KafkaCluster(alias, self.config.cluster_clients(alias))
            beats = partial(duties.emit_heartbeats, cluster, flows, now_ms, self._host.stop)
            thread = start_thread(f"srm heartbeats on {alias}", beats)
            stack.callback(cluster.close)
            stack.callback(thread.join, _ALIVE_S)

    def _identity(self) -> DriverHeartbeat:
        beat = DriverHeartbeat(
            self._id,
            self._application_id,
            socket.gethostname(),
            os.getpid(),
            now_ms(),
            started_ms=self._started_ms,
            flows=tuple(
                str(flow)
                for flow, run in self._runs.items()
                if not isinstance(run.failure, errors.FencedError)
            ),
        )
        for run in self._runs.values():
            request = run.request
            if request is not None and request.action == "stop":
                return replace(beat, stopped_by=request.by, stopped_flow=str(run.flow))
        return beat

    def _job(self, name: str, spec: SlotSpec) -> None:
        """Run one job until its slot ends; SupersededError: another application drives the flow."""
        if self._spark is None:
            raise errors.UnavailableError("Spark has not started")
        task = SlotTask(spec, logging.getLogger("srm").getEffectiveLevel(), logs.log_format())
        self._spark.setJobGroup(name, f"srm {name}", interruptOnCancel=True)
        try:
            self._spark.parallelize([int(spec.slot)], 1).foreachPartition(task)
        except Exception as error:
            if found := _SUPERSEDED.search(str(error)):
                raise errors.SupersededError(found[1]) from error
            raise

    def _cancel(self, name: str) -> None:
        with suppress(Py4JError, OSError):
            if self._spark is not None:
                self._spark.cancelJobGroup(name)

    def _watch(self, spark: SparkContext, *, until_caught_up: bool) -> errors.SrmError | None:
        """Wait for the end; return the first failure where the flows have ended by themselves."""
        while not self._host.stop.wait(_TICK_S if until_caught_up else _ALIVE_S):
            self._reload.look()
            if _is_stopped(spark):
                raise errors.UnavailableError("Spark's JVM has ended: start the replicator again")
            over = [run.is_over(until_caught_up=until_caught_up) for run in self._runs.values()]
            if all(over):
                return next((run.failure for run in self._runs.values() if run.failure), None)
        return None


@contextmanager
def _context(conf: dict[str, str]) -> Iterator[SparkContext]:
    """Yield a context whose end raises no error, as its JVM may have been stopped already."""
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


def _is_stopped(spark: SparkContext) -> bool:
    try:
        return bool(spark._jsc.sc().isStopped())  # noqa: SLF001 -- no public question
    except (AttributeError, Py4JError, OSError):  # a stopped context has no JVM any more
        return True


def _one_line(error: Exception) -> str:
    """Return what ended a job: the slot's own error where there is one, else Spark's last cause."""
    text = str(error)
    found = _OWN_ERROR.findall(text) or _CAUSE.findall(text) or [type(error).__name__]
    return str(found[-1]).rpartition("SparkException: ")[2].strip()[:300]


def run_program(replicator: Replicator, *, until_caught_up: bool = False) -> None:
    """Run in the main thread; signals end it within ``STOP_S`` (StoppedError: not caught up)."""
    share_heaps()
    signalled = False

    def end(number: int) -> None:
        nonlocal signalled
        if signalled:
            os._exit(128 + number)
        signalled = True
        logger.info("%s: stopping", signal.Signals(number).name)
        replicator.stop()
        code = errors.INTERRUPTED if until_caught_up else 0
        timer = threading.Timer(STOP_S, os._exit, (code,))
        timer.daemon = True
        timer.start()

    on_signals(signal.SIGTERM, signal.SIGINT, call=end)
    replicator.run(until_caught_up=until_caught_up)
    if until_caught_up and (signalled or replicator.is_end_requested):
        raise errors.StoppedError("stopped by a signal or on request before everything was copied")
