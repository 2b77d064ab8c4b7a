"""Who approves an unplanned move from a shell is kept, with the numbers that were in view."""

from __future__ import annotations

import getpass
import io
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.domain.moves.report.reporting import FORECAST
from tests.unit.engine.moves.control.moving import REQUEST, busy_world, config_in, planned

from srm.cli.moves.failover import _approve
from srm.domain.moves.plan import MovePlan
from srm.domain.text.amount import problem, warning
from srm.engine.flows.supervision import operator
from srm.engine.moves.context import MoveContext
from srm.engine.moves.registers import record
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlChange
from srm.errors import ConflictError, UsageError


@pytest.fixture
def context(tmp_path: Path) -> MoveContext:
    return replace(planned(busy_world(config_in(tmp_path))), host="ops-1")


@pytest.fixture
def plan(context: MoveContext) -> MovePlan:
    made = MoveStore.read(context).load("m1")[0]
    return replace(made, request=replace(REQUEST, mode="unplanned"), forecast=FORECAST)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_yes_is_an_approval_with_the_numbers_of_the_forecast(
    context: MoveContext, plan: MovePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")

    _approve(context, plan, yes=True)

    [approval] = moves.report(context, "m1").approvals
    assert (approval.by, approval.how) == ("ada@ops-1", "--yes")
    assert approval.text == FORECAST.line("P")
    assert approval.numbers == {
        "records_not_copied": 312,
        "records_lost_at_most": 330,
        "seconds_lost": 0.4,
        "unread_backlog": None,  # of the group without a checkpoint it is not known
        "seconds_since_the_source_answered": 1.5,
        "groups": 1,
        "accepted_rpo": 330,
    }


def test_a_typed_name_approves_and_another_word_does_nothing(
    context: MoveContext, plan: MovePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("B\n"))
    with pytest.raises(UsageError, match="'B' is not 'P': nothing was done"):
        _approve(context, plan, yes=False)
    assert moves.report(context, "m1").approvals == ()

    monkeypatch.setattr(sys, "stdin", Terminal("P\n"))
    _approve(context, plan, yes=False)
    assert [one.how for one in moves.report(context, "m1").approvals] == ["typed P"]


def test_a_blocked_move_is_refused_before_its_hold(context: MoveContext, plan: MovePlan) -> None:
    """Its reason can pass before the hold looks again, which then had no approval."""
    blocked = replace(plan, findings=(problem("routed", "P answers"),))

    with pytest.raises(ConflictError, match="move m1 is blocked: P answers"):
        _approve(context, blocked, yes=True)

    assert moves.report(context, "m1").approvals == ()


def test_who_runs_a_planned_move_is_kept_with_the_numbers_of_the_plan(
    context: MoveContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(getpass, "getuser", lambda: "ada")

    _approve(context, replace(MoveStore.read(context).load("m1")[0], findings=()), yes=False)

    [approval] = moves.report(context, "m1").approvals
    assert (approval.by, approval.how) == ("ada@ops-1", "srm failover run")
    assert approval.numbers == {
        "groups": 2,
        "members": 2,
        "lag": 95,
        "records_read_again": 0,
        "records_skipped": 0,
    }
    assert approval.text == (
        "failover P->B of 2 groups: 95 records still to read, 0 read again, 0 skipped"
    )


LEFT, WAITS = warning("left-out", "other stays on P"), warning("wait", "the move will wait")


@pytest.fixture
def warned(context: MoveContext) -> MovePlan:
    plan = MoveStore.read(context).load("m1")[0]
    return replace(plan, findings=(LEFT, warning("clocks", "2.1 s ahead"), WAITS))


@pytest.mark.parametrize(("answer", "is_approved"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_planned_move_with_warnings_begins_once_they_are_confirmed(
    context: MoveContext,
    warned: MovePlan,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    is_approved: bool,
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))

    with nullcontext() if is_approved else pytest.raises(UsageError, match="nothing was done"):
        _approve(context, warned, yes=False)

    found = [one.how for one in MoveStore.read(context).approvals("m1")]
    assert found == (["confirmed 2 warnings"] if is_approved else [])


def test_without_a_terminal_warnings_of_a_planned_move_are_approved_with_yes(
    context: MoveContext, warned: MovePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    with pytest.raises(
        UsageError,
        match="the plan has 2 warnings, approve with --yes: other stays on P; and 1 more",
    ):
        _approve(context, warned, yes=False)
    assert MoveStore.read(context).approvals("m1") == ()
    _approve(context, warned, yes=True)

    assert [one.how for one in MoveStore.read(context).approvals("m1")] == ["--yes"]


def test_what_a_planned_move_waits_for_by_itself_needs_no_approval(
    context: MoveContext, warned: MovePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())

    unknown = warning("limits-unknown", "limits of P for clients are not compared")

    _approve(context, replace(warned, findings=(WAITS, unknown)), yes=False)

    assert [one.how for one in MoveStore.read(context).approvals("m1")] == ["srm failover run"]


def test_warnings_of_a_move_that_holds_clients_prompt_no_more(
    context: MoveContext, warned: MovePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    moves.hold(context, "m1")

    _approve(context, warned, yes=False)


def test_a_move_that_has_begun_continues_without_another_approval(
    context: MoveContext, plan: MovePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt said 'Nothing was done yet', though the flow was paused and clients were held."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(UsageError, match="approve the forecast with --yes"):
        _approve(context, plan, yes=False)
    moves.hold(context, "m1")

    _approve(context, plan, yes=False)
    gone = MoveStore.read(context).progress("m1").at("gone", 1)
    record(context, ControlChange(progress=(gone,)))
    _approve(context, plan, yes=False)

    [approval] = MoveStore.read(context).approvals("m1")
    assert approval.how == "srm failover run"


def test_a_user_without_a_name_can_still_approve(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", nameless)

    assert operator("ops-1").endswith("@ops-1")
