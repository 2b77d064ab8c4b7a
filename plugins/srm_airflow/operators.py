"""Operators of srm: the supervised replicator, and the wait of a move."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator, conf
from airflow.sdk.exceptions import AirflowFailException

from srm.config.loader import load_config
from srm.domain.topics import Flow
from srm.engine import supervision
from srm.engine.ports import CompactedTopic
from srm.engine.supervision import Watch
from srm.errors import SrmError, UnavailableError
from srm.pages.moves import progress_line, progress_summary, reasons_text
from srm.spark.application import Application, new_log, start, tail
from srm_airflow.move_watch import MoveWatch
from srm_airflow.outcome import engine_errors
from srm_airflow.rest import PROGRESS_KEY
from srm_airflow.settings import SPARK_CONNECTION, spark_job
from srm_airflow.triggers import MoveWaitTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

APPLICATION_KEY: Final = "replicator"
LOOK_EVERY_S: Final = 5.0
LOG_EVERY_S: Final = 60.0
DEADLINE_SLACK_S: Final = 30.0
"""The move's own time limit counts from the hold; this one only has to come after it."""
STOP_GRACE_S: Final = 2.0
"""Airflow kills a task 5 s after asking it to end; the copy is crash-safe, so be quick."""


class ReplicationOperator(BaseOperator):
    """Keep one replicator application running and show how it does.

    The application is a detached spark-submit, built from an Airflow connection by the Spark
    provider. It is found again by its driver heartbeat in Kafka, so a task that was killed goes on
    supervising the same application in its next try. A task that is cleared or marked ends it, by a
    request in Kafka, so on any host. A try that ends in failure lasts at least ``shortest_try``
    seconds, because Airflow repeats ``@continuous`` runs without any pause.

    Args:
        flows: replication flows as ``A->B``, all copied by one application.
        config_path: srm's properties file, also on the host of the Spark driver.
        conn_id: Airflow connection of type ``spark``.
        shortest_try: seconds.
    """

    template_fields: Sequence[str] = ("config_path",)
    ui_color = "#d5f0e3"

    def __init__(
        self,
        *,
        flows: Sequence[str],
        config_path: str,
        conn_id: str = SPARK_CONNECTION,
        shortest_try: float = 15.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.flows = list(flows)
        self.config_path = config_path
        self.conn_id = conn_id
        self.shortest_try = shortest_try
        self._killed = False
        self._child: subprocess.Popen[bytes] | None = None
        self._application: Application | None = None

    def execute(self, context: Context) -> None:
        """Find or start the application and stay with it until it ends."""
        began = time.monotonic()
        try:
            with engine_errors(), self._topics() as topics:
                self._application = self._known(context) or self._arrive(topics, context)
                if self._application is not None:
                    _keep(context, APPLICATION_KEY, asdict(self._application))
                    self._supervise(self._application, topics, context)
        except Exception:
            self._throttle(began)
            raise

    def on_kill(self) -> None:
        """End the application, wherever it runs and whoever has started it."""
        self._killed = True
        if self._application is not None:
            self._end(self._application)

    def _known(self, context: Context) -> Application | None:
        """Return the application of an earlier try, which may not have sent a heartbeat yet."""
        stored = (context.get("task_state_store") or {}).get(APPLICATION_KEY)
        application = Application(**stored) if stored else None
        return application if application and application.process() else None

    def _arrive(self, topics: supervision.StateTopics, context: Context) -> Application | None:
        """Find the application that drives all flows, or start one; None where none may start."""
        watch, said = Watch.over(topics, time.monotonic()), False
        while not self._killed:
            watch = watch.after(supervision.look(topics), time.monotonic())
            step = watch.next_step(time.monotonic())
            if step == "supervise":
                return self._found(watch)
            if step == "start":
                return self._start()
            if step == "stay-stopped" and watch.stopped_by is not None:
                if not said:
                    said = True
                    self.log.warning(
                        "%s has stopped the replicator: nothing is copied until "
                        "'srm replicator restart'",
                        watch.stopped_by.by,
                    )
                self._show(context, "stopped", None, watch)
            time.sleep(supervision.POLL_S)
        return None

    def _found(self, watch: Watch) -> Application | None:
        driver = next(sign.driver for sign in watch.signs if sign.driver)
        self.log.info(
            "Replicator %s on %s already drives %s: supervising it, not starting another",
            *(driver.application_id, driver.host, ", ".join(self.flows)),
        )
        return Application.found(driver)

    def _start(self) -> Application:
        log = new_log(Path(conf.get("logging", "base_log_folder")), "replicator")
        self._child = start(self._command(), os.environ, log)
        self.log.info("Started the replicator as process %s, its log is %s", self._child.pid, log)
        return Application.started(self._child, log)

    def _supervise(
        self, application: Application, topics: supervision.StateTopics, context: Context
    ) -> None:
        """Report progress, end with the application.

        Raises:
            UnavailableError: the application failed or its heartbeats stopped; a retry restarts it.
        """
        watch = Watch.over(topics, time.monotonic(), application.driver)
        logged = float("-inf")
        while not self._killed and not (application.local and application.process() is None):
            watch = watch.after(supervision.look(topics), time.monotonic())
            verdict = watch.verdict(time.monotonic())
            self._show(context, verdict, application, watch)
            if time.monotonic() - logged > LOG_EVERY_S:
                logged = time.monotonic()
                lines = "\n".join(sign.line() for sign in watch.signs)
                self.log.info("Replicator is %s\n%s", verdict, lines)
            if verdict == "ended":
                self.log.info("The replicator has ended in good order")
                return
            if verdict == "lost":
                self._end(application)
                raise UnavailableError(
                    f"the replicator of {', '.join(self.flows)} no longer sends heartbeats "
                    f"(process {application.pid} on {application.host}); it is started again, "
                    f"look into {application.log or 'its own log'} for the cause"
                )
            self._wait_for_end(application, LOOK_EVERY_S)
        self._judge_end(application)

    def _wait_for_end(self, application: Application, timeout_s: float) -> None:
        # A child must be waited for by its own object: psutil would take its exit code away.
        waits = self._child or application.process()
        if waits is None:
            time.sleep(timeout_s)
            return
        with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
            waits.wait(timeout_s)

    def _judge_end(self, application: Application) -> None:
        code = self._child.poll() if self._child else None
        if self._killed or code == 0:
            self.log.info("The replicator has ended")
            return
        raise UnavailableError(
            f"the replicator (process {application.pid}) ended with "
            f"{'an unknown exit code' if code is None else f'exit code {code}'}; it is started "
            f"again, its log is {application.log}\n{tail(application.log)}"
        )

    def _end(self, application: Application) -> None:
        """Ask by a record and, on this host, by a signal: the sooner of both ends it."""
        self.log.info("Ending the replicator, process %s on %s", application.pid, application.host)
        asking = threading.Thread(target=self._ask_to_end, daemon=True)
        asking.start()
        application.stop(STOP_GRACE_S)
        asking.join(STOP_GRACE_S)

    def _ask_to_end(self) -> None:
        # With clients of its own: those of the task may be in the call that was interrupted.
        by, now_ms = f"srm_replication on {socket.gethostname()}", time.time_ns() // 1_000_000
        try:
            with self._topics() as topics:
                supervision.request_end(topics, "restart", by, now_ms)
        except SrmError as error:
            self.log.warning("The replicator could not be asked to end: %s", error)

    def _throttle(self, began: float) -> None:
        rest = self.shortest_try - (time.monotonic() - began)
        deadline = time.monotonic() + rest
        if rest > 0 and not self._killed:
            self.log.info("Failed early: waiting %.0f s before the next start", rest)
        while time.monotonic() < deadline and not self._killed:
            time.sleep(0.2)

    @contextmanager
    def _topics(self) -> Iterator[Mapping[Flow, CompactedTopic]]:
        from srm.wiring import open_cluster  # noqa: PLC0415 - brings the Kafka clients along

        config = load_config(self.config_path)
        flows = [Flow.parse(flow) for flow in self.flows]
        with ExitStack() as stack:
            clusters = {
                alias: stack.enter_context(open_cluster(config, alias))
                for alias in {flow.target for flow in flows}
            }
            yield {flow: supervision.topic_on(clusters[flow.target], flow) for flow in flows}

    def _command(self) -> list[str]:
        named = [part for flow in self.flows for part in ("--flow", flow)]
        arguments = ["--config", self.config_path, *named]
        hook = SparkSubmitHook(
            conn_id=self.conn_id, name="srm-replicator", application_args=arguments
        )
        # The hook's own submit() keeps pipes to the child, which then cannot outlive the task.
        command = hook._build_spark_submit_command(spark_job("replicator"))  # noqa: SLF001
        return list(command)

    def _show(
        self, context: Context, state: str, application: Application | None, watch: Watch
    ) -> None:
        found = asdict(application) if application else {}
        where = {key: found.get(key) for key in ("pid", "host", "log")}
        flows = [sign.summary() for sign in watch.signs]
        _keep(context, PROGRESS_KEY, {"state": state, **where, "flows": flows})


class MoveWaitOperator(BaseOperator):
    """Wait until all clients of a move have left and every group is synchronised.

    Looks a few seconds on the worker first: a move whose groups are caught up is ready by then, and
    a deferral would add two seconds of downtime. Then it waits in the triggerer, where it survives
    a restart of Airflow. It ends with the latest look as its return value. Success of this task
    opens nothing: the redirect looks for itself.

    Args:
        move: what the planning task returned.
        config_path: srm's properties file.
        on_worker: seconds to look on the worker.
        poll_s: seconds between two looks.
    """

    template_fields: Sequence[str] = ("move", "config_path")
    ui_color = "#f5e6c8"

    def __init__(
        self,
        *,
        move: Any,
        config_path: str,
        on_worker: float = 10.0,
        poll_s: float = 0.5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.move = move
        self.config_path = config_path
        self.on_worker = on_worker
        self.poll_s = poll_s

    def execute(self, context: Context) -> Any:
        """Look on the worker, then defer."""
        move_id, source, target = (str(self.move[key]) for key in ("move_id", "source", "target"))
        watch = MoveWatch(self.config_path, move_id, source, target)
        wait_s = float(self.move["wait_seconds"])
        try:
            with engine_errors():
                status = self._look_for(watch, min(self.on_worker, wait_s), context)
        finally:
            watch.close()
        if status is not None:
            return status
        return self.defer(
            trigger=MoveWaitTrigger(
                config_path=self.config_path,
                move_id=move_id,
                source=source,
                target=target,
                deadline=time.time() + wait_s + DEADLINE_SLACK_S,
                poll_s=self.poll_s,
            ),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=wait_s + 2 * DEADLINE_SLACK_S),
        )

    def execute_complete(self, context: Context, event: Any) -> Any:  # noqa: ARG002
        """Fail with the reasons; a ready move ends in the triggerer and does not come here.

        Raises:
            AirflowFailException: the time is up, or the move cannot become ready.
        """
        if event == "success":  # as DAG.test() hands over the end of a trigger
            return None
        if event["state"] == "timeout":
            status = event["status"] or {"blocking": ["the clusters did not answer"]}
            raise AirflowFailException(
                f"not synchronised within {self.move['wait_seconds']:.0f} s, clients go back to "
                f"{self.move['source']}: {reasons_text(status['blocking'])}"
            )
        raise AirflowFailException(event["message"])

    def _look_for(self, watch: MoveWatch, seconds: float, context: Context) -> Any:
        end = time.monotonic() + seconds
        shown: tuple[str, ...] | None = None
        while True:
            try:
                status = watch.poll()
            except UnavailableError as error:
                self.log.warning("%s", error)
            else:
                answer = progress_summary(status)
                _keep(context, PROGRESS_KEY, answer)
                if status.ready:
                    self.log.info("%s", progress_line(status))
                    return answer
                if status.blocking != shown:
                    shown = status.blocking
                    self.log.info("%s", progress_line(status))
            if time.monotonic() >= end:
                return None
            time.sleep(self.poll_s)


def _keep(context: Context, key: str, value: Any) -> None:
    store = context.get("task_state_store")
    if store is not None:
        store.set(key, value)
