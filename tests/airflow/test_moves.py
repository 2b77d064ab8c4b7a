"""The steps of a move as tasks call them, without clusters."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove
from srm.domain.moves.request import MoveRequest
from srm.domain.text.amount import warning
from srm.errors import UnavailableError, UsageError
from srm.pages.moves import plan_summary
from srm_airflow import moves
from srm_airflow.compat import AirflowFailException, AirflowSkipException
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
    findings=(
        warning("wait", "the move will wait: replication of Payments from P is 3 records behind"),
    ),
    settings={},
)


def test_the_first_task_refuses_unknown_keys_before_it_touches_a_cluster() -> None:
    """Airflow accepts unknown keys in silence: a typing error would start another move."""
    with pytest.raises(
        AirflowFailException,
        match=r"no setting 'sorce': known are .*, ask_approval, approval_seconds",
    ):
        moves.plan(asdict(REQUEST), {"sorce": "P"}, "manual__1", ["P", "B"])


def test_a_value_that_cannot_be_used_fails_the_first_task() -> None:
    params = {"operation": "failover", "source": "P", "target": "P"}

    with pytest.raises(AirflowFailException, match="same cluster on both sides"):
        moves.plan(params, params, "manual__1", ["P", "B"])


def test_a_move_between_three_clusters_names_both_ends() -> None:
    params = {"operation": "failback", "source": "B", "target": ""}

    with pytest.raises(
        AirflowFailException, match=r"name source and target of the move: .* P, B, C"
    ):
        moves.plan(params, params, "manual__1", ["P", "B", "C"])


def planned(**changes: Any) -> dict[str, Any]:
    """What the planning task hands on."""
    asked = {"required": False, "seconds": 3600.0, "subject": "Move?", "text": "", "numbers": {}}
    return {**plan_summary(PLAN), "dry_run": False, "approval": asked, **changes}


def test_a_dry_run_holds_nobody_and_needs_no_cluster() -> None:
    dry = planned(dry_run=True)

    with pytest.raises(AirflowSkipException):
        moves.hold(dry, None)
    with pytest.raises(AirflowSkipException):
        moves.apply_and_go(dry, held=False)
    assert moves.release(dry) == {"step": "planned"}
    assert moves.report(dry).note == "dry run of failover-1: could start"


def test_the_note_of_a_dry_run_that_is_blocked_begins_with_what_blocks() -> None:
    blocked = planned(dry_run=True, blocking=["group audit is active on B (c-1)"])

    assert moves.report(blocked).note == (
        "group audit is active on B (c-1)\n\ndry run of failover-1: would be refused"
    )
    with pytest.raises(AirflowFailException, match="would be refused: group audit is active on B"):
        moves.require_startable(blocked)
    moves.require_startable(planned(dry_run=True))


def test_without_a_plan_the_note_is_the_reason_and_the_run_is_red() -> None:
    outcome = moves.report(None, None, lambda: "no group has offsets on Payments")

    assert outcome.note == "no group has offsets on Payments"
    with pytest.raises(AirflowFailException, match="no group has offsets on Payments"):
        moves.require_ok(outcome.result)
    assert "see task plan" in moves.report(None).note, "where the task was killed"


@pytest.mark.parametrize("answer", [None, {"approved": False, "by": "eve", "time_ms": 1}])
def test_a_move_that_needs_an_approval_holds_nobody_without_one(
    answer: dict[str, Any] | None,
) -> None:
    """The clusters are not even opened: there are none here."""
    asked = {**planned()["approval"], "required": True}

    with pytest.raises(AirflowFailException, match="has not been approved"):
        moves.hold(planned(approval=asked), answer)


def test_a_rejected_move_is_reported_with_the_name_and_is_no_failure() -> None:
    outcome = moves.report(planned(), {"approved": False, "by": "eve", "time_ms": 1})

    assert outcome.note == "eve did not approve failover-1, nothing was changed"
    moves.require_ok(outcome.result)
    assert moves.watch_residue(planned(), {"approved": False, "by": "eve", "time_ms": 1}).over


def test_a_report_with_problems_makes_the_run_red() -> None:
    with pytest.raises(AirflowFailException, match="billing read 2 records again"):
        moves.require_ok({"move_id": "m", "problems": ["group billing read 2 records again"]})
    moves.require_ok({"move_id": "m", "problems": []})


@pytest.mark.parametrize(
    ("error", "seen"),
    [(UnavailableError("P is away"), UnavailableError), (UsageError("bad"), AirflowFailException)],
)
def test_only_what_may_succeed_later_is_retried(error: Exception, seen: type[Any]) -> None:
    with pytest.raises(seen, match=str(error)), engine_errors():
        raise error
