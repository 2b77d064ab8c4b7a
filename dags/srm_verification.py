"""Compares the two copies of every replicated partition.

*verify* finds the records copied since the last run, or the newest *records* of each partition, and
compares them itself if they are few. *verify_in_spark* is a Spark job for flows with more records,
and for those that failed; it is skipped if there are none. Both read source and target over the
mapped ranges and compare count, order and content. Records proven equal are not read again.
`__srm-verification.<SOURCE>` holds the latest result of each partition and its proven ranges.

**By hand** - trigger it with *topics* to verify only these, and with *full* to compare proven
records again. That finds later changes on a broker's disk.

**When it is red** - the end of the task log names the first difference by partition and offset, or
the cluster that did not answer. After a difference do not move groups that read this topic before
its cause is known. Copying is not affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import Param, dag, task

from srm.domain.names.topics import Flow
from srm_airflow import engine_calls
from srm_airflow.settings import dag_id, job_arguments, load, settled_cron, spark_job
from srm_airflow.spark_jobs import SparkJobOperator

CONFIG = load()

PARAMS = {
    "topics": Param(
        [],
        type=["array", "null"],
        items={"type": "string"},
        title="Topics",
        description="Names on the source, one per line. Empty: all that are replicated.",
    ),
    "records": Param(
        1_000_000,
        type=["null", "integer"],
        minimum=1,
        title="Records of each partition",
        description="Verify at most this number of the newest copied records. Empty: all.",
    ),
    "full": Param(
        default=False,
        type="boolean",
        title="In full",
        description="Compare again what was proven equal before.",
    ),
}


@task.short_circuit
def verify(flows: list[str], *, params: Any = None, ti: Any = None) -> list[str]:
    """Verify what takes no Spark; return the flows that are left to it."""
    summaries = engine_calls.verify_little(flows, params)
    ti.xcom_push("summary", summaries)
    return [flow for flow, summary in summaries.items() if summary is None]


def arguments(params: Mapping[str, Any], left: list[str] | None) -> list[str]:
    """Return the arguments of the Spark job for the form's values and the flows left to it."""
    chosen = [part for topic in params["topics"] or () for part in ("--topic", topic)]
    if params["records"] is not None:
        chosen += ["--max-records", str(params["records"])]
    if params["full"]:
        chosen.append("--full")
    return [*job_arguments(CONFIG, [Flow.parse(flow) for flow in left or ()]), *chosen]


@dag(
    dag_id=dag_id("verification"),
    schedule=settled_cron("17 * * * *"),
    max_active_runs=1,
    catchup=False,
    dagrun_timeout=timedelta(hours=2),
    params=PARAMS,
    render_template_as_native_obj=True,
    user_defined_macros={"arguments": arguments},
    tags=["srm", "verification", "spark"],
    doc_md=__doc__,
)
def srm_verification() -> None:
    """Verify all flows; one that fails does not stop the others."""
    left = verify([str(flow) for flow in CONFIG.flows])
    in_spark = SparkJobOperator(
        task_id="verify_in_spark",
        name="srm-verification",
        application=spark_job("verification"),
        application_args="{{ arguments(params, ti.xcom_pull('verify')) }}",
    )
    left >> in_spark


DAGS = (srm_verification(),)
