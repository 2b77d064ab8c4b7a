"""Metrics aggregation with the raw records counted by Spark tasks, each its own offset ranges."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from srm.domain.names import internal_topics
from srm.domain.offset_map.offset_ranges import OffsetRange, split
from srm.engine.metrics.aggregation import AggregationSummary, aggregate_by
from srm.engine.metrics.metrics import KeptWindows, WindowSpec
from srm.engine.ports import FlowContext
from srm.kafka.wire.errors import kafka_errors
from srm.spark.jobs.spread import read, reader, spread

RANGE_SIZE: Final = 100_000
_TIMEOUT_S: Final = 30.0
logger = logging.getLogger(__name__)


def aggregate(
    spark: SparkSession,
    context: FlowContext,
    consumer_properties: Mapping[str, str],
    spec: WindowSpec | None = None,
) -> AggregationSummary:
    """Aggregate as :func:`srm.engine.metrics.aggregation.aggregate`; properties: the target's."""
    sizes, config = spec or WindowSpec(), context.config
    topic = internal_topics.raw_metrics(config.flow.source)

    def count(windows: KeptWindows, now_ms: int) -> bool:
        def count_part(ranges: Iterable[OffsetRange]) -> Iterator[KeptWindows]:
            counted = KeptWindows(config, sizes)
            with reader(consumer_properties, "read_uncommitted") as consumer:
                for messages in (found for each in ranges for found in read(consumer, each)):
                    counted.add((value for m in messages if (value := m.value())), now_ms)
            yield counted

        since_ms = windows.bounds(now_ms).first_start_ms
        ranges = _plan_ranges(consumer_properties, topic, since_ms)
        logger.info("aggregating %s of %s in %d ranges", topic, config.flow, len(ranges))
        for counted in spread(spark, ranges, count_part):
            windows.merge(counted)
        return True

    found = aggregate_by(context, count, sizes, "spark")
    assert found is not None  # noqa: S101 -- Spark counts any number
    return found


def _plan_ranges(
    properties: Mapping[str, str], topic: str, since_ms: int
) -> tuple[OffsetRange, ...]:
    with reader(properties, "read_uncommitted") as consumer, kafka_errors(f"plan {topic}"):
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        wanted = [TopicPartition(topic, p, since_ms) for p in metadata.partitions]
        if metadata.error is not None or not wanted:
            return ()
        found = consumer.offsets_for_times(wanted, timeout=_TIMEOUT_S)
        return split([_range_from(consumer, start) for start in found], RANGE_SIZE)


def _range_from(consumer: Consumer, start: TopicPartition) -> OffsetRange:
    _, end = consumer.get_watermark_offsets(start, timeout=_TIMEOUT_S)
    # A negative offset says that no record is that young.
    begin = start.offset if start.offset >= 0 else end
    return OffsetRange(start.topic, start.partition, begin, end)
