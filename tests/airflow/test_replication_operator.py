"""The operator that supervises the replicator: real processes, heartbeats as the test sets them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from srm.domain.replication_records import DRIVER_KEY, DriverHeartbeat
from srm.domain.topics import Flow
from srm.errors import UnavailableError
from srm_airflow import operators, replication
from srm_airflow.operators import ReplicationOperator

pytestmark = pytest.mark.airflow

FLOWS = ["B->P", "P->B"]
SLEEPS = "import time; print('copying', flush=True); time.sleep(600)"
FAILS = "import sys; print('no such topic'); sys.exit(3)"


class Store(dict[str, Any]):
    """The state store of a task; outlives its tries."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Beats:
    """A topic with a driver heartbeat that changes at each look (None: no driver)."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self.time_ms = 1

    def read(self) -> dict[bytes, bytes]:
        if self.pid is None:
            return {}
        self.time_ms += 1000
        beat = DriverHeartbeat(
            "d", "app-7", replication.socket.gethostname(), self.pid, self.time_ms
        )
        return {DRIVER_KEY: beat.value()}

    def write(self, records: object) -> None:
        raise NotImplementedError


Make = Callable[..., ReplicationOperator]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Make operators whose application is a Python script; end what they leave behind."""
    monkeypatch.setattr(operators, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(operators.conf, "get", lambda *_args, **_kwargs: str(tmp_path))
    made: list[ReplicationOperator] = []

    def build(script: str = SLEEPS, beats: Beats | None = None, **kwargs: Any) -> Any:
        topic = beats or Beats()

        def watch(_self: Any, _stack: ExitStack) -> replication.Watch:
            return replication.Watch({Flow.parse(flow): topic for flow in FLOWS})

        def command(_self: Any) -> tuple[list[str], dict[str, str]]:
            return [sys.executable, "-c", script], dict(os.environ)

        monkeypatch.setattr(ReplicationOperator, "_watch", watch)
        monkeypatch.setattr(ReplicationOperator, "_command", command)
        operator = ReplicationOperator(
            task_id="replicator",
            flows=FLOWS,
            config_path="srm.properties",
            **{"shortest_try": 0.0, **kwargs},
        )
        made.append(operator)
        return operator

    yield build
    for operator in made:
        if operator._child is not None and operator._child.poll() is None:
            operator._child.kill()
            operator._child.wait()


def run_until_progress(operator: ReplicationOperator, store: Store) -> threading.Thread:
    """Run a try in the background until it has reported progress."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            operator.execute({"task_state_store": store})
        except UnavailableError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.failures = failures  # type: ignore[attr-defined]
    thread.start()
    deadline = time.monotonic() + 20
    while "progress" not in store and time.monotonic() < deadline:
        time.sleep(0.02)
    return thread


def test_the_command_is_built_by_the_provider_from_the_connection() -> None:
    config = "/etc/srm.properties"
    operator = ReplicationOperator(task_id="replicator", flows=FLOWS, config_path=config)

    command, env = operator._command()

    jobs = Path(__file__).resolve().parents[2] / "spark_jobs"
    assert command == [
        "spark-submit",
        "--master",
        "local[4]",
        "--name",
        "srm-replicator",
        str(jobs / "replicator.py"),
        "--config",
        config,
        "--flow",
        "B->P",
        "--flow",
        "P->B",
    ]
    assert "SPARK_HOME" in env


def test_progress_and_the_application_are_in_the_state_of_the_task(make: Make) -> None:
    store = Store()
    operator = make(beats=Beats(pid=1))
    thread = run_until_progress(operator, store)

    operator.on_kill()
    thread.join(20)

    assert store["progress"]["state"] in {"starting", "running"}
    assert [flow["flow"] for flow in store["progress"]["flows"]] == FLOWS
    assert store["progress"]["flows"][0]["application_id"] == "app-7"


def test_an_application_that_already_drives_all_flows_is_supervised_and_not_started_again(
    make: Make,
) -> None:
    """A second one would only fence the first: found by its heartbeat, whoever started it."""
    store = Store()
    operator = make(beats=Beats(pid=os.getpid()))
    thread = run_until_progress(operator, store)

    assert operator._child is None
    assert store["replicator"]["pid"] == os.getpid()
    assert store["replicator"]["ours"] is False

    operator.on_kill()
    thread.join(20)
    assert not thread.is_alive()
    assert psutil.pid_exists(os.getpid())


def test_a_new_try_goes_on_with_the_application_of_the_one_that_was_killed(make: Make) -> None:
    store = Store()
    first = make()
    store["replicator"] = first.submit_job({"task_state_store": store})
    started = first._child
    assert started is not None

    second = make()
    thread = run_until_progress(second, store)

    assert second._child is None
    assert store["progress"]["pid"] == started.pid
    second.on_kill()
    thread.join(20)
    assert started.wait(5) is not None


def test_a_failed_application_fails_the_try_with_the_end_of_its_log(make: Make) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)exit code 3.*no such topic"):
        make(FAILS).execute({"task_state_store": Store()})


def test_a_try_that_fails_at_once_is_stretched_so_that_restarts_are_throttled(make: Make) -> None:
    """@continuous starts the next run without a pause: a broken setup would fork for ever."""
    began = time.monotonic()

    with pytest.raises(UnavailableError):
        make(FAILS, shortest_try=1.5).execute({"task_state_store": Store()})

    assert time.monotonic() - began >= 1.5


def test_killing_the_task_stops_the_application_it_started(make: Make) -> None:
    store = Store()
    operator = make()
    thread = run_until_progress(operator, store)
    child = operator._child
    assert child is not None
    assert child.poll() is None

    operator.on_kill()
    thread.join(20)

    assert child.poll() is not None
    assert thread.failures == []  # type: ignore[attr-defined]


def test_a_lost_application_is_ended_and_the_try_fails(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process lives but sends no heartbeat: it hangs, a retry starts another."""
    monkeypatch.setattr(replication, "STARTUP_S", 0.5)
    operator = make()

    with pytest.raises(UnavailableError, match="no longer sends heartbeats"):
        operator.execute({"task_state_store": Store()})

    assert operator._child is not None
    assert operator._child.poll() is not None
