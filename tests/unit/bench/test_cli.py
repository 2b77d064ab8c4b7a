"""What the command line asks for."""

from __future__ import annotations

import pytest
from bench.cases import CASES, SHORT, available, by_surroundings
from bench.cli import parse, plan_of


def names(*arguments: str) -> list[str]:
    return [case.name for case in plan_of(parse(arguments)).cases]


def test_without_arguments_it_is_the_short_mode_in_one_session() -> None:
    cases = plan_of(parse([])).cases

    assert {case.name for case in cases} == set(SHORT)
    assert len(by_surroundings(cases)) == 1


def test_full_means_every_case_that_srm_has_settings_for() -> None:
    assert names("--full") == [case.name for case in available(CASES)]


def test_single_cases_come_whole_and_in_order() -> None:
    cases = plan_of(parse(["--case", "1kb", "--case", "idle"])).cases

    assert [case.name for case in cases] == ["idle", "1kb"]
    assert next(c for c in CASES if c.name == "1kb") in cases


def test_scale_alone_measures_no_other_case() -> None:
    plan = plan_of(parse(["--scale"]))

    assert plan.scale
    assert not plan.cases


def test_the_fleet_alone_measures_no_other_case() -> None:
    plan = plan_of(parse(["--fleet", "--fraction", "0.1"]))

    assert plan.fleet
    assert (plan.cases, plan.fraction) == ((), 0.1)
    assert not plan_of(parse([])).fleet


def test_a_fraction_makes_cases_smaller() -> None:
    (case,) = plan_of(parse(["--case", "1kb", "--fraction", "0.5"])).cases

    assert case.records == next(c for c in CASES if c.name == "1kb").records // 2


def test_engines_can_be_chosen() -> None:
    assert plan_of(parse(["--engine", "srm"])).engines == ("srm",)


@pytest.mark.parametrize("arguments", [["--case", "nope"], ["--repeat", "0"], ["--fraction", "2"]])
def test_nonsense_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)
