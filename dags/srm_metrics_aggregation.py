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
    config_path,
    flow_configs,
    flow_id,
    load,
    spark_job,
)


@dag(
    # A cold Spark application takes 20 s of two cores.
    schedule="*/5 * * * *",
    max_active_runs=1,
    max_active_tasks=1,
    catchup=False,
    is_paused_upon_creation=False,
    dagrun_timeout=timedelta(minutes=15),
    default_args={"retries": 1, "retry_delay": timedelta(seconds=10)},
    tags=["srm", "metrics", "spark"],
    doc_md=__doc__,
)
def srm_metrics_aggregation() -> None:
    """Aggregate the metrics of all flows, one Spark job each, one after the other."""
    for settings in flow_configs(load()):
        SparkSubmitOperator(
            task_id=f"aggregate_{flow_id(settings)}",
            conn_id=SPARK_CONNECTION,
            name=f"srm-metrics {settings.flow}",
            application=spark_job("metrics"),
            application_args=["--config", str(config_path()), "--flow", str(settings.flow)],
        )


srm_metrics_aggregation()
