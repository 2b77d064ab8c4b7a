"""Windows say the same of the same raw metrics, whatever their order and however they are cut."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.raw_metrics import measured, raw_metrics

from srm.domain.metrics import (
    LONGEST_INTERVAL_MS,
    CheckpointMetric,
    Measured,
    RawMetric,
    Statistics,
    WindowMetric,
    Windows,
)
from srm.domain.names.topics import Flow

FLOW = Flow("P", "B")
TICK = 10_000
RAW = RawMetric(12_000, 4_000, "P", "B", "pay", "P.pay", 0, 10, 1001, 1, 9, 40, 10, 7)
EMITTED = CheckpointMetric(15_000, 8_000, "P", "B", "pay", "P.pay", 5, 30, 50, 3)


def windows(*metrics: Measured, window_ms: int = 20_000) -> list[WindowMetric]:
    found = Windows(FLOW, window_ms, TICK)
    found.add(metrics)
    return list(found.between(-LONGEST_INTERVAL_MS, 10**15))


def test_bytes_of_an_interval_are_shared_over_the_ticks_it_touches() -> None:
    of_tick = {w.start_ms: w.bytes for w in windows(RAW, window_ms=TICK) if w.level == "topic"}

    assert of_tick == {0: 500, 10_000: 501}


def test_the_newest_lag_of_each_partition_counts() -> None:
    later = replace(RAW, time_ms=13_000, lag_records=3)
    other = replace(RAW, partition=1, lag_records=100)

    [window] = [
        w
        for w in windows(later, RAW, other, window_ms=TICK)
        if (w.level, w.start_ms) == ("topic", 10_000)
    ]

    assert window.replication_records_lag.sum == 103


def test_the_sum_of_the_lag_is_the_lag_and_its_extremes_are_the_best_and_the_worst_partition() -> (
    None
):
    """The sum over the six ticks of a window was six times the lag."""
    minute = [
        replace(RAW, time_ms=second * 1000, interval_ms=5000, partition=partition, lag_records=lag)
        for second in range(5, 61, 5)
        for partition, lag in enumerate((90, 10))
    ]

    found = [w for w in windows(*minute, window_ms=60_000) if w.start_ms == 0]

    assert [w.level for w in found] == ["cluster", "topic"]
    assert {w.replication_records_lag for w in found} == {Statistics(10.0, 90.0, 100.0, 2)}
    assert {w.replication_records_lag.avg for w in found} == {50.0}


def test_the_sum_of_the_rates_of_all_partitions_times_the_window_is_what_was_copied() -> None:
    """Of one burst in a minute the rate was six times what was copied."""
    slow, fast = replace(RAW, bytes=6_000), replace(RAW, partition=1, bytes=60_000)

    [window] = [
        w for w in windows(slow, fast, window_ms=60_000) if (w.level, w.start_ms) == ("topic", 0)
    ]

    assert window.byte_rate == Statistics(100.0, 1000.0, 1100.0, 2)


def test_what_nobody_can_have_measured_is_left_out() -> None:
    assert not windows(replace(RAW, interval_ms=0))
    assert not windows(replace(RAW, interval_ms=LONGEST_INTERVAL_MS + 1))
    assert not windows(replace(RAW, source="Q"))


def test_checkpoints_belong_to_the_tick_in_which_they_were_written() -> None:
    found = windows(RAW, EMITTED, window_ms=TICK)

    assert {(w.level, w.start_ms): w.checkpoint_latency_ms for w in found} == {
        ("topic", 0): Statistics(),
        ("cluster", 0): Statistics(),
        ("topic", 10_000): Statistics(5.0, 30.0, 50.0, 3),
        ("cluster", 10_000): Statistics(5.0, 30.0, 50.0, 3),
    }


def test_checkpoints_alone_are_no_sample_of_rate_and_lag() -> None:
    later = replace(EMITTED, time_ms=25_000)

    [window] = [
        w for w in windows(RAW, later, window_ms=30_000) if (w.level, w.start_ms) == ("topic", 0)
    ]

    assert (window.byte_rate.count, window.replication_records_lag.count) == (1, 1)
    assert window.checkpoint_latency_ms.count == 3
    assert {w.byte_rate for w in windows(EMITTED)} == {Statistics()}


@given(st.lists(measured(), max_size=30), st.randoms(use_true_random=False), st.integers(0, 30))
def test_neither_order_nor_the_moment_of_reading_changes_a_window(
    metrics: list[Measured], shuffle: random.Random, cut: int
) -> None:
    late = list(metrics)
    shuffle.shuffle(late)
    found = Windows(FLOW, 20_000, TICK)
    found.add(late[:cut])
    list(found.between(0, 10**15))
    found.add(late[cut:])

    assert list(found.between(-LONGEST_INTERVAL_MS, 10**15)) == windows(*metrics)


@given(st.lists(raw_metrics(), max_size=30))
def test_no_byte_is_lost_or_counted_twice(metrics: list[RawMetric]) -> None:
    found = windows(*metrics, window_ms=TICK)

    for level in ("topic", "cluster"):
        assert sum(w.bytes for w in found if w.level == level) == sum(m.bytes for m in metrics)


@given(st.lists(measured(), max_size=30), st.integers(0, 200_000))
def test_what_is_forgotten_changes_no_window_that_begins_later(
    metrics: list[Measured], before_ms: int
) -> None:
    found = Windows(FLOW, 20_000, TICK)
    found.add(metrics)
    found.forget(before_ms)

    wanted = [w for w in windows(*metrics) if w.start_ms >= before_ms]
    assert list(found.between(before_ms, 10**15)) == wanted


@given(st.lists(measured(), max_size=30), st.lists(st.integers(0, 230_000), max_size=5))
def test_what_is_taken_bit_by_bit_is_in_the_end_what_is_computed_at_once(
    metrics: list[Measured], looks: list[int]
) -> None:
    found, taken = Windows(FLOW, 20_000, TICK), dict[bytes, WindowMetric]()
    for look, cut in enumerate(sorted(looks)):
        found.add(metrics[look :: len(looks)])
        taken |= {window.key(): window for window in found.take(0, cut)}
    if not looks:
        found.add(metrics)
    taken |= {window.key(): window for window in found.take(0, 10**15)}

    assert taken == {w.key(): w for w in found.between(0, 10**15)}
    assert found.take(0, 10**15) == []


def raw(time_s: int, **changes: Any) -> RawMetric:
    empty = RawMetric(time_s * 1000, 1000, "P", "B", "pay", "P.pay", 0, 0, 0, 0, 0, 0, 0, 0)
    return replace(empty, **changes)


def of_topic(found: list[WindowMetric], topic: str) -> list[WindowMetric]:
    return [w for w in found if w.topic == topic]


def test_an_interval_that_ends_with_a_tick_does_not_touch_the_next() -> None:
    found = windows(raw(10, interval_ms=10_000, bytes=7), window_ms=TICK)

    assert [(w.level, w.start_ms, w.bytes) for w in found] == [("cluster", 0, 7), ("topic", 0, 7)]


def test_one_tick_shows_in_each_window_that_slides_over_it() -> None:
    found = of_topic(windows(raw(15, bytes=5000, records=50, lag_records=3)), "pay")

    assert [(w.start_ms, w.end_ms) for w in found] == [(0, 20_000), (10_000, 30_000)]
    assert {(w.records, w.bytes) for w in found} == {(50, 5000)}
    assert {w.byte_rate for w in found} == {Statistics(250.0, 250.0, 250.0, 1)}
    assert {w.replication_records_lag for w in found} == {Statistics(3.0, 3.0, 3.0, 1)}


def test_statistics_are_over_the_partitions_of_a_topic_and_over_those_of_a_flow() -> None:
    found = windows(
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


def test_latency_is_over_records_and_ignores_intervals_without_one() -> None:
    measured = {"latency_ms_min": 2, "latency_ms_max": 30, "latency_ms_sum": 100}
    found = windows(
        raw(5, latency_count=10, **measured),
        raw(6, latency_count=2, latency_ms_min=7, latency_ms_max=90, latency_ms_sum=97),
        raw(7, latency_count=0, lag_records=1),
    )

    assert {w.replication_latency_ms for w in found} == {Statistics(2.0, 90.0, 197.0, 12)}


def test_a_window_without_any_measured_record_has_no_latency() -> None:
    assert {w.replication_latency_ms for w in windows(raw(5, lag_records=1))} == {Statistics()}


@given(st.lists(st.lists(measured(), max_size=15), max_size=5))
def test_parts_that_are_counted_apart_merge_into_the_windows_of_the_whole(
    parts: list[list[Measured]],
) -> None:
    merged = Windows(FLOW, 20_000, TICK)
    for part in parts:
        counted = Windows(FLOW, 20_000, TICK)
        counted.add(part)
        merged.merge(counted)

    expected = windows(*(metric for part in parts for metric in part))
    assert list(merged.between(-LONGEST_INTERVAL_MS, 10**15)) == expected
    assert merged.take(-LONGEST_INTERVAL_MS, 10**15) == expected
