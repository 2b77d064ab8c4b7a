"""The worst day is judged from everybody's own files, against what the forecast said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from srm.domain.moves.disaster import (
    Forecast,
    GroupForecast,
    GroupOutcome,
    Outcome,
    PartitionOutcome,
    TopicForecast,
)
from srm.domain.moves.report import MoveReport
from srm_lab.demo.disaster_report import DisasterFindings, DisasterReport, judge
from srm_lab.demo.record import PaymentEntry


def entry(payment: int, cluster: str = "P", time_ms: int = 0) -> PaymentEntry:
    return PaymentEntry(time_ms, cluster, "Payments", 0, payment, f"shop-{payment}")


def findings(processed: Sequence[PaymentEntry], *, at_return: int) -> DisasterFindings:
    acknowledged = [entry(number) for number in range(1, 11)]
    topic = TopicForecast("Payments", 1, 3, 5, 0.1, 400)
    forecast = Forecast(1, (topic,), (GroupForecast("audit", 1, 2, 0, 400),))
    outcome = Outcome(
        "m1",
        "P->B",
        "same",
        9,
        "demo",
        (PartitionOutcome("Payments", 0, 7, 10, 3),),
        {"audit": GroupOutcome({"Payments-0": 1}, {"Payments-0": 8})},
    )
    move = MoveReport(
        move_id="m1",
        operation="failover",
        source="P",
        target="B",
        topics=("Payments",),
        created_ms=1,
        step="reported",
        ok=True,
        problems=(),
        rpo_records=3,
        rto_seconds=2.0,
        rto_steps={},
        groups={},
        residue={},
    )
    return DisasterFindings(
        acknowledged,
        {"audit": processed},
        {"audit": at_return},
        acknowledged,
        1_000,
        forecast,
        outcome,
        move,
    )


def judged(found: DisasterFindings) -> DisasterReport:
    return judge(found, 1.0, {}, {})


BEFORE = [entry(number, "P", 500) for number in range(1, 6)]
ON_B = [entry(number, "B", 3_500) for number in range(4, 8)]
AFTER = [entry(number, "B", 9_000) for number in range(8, 11)]


def test_forecast_and_outcome_stand_side_by_side() -> None:
    report = judged(findings([*BEFORE, *ON_B, *AFTER], at_return=9))

    assert report.ok, report.problems
    audit = report.groups["audit"]
    assert (audit.lacked, audit.re_read, audit.re_read_at_most, audit.already_read) == (3, 2, 3, 1)
    assert audit.working_seconds == 2.5
    assert (report.forecast.not_copied, report.outcome.records, report.lost) == (3, 3, 0)
    assert b'"forecast"' in report.json()


def test_a_payment_that_never_came_is_lost() -> None:
    report = judged(findings([*BEFORE, *ON_B, *AFTER[:-1]], at_return=9))

    assert report.lost == 1
    assert any("audit has never processed 1" in problem for problem in report.problems)


def test_more_read_again_than_was_said_is_a_problem() -> None:
    again = [entry(number, "B", 9_500) for number in range(1, 3)]

    report = judged(findings([*BEFORE, *ON_B, *AFTER, *again], at_return=9))

    assert any("4 payments again, the forecast said at most 3" in p for p in report.problems)


def test_what_was_processed_on_p_and_not_committed_there_may_come_again_with_the_merge() -> None:
    all_on_p = [entry(number, "P", 500) for number in range(1, 11)]

    report = judged(findings([*all_on_p, *ON_B, *AFTER, entry(4, "B")], at_return=14))

    audit = report.groups["audit"]
    assert (audit.lacked, audit.re_read_at_most, audit.already_read) == (0, 5, 1)


def test_more_left_behind_than_was_said_is_a_problem() -> None:
    found = findings([*BEFORE, *ON_B, *AFTER], at_return=9)
    more = replace(found.outcome, partitions=(PartitionOutcome("Payments", 0, 7, 13, 6),))

    report = judged(replace(found, outcome=more))

    assert any("6 records were not copied" in problem for problem in report.problems)


@pytest.mark.parametrize(("left", "is_problem"), [(0, True), (1, False)])
def test_a_disaster_without_a_record_left_on_the_source_shows_nothing(
    left: int, is_problem: bool
) -> None:
    """The outcome decides: on a slow machine the forecast may expect 0, and find one."""
    found = findings([*BEFORE, *ON_B, *AFTER], at_return=9)
    forecast = replace(found.forecast, topics=(TopicForecast("Payments", 1, 0, 5, 0.0, 400),))
    outcome = replace(found.outcome, partitions=(PartitionOutcome("Payments", 0, 9, 9, left),))

    problems = judged(replace(found, forecast=forecast, outcome=outcome)).problems

    assert any("all its records were copied" in one for one in problems) == is_problem


def test_an_application_that_stays_away_is_a_problem() -> None:
    report = judged(findings(BEFORE, at_return=5))

    assert any("audit never worked on B" in problem for problem in report.problems)
