"""Which windows are computed, and that storing them again changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from srm.domain.metrics import Keeping, Statistics, WindowMetric, latest
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.metrics.metrics import (
    KeptWindows,
    WindowBounds,
    WindowSpec,
    store,
    stored_windows,
)
from srm.errors import UsageError
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.flows import flow_config

FLOW = Flow("P", "B")
STATS = Statistics(1.0, 2.0, 3.0, 2)
EVERYTHING = Keeping(0, 0)


def window(start_ms: int, topic: str = "pay") -> WindowMetric:
    return WindowMetric(
        "P", "B", "topic", topic, f"P.{topic}", start_ms, start_ms + 60_000, 1, 2,
        STATS, STATS, STATS,
    )  # fmt: skip


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster("B")
    cluster.add_topic(internal_topics.METRICS_WINDOWS)
    return cluster


def test_only_windows_with_all_their_raw_records_are_computed():
    config = flow_config(metrics_interval=timedelta(seconds=1))
    windows = KeptWindows(config, WindowSpec())

    assert windows.bounds(1_000_005_000) == WindowBounds(999_110_000, 1_000_004_000)


@pytest.mark.parametrize(
    "changes", [{"slide_ms": 7000}, {"slide_ms": 0}, {"window_ms": 0}, {"look_back_ms": 59_999}]
)
def test_windows_that_cannot_be_cut_into_slides_are_refused(changes):
    with pytest.raises(UsageError, match=r"window|look-back"):
        WindowSpec(**changes)


def test_storing_the_same_windows_again_writes_nothing(cluster):
    windows = [window(0), window(10_000)]

    assert store(cluster, FLOW, windows, EVERYTHING) == (2, 0)
    assert store(cluster, FLOW, windows, EVERYTHING) == (0, 0)
    assert stored_windows(cluster) == tuple(windows)


def test_windows_that_ended_too_long_ago_are_dropped(cluster):
    store(cluster, FLOW, [window(0), window(10_000)], EVERYTHING)

    assert store(cluster, FLOW, [window(10_000)], Keeping(60_001, 60_001)) == (0, 1)
    assert stored_windows(cluster) == (window(10_000),)


def test_after_a_quarter_of_an_hour_only_windows_are_kept_that_touch(cluster):
    minutes = [window(start) for start in range(0, 180_000, 10_000)]
    store(cluster, FLOW, minutes, EVERYTHING)

    store(cluster, FLOW, [], WindowSpec().keeping(now_ms=120_000 + 900_000))

    assert [w.start_ms for w in stored_windows(cluster)] == [
        *(0, 60_000),
        *range(70_000, 180_000, 10_000),
    ]


def test_stored_windows_are_chosen_by_flow_and_topic(cluster):
    other_flow = replace(window(20_000), source="Q")
    store(
        cluster, FLOW, [window(0), window(10_000), window(10_000, "other"), other_flow], EVERYTHING
    )

    assert latest(stored_windows(cluster, FLOW)) == (window(10_000, "other"), window(10_000))
    assert stored_windows(cluster, topic="pay") == (window(0), window(10_000), other_flow)
    assert stored_windows(cluster, FLOW, "absent") == ()
