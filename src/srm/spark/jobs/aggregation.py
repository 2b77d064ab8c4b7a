"""The metrics aggregation: raw records of a flow in, windows on its target out, safe to repeat."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import timedelta

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from srm.domain.names import internal_topics
from srm.engine.metrics.aggregation import AggregationSummary, keep, settle_bounds
from srm.engine.metrics.metrics import WindowSpec, bounds
from srm.engine.ports import FlowContext
from srm.engine.status.silent_flows import tell_silence
from srm.spark.jobs import metrics

logger = logging.getLogger(__name__)


def aggregate(
    spark: SparkSession,
    context: FlowContext,
    consumer_properties: Mapping[str, str],
    spec: WindowSpec | None = None,
) -> AggregationSummary:
    """Compute the windows of the look-back again and store those that are new or different.

    Args:
        spark: the session whose tasks read the raw records.
        context: the flow; its target holds both topics.
        consumer_properties: librdkafka consumer properties of the target.
        spec: sizes; one minute sliding by ten seconds, a quarter of an hour back, by default.

    Raises:
        UnavailableError, AuthorizationError: as the target answers.
    """
    spec = spec or WindowSpec()
    flow = context.config.flow
    interval_ms = context.config.metrics_interval // timedelta(milliseconds=1)
    silence, _ = tell_silence(context)
    complete = bounds(spec, context.now_ms(), interval_ms)
    topic = internal_topics.raw_metrics(flow.source)
    ranges = metrics.plan_ranges(consumer_properties, topic, complete.first_start_ms)
    logger.info("aggregating %s of %s in %d ranges", topic, flow, len(ranges))
    seen = Observation()
    raw = metrics.parse(metrics.load_values(spark, consumer_properties, ranges)).observe(
        seen,
        F.count(F.lit(1)).alias("raw"),
        F.count(F.when(~metrics.is_usable(), 1)).alias("malformed"),
    )
    ours = raw.where((F.col("source") == flow.source) & (F.col("target") == flow.target))
    rows = metrics.windows(ours, spec.window_ms, spec.slide_ms).collect() if ranges else []
    counted = seen.get if ranges else {"raw": 0, "malformed": 0}
    return keep(
        context,
        spec,
        [metrics.to_metric(row) for row in rows],
        AggregationSummary(
            flow,
            settle_bounds(complete, spec, silence),
            counted["raw"],
            counted["malformed"],
            engine="spark",
            silence=silence,
        ),
    )
