"""Writes translated offsets of idle consumer groups.

Runs after each emission of checkpoints, or every `sync.group.offsets.interval.seconds` if that is
set. A group without members on the target gets the offsets where it would continue there, so
that it can be started on the other cluster. Groups with members are not changed, nor are offsets
that their consumers have committed.

**Where to look** - the task's return value counts, for each flow, what was decided and written, and
names the groups that could not be read. `srm groups sync --dry-run` shows each group and partition.

**When it is red** - a cluster does not answer or a right is missing: the message says which. Groups
keep the offsets they have; the next run writes what is missing. A planned failover does not depend
on this DAG.

**By hand** - trigger it without parameters: it syncs all flows.
"""

from __future__ import annotations

from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

from airflow.sdk import dag, task

from srm_airflow import engine_calls
from srm_airflow.compat import AssetOrTimeSchedule, DeltaTriggerTimetable
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
SYNCING = [flow for flow in flow_configs(CONFIG) if flow.sync_group_offsets_enabled]
TIMED = [flow.sync_group_offsets_interval for flow in SYNCING if flow.sync_group_offsets_interval]
ASSETS = [
    checkpoints_asset(flow.flow)
    for flow in SYNCING
    if flow.emit_checkpoints_enabled and not flow.sync_group_offsets_interval
]


def _schedule() -> Any:
    """Return what starts a run: the shortest interval that is set, the others' checkpoints."""
    interval = schedule_of(TIMED)
    emitted = reduce(or_, ASSETS) if ASSETS else None
    if interval is None or emitted is None:
        return interval or emitted
    return AssetOrTimeSchedule(timetable=DeltaTriggerTimetable(interval), assets=emitted)


@task
def sync(flows: list[str], *, triggering_asset_events: Any = None) -> dict[str, Any]:
    """Sync the flows whose checkpoints have been emitted; all when run by time or by hand."""
    return engine_calls.sync_flows(engine_calls.flows_of_events(triggering_asset_events) or flows)


@dag(
    dag_id=dag_id("group_offset_sync"),
    schedule=_schedule(),
    max_active_runs=1,
    catchup=False,
    dagrun_timeout=timedelta(minutes=15),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=5)},
    tags=["srm", "groups"],
    doc_md=__doc__,
)
def srm_group_offset_sync() -> None:
    """Sync group offsets, in one task or as Spark jobs."""
    in_task = [str(flow.flow) for flow in SYNCING if flow.checkpoints_engine == "task"]
    if in_task:
        sync(in_task)
    for settings in SYNCING:
        if settings.checkpoints_engine == "spark":
            SparkJobOperator(
                task_id=f"sync_{flow_id(settings)}",
                name=f"srm-group-sync {settings.flow}",
                application=spark_job("group_sync"),
                application_args=job_arguments(CONFIG, [settings.flow]),
            )


DAGS = (srm_group_offset_sync(),)
