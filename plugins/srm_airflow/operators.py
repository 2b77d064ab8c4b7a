"""Operators of srm: the supervised replicator, and the wait of a move."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseOperator, ResumableJobMixin, conf
from airflow.sdk.exceptions import AirflowFailException

from srm.config.loader import load_config
from srm.domain.topics import Flow
from srm.errors import UnavailableError
from srm_airflow import replication
from srm_airflow.move_text import progress_line, progress_summary, reasons_text
from srm_airflow.move_watch import MoveWatch
from srm_airflow.outcome import engine_errors
from srm_airflow.rest import PROGRESS_KEY
from srm_airflow.settings import SPARK_CONNECTION, spark_job, wiring
from srm_airflow.triggers import MoveWaitTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

LOOK_EVERY_S: Final = 5.0
LOG_EVERY_S: Final = 60.0
DEADLINE_SLACK_S: Final = 30.0
"""The move's own time limit counts from the hold; this one only has to come after it."""
STOP_GRACE_S: Final = 2.0
"""Airflow kills a task 5 s after asking it to end; the copy is crash-safe, so be quick."""


class ReplicationOperator(ResumableJobMixin, BaseOperator):
    """Keep one replicator application running and show how it does.

    The application is a detached spark-submit, built from an Airflow connection by the Spark
    provider. It is found again by its driver heartbeat in Kafka, so a task that was killed goes on
    supervising the same application in its next try. A try that ends in failure lasts at least
    ``shortest_try`` seconds, because Airflow repeats ``@continuous`` runs without any pause.

    Args:
        flows: replication flows as ``A->B``, all copied by one application.
        config_path: srm's properties file, also on the host of the Spark driver.
        conn_id: Airflow connection of type ``spark``.
        shortest_try: seconds.
    """

    external_id_key = "replicator"
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
        self._application: replication.Application | None = None

    def execute(self, context: Context) -> Any:
        """Start or find the application and stay with it until it ends."""
        began = time.monotonic()
        try:
            with engine_errors():
                return self.execute_resumable(context)
        except Exception:
            self._throttle(began)
            raise

    def submit_job(self, context: Context) -> dict[str, Any]:  # noqa: ARG002
        """Start the application, unless one drives all flows already."""
        with ExitStack() as stack:
            watch = self._watch(stack)
            if watch.seen_alive(within_s=4.0):
                driver = next(sign.driver for sign in watch.look() if sign.driver)
                self.log.info(
                    "Replicator %s on %s already drives %s: supervising it, not starting another",
                    driver.application_id,
                    driver.host,
                    ", ".join(self.flows),
                )
                return asdict(replication.Application.found(driver))
        log = replication.new_log(Path(conf.get("logging", "base_log_folder")), "replicator")
        command, env = self._command()
        self._child = replication.start(command, env, log)
        self.log.info("Started the replicator as process %s, its log is %s", self._child.pid, log)
        return asdict(replication.Application.started(self._child, log))

    def get_job_status(self, external_id: Any, context: Context) -> str:  # noqa: ARG002
        """Return ``running`` while there is a process of ours or a heartbeat, else ``lost``."""
        application = replication.Application(**external_id)
        if application.process() is not None:
            return "running"
        with ExitStack() as stack:
            return "running" if self._watch(stack).seen_alive(within_s=4.0) else "lost"

    def is_job_active(self, status: str) -> bool:
        """Whether a new try should supervise instead of starting."""
        return status == "running"

    def is_job_succeeded(self, status: str) -> bool:  # noqa: ARG002
        """Replication has no end that a later try could find."""
        return False

    def get_job_result(self, external_id: Any, context: Context) -> None:
        """Return nothing: replication runs until it is stopped."""

    def poll_until_complete(self, external_id: Any, context: Context) -> None:
        """Supervise: report progress, end with the application.

        Raises:
            UnavailableError: the application failed or its heartbeats stopped; a retry restarts it.
        """
        self._application = application = replication.Application(**external_id)
        with ExitStack() as stack:
            watch = self._watch(stack)
            logged = float("-inf")
            while not self._ended(application):
                signs = watch.look()
                verdict = watch.verdict()
                self._show(context, verdict, application, signs)
                if time.monotonic() - logged > LOG_EVERY_S:
                    logged = time.monotonic()
                    self._log_progress(verdict, signs)
                if verdict == "lost":
                    self._stop()
                    raise UnavailableError(
                        f"the replicator of {', '.join(self.flows)} no longer sends heartbeats "
                        f"(process {application.pid} on {application.host}); it is started again, "
                        f"look into {application.log or 'its own log'} for the cause"
                    )
                self._wait_for_end(application, LOOK_EVERY_S)
        self._judge_end(application)

    def on_kill(self) -> None:
        """Stop the application that this task or an earlier try of it has started."""
        self._killed = True
        self._stop()

    def _ended(self, application: replication.Application) -> bool:
        return self._killed or (application.local and application.process() is None)

    def _wait_for_end(self, application: replication.Application, timeout_s: float) -> None:
        # A child must be waited for by its own object: psutil would take its exit code away.
        waits = self._child or application.process()
        if waits is None:
            time.sleep(timeout_s)
            return
        with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
            waits.wait(timeout_s)

    def _judge_end(self, application: replication.Application) -> None:
        code = self._child.poll() if self._child else None
        if self._killed or code == 0:
            self.log.info("The replicator has ended")
            return
        raise UnavailableError(
            f"the replicator (process {application.pid}) ended with "
            f"{'an unknown exit code' if code is None else f'exit code {code}'}; it is started "
            f"again, its log is {application.log}\n{replication.tail(application.log)}"
        )

    def _stop(self) -> None:
        application = self._application
        if application is None and self._child is not None:
            application = replication.Application.started(self._child, Path())
        if application is None or not application.ours:
            self.log.warning("The replicator was not started by this task, so it is left running")
            return
        self.log.info("Stopping the replicator, process %s", application.pid)
        replication.stop(application, STOP_GRACE_S)

    def _throttle(self, began: float) -> None:
        rest = self.shortest_try - (time.monotonic() - began)
        deadline = time.monotonic() + rest
        if rest > 0 and not self._killed:
            self.log.info("Failed early: waiting %.0f s before the next start", rest)
        while time.monotonic() < deadline and not self._killed:
            time.sleep(0.2)

    def _watch(self, stack: ExitStack) -> replication.Watch:
        config = load_config(self.config_path)
        flows = [Flow.parse(flow) for flow in self.flows]
        clusters = {
            alias: stack.enter_context(wiring().open_cluster(config, alias))
            for alias in {flow.target for flow in flows}
        }
        return replication.Watch.over(clusters, flows)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        named = [part for flow in self.flows for part in ("--flow", flow)]
        arguments = ["--config", self.config_path, *named]
        hook = SparkSubmitHook(
            conn_id=self.conn_id, name="srm-replicator", application_args=arguments
        )
        # The hook's own submit() keeps pipes to the child, which then cannot outlive the task.
        command = hook._build_spark_submit_command(spark_job("replicator"))  # noqa: SLF001
        return command, dict(os.environ)

    def _show(
        self,
        context: Context,
        verdict: str,
        application: replication.Application,
        signs: Sequence[replication.FlowSigns],
    ) -> None:
        store = context.get("task_state_store")
        if store is not None:
            store.set(
                PROGRESS_KEY,
                {
                    "state": verdict,
                    "pid": application.pid,
                    "host": application.host,
                    "log": application.log,
                    "flows": [sign.summary() for sign in signs],
                },
            )

    def _log_progress(self, verdict: str, signs: Sequence[replication.FlowSigns]) -> None:
        self.log.info("Replicator is %s", verdict)
        for sign in signs:
            self.log.info(
                "%s: %d slots, %d partitions, %d offsets to copy%s",
                sign.flow,
                sign.slots,
                sign.partitions,
                sign.remaining,
                f", STOPPED: {'; '.join(sign.stopped)}" if sign.stopped else "",
            )


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
                self._show(context, answer)
                if status.ready:
                    self.log.info("%s", progress_line(status))
                    return answer
                if status.blocking != shown:
                    shown = status.blocking
                    self.log.info("%s", progress_line(status))
            if time.monotonic() >= end:
                return None
            time.sleep(self.poll_s)

    def _show(self, context: Context, answer: Any) -> None:
        store = context.get("task_state_store")
        if store is not None:
            store.set(PROGRESS_KEY, answer)
