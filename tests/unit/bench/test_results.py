"""Figures: percentiles, rates, medians and files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bench.results import (
    Latency,
    Result,
    load_all,
    median,
    percentile,
    percentiles,
    save,
    with_rates,
)
from hypothesis import given
from hypothesis import strategies as st

RESULT = Result("1kb", "srm", "1 KB", "copy", records=1000, bytes=2_000_000, cpu_seconds=0.5)
VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)


@given(VALUES, st.sampled_from([0.01, 0.5, 0.95, 0.99, 1.0]))
def test_percentile_is_the_smallest_value_that_the_share_does_not_exceed(
    values: list[float], share: float
) -> None:
    ordered = sorted(values)

    found = percentile(ordered, share)

    assert sum(v <= found for v in ordered) >= share * len(ordered) - 1e-9
    assert sum(v < found for v in ordered) < share * len(ordered)


def test_percentile_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_percentiles_of_one_to_a_hundred_are_their_names() -> None:
    assert percentiles(range(100, 0, -1)) == {"p50": 50, "p95": 95, "p99": 99, "max": 100}


def test_rates_follow_from_what_was_copied_and_used() -> None:
    rated = with_rates(replace(RESULT, wall_seconds=2.0))

    assert rated.records_per_second == 500
    assert rated.megabytes_per_second == 1
    assert rated.records_per_cpu_second == 2000
    assert rated.megabytes_per_cpu_second == 4


def test_without_time_there_is_no_rate() -> None:
    assert with_rates(RESULT).records_per_second == 0


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=9))
def test_median_is_one_of_the_results_with_as_many_on_either_side(figures: list[int]) -> None:
    chosen = median([replace(RESULT, records_per_cpu_second=figure) for figure in figures])

    assert chosen.records_per_cpu_second == sorted(figures)[(len(figures) - 1) // 2]
    assert chosen.repeats == len(figures)


def test_median_goes_by_what_the_method_measures_and_shows_the_spread() -> None:
    results = [
        replace(RESULT, method="latency", latency_ms=Latency(p50=p50, p95=9, p99=9, max=9))
        for p50 in (3.0, 1.0, 2.0)
    ]

    chosen = median(results)

    assert chosen.latency_ms.p50 == 2.0
    assert chosen.details["repeats"] == [3.0, 1.0, 2.0]


def test_a_saved_result_is_read_back(tmp_path: Path) -> None:
    result = replace(RESULT, latency_ms=Latency(1.0, 2.0, 3.0, 4.0, {"p50": 0.5}))

    save(result, tmp_path)

    assert load_all(tmp_path) == [result]


def test_latency_that_was_not_measured_is_null_in_the_file(tmp_path: Path) -> None:
    content = json.loads(save(RESULT, tmp_path).read_text())

    assert content["latency_ms"]["p50"] is None
    assert {"case", "engine", "records", "bytes", "wall_seconds", "cpu_seconds"} <= set(content)


def test_a_case_measured_again_replaces_its_file_only(tmp_path: Path) -> None:
    save(RESULT, tmp_path)
    save(replace(RESULT, engine="mm2-tuned"), tmp_path)
    save(replace(RESULT, records=7), tmp_path)

    assert {(r.engine, r.records) for r in load_all(tmp_path)} == {("srm", 7), ("mm2-tuned", 1000)}


def test_files_of_another_format_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "1000-srm.json").write_text('{"case": "old", "engine": "srm"}')
    save(RESULT, tmp_path)

    assert [r.case for r in load_all(tmp_path)] == ["1kb"]
