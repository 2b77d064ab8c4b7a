"""Checks that a flow copies within its RPO.

A run begins every `A->B.rpo.seconds` and ends when the target has each record that the source had
at its start. Its deadline is the RPO: Airflow's triggerer then calls the flow's notifier (event
`late`). A source or target that does not answer counts as late. There is one such DAG for each
flow; without the key it runs only by hand.

**Where to look** - the log of the task shows what is not copied, its age, and the last answer of
the source. `srm why` shows the cause.

**When it is red** - records of the start were not copied within ten times the RPO, or a right
is missing: see the log. The next run starts a new period.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, dag, get_current_context, task
from airflow.sdk.definitions.deadline import AsyncCallback, DeadlineAlert, DeadlineReference

from srm.config.model import FlowConfig
from srm_airflow import engine_calls
from srm_airflow.alerts import alert_late
from srm_airflow.settings import config_path, dag_id, flow_configs, flow_id, load, schedule_of

USUAL = timedelta(minutes=1)
LOOK_S = 5.0


def rpo_dag(settings: FlowConfig) -> DAG:
    """Declare the DAG of one flow."""
    flow, rpo = str(settings.flow), settings.rpo or USUAL
    limit = max(10 * rpo, timedelta(minutes=10))
    late = DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=rpo,
        callback=AsyncCallback(alert_late, {"flow": flow, "config_path": str(config_path())}),
    )

    @task.sensor(
        mode="reschedule",
        poke_interval=LOOK_S,
        timeout=limit.total_seconds(),  # of all tries together
        silent_fail=True,  # a cluster that does not answer is looked at again
        # Airflow fails a look whose worker ends only after the next look is queued.
        retries=20,
        retry_delay=timedelta(seconds=LOOK_S),
    )
    def copy() -> bool:
        """Look once."""
        began = get_current_context()["dag_run"].start_date
        return engine_calls.is_copied(flow, began.timestamp())

    @dag(
        dag_id=dag_id(f"rpo_{flow_id(settings)}"),
        schedule=schedule_of(filter(None, [settings.rpo])),
        max_active_runs=1,
        catchup=False,
        dagrun_timeout=limit + timedelta(minutes=5),
        deadline=late if settings.rpo else None,
        tags=["srm", "replication"],
        doc_md=__doc__,
    )
    def declare() -> None:
        """Wait for the copy of what the source has now."""
        copy()

    return declare()


DAGS = tuple(map(rpo_dag, flow_configs(load())))
