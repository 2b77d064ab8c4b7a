"""Plans a scheduled move without executing it, and reports whether it could start now.

One DAG for each flow, from its source to its target, with all topics and groups that the flow
selects. It runs when `A->B.failover.dry.run.schedule` says so (a cron expression in the properties
file, UTC), and by hand. Nothing is written to either cluster.

**Where to look** - the plan is in the task log and in the tab *Report of the move*; the note of the
run sums it up. By hand the form takes *mode*: `unplanned` shows the loss if the source failed now.

**When it is red** - the note begins with what prevents a move. Remove it before a failover is
needed. `UnavailableError`: a cluster did not answer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, dag, get_current_context, task

from srm.config.model import FlowConfig
from srm_airflow import moves
from srm_airflow.alerts import rehearsal
from srm_airflow.outcome import reason_kept
from srm_airflow.rest import AirflowRest
from srm_airflow.settings import flow_configs, load

PARAMS = {
    "mode": Param(
        "planned",
        type="string",
        enum=["planned", "unplanned"],
        title="Mode",
        description="Unplanned: forecast the loss if the source failed now.",
    ),
}


@task(task_id="plan")
def plan_move(source: str, target: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
    """Plan a move and show it; fail where it would be refused."""
    context = get_current_context()
    run = context["dag_run"]
    ends = {"source": source, "target": target}
    wanted = {"operation": "failover", **ends, moves.DRY_RUN: True, **(params or {})}
    with reason_kept(context):
        planned, page = moves.plan(wanted, {}, run.run_id, (source, target))
    outcome = moves.report(planned)
    context["ti"].xcom_push(key=moves.PAGE_KEY, value=page)
    AirflowRest(run.dag_id, run.run_id).set_note(outcome.note)
    moves.require_startable(planned)
    return planned


def dry_run_dag(settings: FlowConfig) -> DAG:
    """Declare the dry runs of one flow."""
    flow = settings.flow

    @dag(
        **rehearsal("dry_run", settings, settings.failover_dry_run_schedule),
        dagrun_timeout=timedelta(minutes=30),
        params=PARAMS,
        tags=["srm", "failover"],
        doc_md=__doc__,
    )
    def declare() -> None:
        """Plan, and no more."""
        plan_move(flow.source, flow.target)

    return declare()


DAGS = tuple(map(dry_run_dag, flow_configs(load())))
