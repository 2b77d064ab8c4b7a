"""An aggregation without Spark: what it reads, writes and leaves to Spark."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.raw_metrics import values
from tests.unit.engine.copying_records import CopiedTopic
from tests.unit.engine.status.test_loss_forecast import running

from srm.domain.metrics import RawMetric
from srm.domain.names import internal_topics
from srm.engine.metrics.aggregation import aggregate
from srm.engine.metrics.metrics import KeptWindows, WindowBounds, WindowSpec, stored_windows
from srm_lab.testing.flows import flow_config


@pytest.fixture
def world() -> CopiedTopic:
    """A flow that is copied, with two minutes of raw metrics until now."""
    made = CopiedTopic()
    made.write(b"0", b"1", b"2")
    made.clock.advance(120_000)
    running(made)
    return made


def raw(world: CopiedTopic) -> list[bytes]:
    first = RawMetric(0, 1000, "P", "B", "Topic", "P.Topic", 0, 10, 5000, 1, 9, 40, 10, 7)
    ended = range(world.clock() - 120_000, world.clock(), 1000)
    return values(replace(first, time_ms=time_ms) for time_ms in ended)


def test_windows_are_stored_once(world: CopiedTopic) -> None:
    log = raw(world)

    first = aggregate(world.forward, lambda since_ms: log)
    again = aggregate(world.forward, lambda since_ms: log)

    assert first is not None
    assert again is not None
    assert (first.raw_records, first.engine, first.silence) == (120, "plain", None)
    assert first.windows == first.written == len(stored_windows(world.b)) > 0
    assert (again.windows, again.written) == (first.windows, 0)


def test_too_many_raw_records_are_left_to_spark_and_nothing_is_done(world: CopiedTopic) -> None:
    world.clock.advance(60_000)

    assert aggregate(world.forward, lambda since_ms: None) is None
    assert internal_topics.raw_metrics("P") not in world.b.topics()


def test_only_the_look_back_is_read(world: CopiedTopic) -> None:
    asked: list[int] = []

    aggregate(world.forward, lambda since_ms: asked.append(since_ms) or [])

    assert asked == [world.clock() - WindowSpec().look_back_ms]


def test_what_is_no_metric_is_counted(world: CopiedTopic) -> None:
    summary = aggregate(world.forward, lambda since_ms: [b"junk", *raw(world)])

    assert summary is not None
    assert (summary.raw_records, summary.malformed_records) == (121, 1)


def test_the_lag_of_a_silent_flow_is_in_a_window_at_once(world: CopiedTopic) -> None:
    world.clock.advance(60_000)

    summary = aggregate(world.forward, lambda since_ms: [])

    assert summary is not None
    assert summary.silence is not None
    assert summary.silence.lag_records == 3
    found = [w for w in stored_windows(world.b) if w.level == "topic"]
    assert {w.replication_records_lag.sum for w in found} == {3.0}
    assert {w.records for w in found} == {0}
    assert all(w.end_ms - world.clock() < WindowSpec().slide_ms for w in found)


def test_a_flow_that_nobody_copies_lags_all_the_time_and_not_only_when_it_is_looked_at(
    world: CopiedTopic,
) -> None:
    log = raw(world)
    stopped = world.clock()

    def taken(_since_ms: int) -> list[bytes]:
        table, found = world.b.compacted_topic(internal_topics.raw_metrics("P")), list(log)
        table.scan(lambda _, key, value: found.append(value or b""))
        return found

    for _ in range(2):
        world.write(b"more")
        world.clock.advance(240_000)
        assert aggregate(world.forward, taken) is not None

    lags = {
        window.start_ms: window.replication_records_lag.sum
        for window in stored_windows(world.b)
        if window.level == "topic" and window.start_ms >= stopped
    }
    assert sorted(lags) == list(range(min(lags), max(lags) + 1, WindowSpec().slide_ms))
    assert min(lags) - stopped <= WindowSpec().slide_ms
    assert stopped + 480_000 - max(lags) <= WindowSpec().window_ms
    assert {lag for start, lag in lags.items() if start < stopped + 170_000} == {4.0}
    assert lags[max(lags)] == 5.0


def test_what_a_clock_of_years_ahead_measured_is_not_kept() -> None:
    windows = KeptWindows(flow_config(), WindowSpec())
    now_ms = 1_700_000_000_000
    metric = RawMetric(0, 1000, "P", "B", "Topic", "P.Topic", 0, 10, 5000, 1, 9, 40, 10, 7)

    windows.add(values([replace(metric, time_ms=now_ms * 2)]), now_ms)

    assert windows.all(WindowBounds(0, now_ms * 3)) == []
