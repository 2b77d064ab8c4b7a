"""Completes the windows of the replication metrics.

Minimum, maximum, average and sum of byte rate, latencies and record lag by topic and flow are in
`__srm-metrics-windows`. Replicators write them while they copy
(`metrics.windows.continuous`). This DAG writes the windows that are missing for the raw metrics of
the last quarter of an hour. For a flow without a running replicator it reads the end offsets of the
source, so that the growing lag stays visible. Windows are keyed by their time: a second run changes
nothing.

**Spark** - only a flow with more raw metrics than one process can aggregate while Spark starts goes
to the second task, which is skipped otherwise. It uses the Spark Connect server of the connection
`srm_spark_connect` if there is one, else `spark-submit`.

**Where to look** - the log of `aggregate`, and its XCom `summary`.

**When it is red** - `UnavailableError`: a target does not answer; the next run makes up for it.
Otherwise the end of the log names the cause. Copying is not affected; missing windows are computed
while the raw metrics are retained.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import dag, task

from srm.domain.names.topics import Flow
from srm_airflow import engine_calls
from srm_airflow.settings import dag_id, job_arguments, load, settled_cron, spark_job
from srm_airflow.spark_jobs import SparkJobOperator

CONFIG = load()


@task.short_circuit
def aggregate(flows: list[str], *, ti: Any = None) -> list[str]:
    """Aggregate what one process can; return the flows that are left to Spark."""
    summaries = engine_calls.aggregate_metrics(flows)
    ti.xcom_push("summary", summaries)
    return [flow for flow, summary in summaries.items() if summary is None]


def arguments(left: list[str] | None) -> list[str]:
    """Return the arguments of the Spark job for the flows that are left to it."""
    return job_arguments(CONFIG, [Flow.parse(flow) for flow in left or ()])


@dag(
    dag_id=dag_id("metrics_aggregation"),
    schedule=settled_cron("*/5 * * * *"),
    max_active_runs=1,
    catchup=False,
    dagrun_timeout=timedelta(minutes=15),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
    render_template_as_native_obj=True,
    user_defined_macros={"arguments": arguments},
    tags=["srm", "metrics", "spark"],
    doc_md=__doc__,
)
def srm_metrics_aggregation() -> None:
    """Aggregate all flows; a flow that fails does not stop the others."""
    left = aggregate([str(flow) for flow in CONFIG.flows])
    in_spark = SparkJobOperator(
        task_id="aggregate_in_spark",
        name="srm-metrics",
        application=spark_job("metrics"),
        application_args="{{ arguments(ti.xcom_pull('aggregate')) }}",
    )
    left >> in_spark


DAGS = (srm_metrics_aggregation(),)
