"""Keeps remote topics in step with their sources.

Creates missing remote topics, adds partitions, copies settings and adds ACLs. The replicator
creates and grows topics too; this run also covers the time when it is down.

**Where to look** - the task's return value is the plan that was carried out.

**When it is red** - `AuthorizationError`: grant what it names (docs/security.md).
`UnavailableError`: a cluster does not answer; the next run makes up for it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag, task

from srm_airflow import engine_calls
from srm_airflow.settings import dag_id, flow_configs, flow_id, load, schedule_of

FLOWS = flow_configs(load())


@task
def sync(flow: str) -> dict[str, Any]:
    """Bring the remote topics of one flow up to date."""
    return engine_calls.sync_topics(flow)


@dag(
    dag_id=dag_id("topic_sync"),
    schedule=schedule_of(
        (
            min(
                flow.refresh_topics_interval,
                flow.sync_topic_configs_interval,
                flow.sync_topic_acls_interval,
            )
            for flow in FLOWS
        ),
        shortest=timedelta(seconds=30),
    ),
    max_active_runs=1,
    catchup=False,
    dagrun_timeout=timedelta(minutes=10),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=5)},
    tags=["srm", "topics"],
    doc_md=__doc__,
)
def srm_topic_sync() -> None:
    """Sync the topics of all flows, one task each."""
    for settings in FLOWS:
        sync.override(task_id=f"sync_{flow_id(settings)}")(str(settings.flow))


DAGS = (srm_topic_sync(),)
