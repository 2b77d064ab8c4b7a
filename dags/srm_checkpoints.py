"""Emits checkpoints, forward and reverse.

For each flow: where every selected consumer group would continue on the other cluster, translated
exactly and written to `<SOURCE>.checkpoints.internal` in MirrorMaker 2's format. Each emission
updates the asset `srm_checkpoints <flow>`, which starts `srm_group_offset_sync`.

**Where to look** - the task's return value and the asset event hold the summary: groups, records
written, outcomes by state, and groups that could not be read. `srm status` shows each group.

**When it is red** - `UnavailableError`: a cluster does not answer; the next run makes up for it.
Any other message names the cause and what to do. Until then checkpoints get older. Consumers and
replication are not affected, and a planned failover computes its offsets itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag, task

from srm.domain.names.topics import Flow
from srm_airflow import engine_calls
from srm_airflow.settings import (
    checkpoints_asset,
    dag_id,
    flow_configs,
    flow_id,
    job_arguments,
    load,
    schedule_of,
    spark_job,
)
from srm_airflow.spark_jobs import SparkJobOperator

CONFIG = load()
EMITTING = [flow for flow in flow_configs(CONFIG) if flow.emit_checkpoints_enabled]


@task
def emit(flow: str, *, outlet_events: Any = None) -> dict[str, Any]:
    """Emit the checkpoints of one flow and update the asset."""
    summary = engine_calls.emit_checkpoints(flow)
    outlet_events[checkpoints_asset(Flow.parse(flow))].extra = {"flow": flow, "summary": summary}
    return summary


@dag(
    dag_id=dag_id("checkpoints"),
    schedule=schedule_of(flow.emit_checkpoints_interval for flow in EMITTING),
    max_active_runs=1,
    catchup=False,
    dagrun_timeout=timedelta(minutes=15),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=5)},
    tags=["srm", "checkpoints"],
    doc_md=__doc__,
)
def srm_checkpoints() -> None:
    """Emit the checkpoints of all flows, one task each."""
    for settings in EMITTING:
        asset = checkpoints_asset(settings.flow)
        task_id = f"emit_{flow_id(settings)}"
        if settings.checkpoints_engine == "spark":
            SparkJobOperator(
                task_id=task_id,
                name=f"srm-checkpoints {settings.flow}",
                application=spark_job("checkpoints"),
                application_args=job_arguments(CONFIG, [settings.flow]),
                outlets=[asset],
            )
        else:
            emit.override(task_id=task_id, outlets=[asset])(str(settings.flow))


DAGS = (srm_checkpoints(),)
