"""Airflow's REST API, as far as the demo needs it: trigger a run, follow it, read what it left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import httpx
import tenacity

from srm.errors import UnavailableError, UsageError

_REQUEST_S: Final = 30.0
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_REFUSED: Final = (400, 422)
_PATIENCE_S: Final = 180.0
_LONGEST: Final = 400
_T = TypeVar("_T")
_ACTIVE: Final = ("running", "queued", "scheduled", "deferred", "up_for_retry", "restarting")


@dataclass(frozen=True)
class RunView:
    """One DAG run: its state, and the state of each task that has one."""

    dag: str
    run: str
    state: str
    run_type: str
    tasks: Mapping[str, str]

    @property
    def over(self) -> bool:
        """True if the run has ended."""
        return self.state in {"success", "failed"}

    @property
    def current(self) -> tuple[str, ...]:
        """Names of the tasks that are under way."""
        return tuple(task for task, state in self.tasks.items() if state in _ACTIVE)


class AirflowApi:
    """A client of one Airflow; ``login``: name and password, where its users need them.

    Every call raises :class:`UnavailableError` when Airflow does not answer, or with an error, and
    :class:`UsageError` when it refuses the request.
    """

    def __init__(
        self,
        url: str,
        login: tuple[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = url
        self._login = login
        self._client = httpx.Client(
            base_url=url, trust_env=False, timeout=_REQUEST_S, transport=transport
        )

    def __enter__(self) -> Self:
        answer = self.insist(self._log_in)
        self._client.headers["Authorization"] = f"Bearer {answer['access_token']}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def _log_in(self) -> Any:
        if self._login is None:
            return self._call("GET", "/auth/token")
        name, password = self._login
        body = {"username": name, "password": password}
        return self._call("POST", "/auth/token", json=body)

    def insist(self, call: Callable[[], _T]) -> _T:
        """Repeat a call for some minutes while Airflow does not answer, as on a busy machine.

        For calls whose caller does not try again itself.
        """
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(UnavailableError),
            stop=tenacity.stop_after_delay(_PATIENCE_S),
            wait=tenacity.wait_fixed(1),
            reraise=True,
        )
        return retrying(call)

    def trigger(self, dag: str, run: str, conf: Mapping[str, Any] | None = None) -> str:
        """Start a run by hand under a given id; return the id.

        A repeated call is harmless: an existing run of that id is returned.
        """
        body = {"dag_run_id": run, "logical_date": None, "conf": dict(conf or {})}
        path = f"{_dag(dag)}/dagRuns"
        self.insist(lambda: self._call("POST", path, json=body, expected=_CONFLICT))
        return run

    def pause(self, dag: str, *, paused: bool) -> None:
        """Let a DAG start no more runs, or start them again."""
        body = {"is_paused": paused}
        self.insist(lambda: self._call("PATCH", _dag(dag), json=body))

    def run(self, dag: str, run: str) -> RunView:
        """Look at a run and its tasks."""
        path = f"{_dag(dag)}/dagRuns/{quote(run)}"
        found = self._call("GET", path)
        tasks = self._call("GET", f"{path}/taskInstances")["task_instances"]
        return RunView(
            dag,
            run,
            found["state"],
            found["run_type"],
            {task["task_id"]: task["state"] for task in tasks if task["state"]},
        )

    def runs(self, dag: str, state: str | None = None) -> list[dict[str, Any]]:
        """Return the latest runs of a DAG, the newest first."""
        params = {"order_by": "-run_after", "limit": "20", **({"state": state} if state else {})}
        answer = self._call("GET", f"{_dag(dag)}/dagRuns", params=params)
        return list(answer["dag_runs"])

    def task_state(self, dag: str, run: str, task: str, key: str) -> Any:
        """Return what a task has put into its state store under a key, None where nothing is."""
        path = f"{_task(dag, run, task)}/state-store"
        answer = self._call("GET", path, missing={"task_state_store": []})
        entries = {entry["key"]: entry["value"] for entry in answer["task_state_store"]}
        return entries.get(key)

    def xcom(self, dag: str, run: str, task: str, key: str = "return_value") -> Any:
        """Return what a task has handed on, None where it has not."""
        path = f"{_task(dag, run, task)}/xcomEntries/{quote(key)}"
        params = {"deserialize": "true"}
        return self._call("GET", path, params=params, missing={"value": None})["value"]

    def failure(self, dag: str, run: str) -> str:
        """Say in one line which task of a run failed, and the cause as far as its log shows it."""
        tasks = self._call("GET", f"{_dag(dag)}/dagRuns/{quote(run)}/taskInstances")
        failed = [task for task in tasks["task_instances"] if task["state"] == "failed"]
        if not failed:
            return "no task has failed"
        task = min(failed, key=lambda one: one["end_date"] or "")
        path = f"{_task(dag, run, task['task_id'])}/logs/{max(1, task['try_number'])}"
        answer = self._call(
            "GET", path, headers={"Accept": "application/json"}, missing={"content": []}
        )
        return f"task {task['task_id']}: {_cause(answer['content'])}"

    def _call(
        self, method: str, path: str, *, missing: Any = None, expected: int = 0, **options: Any
    ) -> Any:
        try:
            response = self._client.request(
                method, path if path.startswith("/auth") else f"/api/v2{path}", **options
            )
        except httpx.HTTPError as error:
            raise UnavailableError(f"Airflow at {self._url} does not answer: {error!r}") from error
        if response.status_code == _NOT_FOUND and missing is not None:
            return missing
        if response.status_code in _REFUSED:
            raise UsageError(f"Airflow refuses {method} {path}: {response.text[:200]}")
        if not response.is_success and response.status_code != expected:
            raise UnavailableError(
                f"Airflow at {self._url} answers {method} {path} with {response.status_code}: "
                f"{response.text[:200]}"
            )
        return response.json()


def _dag(dag: str) -> str:
    return f"/dags/{quote(dag)}"


def _task(dag: str, run: str, task: str) -> str:
    return f"{_dag(dag)}/dagRuns/{quote(run)}/taskInstances/{quote(task)}"


def _cause(lines: list[dict[str, Any]]) -> str:
    """Return the last exception of a task's log, else its last word of an error."""
    for line in reversed(lines):
        for detail in reversed(line.get("error_detail") or ()):
            return f"{detail['exc_type']}: {detail['exc_value']}"[:_LONGEST]
    errors = [line["event"] for line in lines if line.get("level") in {"error", "critical"}]
    return str(errors[-1])[:_LONGEST] if errors else "its log has no error"
