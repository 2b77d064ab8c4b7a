"""The step in which a person approves a move."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk import DAG, Param
from tests.airflow.notified import Notified

from srm_airflow import approval as module
from srm_airflow.approval import MoveApprovalOperator
from srm_airflow.compat import (
    HAS_TASK_STATE,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
    TaskParked,
)

pytestmark = pytest.mark.airflow

CONFIG = """\
clusters = P, B
P.bootstrap.servers = 127.0.0.1:1
B.bootstrap.servers = 127.0.0.1:2
P->B.enabled = true
failover.alert.seconds = 30
failover.notifier = tests.airflow.notified.Notified
failover.notifier.arguments = {"channel": "{{ srm.event }}", "text": "{{ srm.text }}"}
"""
MOVE = {
    "move_id": "m1",
    "operation": "failover",
    "mode": "unplanned",
    "source": "P",
    "target": "B",
    "dry_run": False,
    "approval": {
        "required": True,
        "seconds": 600.0,
        "subject": "Abandon P and move group billing to B?",
        "text": "312 records of P not copied",
        "numbers": {"records_not_copied": 312},
    },
}


class Ti:
    """A task instance that remembers what was pushed."""

    id = "ti-1"
    map_index = -1

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


class Clock:
    """Stands for the time of day."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def ti() -> Ti:
    return Ti()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Collect what people are shown."""
    file = tmp_path / "srm.properties"
    file.write_text(CONFIG)
    monkeypatch.setenv("SRM_CONFIG", str(file))
    shown: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **detail: shown.append(detail))
    Notified.told.clear()
    return shown


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "time", made)
    return made


def operator(**changes: Any) -> MoveApprovalOperator:
    return MoveApprovalOperator(task_id="approve", move={**MOVE, **changes})


def wait_s(parked: Any) -> float:
    """Seconds until the task is woken up without an answer."""
    if HAS_TASK_STATE:
        return float(parked.timeout.total_seconds())
    return float(round((parked.trigger.timeout_datetime - datetime.now(UTC)).total_seconds()))


def context(ti: Ti) -> Any:
    return {"ti": ti, "task_instance": ti}


def answer(choice: str, user: dict[str, str] | None) -> dict[str, Any]:
    return {
        "chosen_options": [choice],
        "params_input": {},
        "responded_at": datetime(2026, 11, 21, 3, 0, tzinfo=UTC),
        "responded_by_user": user,
    }


def test_people_are_shown_the_numbers_and_the_notifier_is_told(
    asked: list[dict[str, Any]], ti: Ti, clock: Clock
) -> None:
    with pytest.raises(TaskParked) as parked:
        operator().execute(context(ti))

    (detail,) = asked
    assert detail["subject"] == "Abandon P and move group billing to B?"
    assert detail["body"] == "312 records of P not copied"
    assert detail["options"] == ["Approve", "Reject"]
    assert wait_s(parked.value) == 30, "then the notifier is told again"
    assert parked.value.kwargs == {"since": clock.now}
    assert [channel for channel, _ in Notified.told] == ["approval"]


def test_the_question_has_no_parameters_of_the_dag(
    asked: list[dict[str, Any]],
    ti: Ti,
    clock: Clock,  # noqa: ARG001
) -> None:
    with DAG("move", params={"source": Param(None, type=["null", "string"])}):
        question = operator()

    with pytest.raises(TaskParked):
        question.execute(context(ti))

    assert asked[0]["params"] == {}


@pytest.mark.parametrize(
    "changes",
    [{"dry_run": True}, {"approval": {**MOVE["approval"], "required": False}}],  # type: ignore[dict-item]
)
def test_nobody_is_asked_for_a_dry_run_or_where_no_approval_is_wanted(
    asked: list[dict[str, Any]], ti: Ti, changes: dict[str, Any]
) -> None:
    with pytest.raises(AirflowSkipException):
        operator(**changes).execute(context(ti))

    assert asked == []


def test_the_answer_is_kept_with_the_name_and_the_time(asked: list[Any], ti: Ti) -> None:  # noqa: ARG001
    user = {"id": "17", "name": "ada"}

    operator().execute_complete(context(ti), answer("Approve", user), since=0.0)

    assert ti.pushed["approval"] == {
        "approved": True,
        "by": "ada",
        "time_ms": 1_795_230_000_000,
    }


def test_a_rejection_skips_what_follows(asked: list[Any], ti: Ti) -> None:  # noqa: ARG001
    from airflow.sdk import DAG, BaseOperator  # noqa: PLC0415

    with DAG("d"):
        asking = operator()
        asking >> BaseOperator(task_id="hold")

    with pytest.raises(DownstreamTasksSkipped) as skipped:
        asking.execute_complete(
            {**context(ti), "task": asking}, answer("Reject", {"id": "1", "name": "eve"}), 0.0
        )

    assert skipped.value.tasks == ["hold"]
    assert (ti.pushed["approval"]["approved"], ti.pushed["approval"]["by"]) == (False, "eve")
    assert "reason" not in ti.pushed


def test_while_nobody_answers_the_notifier_is_told_ever_more_rarely_until_the_time_is_over(
    asked: list[Any], ti: Ti, clock: Clock
) -> None:
    nobody = {"error": "nobody", "error_type": "timeout"}
    waits: list[float] = []
    with pytest.raises(TaskParked) as parked:
        operator().execute(context(ti))
    while sum(waits) < 600:
        waits.append(wait_s(parked.value))
        clock.now += waits[-1]
        expected = AirflowFailException if sum(waits) >= 600 else TaskParked
        kept = parked.value.kwargs
        with pytest.raises(expected) as parked:
            operator().execute_complete(context(ti), nobody, **kept)

    assert waits == [30, 30, 60, 120, 240, 120]
    assert [channel for channel, _ in Notified.told] == ["approval", *["waiting"] * 5]
    assert len(asked) == 1, "the request stays the same"
    assert "nothing was changed" in ti.pushed["reason"]
