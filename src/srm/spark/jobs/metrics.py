"""Raw metrics to sliding windows, as DataFrame code.

The offsets to read are planned first, then read in Spark tasks, one range each. Everything after
that is a pure function from DataFrame to DataFrame with integer arithmetic up to the last step, so
the same raw records always give the same windows, bit for bit.

The steps: a raw record covers an interval; what it counted is shared out over the *ticks* (one
slide long, aligned to the epoch) which that interval touches. A window sums up the bytes of each
partition and takes its newest lag. Its statistics are over the partitions of a topic, or of the
flow at cluster level; latencies are over records and over checkpoints.
:mod:`srm.domain.metrics.windows` does the same without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from srm.domain.metrics.checkpoint_latency import LATENCY
from srm.domain.metrics.metrics import COUNTS, Statistics, WindowMetric
from srm.domain.metrics.windows import LONGEST_INTERVAL_MS
from srm.domain.offset_map.offset_ranges import OffsetRange, split
from srm.kafka.admin.errors import kafka_errors
from srm.spark.jobs.ranges import read, reader

RANGE_SIZE = 100_000
_TIMEOUT_SECONDS = 30.0

_MOMENT = ("time_ms", "interval_ms")
_NAMES = ("source", "target", "topic", "remote_topic")
_COUNTED = ("records", "bytes", *LATENCY, "lag_records")
_CHECKPOINTS = tuple(name.replace("latency", "checkpoint") for name in LATENCY)
_LATENCIES = (*LATENCY, *_CHECKPOINTS)

RAW_SCHEMA = StructType(
    [StructField(name, StringType()) for name in _NAMES]
    + [StructField("partition", IntegerType())]
    + [StructField(name, LongType()) for name in (*_MOMENT, *_COUNTED, *_CHECKPOINTS)]
)
"""Columns of a raw metric, named as in :class:`srm.domain.metrics.metrics.RawMetric`, and of
checkpoints.

