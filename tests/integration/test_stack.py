"""The embedded stack as a user meets it: up, kill something, up again, down, nothing left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from tests.waiting import eventually

from srm.errors import StackError
from srm_lab.processes import end_processes, marked_processes
from srm_lab.stack.process import HOME_MARK, LOOPBACK
from srm_lab.stack.stack import Stack, StackOptions, StackStatus

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SRM = Path(sys.executable).parent / "srm"
DAG = """
from airflow.sdk import dag, task

@dag(schedule=None)
def hello():
    @task
    def greet():
        return "hello"

    greet()

hello()
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Give a folder for a stack; whatever a failed test leaves running is ended."""
    folder = tmp_path / "stack"
    yield folder
    end_processes(marked_processes(HOME_MARK, str(folder)), timeout=0)


def srm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SRM, *arguments], capture_output=True, text=True, check=False)


def stack_json(command: str, home: Path, *options: str) -> Any:
    result = srm("stack", command, "--home", str(home), "--json", *options)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def ready(stack: Stack) -> StackStatus:
    """Wait until all is seen to be ready."""
    found: list[StackStatus] = []

    def is_ready() -> bool:
        found.append(stack.status())
        return found[-1].ready

    eventually(is_ready, "all is ready")
    return found[-1]


@pytest.mark.faults
def test_a_stack_is_found_repaired_and_stopped_by_later_commands(home: Path) -> None:
    first = stack_json("up", home, "--kafka-only")
    assert not first["already_running"]
    assert first["airflow_url"] is None
    assert "P->B.enabled = true" in Path(first["config"]).read_text()

    # A busy broker may not answer in the time that a look has.
    eventually(lambda: stack_json("status", home)["ready"], "both brokers are ready")
    eventually(lambda: stack_json("up", home, "--kafka-only")["already_running"], "it is found")

    victim, survivor = first["components"]
    process = psutil.Process(victim["pid"])
    process.kill()
    process.wait(60)

    def is_told() -> bool:
        broken = stack_json("status", home)
        assert not broken["ready"]
        return [part["state"] for part in broken["components"]] == ["stopped", "ready"]

    eventually(is_told, "the broker that lives is ready")

    repaired = stack_json("up", home, "--kafka-only")
    eventually(lambda: stack_json("status", home)["ready"], "both brokers are ready again")
    assert repaired["bootstrap"] == first["bootstrap"]
    assert repaired["components"][0]["pid"] != victim["pid"]
    assert repaired["components"][1]["pid"] == survivor["pid"]

    assert stack_json("down", home) == ["Kafka B", "Kafka P"]
    assert marked_processes(HOME_MARK, str(home)) == []
    assert stack_json("down", home) == []


@pytest.mark.faults
def test_ctrl_c_during_up_stops_what_was_started(home: Path) -> None:
    up = subprocess.Popen(
        [SRM, "stack", "up", "--kafka-only", "--home", str(home)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while not list(home.glob("kafka/*/broker.pid")):
        assert time.monotonic() < deadline
        with pytest.raises(subprocess.TimeoutExpired):
            up.wait(timeout=0.02)
    up.send_signal(signal.SIGINT)

    assert up.wait(timeout=150) != 0
    assert marked_processes(HOME_MARK, str(home)) == []


def test_a_taken_port_is_one_line_and_stops_the_rest(home: Path) -> None:
    stack = Stack(StackOptions(home=home, kafka_only=True))
    with socket.socket() as taken:
        taken.bind((LOOPBACK, stack.brokers["B"].port))
        taken.listen()

        result = srm("stack", "up", "--kafka-only", "--home", str(home))

    assert result.returncode == 10
    last_line = result.stderr.splitlines()[-1]
    assert last_line.startswith(
        f"srm: port {stack.brokers['B'].port}, needed by Kafka cluster B, is taken by process"
    )
    assert marked_processes(HOME_MARK, str(home)) == []


@pytest.mark.airflow
@pytest.mark.faults
def test_airflow_comes_up_healthy_is_repaired_and_leaves_nothing_behind(
    home: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "dags").mkdir(parents=True)
    (project / "dags" / "hello.py").write_text(DAG)
    stack = Stack(StackOptions(home=home, project=project))
    reported: list[tuple[str, str]] = []

    stack.up(lambda component, state: reported.append((component, state)))
    status = ready(stack)
    assert ("Airflow DAGs", "ready") in reported
    assert {part.name for part in status.components if part.state == "ready"} == {
        "Kafka P",
        "Kafka B",
        "Airflow api-server",
        "Airflow execution-api",
        "Airflow scheduler",
        "Airflow dag-processor",
        "Airflow triggerer",
        "SRM service",
    }
    flows = httpx.get(f"{status.service_url}/v2/flows", timeout=60, trust_env=False)
    assert flows.json()["total"] == 2

    # As the replicator does: started from a task, in a session of its own.
    detached = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env={**os.environ, HOME_MARK: str(home)},
        start_new_session=True,
    )
    killed = stack.airflow.processes["scheduler"].pid or 0
    os.kill(killed, signal.SIGKILL)
    stack.airflow.processes["scheduler"].wait_until_gone(60)
    (project / "dags" / "broken.py").write_text("from airflow.sdk import dag\nimport nowhere\n")
    os.kill(stack.airflow.processes["dag-processor"].pid or 0, signal.SIGKILL)
    stack.airflow.processes["dag-processor"].wait_until_gone(60)

    with pytest.raises(StackError, match=r"broken\.py cannot be imported: .*nowhere"):
        stack.up()
    assert stack.airflow.processes["api-server"].running

    (project / "dags" / "broken.py").unlink()
    stack = Stack(StackOptions(home=home, project=project))
    stack.up()
    again = ready(stack)
    assert again.airflow_url == status.airflow_url
    assert again.components[4].pid != killed
    assert detached.poll() is None

    stopped = stack.down()
    assert len(stopped) == 8
    assert detached.poll() is not None
    assert marked_processes(HOME_MARK, str(home)) == []
