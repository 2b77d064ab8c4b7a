"""Emit checkpoints, forward and reverse, with the groups spread over Spark tasks.

spark-submit spark_jobs/checkpoints.py --config srm.properties --flow 'P->B'
"""

from __future__ import annotations

import sys
from dataclasses import replace

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.spark.jobs import JobResult, emit_spread, group_failure, parser, run_job


def work(spark: SparkSession, config: Config, flow: Flow) -> JobResult:
    """Run the job for one flow; the printed summary leaves out the single outcomes."""
    summary = emit_spread(spark, config, flow)
    return replace(summary, outcomes=()), group_failure(summary.errors)


if __name__ == "__main__":
    sys.exit(run_job("srm-checkpoints", parser(__doc__).parse_args(), work))
