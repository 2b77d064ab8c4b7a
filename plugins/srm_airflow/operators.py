"""Operators of srm: the supervised replicator, and the wait of a move."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowRuntimeError

from srm import telemetry
from srm.domain.text.amount import reasons_text
from srm.engine.flows.supervision import StateTopics
from srm.errors import UnavailableError
from srm.pages.moves import progress_line, progress_summary
from srm.spark.supervisor import (
    Application,
    ReplicatorSupervisor,
    lost_error,
    requester,
)
from srm_airflow.additions import RunLink
from srm_airflow.compat import AirflowFailException, conf
from srm_airflow.connections import given_to_processes
from srm_airflow.outcome import engine_errors, reason_kept
from srm_airflow.rest import PROGRESS_KEY
from srm_airflow.settings import SPARK_CONNECTION, dag_id, spark_job
from srm_airflow.spark_jobs import submit_hook
from srm_airflow.triggers import MoveWaitTrigger, MoveWatch, ReplicatorTrigger, flows_state

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

APPLICATION_KEY: Final = "replicator"
DEADLINE_SLACK_S: Final = 30.0
"""The move's own time limit counts from the hold; this one only has to come after it."""


class ReplicationOperator(BaseOperator):
    """Keep one replicator application running and show how it does.

    The application is a detached spark-submit, built from an Airflow connection by the Spark
    provider. It is found again by its driver heartbeat in Kafka, so a task that was killed
    supervises the same application in its next try. A task that is cleared or marked ends it, by a
    request in Kafka, so on any host. A try that ends in failure lasts at least ``shortest_try``
    seconds, because Airflow repeats ``@continuous`` runs without any pause.

    A deferrable task holds no worker: it starts the application, and a trigger watches the
    heartbeats. An application whose driver would end with the pod of its task is refused.

    Args:
        flows: replication flows as ``A->B``, all copied by one application.
        config_path: srm's properties file, also on the host of the Spark driver.
        conn_id: Airflow connection of type ``spark``.
        without: duties of the application that other DAGs do.
        shortest_try: seconds.
        deferrable: by default as ``[operators] default_deferrable`` says.
    """

    template_fields: Sequence[str] = ("config_path",)
    ui_color = "#d5f0e3"
    operator_extra_links = (RunLink(),)

    def __init__(
        self,
        *,
        flows: Sequence[str],
        config_path: str,
        conn_id: str = SPARK_CONNECTION,
        without: Sequence[str] = (),
        shortest_try: float = 15.0,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.flows = list(flows)
        self.config_path = config_path
        self.conn_id = conn_id
        self.without = tuple(without)
        self.shortest_try = shortest_try
        usual = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = bool(usual if deferrable is None else deferrable)
        self._supervisor: ReplicatorSupervisor | None = None

    def execute(self, context: Context) -> None:
        """Find or start the application and stay with it until it ends, or defer."""
        began = time.monotonic()
        supervisor = self._supervisor = ReplicatorSupervisor(
            self._topics,
            self._command,
            Path(conf.get("logging", "base_log_folder")),
            lambda progress: _keep(context, PROGRESS_KEY, dict(progress)),
        )
        stored = (context.get("task_state_store") or {}).get(APPLICATION_KEY)
        known = Application(**stored) if stored else None
        try:
            with engine_errors(), given_to_processes(self.config_path):
                if not self.deferrable:
                    supervisor.run(known, lambda app: _keep(context, APPLICATION_KEY, asdict(app)))
                    return
                application = supervisor.begin(known)
        except Exception:
            deadline = began + self.shortest_try
            while time.monotonic() < deadline and not supervisor.was_killed:
                time.sleep(0.2)
            raise
        if application is not None:
            _keep(context, APPLICATION_KEY, asdict(application))
            self.defer(
                trigger=ReplicatorTrigger(
                    config_path=self.config_path, flows=self.flows, application=asdict(application)
                ),
                method_name=self.execute_complete.__name__,
            )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> None:
        """Fail where the application was lost, so that the next try starts another one."""
        del context
        if event["state"] == "failed":
            raise AirflowFailException(event["message"])
        if event["state"] == "lost":
            raise lost_error(self.flows, Application(**event["application"]))

    def on_kill(self) -> None:
        """End the application, on whichever host it runs."""
        if self._supervisor is not None:
            self._supervisor.kill(requester(dag_id("replication")))

    def _topics(self) -> AbstractContextManager[StateTopics]:
        return flows_state(self.config_path, self.flows)

    def _command(self) -> list[str]:
        named = [part for flow in self.flows for part in ("--flow", flow)]
        arguments = ["--config", self.config_path, *named]
        if self.without:
            arguments += ["--without", ",".join(self.without)]
        hook = submit_hook(self.conn_id, "srm-replicator", arguments, outlives_task=True)
        # The hook's own submit() keeps pipes to the child, which then cannot outlive the task.
        command = hook._build_spark_submit_command(spark_job("replicator"))  # noqa: SLF001
        return list(command)


class MoveWaitOperator(BaseOperator):
    """Wait until all clients of a move have left and every group is synchronised.

    Looks a few seconds on the worker first: a move whose groups are caught up is ready by then, and
    a deferral would add two seconds of downtime. Then it waits in the triggerer, where it survives
    a restart of Airflow. It ends with the latest look as its return value. Success of this task
    opens nothing: the redirect looks for itself. ``move``: what the planning task returned.
    ``on_worker``: seconds to look on the worker. ``poll_s``: seconds between two looks.
    """

    template_fields: Sequence[str] = ("move", "config_path")
    ui_color = "#f5e6c8"
    operator_extra_links = (RunLink(),)

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
        move_id, source, target = (str(self.move[key]) for key in ("move_id", "source", "target"))
        watch = MoveWatch(self.config_path, move_id, source, target)
        wait_s = float(self.move["wait_seconds"])
        try:
            with (
                telemetry.span("move.wait", move=move_id, flow=f"{source}->{target}"),
                reason_kept(context),
                engine_errors(),
            ):
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
                operation=str(self.move["operation"]),
                mode=str(self.move["mode"]),
            ),
            method_name=self.execute_complete.__name__,
            timeout=timedelta(seconds=wait_s + 2 * DEADLINE_SLACK_S),
        )

    def execute_complete(self, context: Context, event: Any) -> Any:
        """Fail with the reasons; a ready move ends in the triggerer and does not come here."""
        if event == "success":  # as DAG.test() hands over the end of a trigger
            return None
        with reason_kept(context):
            if event["state"] == "timeout":
                raise AirflowFailException(
                    f"{reasons_text(event['waits'])}; so the move was not synchronised within "
                    f"{self.move['wait_seconds']:.0f} s, clients go back to {self.move['source']}"
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
    """Write to the task's state; never worth failing for.

    For a moment a cleared task is unknown to Airflow before its operator receives the kill. A
    failure at that time would leave the replicator running with its old settings.
    """
    store = context.get("task_state_store")
    if store is None:
        return
    try:
        store.set(key, value)
    except AirflowRuntimeError as error:
        logger.warning("The state of the task was not written: %s", error)
