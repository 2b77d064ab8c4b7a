"""The client of Airflow's REST API, against canned answers of Airflow 3.3."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from srm.errors import UnavailableError, UsageError
from srm_lab.demo.airflow_api import AirflowApi

Answer = Callable[[httpx.Request], httpx.Response]


@contextmanager
def airflow(answer: Answer, login: tuple[str, str] | None = None) -> Iterator[AirflowApi]:
    def handle(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            given = json.loads(request.content) if request.content else None
            name, password = login or ("", "")
            assert given == ({"username": name, "password": password} if login else None)
            return httpx.Response(201, json={"access_token": "t0ken"})
        assert request.headers["Authorization"] == "Bearer t0ken"
        return answer(request)

    with AirflowApi("http://airflow", login, transport=httpx.MockTransport(handle)) as api:
        yield api


def test_it_logs_in_where_there_is_a_login() -> None:
    with airflow(lambda _: httpx.Response(200, json={}), ("admin", "s3cret")) as api:
        assert api.pause("srm_rpo", paused=True) is None


def test_a_run_is_seen_with_its_tasks_and_what_is_under_way() -> None:
    tasks = [
        {"task_id": "hold", "state": "success"},
        {"task_id": "wait", "state": "deferred"},
        {"task_id": "report", "state": None},
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/taskInstances"):
            return httpx.Response(200, json={"task_instances": tasks})
        return httpx.Response(200, json={"state": "running", "run_type": "manual"})

    with airflow(answer) as api:
        view = api.run("srm_failover", "manual__1+00:00")

    assert not view.over
    assert view.current == ("wait",)
    assert view.tasks == {"hold": "success", "wait": "deferred"}


def test_a_dag_is_paused_and_continued() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append((request.method, request.url.path, json.loads(request.content)))
        return httpx.Response(200, json={})

    with airflow(answer) as api:
        api.pause("srm_metrics_aggregation", paused=True)
        api.pause("srm_metrics_aggregation", paused=False)

    path = "/api/v2/dags/srm_metrics_aggregation"
    assert asked == [("PATCH", path, {"is_paused": True}), ("PATCH", path, {"is_paused": False})]


def test_what_does_not_exist_yet_is_none() -> None:
    with airflow(lambda _: httpx.Response(404, json={"detail": "not found"})) as api:
        assert api.xcom("d", "r", "wait", "progress") is None
        assert api.task_state("d", "r", "wait", "progress") is None


def test_a_refusal_names_the_call_and_the_reason_and_is_not_tried_again() -> None:
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(400, json={"detail": "'sideways' is not one of failover, failback"})

    with (
        airflow(answer) as api,
        pytest.raises(UsageError, match=r"srm_failover/dagRuns.*sideways"),
    ):
        api.trigger("srm_failover", "demo", {"operation": "sideways"})
    assert len(asked) == 1


def test_a_run_whose_start_was_not_answered_is_asked_for_again_and_started_once() -> None:
    started: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        run = json.loads(request.content)["dag_run_id"]
        if run in started:
            return httpx.Response(409, json={"detail": "exists"})
        started.append(run)
        raise httpx.ReadTimeout("late", request=request)

    with airflow(answer) as api:
        assert api.trigger("srm_failover", "demo-failover") == "demo-failover"
    assert started == ["demo-failover"]


def test_what_nobody_would_ask_again_is_asked_for_until_airflow_answers() -> None:
    """One late answer on a busy machine ended a whole demo."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len(asked) == 1:
            raise httpx.ReadTimeout("late", request=request)
        return httpx.Response(200, json={"value": {"ok": True}})

    with airflow(answer) as api:
        found = api.insist(lambda: api.xcom("srm_failover", "demo", "report", "report"))
    assert (found, len(asked)) == ({"ok": True}, 2)


def test_no_answer_is_an_error_that_may_be_tried_again() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with airflow(refuse) as api, pytest.raises(UnavailableError, match="does not answer"):
        api.runs("srm_replication")


def test_a_failed_run_is_explained_by_the_first_failed_task_and_the_last_error_of_its_log() -> None:
    tasks = [
        {
            "task_id": "report",
            "state": "failed",
            "end_date": "2026-01-01T00:00:09Z",
            "try_number": 1,
        },
        {"task_id": "wait", "state": "failed", "end_date": "2026-01-01T00:00:05Z", "try_number": 2},
    ]
    log = [
        {
            "event": "Task failed with exception",
            "error_detail": [
                {"exc_type": "AirflowFailException", "exc_value": "group fraud has 1 member"}
            ],
        },
    ]
    asked = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if "/logs/" in request.url.path:
            return httpx.Response(200, json={"content": log})
        return httpx.Response(200, json={"task_instances": tasks})

    with airflow(answer) as api:
        reason = api.failure("srm_failover", "r")

    assert reason == "task wait: AirflowFailException: group fraud has 1 member"
    assert asked[-1].endswith("/taskInstances/wait/logs/2")
