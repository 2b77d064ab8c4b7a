"""The steps of a move as tasks call them, without clusters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from srm.domain.move.plan import GroupPlan, MovePlan
from srm.domain.move.positions import PartitionMove
from srm.domain.move.report import GroupReport, MoveReport
from srm.domain.move.request import MoveRequest
from srm.errors import UnavailableError, UsageError
from srm_airflow import moves
from srm_airflow.move_text import note_text, plan_text, reasons_text, report_text
from srm_airflow.outcome import engine_errors

pytestmark = pytest.mark.airflow

REQUEST = MoveRequest("failover", "P", "B", topics=("Payments",))
PLAN = MovePlan(
    move_id="failover-1",
    created_ms=1,
    request=REQUEST,
    topics=("Payments",),
    groups=(
        GroupPlan(
            "billing",
            ("c-1@host",),
            (
                PartitionMove(
                    topic="Payments",
                    partition=0,
                    target_topic="P.Payments",
                    direction="forward",
                    state="translated",
                    committed=1000,
                    lag=50,
                    resume=990,
                ),
            ),
        ),
    ),
    blocking=(),
    warnings=("replication of Payments is 3 records behind: the move will wait for it",),
    fingerprint="f",
)
REPORT = MoveReport(
    move_id="failover-1",
    operation="failover",
    source="P",
    target="B",
    ok=False,
    step="reported",
    topics=("Payments",),
    created_ms=1,
    rpo_records=0,
    rto_seconds=4.25,
    rto_steps={"hold": 1.0, "wait and apply": 2.0},
    groups={
        "billing": GroupReport(
            50, 0, 2, 1, resumed=True, rto_seconds=4.25, first_commit_seconds=None
        )
    },
    residue={"Payments": 7},
    problems=("group billing read 2 records again",),
)


def test_keys_that_the_form_does_not_have_are_refused() -> None:
    """Airflow accepts unknown keys in silence: a typing error would start another move."""
    with pytest.raises(UsageError, match=r"'grups'.*known are.*groups"):
        moves.refuse_unknown({"grups": ["billing"], "operation": "failover"})


def test_every_field_of_a_request_may_be_given() -> None:
    moves.refuse_unknown({**asdict(REQUEST), "dry_run": True})


def test_the_first_task_refuses_unknown_keys_before_it_touches_a_cluster() -> None:
    with pytest.raises(AirflowFailException, match="UsageError: unknown key 'sorce'"):
        moves.plan({"operation": "failover"}, {"sorce": "P"}, "manual__1")


def test_a_value_that_cannot_be_used_fails_the_first_task() -> None:
    params = {"operation": "failover", "source": "P", "target": "P"}

    with pytest.raises(AirflowFailException, match="same cluster on both sides"):
        moves.plan(params, params, "manual__1")


def test_the_id_of_a_move_follows_from_its_run_so_that_a_repeated_task_finds_it() -> None:
    run_id = "manual__2026-01-02T03:04:05.678+00:00"

    assert moves.move_id_of(REQUEST, run_id) == "failover-manual__2026-01-02T03-04-05.678-00-00"


def test_the_plan_in_xcom_is_a_summary_by_group() -> None:
    summary = moves.describe(PLAN, dry_run=False)

    assert summary["groups"] == {"billing": {"members": 1, "lag": 50, "re_read": 0, "skipped": 0}}
    assert (summary["source"], summary["target"], summary["dry_run"]) == ("P", "B", False)


def test_the_plan_table_shows_where_each_group_goes_on() -> None:
    text = plan_text(PLAN)

    row = next(line for line in text.splitlines() if "billing" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        "billing",
        "Payments-0",
        "1000",
        "50",
        "P.Payments-0",
        "990",
        "0",
        "0",
        "translated",
    ]
    assert "warning: replication of Payments is 3 records behind" in text


def test_the_note_of_the_run_sums_the_move_up() -> None:
    assert note_text(REPORT) == (
        "failover P->B: PROBLEMS: group billing read 2 records again; RPO 0 records, RTO 4.2 s "
        "(hold 1.0 s, wait and apply 2.0 s), skipped 0, re-read 2, residue 7"
    )
    assert "problem: group billing read 2 records again" in report_text(REPORT)


def test_many_reasons_stay_readable() -> None:
    assert reasons_text([str(n) for n in range(8)]) == "0; 1; 2; 3; 4; and 3 more"


def test_a_dry_run_holds_nobody_and_needs_no_cluster() -> None:
    planned = moves.describe(PLAN, dry_run=True)

    with pytest.raises(AirflowSkipException):
        moves.hold(planned)
    assert moves.release(planned) == {"step": "planned"}
    _, note = moves.report(planned)
    assert note == "dry run of failover-1: could start"


def test_without_a_plan_the_report_fails_so_that_the_run_is_red() -> None:
    with pytest.raises(AirflowFailException, match="see task plan"):
        moves.report(None)


def test_a_report_with_problems_makes_the_run_red() -> None:
    with pytest.raises(AirflowFailException, match="billing read 2 records again"):
        moves.require_ok({"move_id": "m", "problems": list(REPORT.problems)})
    moves.require_ok({"move_id": "m", "problems": []})


@pytest.mark.parametrize(
    ("error", "seen"),
    [(UnavailableError("P is away"), UnavailableError), (UsageError("bad"), AirflowFailException)],
)
def test_only_what_may_succeed_later_is_retried(error: Exception, seen: type[Any]) -> None:
    with pytest.raises(seen, match=str(error)), engine_errors():
        raise error
