"""Compare the copies of flows' topics with their sources; exit code 8 where they differ.

spark-submit spark_jobs/verification.py --config srm.properties --flow 'P->B' --max-records 100000
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.domain.verification.verification import verdict
from srm.engine.verification import VerificationRequest
from srm.spark.jobs import JobResult, parser, run_job
from srm.spark.verification import BothClusters, verify
from srm.wiring import open_flow


def main() -> int:
    """Run the job; return the exit code."""
    options = parser(__doc__)
    options.add_argument("--topic", action="append", default=[], help="source topic; default: all")
    options.add_argument("--max-records", type=int, help="newest records of each partition")
    options.add_argument("--full", action="store_true", help="also what was proven equal before")
    chosen = options.parse_args()

    def work(spark: SparkSession, config: Config, flow: Flow) -> JobResult:
        request = VerificationRequest(tuple(chosen.topic), chosen.max_records, full=chosen.full)
        with open_flow(config, flow) as context:
            clusters = BothClusters.of(config, flow)
            summary = verify(spark, context, clusters, request)
        return summary, verdict(summary)

    return run_job("srm-verification", chosen, work)


if __name__ == "__main__":
    sys.exit(main())
