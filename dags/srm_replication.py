"""Keeps the replicator running.

One task supervises one Spark application that copies all enabled flows; checkpoints, group offsets
and topics are left to the DAGs `srm_checkpoints`, `srm_group_offset_sync` and `srm_topic_sync`. The
task starts the application with `spark-submit` (connection `srm_spark`) and finds it again by its
heartbeat in `__srm-replication.<SOURCE>`, so neither a killed task nor a restart of Airflow
interrupts copying or starts it twice. A run normally never ends.

**Where to look** - state store of the task, key `progress`: state, process, log file, and for each
flow its slots, partitions and the number of offsets not copied yet.

**When it is red** - the last lines of the replicator's log are at the end of the task log. The next
run starts by itself and continues exactly where copying stopped; nothing is lost or copied twice.
It stays red while the cause lasts: a cluster that does not answer, a wrong connection `srm_spark`,
a configuration error. `STOPPED` partitions have a reason (data loss, foreign records): see
`srm status`.

**Restart on purpose** (for example after a configuration change) - clear the running task, or
`srm replicator restart`. The request is a record in Kafka, so it reaches the application on any
host.

**Stop** - `srm replicator stop`: this task stays, shows the state `stopped` and starts nothing
until `srm replicator restart`. Or pause the DAG and mark its run as failed.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import dag

from srm.domain.flow_state.replication_records import DUTIES
from srm_airflow.operators import ReplicationOperator
from srm_airflow.settings import config_path, dag_id, load

CONFIG = load()


@dag(
    dag_id=dag_id("replication"),
    schedule="@continuous",
    # Without it, Airflow gives the first two runs the same logical date, takes the second one for a
    # run that exists, and never starts another.
    start_date=datetime(2020, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    catchup=False,
    tags=["srm", "replication"],
    doc_md=__doc__,
)
def srm_replication() -> None:
    """Supervise one replicator for all enabled flows."""
    ReplicationOperator(
        task_id="replicator",
        flows=[str(flow) for flow in CONFIG.flows],
        config_path=str(config_path()),
        without=DUTIES,
        retries=3,
        retry_delay=timedelta(seconds=1),
    )


DAGS = (srm_replication(),)
