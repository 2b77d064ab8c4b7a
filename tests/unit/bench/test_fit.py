"""The fit finds the coefficients that figures were made with."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from bench.cases import CASES
from bench.data import records_in
from bench.engines import TASKS
from bench.errors import BenchError
from bench.fit import (
    BACKLOGS,
    Fit,
    Row,
    Timing,
    backlog_work,
    fit,
    fit_all,
    fit_timing,
    load_of,
    main,
    render,
    steady_work,
)
from bench.fleet import PARTITIONS, RATES, name
from bench.fleet_cost import PARTIES
from bench.results import Result, save

from srm.domain.capacity import sent_per_s
from srm.domain.capacity_costs import Units

TIMING = Timing(0.003, 5e-7)
TRUE = {
    "replicator": Units(0.002, 5e-6, 4e-5, 0.0, 1e-4, 0.0, 1e-5, 0.05),
    "source_broker": Units(0.001, 0.0, 1e-5, 0.0, 2e-4, 1e-6),
    "target_broker": Units(0.002, 0.0, 5e-5, 0.0, 2e-4),
}
SECONDS = 7.0


def cell(size: int, partitions: int) -> Result:
    """Return what a bench would save where the model and TRUE held exactly."""
    rate = RATES[size]
    bytes_ = int(rate * 1e6 * SECONDS)
    result = Result(
        name(size, partitions), "srm", "", "fleet",
        records=bytes_ // size * records_in(size), bytes=bytes_,
        wall_seconds=SECONDS, megabytes_per_second=rate,
        details={
            "partitions": partitions, "batch_bytes": size, "source_broker_cores_uncopied": 0.5,
            "batches": bytes_ / size, "behind_seconds": 0.0, "offered_megabytes_per_second": rate,
        },
    )  # fmt: skip
    load = load_of(result)
    sent = sent_per_s(load, TIMING.seconds(partitions / TASKS)) * SECONDS
    result = replace(result, details={**result.details, "sent_batches": sent})
    busy = {p: steady_work(result, TIMING).cost(TRUE[p]) for p in PARTIES}
    rest = Units(partitions=partitions, always=1.0).cost(TRUE["replicator"])
    idle = {"replicator": rest, "source_broker": 0.2, "target_broker": 0.1}
    return replace(
        result,
        cpu_seconds=busy["replicator"] * SECONDS,
        source_broker_cpu_seconds=(busy["source_broker"] + 0.5) * SECONDS,
        target_broker_cpu_seconds=(busy["target_broker"] + 0.1) * SECONDS,
        details={**result.details, "idle_cores": idle},
    )


CELLS = [cell(size, partitions) for size in RATES for partitions in PARTITIONS]


def test_the_time_of_a_round_is_seen_in_how_many_batches_were_sent() -> None:
    assert fit_timing(CELLS) == TIMING


def test_coefficients_are_found_again_from_exact_figures() -> None:
    timing, fits = fit_all(CELLS)

    assert timing == TIMING
    for party, true in TRUE.items():
        assert fits[party].error < 1e-6, party
        assert fits[party].each == pytest.approx(true, rel=1e-3, abs=1e-9), party


def backlog(name_of: str) -> Result:
    """Return what a case that copies a backlog would save; its rates do not matter."""
    case = next(case for case in CASES if case.name == name_of)
    result = Result(name_of, "srm", "", "copy", records=1_000_000, wall_seconds=2.0)
    work = backlog_work(result, case)
    true = {**TRUE, "replicator": TRUE["replicator"]._replace(opened=0.004)}
    seconds = [work.cost(true[party]) * 2.0 for party in PARTIES]
    return replace(
        result,
        cpu_seconds=seconds[0],
        source_broker_cpu_seconds=seconds[1],
        target_broker_cpu_seconds=seconds[2],
    )


def test_copied_backlogs_say_what_it_costs_to_open_compressed_batches() -> None:
    results = [*CELLS, *(backlog(case) for case in BACKLOGS)]

    _, fits = fit_all(results)

    assert fits["replicator"].each.opened == pytest.approx(0.004, rel=0.01)
    assert all(found.error < 1e-6 for found in fits.values())


def test_a_cell_that_something_else_was_in_the_way_of_is_left_out() -> None:
    stalled = replace(CELLS[0], megabytes_per_second=1.0, cpu_seconds=50.0)

    _, fits = fit_all([*CELLS, stalled])

    assert fits["replicator"].error < 1e-6


def test_of_another_engine_nothing_is_taken() -> None:
    with pytest.raises(BenchError, match="no fleet is measured"):
        fit_all([replace(CELLS[0], engine="mm2-tuned")])


def test_cells_that_something_was_in_the_way_of_are_no_measurement_of_a_fleet() -> None:
    with pytest.raises(BenchError, match="no fleet is measured"):
        fit_all([replace(CELLS[0], megabytes_per_second=1.0)])


def test_without_measurements_one_line_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "bench.fit: no fleet is measured: make bench BENCH_ARGS=--fleet\n"
    )


def test_no_coefficient_is_below_nothing() -> None:
    """Noise makes plain least squares say that some work gives time back."""
    noise = random.Random(3)
    rows = [
        Row(
            f"{n}",
            work := Units(noise.random(), 100 * noise.random(), always=1.0),
            work.megabytes + 0.1 * noise.random(),
        )
        for n in range(12)
    ]

    found = fit(rows)

    assert min(found.each) >= 0
    assert found.each.megabytes == pytest.approx(1.0, rel=0.2)
    assert 0 < found.error < 1


def test_the_worst_cell_is_named() -> None:
    rows = [Row("fits", Units(always=1.0), 1.0)] * 9 + [Row("odd", Units(always=1.0), 3.0)]

    found = fit(rows)

    assert found.case == "odd"
    assert found.error > 0.5


def test_it_is_printed_as_it_stands_in_the_model(tmp_path: Path) -> None:
    for result in CELLS:
        save(result, tmp_path)
    said: list[str] = []

    assert main([str(tmp_path)], said.append) == 0

    [text] = said
    lines = text.splitlines()
    assert lines[:3] == ["ROUND_S: Final = 0.003", "LOOK_S: Final = 5e-07",
                         "REPLICATOR: Final = Units("]  # fmt: skip
    assert "    sent=4e-05," in lines
    names: dict[str, object] = {"Units": Units, "Final": object}
    exec(text.replace(": Final", ""), names)  # noqa: S102 -- it is Python
    assert names["TARGET_BROKER"] == pytest.approx(TRUE["target_broker"], rel=0.01)


def test_what_costs_nothing_is_left_out() -> None:
    text = render(TIMING, {"replicator": Fit(Units(always=0.5), 0.25, "x")})

    assert text.splitlines()[2:] == [
        "REPLICATOR: Final = Units(",
        "    always=0.5,",
        ")  # off by 25% at most: x",
    ]
