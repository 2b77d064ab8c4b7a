"""The page and its plots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.plots import Bars, draw
from bench.report import in_order, render, write_report, write_summary
from bench.results import Latency, Result

COPY = Result(
    "1kb", "srm", "1 KB random", "copy", 10, 10_000, 1.0, 0.5, 10.0, 0.01, 20.0, 0.02,
    machine={"cpu": "x", "cores": 2, "memory_gb": 8, "system": "Linux", "python": "3.11",
             "java": 17, "kafka": "4.3.1", "commit": "abc", "load_before": 0.1,
             "time": "2026-01-01 00:00"},
)  # fmt: skip
LATENCY = Result(
    "latency-1000", "srm", "1,000 records/s", "latency",
    latency_ms=Latency(1.5, 2.5, 3.5, 4.5, {"p50": 0.5, "p99": 0.7, "max": 0.9}),
)  # fmt: skip


def test_results_come_in_the_order_of_cases_and_engines() -> None:
    results = [
        replace(COPY, case="scale-2000x1", method="scale", records=2000),
        replace(COPY, case="scale-500x1", method="scale", records=500),
        COPY,
        replace(COPY, engine="socket-copy"),
        replace(COPY, engine="mm2-default"),
        LATENCY,
    ]

    assert [(r.case, r.engine) for r in in_order(results)] == [
        ("latency-1000", "srm"),
        ("1kb", "srm"),
        ("1kb", "mm2-default"),
        ("1kb", "socket-copy"),
        ("scale-500x1", "srm"),
        ("scale-2000x1", "srm"),
    ]


def test_page_shows_figures_goals_and_machine() -> None:
    page = render([COPY, LATENCY], ["cpu"])

    assert "| `1kb`: 1 KB random | srm | 10 | 10 | 0.0 | 0.50 | 20 |" in page
    assert "| 1.5 | 2.5 | 3.5 | 4.5 | 0.5 | 0.7 | 0.9 |" in page
    assert "2 cores (x)" in page
    assert "not measured" in page
    assert "(benchmarks/cpu.svg)" in page
    assert "(benchmarks/rate.svg)" not in page


def test_report_of_nothing_is_a_page_too(tmp_path: Path) -> None:
    page = write_report([], tmp_path)

    assert "Not measured." in page.read_text()
    assert not list((tmp_path / "benchmarks").glob("*.svg"))


def test_same_figures_draw_the_same_bytes(tmp_path: Path) -> None:
    bars = Bars("cpu", "title", "log", [("1kb", "srm", 5.0), ("1kb", "mm2-tuned", 2.0)])

    first, second = draw(bars, tmp_path), draw(bars, tmp_path / "..")

    assert first is not None
    assert second is not None
    assert first.read_bytes() == second.read_bytes()
    second.unlink()


def test_summary_is_kept_apart_from_the_results(tmp_path: Path) -> None:
    write_summary([COPY], tmp_path)

    assert list(tmp_path.glob("*.json")) == []
    assert (tmp_path / "summary" / "summary.json").exists()
