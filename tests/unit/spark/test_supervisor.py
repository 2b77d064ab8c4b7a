"""Supervising the replicator on a host: real processes, heartbeats as the test sets them."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import DEADLINE_S, eventually

from srm.domain.flow_state import liveness_thresholds
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
)
from srm.domain.names.topics import Flow
from srm.engine.flows import supervision
from srm.engine.flows.supervision import StateTopics, read_request
from srm.errors import UnavailableError
from srm.spark import supervisor as module
from srm.spark.supervisor import Application, ReplicatorSupervisor

FLOWS = [Flow("B", "P"), Flow("P", "B")]
SLEEPS = "import time; print('copying', flush=True); time.sleep(600)"
FAILS = "import sys; print('no such topic'); sys.exit(3)"
ELSEWHERE = DriverHeartbeat("d", "app-7", "another-host", 4711, 1, flows=("B->P", "P->B"))


class Topic:
    """A state topic with a driver that beats at each look and obeys requests as a real one."""

    def __init__(self, driver: DriverHeartbeat | None = None) -> None:
        self.driver = driver
        self.records: dict[bytes, bytes] = {}

    def read(self) -> dict[bytes, bytes]:
        request = read_request(self.records)
        if self.driver is not None and not self.driver.ended:
            asked = request is not None and request.request != self.driver.started_after
            self.driver = replace(self.driver, time_ms=self.driver.time_ms + 1000, ended=asked)
        beat = {DRIVER_KEY: self.driver.value()} if self.driver else {}
        return {**self.records, **beat}

    def write(self, records: dict[bytes, bytes | None]) -> None:
        self.records |= {key: value for key, value in records.items() if value is not None}


class Lab:
    """Supervisors whose application is a Python script."""

    def __init__(self, folder: Path, topic: Topic, script: str) -> None:
        self.folder, self.topic, self.script = folder, topic, script
        self.progress: dict[str, Any] = {}
        self.found: list[Application] = []
        self.made: list[ReplicatorSupervisor] = []
        self.failures: list[BaseException] = []

    @contextmanager
    def topics(self) -> Iterator[StateTopics]:
        yield dict.fromkeys(FLOWS, self.topic)

    def supervisor(self) -> ReplicatorSupervisor:
        made = ReplicatorSupervisor(
            self.topics,
            lambda: [sys.executable, "-c", self.script],
            self.folder,
            self.progress.update,
        )
        self.made.append(made)
        return made

    def start(
        self, supervisor: ReplicatorSupervisor, known: Application | None = None
    ) -> threading.Thread:
        """Run a supervisor in the background until it has shown progress."""
        self.progress.clear()

        def work() -> None:
            try:
                supervisor.run(known, self.found.append)
            except UnavailableError as error:
                self.failures.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        eventually(lambda: self.progress, "progress")
        return thread


Make = Callable[..., Lab]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Make]:
    """Make labs; end what they leave behind."""
    monkeypatch.setattr(module, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(supervision, "POLL_S", 0.02)
    labs: list[Lab] = []

    def build(script: str = SLEEPS, topic: Topic | None = None) -> Lab:
        labs.append(Lab(tmp_path, topic or Topic(), script))
        return labs[-1]

    yield build
    for lab in labs:
        for supervisor in lab.made:
            if supervisor.child is not None and supervisor.child.poll() is None:
                supervisor.child.kill()
                supervisor.child.wait()


def test_progress_says_which_application_drives_the_flows_and_how_far_they_are(make: Make) -> None:
    lab = make(topic=Topic(ELSEWHERE))
    supervisor = lab.supervisor()
    thread = lab.start(supervisor)

    supervisor.kill("test")
    thread.join(DEADLINE_S)

    assert lab.progress["state"] in {"starting", "running"}
    assert (lab.progress["host"], lab.progress["pid"]) == ("another-host", 4711)
    assert [flow["flow"] for flow in lab.progress["flows"]] == [str(flow) for flow in FLOWS]
    assert lab.progress["flows"][0]["application_id"] == "app-7"


def test_an_application_that_already_drives_all_flows_is_supervised_and_not_started_again(
    make: Make,
) -> None:
    """A second one would only fence the first: found by its heartbeat, whoever started it."""
    here = replace(ELSEWHERE, host=socket.gethostname(), pid=os.getpid())
    lab = make(topic=Topic(here))
    supervisor = lab.supervisor()
    thread = lab.start(supervisor)

    assert supervisor.child is None
    assert (lab.found[-1].pid, lab.found[-1].ours) == (os.getpid(), False)

    supervisor.kill("test")
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert psutil.pid_exists(os.getpid()), "it may be somebody's shell: it is asked, not killed"


def test_an_application_on_another_host_is_ended_and_the_next_supervisor_starts_its_own(
    make: Make,
) -> None:
    """Nothing happened at all when the process was not to be found on this host."""
    lab = make(topic=Topic(ELSEWHERE))
    first = lab.supervisor()
    thread = lab.start(first)

    first.kill("srm_replication on here")
    thread.join(DEADLINE_S)

    request = read_request(lab.topic.records)
    assert request is not None
    assert (request.action, request.by) == ("restart", "srm_replication on here")
    assert first.child is None
    second = lab.supervisor()
    thread = lab.start(second, lab.found[-1])
    assert lab.topic.driver is not None
    assert lab.topic.driver.ended
    assert second.child is not None, "not the one with the old settings again"
    second.kill("test")
    thread.join(DEADLINE_S)


def test_an_application_that_ends_on_request_ends_its_supervisor_without_an_error(
    make: Make,
) -> None:
    lab = make(topic=Topic(ELSEWHERE))
    thread = lab.start(lab.supervisor())

    supervision.request_end(dict.fromkeys(FLOWS, lab.topic), "restart", "ada", 0)
    thread.join(DEADLINE_S)

    assert not thread.is_alive()
    assert lab.failures == []
    assert lab.progress["state"] == "ended"


def test_nothing_is_started_while_a_stop_stands(make: Make) -> None:
    lab = make()
    lab.topic.records[REQUEST_KEY] = DriverRequest("r", "stop", "ada@ops", 0).value()
    supervisor = lab.supervisor()
    thread = lab.start(supervisor)

    assert lab.progress["state"] == "stopped"
    assert supervisor.child is None
    supervision.request_end(dict.fromkeys(FLOWS, lab.topic), "restart", "ada", 0)
    eventually(lambda: supervisor.child is not None, "a start after the stop was lifted")
    supervisor.kill("test")
    thread.join(DEADLINE_S)


def test_a_supervisor_that_ends_during_a_stop_does_not_lift_it(make: Make) -> None:
    """Airflow may end tasks for reasons of its own."""
    lab = make()
    lab.topic.records[REQUEST_KEY] = DriverRequest("r", "stop", "ada@ops", 0).value()
    supervisor = lab.supervisor()
    thread = lab.start(supervisor)

    supervisor.kill("test")
    thread.join(DEADLINE_S)

    request = read_request(lab.topic.records)
    assert request is not None
    assert request.action == "stop"


def test_a_new_supervisor_goes_on_with_the_application_of_the_one_that_was_killed(
    make: Make,
) -> None:
    """It has not sent a heartbeat yet."""
    lab = make()
    first = lab.supervisor()
    lab.found.append(first._start())
    assert first.child is not None

    second = lab.supervisor()
    thread = lab.start(second, lab.found[0])

    assert second.child is None
    assert lab.progress["pid"] == first.child.pid
    second.kill("test")
    thread.join(DEADLINE_S)
    assert first.child.wait(DEADLINE_S) is not None


def test_a_failed_application_is_an_error_with_the_end_of_its_log(make: Make) -> None:
    with pytest.raises(UnavailableError, match=r"(?s)exit code 3.*no such topic"):
        make(FAILS).supervisor().run()


def test_a_killed_supervisor_ends_the_application_it_started(make: Make) -> None:
    lab = make()
    supervisor = lab.supervisor()
    thread = lab.start(supervisor)
    child = supervisor.child
    assert child is not None
    assert child.poll() is None

    supervisor.kill("test")
    thread.join(DEADLINE_S)

    assert child.poll() is not None
    assert lab.failures == []


def test_a_lost_application_is_ended_and_an_error(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process lives but sends no heartbeat: it hangs, and is started again."""
    monkeypatch.setattr(supervision, "STARTUP_S", liveness_thresholds.LOOK_S / 8)
    supervisor = make().supervisor()

    with pytest.raises(UnavailableError, match="sends no heartbeats"):
        supervisor.run()

    assert supervisor.child is not None
    assert supervisor.child.poll() is not None
