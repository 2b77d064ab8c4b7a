"""Aggregate the raw metrics of flows into sliding windows; running again changes nothing.

spark-submit spark_jobs/metrics.py --config srm.properties --flow 'P->B'
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.metrics.metrics import WindowSpec
from srm.spark.jobs import JobResult, aggregate, parser, run_job
from srm.wiring import open_flow


def main() -> int:
    """Run the job; return the exit code."""
    options = parser(__doc__)
    options.add_argument("--look-back", type=int, default=900, metavar="SECONDS")
    chosen = options.parse_args()

    def work(spark: SparkSession, config: Config, flow: Flow) -> JobResult:
        spec = WindowSpec(look_back_ms=chosen.look_back * 1000)
        with open_flow(config, flow) as context:
            consumer = config.cluster_clients(flow.target, flow).consumer
            return aggregate(spark, context, consumer, spec), None

    return run_job("srm-metrics", chosen, work)


if __name__ == "__main__":
    sys.exit(main())
