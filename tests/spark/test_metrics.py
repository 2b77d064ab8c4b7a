"""Raw metrics become exactly the windows that pencil and paper give."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from tests.raw_metrics import measured, values

from srm.domain.metrics.checkpoint_latency import CheckpointMetric
from srm.domain.metrics.metrics import (
    Measured,
    RawMetric,
    Statistics,
    WindowMetric,
    decode_measured,
    encode_raw,
)
from srm.domain.metrics.windows import LONGEST_INTERVAL_MS, Windows
from srm.domain.names.topics import Flow
from srm.spark.jobs import metrics

pytestmark = pytest.mark.spark

TICK = 10_000
RAW = RawMetric(0, 1000, "P", "B", "pay", "P.pay", 0, 0, 0, 0, 0, 0, 0, 0)


def raw(time_s: float, interval_s: float = 1, **changes: object) -> RawMetric:
    return replace(RAW, time_ms=int(time_s * 1000), interval_ms=int(interval_s * 1000), **changes)  # type: ignore[arg-type]


def frame(spark: SparkSession, *records: Measured) -> DataFrame:
    return parsed(spark, values(records))


def parsed(spark: SparkSession, found: list[bytes]) -> DataFrame:
    rows = [(bytearray(value),) for value in found]
    return metrics.parse(spark.createDataFrame(rows, metrics.VALUE_SCHEMA))


def windows(spark: SparkSession, *records: Measured, window_s: int = 20) -> list[WindowMetric]:
    rows = metrics.windows(frame(spark, *records), window_s * 1000, TICK).collect()
    found = [metrics.to_metric(row) for row in rows]
    return sorted(found, key=lambda w: (w.level, w.topic, w.start_ms))


def of_topic(found: list[WindowMetric], topic: str) -> list[WindowMetric]:
    return [w for w in found if w.topic == topic]


def test_bytes_of_an_interval_are_shared_over_the_ticks_it_touches(spark):
    ticks = metrics.ticks_of(frame(spark, raw(12, 4, bytes=1001, records=10)), TICK).collect()

    assert sorted((t.tick_ms, t.bytes, t.records) for t in ticks) == [
        (0, 500, 5),
        (10_000, 501, 5),
    ]


def test_an_interval_that_ends_with_a_tick_does_not_touch_the_next(spark):
    ticks = metrics.ticks_of(frame(spark, raw(10, 10, bytes=7)), TICK).collect()

    assert [(t.tick_ms, t.bytes) for t in ticks] == [(0, 7)]


def test_one_tick_shows_in_each_window_that_slides_over_it(spark):
    found = of_topic(windows(spark, raw(15, bytes=5000, records=50, lag_records=3)), "pay")

    assert [(w.start_ms, w.end_ms) for w in found] == [(0, 20_000), (10_000, 30_000)]
    assert {(w.records, w.bytes) for w in found} == {(50, 5000)}
    assert {w.byte_rate for w in found} == {Statistics(250.0, 250.0, 250.0, 1)}
    assert {w.replication_records_lag for w in found} == {Statistics(3.0, 3.0, 3.0, 1)}


def test_statistics_are_over_the_partitions_of_a_topic_and_over_those_of_a_flow(spark):
    found = windows(
        spark,
        raw(5, partition=0, bytes=1000, records=1, lag_records=10),
        raw(5, partition=1, bytes=3000, records=3, lag_records=5),
        raw(15, partition=0, bytes=4000, records=2, lag_records=0),
        raw(15, partition=1, bytes=0, records=0, lag_records=1),
        raw(6, topic="other", remote_topic="P.other", bytes=500, records=7, lag_records=2),
    )

    (pay,) = [w for w in of_topic(found, "pay") if w.start_ms == 0]
    assert (pay.level, pay.remote_topic, pay.records, pay.bytes) == ("topic", "P.pay", 6, 8000)
    assert pay.byte_rate == Statistics(150.0, 250.0, 400.0, 2)
    assert pay.byte_rate.avg == 200.0
    assert pay.replication_records_lag == Statistics(0.0, 1.0, 1.0, 2)
    (cluster,) = [w for w in of_topic(found, "") if w.start_ms == 0]
    assert (cluster.level, cluster.remote_topic, cluster.records) == ("cluster", "", 13)
    assert cluster.byte_rate == Statistics(25.0, 250.0, 425.0, 3)
    assert cluster.replication_records_lag == Statistics(0.0, 2.0, 3.0, 3)


def test_latency_is_over_records_and_ignores_intervals_without_one(spark):
    measured = {"latency_ms_min": 2, "latency_ms_max": 30, "latency_ms_sum": 100}
    found = windows(
        spark,
        raw(5, latency_count=10, **measured),
        raw(6, latency_count=2, latency_ms_min=7, latency_ms_max=90, latency_ms_sum=97),
        raw(7, latency_count=0, lag_records=1),
    )

    assert {w.replication_latency_ms for w in found} == {Statistics(2.0, 90.0, 197.0, 12)}


def test_a_window_without_any_measured_record_has_no_latency(spark):
    assert {w.replication_latency_ms for w in windows(spark, raw(5, lag_records=1))} == {
        Statistics()
    }


def test_the_newest_lag_of_a_partition_counts(spark):
    found = windows(spark, raw(3, lag_records=9), raw(8, lag_records=4), raw(1, lag_records=20))

    assert {w.replication_records_lag for w in found} == {Statistics(4.0, 4.0, 4.0, 1)}


def test_values_that_are_no_metrics_are_left_out_and_can_be_counted(spark):
    good, absurd = raw(5, bytes=10), raw(5, interval_s=10**9, bytes=7)
    written = [*encode_raw([good]), *encode_raw([absurd]), b"junk", b'{"topics":[]}']
    values = [*((bytearray(value),) for value in written), (None,)]
    parsed = metrics.parse(spark.createDataFrame(values, metrics.VALUE_SCHEMA))

    assert parsed.where(~metrics.is_usable()).count() == 4
    assert {r.bytes for r in metrics.windows(parsed, 20_000, TICK).collect()} == {10}


def test_the_order_of_the_raw_records_does_not_matter(spark):
    records = [
        raw(t, 3, bytes=t * 7919 % 1000, partition=t % 3, lag_records=t) for t in range(3, 60)
    ]

    assert windows(spark, *records, window_s=60) == windows(spark, *reversed(records), window_s=60)


def test_checkpoints_have_a_latency_and_no_rate_and_no_lag(spark):
    emitted = CheckpointMetric(15_000, 8_000, "P", "B", "pay", "P.pay", 5, 30, 50, 3)

    found = windows(spark, emitted, raw(35, bytes=10), window_s=40)

    assert {w.checkpoint_latency_ms for w in found if w.start_ms < 10_000} == {
        Statistics(5.0, 30.0, 50.0, 3)
    }
    assert {w.byte_rate.count for w in found if w.start_ms == 0} == {1}
    assert {w.byte_rate for w in found if w.end_ms < 40_000} == {Statistics()}


def of_flow(number: int, metric: Measured) -> Measured:
    """Give a metric to a flow of its own, for many examples to share one Spark job.

    Not in the first seconds of 1970: Spark divides a time before it towards zero.
    """
    return replace(metric, source=f"P{number}", time_ms=metric.time_ms + LONGEST_INTERVAL_MS)


# A Spark job takes a second: shrinking would take many.
@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),
)
@given(
    st.lists(st.lists(measured(), min_size=1, max_size=25), min_size=20, max_size=30),
    st.integers(0, 2**32),
)
def test_spark_computes_what_a_plain_loop_computes(
    spark: SparkSession, examples: list[list[Measured]], seed: int
):
    """Late, out of order, and some of it written twice."""
    shuffle = random.Random(seed)
    told = [values(of_flow(n, m) for m in example) for n, example in enumerate(examples)]
    log = [value for of_one in told for value in of_one]
    log += shuffle.sample(log, len(log) // 5)
    shuffle.shuffle(log)

    rows = metrics.windows(parsed(spark, log), 20_000, TICK).collect()

    expected: list[WindowMetric] = []
    for number in range(len(examples)):
        plain = Windows(Flow(f"P{number}", "B"), 20_000, TICK)
        for value in log:
            plain.add(decode_measured(value))
        expected += plain.between(0, 10**15)
    assert len(expected) > len(examples)
    assert sorted(w.value() for w in (metrics.to_metric(row) for row in rows)) == sorted(
        w.value() for w in expected
    )
