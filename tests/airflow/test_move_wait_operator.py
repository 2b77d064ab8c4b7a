"""The operator that waits for a move, without a database and without clusters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from srm.domain.moves.gate import SyncStatus
from srm.errors import NotFoundError, UnavailableError
from srm_airflow import operators
from srm_airflow.compat import AirflowFailException, TaskDeferred
from srm_airflow.operators import MoveWaitOperator

pytestmark = pytest.mark.airflow

WAITING = SyncStatus(
    move_id="m1",
    ready=False,
    applied=False,
    blocking=("replication of T from P is 7 records behind",),
    unapplied=(),
    remaining_records=7,
    groups=(),
    eta_seconds=None,
    elapsed_seconds=1.0,
    timed_out=False,
)
READY = replace(WAITING, ready=True, blocking=())
MOVE = {
    "move_id": "m1",
    "operation": "failover",
    "mode": "planned",
    "source": "P",
    "target": "B",
    "wait_seconds": 600.0,
}


class Store:
    """The state store of a task."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    def set(self, key: str, value: Any) -> None:
        self.values[key] = value


class Ti:
    """A task instance that keeps what is pushed."""

    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


@pytest.fixture
def ti() -> Ti:
    return Ti()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[bool]]:
    def answer(*answers: SyncStatus | Exception) -> list[bool]:
        closed: list[bool] = []
        left = list(answers)

        class Watch:
            def __init__(self, *where: str) -> None:
                assert where == ("srm.properties", "m1", "P", "B")

            def poll(self) -> SyncStatus:
                found = left.pop(0) if len(left) > 1 else left[0]
                if isinstance(found, Exception):
                    raise found
                return found

            def close(self) -> None:
                closed.append(True)

        monkeypatch.setattr(operators, "MoveWatch", Watch)
        return closed

    return answer


def operator(**kwargs: Any) -> MoveWaitOperator:
    return MoveWaitOperator(
        task_id="wait", move=MOVE, config_path="srm.properties", poll_s=0.01, **kwargs
    )


def test_a_move_that_is_ready_soon_is_not_deferred(gate: Callable[..., list[bool]]) -> None:
    closed = gate(WAITING, UnavailableError("P does not answer"), READY)
    store = Store()

    result = operator().execute({"task_state_store": store})

    assert result["ready"] is True
    assert store.values["progress"]["ready"] is True
    assert closed == [True]


def test_a_longer_wait_leaves_the_worker_and_is_bounded(gate: Callable[..., list[bool]]) -> None:
    closed = gate(WAITING)
    store = Store()

    with pytest.raises(TaskDeferred) as deferred:
        operator(on_worker=0.05).execute({"task_state_store": store})

    _, kwargs = deferred.value.trigger.serialize()
    assert (kwargs["move_id"], kwargs["source"], kwargs["target"]) == ("m1", "P", "B")
    assert deferred.value.method_name == "execute_complete"
    assert deferred.value.timeout.total_seconds() == 660
    assert store.values["progress"]["remaining_records"] == 7
    assert closed == [True]


def test_an_error_that_waiting_does_not_cure_fails_without_a_retry(
    gate: Callable[..., list[bool]], ti: Ti
) -> None:
    closed = gate(NotFoundError("move 'm1' is not known"))

    with pytest.raises(AirflowFailException, match="NotFoundError: move 'm1' is not known"):
        operator().execute({"ti": ti})
    assert closed == [True]
    assert ti.pushed == {"reason": "move 'm1' is not known"}


def test_a_timeout_fails_and_names_first_what_was_waited_for(ti: Ti) -> None:
    event = {"state": "timeout", "waits": ["group g is still active on P"]}

    with pytest.raises(AirflowFailException, match=r"600 s, clients go back to P"):
        operator().execute_complete({"ti": ti}, event)

    assert ti.pushed["reason"].startswith("group g is still active on P; so the move was not")


def test_an_error_of_the_trigger_fails_the_task(ti: Ti) -> None:
    event = {"state": "failed", "message": "move is gone"}

    with pytest.raises(AirflowFailException, match="move is gone"):
        operator().execute_complete({"ti": ti}, event)


def test_an_error_is_not_hidden_by_one_of_keeping_its_reason() -> None:
    """Airflow may be the reason for both; there is no task instance here at all."""
    event = {"state": "failed", "message": "move is gone"}

    with pytest.raises(AirflowFailException, match="move is gone"):
        operator().execute_complete({}, event)
