"""The operator of srm_replication: what it asks the supervisor for, and how it takes its end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time.comms import ErrorResponse

from srm.errors import UnavailableError
from srm.spark.supervisor import Application
from srm_airflow import operators
from srm_airflow.operators import APPLICATION_KEY, ReplicationOperator

pytestmark = pytest.mark.airflow

FLOWS = ["B->P", "P->B"]
APPLICATION = Application("host-7", 4711, 0.0, ours=False, driver="d")


class Store(dict[str, Any]):
    """The state store of a task; outlives its tries."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Supervisor:
    """Finds an application at once and ends as the test says."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.known: Application | None = None
        self.was_killed = False
        self.killed_by = ""

    def __call__(self, topics: Any, command: Any, logs: Path, show: Callable[[Any], None]) -> Any:
        del topics, command
        assert logs.name
        self.show = show
        return self

    def run(self, known: Application | None, found: Callable[[Application], None]) -> None:
        self.known = known
        found(APPLICATION)
        self.show({"state": "running"})
        if self.error is not None:
            raise self.error

    def kill(self, by: str) -> None:
        self.was_killed, self.killed_by = True, by


@pytest.fixture
def supervised(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Supervisor]:
    def answer(error: Exception | None = None) -> Supervisor:
        made = Supervisor(error)
        monkeypatch.setattr(operators, "ReplicatorSupervisor", made)
        return made

    return answer


def operator(**kwargs: Any) -> ReplicationOperator:
    given = {"flows": FLOWS, "config_path": os.environ["SRM_CONFIG"], "shortest_try": 0.0, **kwargs}
    return ReplicationOperator(task_id="replicator", **given)


def test_progress_and_the_application_are_in_the_state_of_the_task(
    supervised: Callable[..., Supervisor],
) -> None:
    supervised()
    store = Store()

    operator().execute({"task_state_store": store})

    assert store["progress"] == {"state": "running"}
    assert store[APPLICATION_KEY] == asdict(APPLICATION)


def test_a_task_that_airflow_no_longer_knows_supervises_until_it_is_asked_to_end(
    supervised: Callable[..., Supervisor],
) -> None:
    """Clearing it forgets it first; failing then would leave the replicator with old settings."""

    class Gone(Store):
        def set(self, key: str, value: Any) -> None:
            del key, value
            raise AirflowRuntimeError(ErrorResponse(detail={"message": "not found"}))

    supervised()

    operator().execute({"task_state_store": Gone()})


def test_a_new_try_goes_on_with_the_application_of_the_one_that_was_killed(
    supervised: Callable[..., Supervisor],
) -> None:
    made = supervised()

    operator().execute({"task_state_store": Store({APPLICATION_KEY: asdict(APPLICATION)})})

    assert made.known == APPLICATION


def test_a_try_that_fails_at_once_is_stretched_so_that_restarts_are_throttled(
    supervised: Callable[..., Supervisor],
) -> None:
    """@continuous starts the next run without a pause: a broken setup would fork for ever."""
    supervised(UnavailableError("no such topic"))
    began = time.monotonic()

    with pytest.raises(UnavailableError):
        operator(shortest_try=1.5).execute({"task_state_store": Store()})

    assert time.monotonic() - began >= 1.5


def test_killing_the_task_ends_the_application(supervised: Callable[..., Supervisor]) -> None:
    made = supervised()
    subject = operator()
    subject.on_kill()
    assert not made.was_killed, "before it began there is nothing to end"

    subject.execute({"task_state_store": Store()})
    subject.on_kill()

    assert made.killed_by.startswith("srm_replication on ")
