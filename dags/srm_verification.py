"""Compares the two copies of every replicated partition.

A Spark job reads source and target over the mapped ranges and compares count, order and content.
Every hour it takes what is new since the last time, all of it or as many of the newest records as
*records* says. What was proven equal is not read again. The latest result of each partition, with
what of it is proven, is kept in `srm-verification.<SOURCE>.internal`.

**By hand** - trigger it with *topics* to verify only some, and with *full* to compare again what
was proven before, too: that finds what was changed since in place, on a broker's disk.

**When it is red** - the end of the task log names the first difference by partition and offset, or
the cluster that did not answer. After a difference do not move groups that read this topic before
its cause is known. Copying is not affected.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.sdk import Param, dag

from srm_airflow.settings import job_arguments, load, settled_cron, spark_job
from srm_airflow.spark_jobs import SparkJobOperator

CONFIG = load()

PARAMS = {
    "topics": Param(
        [],
        type="array",
        items={"type": "string"},
        title="Topics",
        description="Names on the source, one per line. Empty: all that are replicated.",
    ),
    "records": Param(
        1_000_000,
        type=["null", "integer"],
        minimum=1,
        title="Records of each partition",
        description="At most the newest so many copied records. Empty: all.",
    ),
    "full": Param(
        default=False,
        type="boolean",
        title="In full",
        description="Compare again what was proven equal before.",
    ),
}


def arguments(params: Mapping[str, Any]) -> list[str]:
    """Return the arguments of the Spark job for the form's values."""
    chosen = [part for topic in params["topics"] for part in ("--topic", topic)]
    if params["records"] is not None:
        chosen += ["--max-records", str(params["records"])]
    if params["full"]:
        chosen.append("--full")
    return [*job_arguments(CONFIG), *chosen]


@dag(
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
    """Verify all flows in one Spark application; a flow that fails does not stop the others."""
    SparkJobOperator(
        task_id="verify",
        name="srm-verification",
        application=spark_job("verification"),
        application_args="{{ arguments(params) }}",
    )


srm_verification()
