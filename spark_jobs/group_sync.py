"""Sync the offsets of idle groups, with the groups spread over Spark tasks.

spark-submit spark_jobs/group_sync.py --config srm.properties --flow 'P->B'
"""

from __future__ import annotations

import sys
from dataclasses import replace

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.spark.jobs import JobResult, group_failure, parser, run_job, sync_spread


def work(spark: SparkSession, config: Config, flow: Flow) -> JobResult:
    """Run the job for one flow; the printed summary leaves out the single decisions."""
    summary = sync_spread(spark, config, flow)
    return replace(summary, decisions=()), group_failure(summary.errors)


if __name__ == "__main__":
    sys.exit(run_job("srm-group-sync", parser(__doc__).parse_args(), work))
