"""``srm metrics``: what is shown of windows and aggregations, with the age of each number."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from srm.cli.flows import jobs
from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.names.topics import Flow
from srm.engine.metrics.aggregation import AggregationSummary, Silence
from srm.engine.metrics.metrics import WindowBounds

NOW_MS = 1_700_000_000_000
RATE = Statistics(1000.0, 3000.0, 12_000.0, 6)
LAG = Statistics(0.0, 35.0, 60.0, 6)
WINDOW = WindowMetric(
    "P", "B", "topic", "pay[1]", "P.pay[1]", NOW_MS - 130_000, NOW_MS - 70_000, 60, 12_000,
    RATE, Statistics(), LAG, Statistics(12.0, 40.0, 52.0, 2),
)  # fmt: skip
SUMMARY = AggregationSummary(
    Flow("P", "B"), WindowBounds(0, 1), raw_records=1200, malformed_records=0, windows=90
)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "now_ms", lambda: NOW_MS)


def console() -> Console:
    return Console(file=StringIO(), width=200)


def shown(to: Console) -> str:
    assert isinstance(to.file, StringIO)
    return " ".join(to.file.getvalue().split())


def test_a_window_shows_all_four_metrics_and_how_old_it_is() -> None:
    to = console()

    jobs._render_windows(to, [WINDOW], (Flow("P", "B"),))

    assert "P->B pay[1] 60 1 min 10 s ago 60 12.0 1.0 2.0 3.0 - 60 0 10 35 12 26 40" in shown(to)


def test_where_no_window_is_stored_the_command_that_computes_them_is_named() -> None:
    to = console()

    jobs._render_windows(to, [], (Flow("P", "B"),))

    assert "srm metrics aggregate --flow 'P->B'" in shown(to)


def test_an_aggregation_that_found_everything_done_says_so() -> None:
    to = console()

    jobs._render_summaries(to, [SUMMARY])

    assert "90 windows by Spark, already complete, nothing written" in shown(to)


@pytest.mark.parametrize(
    ("lag", "says"),
    [(1200, "1,200 records behind"), (None, "lag unknown: the source does not answer")],
)
def test_a_silent_flow_is_named_with_what_is_known_of_it(lag: int | None, says: str) -> None:
    to = console()
    heard_ms = NOW_MS - 3 * 60_000
    silence = Silence(NOW_MS, "the replicator ended", 4, lag, heard_ms, 180_000)

    jobs._render_summaries(to, [replace(SUMMARY, engine="plain", silence=silence)])

    assert f"no replicator runs (the replicator ended): {says}" in shown(to)
    assert "the source last answered 3 min ago" in shown(to)
    assert "without Spark" in shown(to)
