"""Windows in memory are those of the topic, whatever the order they come in."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Stamped
from srm.service.views.series import Series, touching

FLOW = Flow("P", "B")


def window(start_s: int, topic: str = "pay", size: int = 1) -> WindowMetric:
    stat = Statistics(size, size * 3, size * 4, 2)
    start, end = start_s * 1000, start_s * 1000 + 60_000
    level = "topic" if topic else "cluster"
    remote = f"P.{topic}" if topic else ""
    return WindowMetric(
        "P", "B", level, topic, remote, start, end, size, size * 10,
        byte_rate=stat, replication_latency_ms=stat, replication_records_lag=stat,
    )  # fmt: skip


def filled(*windows: WindowMetric) -> Series:
    series = Series()
    series.begin()
    for each in windows:
        series.take(each.key(), Stamped(each.value(), 0))
    series.end()
    return series


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1), st.integers(0, 9))))
def test_the_last_record_of_each_window_counts_and_a_tombstone_removes_it(
    records: list[tuple[int, int, int]],
) -> None:
    series, known = Series(), {}
    series.begin()
    for start, topic, size in records:
        one = window(start * 10, ("pay", "")[topic], size)
        if size:
            known[one.key()] = one
            series.take(one.key(), Stamped(one.value(), 0))
        else:
            known.pop(one.key(), None)
            series.take(one.key(), None)
    series.end()

    for topic in ("pay", ""):
        wanted = sorted(
            (one for one in known.values() if one.topic == topic), key=lambda one: one.start_ms
        )
        found = series.between(FLOW, topic, 0, 1 << 50)
        assert [(f.start_ms, f.end_ms, f.records) for f in found] == [
            (w.start_ms, w.end_ms, w.records) for w in wanted
        ]
        assert series.copied_between(FLOW, topic, 0, 1 << 50) == [
            (f.start_ms, f.end_ms, f.records) for f in found
        ]
        newest = series.latest(FLOW).get(topic)
        assert (newest.start_ms if newest else None) == (wanted[-1].start_ms if wanted else None)


def test_statistics_come_back_with_their_mean() -> None:
    [found] = filled(window(0, size=5)).between(FLOW, "pay", 0, 1)

    assert found.figures("byte-rate") == found.byte_rate
    assert (found.byte_rate.min, found.byte_rate.max, found.byte_rate.avg) == (5, 15, 10)
    assert (found.replication_records_lag.sum, found.replication_records_lag.count) == (20, 2)


def test_a_damaged_record_is_skipped() -> None:
    series = Series()
    series.begin()
    series.take(b"nonsense", Stamped(b"{}", 0))
    series.take(window(0).key(), Stamped(b"{}", 0))
    series.end()

    assert series.latest(FLOW) == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"5", None),
        (b"[" * 200_000, None),
        (b'["P","B","topic",["pay"],0,60000]', None),
        (b'["P","B","topic","pay",[],60000]', None),
        (window(0).key(), window(0).value().replace(b'"records":1', b'"records":"many"')),
        (window(0).key(), window(0).value().replace(b'"bytes":10', b'"bytes":1' + b"0" * 400)),
        (window(0).key(), window(0).value().replace(b'"start_ms":0', b'"start_ms":null')),
    ],
)
def test_a_record_of_other_types_ends_nothing_and_leaves_nothing(
    key: bytes, value: bytes | None
) -> None:
    """Whoever takes records has one thread for all topics of a cluster."""
    series = filled(window(10))
    series.take(key, None if value is None else Stamped(value, 0))

    assert [w.start_ms for w in series.between(FLOW, "pay", 0, 1 << 50)] == [10_000]
    assert list(series.latest(FLOW)) == ["pay"]


def test_what_is_read_again_replaces_what_was_known_when_it_is_whole() -> None:
    series = filled(window(0), window(10))

    series.begin()
    series.take(window(20).key(), Stamped(window(20).value(), 0))
    assert [w.start_ms for w in series.between(FLOW, "pay", 0, 1 << 50)] == [0, 10_000]
    series.end()

    assert [w.start_ms for w in series.between(FLOW, "pay", 0, 1 << 50)] == [20_000]


def test_only_windows_that_touch_are_left_to_add_up() -> None:
    series = filled(*(window(start) for start in range(0, 190, 10)))

    kept = touching(series.between(FLOW, "pay", 0, 1 << 50))

    assert [one.start_ms for one in kept] == [0, 60_000, 120_000, 180_000]


def test_times_choose_by_the_start_of_windows() -> None:
    series = filled(window(0), window(10), window(20))

    assert [w.start_ms for w in series.between(FLOW, "pay", 10_000, 20_000)] == [10_000]
    assert series.between(FLOW, "absent", 0, 1 << 50) == []
    assert series.between(replace(FLOW, source="X"), "pay", 0, 1 << 50) == []
