"""Aggregates replication metrics into sliding windows.

A Spark job reads the raw metrics of a flow and writes minimum, maximum, average and sum of byte
rate, latency and record lag by topic and cluster to `srm-metrics-windows.internal`. Windows are
computed anew from the raw topic and keyed by their time, so running twice changes nothing.

**When it is red** - the end of spark-submit's output is in the task log. Copying is not affected;
the next run also computes the windows that are missing, as long as the raw metrics are kept.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import dag

from srm_airflow.settings import (
    SPARK_CONNECTION,
    job_arguments,
    load,
    settled_cron,
    spark_job,
)

CONFIG = load()


@dag(
    # A cold Spark application takes 20 s of two cores.
    schedule=settled_cron("*/5 * * * *"),
    max_active_runs=1,
    catchup=False,
    dagrun_timeout=timedelta(minutes=15),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
    tags=["srm", "metrics", "spark"],
    doc_md=__doc__,
)
def srm_metrics_aggregation() -> None:
    """Aggregate all flows in one Spark application; a flow that fails does not stop the others."""
    SparkSubmitOperator(
        task_id="aggregate",
        conn_id=SPARK_CONNECTION,
        name="srm-metrics",
        application=spark_job("metrics"),
        application_args=job_arguments(CONFIG),
    )


srm_metrics_aggregation()
