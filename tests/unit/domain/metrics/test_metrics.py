"""Codecs of the metrics records, and which windows are latest, total and worth writing."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.metrics import (
    METRICS_PER_RECORD,
    CheckpointMetric,
    Keeping,
    RawMetric,
    Statistics,
    WindowMetric,
    changes,
    checkpoint_metrics,
    decode_measured,
    decode_raw,
    encode_checkpoints,
    encode_raw,
    latest,
    totals,
)
from srm.domain.names.topics import Flow
from srm.errors import IntegrityError

FLOW = Flow("P", "B")
counts = st.integers(0, 2**53)
floats = st.floats(0, 1e15, allow_nan=False)
statistics = st.builds(Statistics, floats, floats, floats, counts)


def window(
    start_s: int, topic: str = "pay", end_s: int | None = None, size: int = 1
) -> WindowMetric:
    end = start_s + 60 if end_s is None else end_s
    stat = Statistics(size, size, size, 1)
    level = "topic" if topic else "cluster"
    return WindowMetric(
        "P", "B", level, topic, topic and f"P.{topic}", start_s * 1000, end * 1000,
        size, size * 100, stat, stat, stat,
    )  # fmt: skip


RAW = RawMetric(1000, 1000, "P", "B", "pay", "P.pay", 3, 10, 5000, 1, 9, 40, 10, 7)


def test_raw_metrics_have_the_field_names_that_dashboards_know():
    other = replace(RAW, partition=4, lag_records=0)

    [value] = encode_raw([other, RAW])

    assert json.loads(value) == {
        "time_ms": 1000, "interval_ms": 1000, "source": "P", "target": "B",
        "topics": [
            {"topic": "pay", "remote_topic": "P.pay", "partitions": [
                [3, 10, 5000, 1, 9, 40, 10, 7],
                [4, 10, 5000, 1, 9, 40, 10, 0],
            ]},
        ],
    }  # fmt: skip
    assert decode_raw(value) == (RAW, other)


@given(
    st.lists(
        st.builds(
            replace,
            st.just(RAW),
            topic=st.text(max_size=3),
            remote_topic=st.text(max_size=3),
            partition=counts,
            lag_records=counts,
        ),
        max_size=5,
    )
)
def test_raw_metrics_survive_a_round_trip(metrics):
    found = [metric for value in encode_raw(metrics) for metric in decode_raw(value)]

    assert sorted(found, key=repr) == sorted(metrics, key=repr)


def test_raw_metrics_of_many_partitions_are_several_records():
    values = encode_raw(replace(RAW, partition=n) for n in range(METRICS_PER_RECORD + 1))

    assert [len(decode_raw(value)) for value in values] == [METRICS_PER_RECORD, 1]


def test_what_is_told_of_checkpoints_is_read_next_to_partitions_and_old_readers_see_none():
    [value] = encode_checkpoints(checkpoint_metrics(FLOW, 1000, 1400, [("pay", "P.pay", 250)]))

    assert json.loads(value)["topics"] == []
    assert decode_raw(value) == ()
    assert decode_measured(value) == (
        CheckpointMetric(1400, 400, "P", "B", "pay", "P.pay", 250, 250, 250, 1),
    )
    assert [found for one in encode_raw([RAW]) for found in decode_measured(one)] == [RAW]


def test_an_emission_is_summed_up_by_topic():
    taken = [("pay", "P.pay", 30), ("B.pay", "pay", 7), ("pay", "P.pay", 10), ("pay", "P.pay", -4)]

    found = checkpoint_metrics(FLOW, 1000, 1000, taken)

    assert [(m.topic, m.latency_ms_min, m.latency_ms_max, m.latency_ms_sum) for m in found] == [
        ("B.pay", 7, 7, 7),
        ("pay", 0, 30, 40),
    ]
    assert {m.interval_ms for m in found} == {1}, "an interval of nothing could not be counted"


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b'{"time_ms": 1}', b"\xff"])
def test_a_damaged_record_is_an_integrity_error(value: bytes):
    with pytest.raises(IntegrityError, match="damaged"):
        decode_raw(value)
    with pytest.raises(IntegrityError, match="damaged"):
        WindowMetric.decode(value)


@pytest.mark.parametrize("wrong", ["many", None, 1.5, True, 2**63, -(2**70)])
@pytest.mark.parametrize("name", ["time_ms", "interval_ms", "lag_records", "topic"])
def test_a_field_of_another_type_is_an_integrity_error(name: str, wrong: object):
    """Whoever adds it up would fail, in a thread that counts for all."""
    if name == "topic" and wrong == "many":
        return
    with pytest.raises(IntegrityError, match="damaged"):
        decode_measured(encode_raw([replace(RAW, **{name: wrong})])[0])
    if name != "lag_records":
        [checkpoint] = checkpoint_metrics(FLOW, 1000, 1010, [("pay", "P.pay", 7)])
        [value] = encode_checkpoints([replace(checkpoint, **{name: wrong})])
        with pytest.raises(IntegrityError, match="damaged"):
            decode_measured(value)


@pytest.mark.parametrize("wrong", [b"NaN", b"-Infinity", b"1e999", b"9" * 400, b'"1"', b"null"])
@pytest.mark.parametrize("name", [b"start_ms", b"records", b"max", b"count"])
def test_a_window_has_finite_numbers_or_is_damaged(name: bytes, wrong: bytes):
    """One that is not finite would be the end of every page that shows it."""
    value = re.sub(b'"%s":[0-9]+' % name, b'"%s":%s' % (name, wrong), window(60).value())

    with pytest.raises(IntegrityError, match="damaged"):
        WindowMetric.decode(value)


def test_a_record_nested_without_end_is_an_integrity_error():
    for decode in (decode_measured, WindowMetric.decode):
        with pytest.raises(IntegrityError, match="damaged"):
            decode(b"[" * 200_000)


@given(
    topic=st.text(max_size=20), start=counts, end=counts, records=counts, size=counts,
    four=st.tuples(statistics, statistics, statistics, statistics),
)  # fmt: skip
def test_any_window_survives_its_codec(*, topic, start, end, records, size, four):
    before = WindowMetric("P", "B", "topic", topic, f"P.{topic}", start, end, records, size, *four)

    assert WindowMetric.decode(before.value()) == before


def test_a_stored_window_shows_averages_to_readers():
    stat = Statistics(1.0, 4.0, 10.0, 4)
    raw = json.loads(
        WindowMetric("P", "B", "cluster", "", "", 0, 60_000, 1, 2, stat, stat, stat).value()
    )

    assert raw["byte_rate"] == {"min": 1.0, "max": 4.0, "sum": 10.0, "count": 4, "avg": 2.5}


@given(st.lists(st.integers(0, 1000), max_size=30), st.integers(0, 30))
def test_merging_statistics_of_two_parts_gives_those_of_the_whole(values, cut):
    def of(part: list[int]) -> Statistics:
        return Statistics(min(part), max(part), sum(part), len(part)) if part else Statistics()

    assert of(values[:cut]).merge(of(values[cut:])) == of(values)


def test_the_latest_window_of_each_topic_and_of_the_flow_is_picked():
    windows = [window(10), window(30), window(20), window(20, "other"), window(20, "")]

    assert [(w.level, w.topic, w.start_ms) for w in latest(windows)] == [
        ("cluster", "", 20_000),
        ("topic", "other", 20_000),
        ("topic", "pay", 30_000),
    ]


def test_totals_join_only_windows_that_do_not_overlap():
    sliding = [window(start, size=1) for start in range(0, 130, 10)]

    (total,) = totals(sliding)

    assert (total.start_ms, total.end_ms) == (0, 180_000)
    assert total.records == 3


def test_of_joined_windows_the_rate_is_of_the_whole_time_and_the_lag_of_its_end():
    first = replace(
        window(0),
        bytes=60_000,
        byte_rate=Statistics(1000.0, 1000.0, 1000.0, 1),
        replication_records_lag=Statistics(900.0, 900.0, 900.0, 1),
    )
    last = replace(
        window(120),
        bytes=120_000,
        byte_rate=Statistics(500.0, 1500.0, 2000.0, 2),
        replication_records_lag=Statistics(3.0, 4.0, 7.0, 2),
    )

    (total,) = totals([first, last])

    assert total.byte_rate == Statistics(500.0, 1500.0, 1000.0, 2)
    assert total.replication_records_lag == Statistics(3.0, 900.0, 7.0, 2)


def test_only_changed_windows_are_written_and_old_ones_of_the_flow_become_tombstones():
    same, changed, old, new = window(100), window(110), window(0), window(120)
    foreign = WindowMetric(
        "B", "P", "cluster", "", "", 0, 60_000, 1, 1, Statistics(), Statistics(), Statistics()
    )
    stored = {w.key(): w.value() for w in (same, old, foreign)} | {changed.key(): b"{}"}

    written = changes(stored, [same, changed, new], FLOW, Keeping(100_000, 100_000))

    assert written == {
        changed.key(): changed.value(),
        new.key(): new.value(),
        old.key(): None,
    }


def test_computing_the_same_windows_again_writes_nothing():
    windows = [window(100), window(110)]
    stored = {w.key(): w.value() for w in windows}

    assert changes(stored, windows, FLOW, Keeping(0, 0)) == {}
