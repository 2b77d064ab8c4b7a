"""Starting, finding and judging the replicator from outside."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from srm.domain.offset_map import Position
from srm.domain.replication_records import (
    DRIVER_KEY,
    DriverHeartbeat,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
from srm.domain.topics import Flow
from srm.errors import UnavailableError
from srm_airflow import replication

pytestmark = pytest.mark.airflow

FLOW = Flow("P", "B")
BEAT = DriverHeartbeat("d1", "app-1", "host", 4711, time_ms=1_000_000)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
TARGET_ID = "AAAAAAAAAAAAAAAAAAAAAg"


class Topic:
    """A compacted topic whose content the test sets; None: the cluster does not answer."""

    def __init__(self, records: dict[bytes, bytes] | None) -> None:
        self.records = records

    def read(self) -> dict[bytes, bytes]:
        if self.records is None:
            raise UnavailableError("cluster B does not answer")
        return self.records

    def write(self, records: object) -> None:
        raise NotImplementedError

    def beat(self, time_ms: int) -> None:
        self.records = {DRIVER_KEY: replace(BEAT, time_ms=time_ms).value()}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(replication.time, "monotonic", lambda: now[0])
    return now


def report(slot: str, time_ms: int, source_next: int, source_end: int) -> SlotReport:
    position = Position(source_next, source_next, source_end)
    entry = PartitionPosition(TOPIC_ID, 0, TARGET_ID, position, 0, 1, 0)
    return SlotReport(slot, 1, time_ms, (entry,))


def test_signs_sum_up_current_slots_and_leave_out_those_of_an_earlier_application() -> None:
    current, old = report("0", BEAT.time_ms - 900, 90, 100), report("9", 0, 0, 1_000_000)
    stopped = PartitionStatus("T", 3, "stopped", "data loss")
    copying = PartitionStatus("T", 4, "copying")

    signs = replication.read_signs(
        FLOW,
        {
            DRIVER_KEY: BEAT.value(),
            **{entry.key(): entry.value() for entry in (current, old, stopped, copying)},
        },
    )

    assert (signs.slots, signs.partitions, signs.remaining) == (1, 1, 10)
    assert signs.stopped == ("T-3: data loss",)
    assert signs.summary()["driver"] == "host/4711"


def test_a_heartbeat_counts_only_once_it_has_changed() -> None:
    """The record of a dead driver stays in the topic, so its presence proves nothing."""
    topic = Topic({DRIVER_KEY: BEAT.value()})
    watch = replication.Watch({FLOW: topic})

    watch.look()
    assert watch.verdict() == "starting"
    topic.beat(BEAT.time_ms + 1000)
    watch.look()
    assert watch.verdict() == "running"


def test_silence_of_a_readable_topic_means_lost(clock: list[float]) -> None:
    topic = Topic({DRIVER_KEY: BEAT.value()})
    watch = replication.Watch({FLOW: topic})
    watch.look()
    topic.beat(BEAT.time_ms + 1000)
    watch.look()

    clock[0] += replication.LOST_AFTER_S + 1
    watch.look()

    assert watch.verdict() == "lost"


def test_a_cluster_that_does_not_answer_is_no_proof_and_gives_the_driver_time_afterwards(
    clock: list[float],
) -> None:
    """While the target is down the driver cannot write: restarting it would not help."""
    topic = Topic({DRIVER_KEY: BEAT.value()})
    watch = replication.Watch({FLOW: topic})
    watch.look()
    topic.beat(BEAT.time_ms + 1000)
    watch.look()
    last = topic.records

    topic.records = None
    clock[0] += 10 * replication.LOST_AFTER_S
    assert watch.look() == []
    assert watch.verdict() == "running"

    topic.records = last
    watch.look()
    assert watch.verdict() == "running"
    clock[0] += replication.LOST_AFTER_S + 1
    watch.look()
    assert watch.verdict() == "lost"


def test_an_application_that_never_sends_a_heartbeat_is_lost_after_the_startup_time(
    clock: list[float],
) -> None:
    watch = replication.Watch({FLOW: Topic({})})
    watch.look()
    assert watch.verdict() == "starting"

    clock[0] += replication.STARTUP_S + 1
    watch.look()
    assert watch.verdict() == "lost"


def test_a_started_command_has_its_own_session_and_log_and_stop_ends_its_children(
    tmp_path: Path,
) -> None:
    log = replication.new_log(tmp_path, "replicator")
    script = (
        "import subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('ready', flush=True)\n"
        "time.sleep(600)\n"
    )
    child = replication.start([sys.executable, "-c", script], dict(os.environ), log)
    application = replication.Application.started(child, log)
    process = psutil.Process(child.pid)
    while not (kids := process.children()) or "ready" not in replication.tail(str(log)):
        assert child.poll() is None
    assert os.getsid(child.pid) == child.pid

    replication.stop(application, grace_s=5)

    assert application.process() is None
    _, alive = psutil.wait_procs(kids, timeout=5)
    assert not alive


def test_a_process_id_that_was_given_to_somebody_else_is_not_ours() -> None:
    mine = psutil.Process()
    application = replication.Application(
        host=os.uname().nodename, pid=mine.pid, created=mine.create_time() - 100, ours=True
    )

    assert application.process() is None


def test_only_the_latest_logs_are_kept(tmp_path: Path) -> None:
    for number in range(15):
        (tmp_path / f"replicator-20200101T0000{number:02}.log").touch()

    newest = replication.new_log(tmp_path, "replicator")
    newest.touch()

    assert len(list(tmp_path.glob("*.log"))) == replication.KEPT_LOGS
    assert newest.exists()