Of the latter all counts of partitions are null, of partitions those of checkpoints.
"""

_LONGS = ArrayType(LongType())
_TOPIC = [StructField("topic", StringType()), StructField("remote_topic", StringType())]
_RECORD_SCHEMA = StructType(
    [field for field in RAW_SCHEMA.fields if field.name in ("source", "target", *_MOMENT)]
    + [
        StructField(
            "topics",
            ArrayType(StructType([*_TOPIC, StructField("partitions", ArrayType(_LONGS))])),
        ),
        StructField(
            "checkpoints", ArrayType(StructType([*_TOPIC, StructField("latency_ms", _LONGS)]))
        ),
    ]
)

VALUE_SCHEMA = "value binary"


def plan_ranges(
    properties: Mapping[str, str], topic: str, since_ms: int
) -> tuple[OffsetRange, ...]:
    """Plan which offsets of a raw metrics topic hold the records since a time; no topic, nothing.

    Raises:
        UnavailableError, AuthorizationError: as the cluster answers.
    """
    with reader(properties, "read_uncommitted") as consumer, kafka_errors(f"plan {topic}"):
        metadata = consumer.list_topics(topic, timeout=_TIMEOUT_SECONDS).topics[topic]
        wanted = [TopicPartition(topic, p, since_ms) for p in metadata.partitions]
        if metadata.error is not None or not wanted:
            return ()
        found = consumer.offsets_for_times(wanted, timeout=_TIMEOUT_SECONDS)
        ranges = [_range_from(consumer, start) for start in found]
    return split(ranges, RANGE_SIZE)


def _range_from(consumer: Consumer, start: TopicPartition) -> OffsetRange:
    _, end = consumer.get_watermark_offsets(start, timeout=_TIMEOUT_SECONDS)
    # A negative offset says that no record is that young.
    begin = start.offset if start.offset >= 0 else end
    return OffsetRange(start.topic, start.partition, begin, end)


def load_values(
    spark: SparkSession, properties: Mapping[str, str], ranges: tuple[OffsetRange, ...]
) -> DataFrame:
    """Read the record values of the ranges (:data:`VALUE_SCHEMA`), a Spark task for each."""
    if not ranges:
        return spark.createDataFrame([], VALUE_SCHEMA)
    indexes = spark.range(0, len(ranges), 1, len(ranges))
    return indexes.mapInArrow(_values_of(properties, ranges), VALUE_SCHEMA)


def _values_of(
    properties: Mapping[str, str], ranges: tuple[OffsetRange, ...]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def values(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with reader(properties, "read_uncommitted") as consumer:
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    for messages in read(consumer, ranges[index]):
                        column = pa.array([m.value() for m in messages], pa.binary())
                        yield pa.RecordBatch.from_arrays([column], ["value"])

    return values


def parse(values: DataFrame) -> DataFrame:
    """Parse JSON values into :data:`RAW_SCHEMA`; one that is not a raw metrics record has nulls.

    A record holds many partitions (:func:`srm.domain.metrics.metrics.encode_raw`) or the latencies
    of checkpoints (:mod:`srm.domain.metrics.checkpoint_latency`).
    """
    record = F.from_json(F.col("value").cast("string"), _RECORD_SCHEMA)
    rows = values.select(record.alias("raw")).select("raw.*", _entries().alias("of"))
    found = {
        **{name: F.col(f"of.{name}") for name in ("topic", "remote_topic")},
        **{name: _at("partition", index) for index, name in enumerate(COUNTS)},
        **{name: _at("latency_ms", index) for index, name in enumerate(_CHECKPOINTS)},
    }
    return rows.withColumns(found).select(
        *(F.col(f.name).cast(f.dataType).alias(f.name) for f in RAW_SCHEMA.fields)
    )


def _entries() -> Column:
    """Return an entry for each partition of each topic, and for each topic with checkpoints."""
    none = F.lit(None).cast(_LONGS)

    def entry(topic: Column, partition: Column, latency_ms: Column) -> Column:
        return F.struct(
            topic["topic"].alias("topic"),
            topic["remote_topic"].alias("remote_topic"),
            partition.alias("partition"),
            latency_ms.alias("latency_ms"),
        )

    def of_topic(topic: Column) -> Column:
        return F.transform(topic["partitions"], lambda counts: entry(topic, counts, none))

    of_partitions = F.flatten(F.transform("raw.topics", of_topic))
    of_checkpoints = F.transform("raw.checkpoints", lambda of: entry(of, none, of["latency_ms"]))
    no_checkpoints = F.slice(of_partitions, 1, 0)
    return F.explode_outer(F.concat(of_partitions, F.coalesce(of_checkpoints, no_checkpoints)))


def _at(counts: str, index: int) -> Column:
    return F.get(f"of.{counts}", F.lit(index))


def is_usable() -> Column:
    """Return the condition for a parsed record that can be counted."""
    known = _all_known((*_NAMES, *_MOMENT)) & (
        _all_known(("partition", *_COUNTED)) | _all_known(_CHECKPOINTS)
    )
    return known & F.col("interval_ms").between(1, LONGEST_INTERVAL_MS)


def _all_known(names: Iterable[str]) -> Column:
    return reduce(Column.__and__, [F.col(name).isNotNull() for name in names])


def ticks_of(raw: DataFrame, tick_ms: int) -> DataFrame:
    """Share each raw record out over the ticks it touches: one row per record and tick.

    Bytes and records are shared in proportion, without a remainder. Latencies belong to the tick
    in which the interval ended. Checkpoints have no partition: a row without one has no bytes, no
    records and no lag.
    """
    size = F.lit(tick_ms)
    covered = raw.withColumn("from_ms", F.col("time_ms") - F.col("interval_ms"))
    last = F.expr(f"(time_ms - 1) div {tick_ms}") * size
    first = F.when(F.col("partition").isNull(), last).otherwise(
        F.expr(f"from_ms div {tick_ms}") * size
    )
    exploded = (
        covered.withColumn("last_tick", last)
        .withColumn("tick_ms", F.explode(F.sequence(first, last, size)))
        .withColumn("lo", F.greatest(F.col("tick_ms") - F.col("from_ms"), F.lit(0)))
        .withColumn("hi", F.least(F.col("tick_ms") + size - F.col("from_ms"), F.col("interval_ms")))
    )
    return exploded.select(
        *_NAMES,
        "partition",
        "tick_ms",
        "time_ms",
        "lag_records",
        _share("bytes"),
        _share("records"),
        *(column for names in (LATENCY, _CHECKPOINTS) for column in _at_end(names)),
    )


def _share(name: str) -> Column:
    # The difference of two rounded-down parts: whatever the cut, the parts add up to the whole.
    return F.expr(f"({name} * hi) div interval_ms - ({name} * lo) div interval_ms").alias(name)


def _at_end(names: tuple[str, ...]) -> list[Column]:
    """Give latencies, the last of the names being their count, to the tick where they ended."""
    here = (F.col("tick_ms") == F.col("last_tick")) & (F.col(names[-1]) > 0)
    return [F.when(here, F.col(name)).alias(name) for name in names]


def _totals() -> list[Column]:
    sums = ("bytes", "records", *(n for n in _LATENCIES if n.endswith(("_sum", "_count"))))
    return [
        *(F.sum(name).alias(name) for name in sums),
        *(F.min(name).alias(name) for name in _LATENCIES if name.endswith("_min")),
        *(F.max(name).alias(name) for name in _LATENCIES if name.endswith("_max")),
    ]


def partition_windows(ticks: DataFrame, window_ms: int, tick_ms: int) -> DataFrame:
    """Sum up each partition in each window of ``window_ms`` that slides by one tick."""
    window = F.window(
        F.timestamp_millis("tick_ms"), f"{window_ms} milliseconds", f"{tick_ms} milliseconds"
    )
    newest = F.struct("time_ms", "lag_records")
    return ticks.groupBy(*_NAMES, "partition", window).agg(
        *_totals(), F.max_by("lag_records", newest).alias("lag_records")
    )


def level_windows(partitions: DataFrame) -> DataFrame:
    """Statistics over the partitions of a topic, and over those of a flow: both levels."""
    nothing = F.lit("")
    topic = F.struct(F.lit("topic").alias("level"), F.col("topic"), F.col("remote_topic"))
    cluster = F.struct(
        F.lit("cluster").alias("level"), nothing.alias("topic"), nothing.alias("remote_topic")
    )
    grouped = partitions.withColumn("subject", F.explode(F.array(topic, cluster))).groupBy(
        "source", "target", "subject", "window"
    )
    return grouped.agg(
        *_totals(),
        F.min("bytes").alias("bytes_min"),
        F.max("bytes").alias("bytes_max"),
        F.min("lag_records").alias("lag_min"),
        F.max("lag_records").alias("lag_max"),
        F.sum("lag_records").alias("lag_sum"),
        # Checkpoints have no partition, so they count as no sample of rate and lag.
        F.count("lag_records").alias("partitions"),
    ).select(
        "*",
        "subject.*",
        F.unix_millis("window.start").alias("start_ms"),
        F.unix_millis("window.end").alias("end_ms"),
    )


def windows(raw: DataFrame, window_ms: int, tick_ms: int) -> DataFrame:
    """Raw records to sliding windows, all steps in one."""
    ticks = ticks_of(raw.where(is_usable()), tick_ms)
    return level_windows(partition_windows(ticks, window_ms, tick_ms))


def to_metric(row: Row) -> WindowMetric:
    """Turn one row of :func:`windows` into the record that is stored."""
    rate = lag = Statistics()
    if row.partitions:
        size = Statistics(row.bytes_min, row.bytes_max, row.bytes, row.partitions)
        rate = size.times(1000 / (row.end_ms - row.start_ms))
        lag = Statistics(row.lag_min, row.lag_max, row.lag_sum, row.partitions).times(1.0)
    return WindowMetric(
        row.source,
        row.target,
        row.level,
        row.topic,
        row.remote_topic,
        row.start_ms,
        row.end_ms,
        row.records or 0,
        row.bytes or 0,
        rate,
        _latency(row, LATENCY),
        lag,
        _latency(row, _CHECKPOINTS),
    )


def _latency(row: Row, names: tuple[str, ...]) -> Statistics:
    least, most, total, count = (row[name] for name in names)
    return Statistics(float(least), float(most), float(total), count) if count else Statistics()
