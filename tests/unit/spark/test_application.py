"""The application as a process: started apart from its parent, found and ended on its host."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import psutil
from tests.waiting import DEADLINE_S, eventually

from srm.spark import supervisor
from srm.spark.supervisor import Application

WITH_A_CHILD = (
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)\n"
)


def test_a_started_command_has_its_own_session_and_log_and_stop_ends_its_children(
    tmp_path: Path,
) -> None:
    log = supervisor.new_log(tmp_path, "replicator")
    child = supervisor.start([sys.executable, "-c", WITH_A_CHILD], os.environ, log)
    started = Application.from_child(child, log)
    process = psutil.Process(child.pid)
    eventually(lambda: "ready" in supervisor.tail(str(log)) and process.children(), "its child")
    kids = process.children()
    assert os.getsid(child.pid) == child.pid

    replace(started, ours=False).stop(grace_s=5)
    assert child.poll() is None, "one that was only found is asked, not killed"
    started.stop(grace_s=5)

    assert started.process() is None
    _, alive = psutil.wait_procs(kids, timeout=DEADLINE_S)
    assert not alive


def test_a_process_id_that_was_given_to_somebody_else_is_not_ours() -> None:
    mine = psutil.Process()
    reused = Application(
        host=os.uname().nodename, pid=mine.pid, created=mine.create_time() - 100, ours=True
    )

    assert reused.process() is None


def test_only_the_latest_logs_are_kept(tmp_path: Path) -> None:
    for number in range(15):
        (tmp_path / f"replicator-20200101T0000{number:02}.log").touch()

    newest = supervisor.new_log(tmp_path, "replicator")
    newest.touch()

    assert len(list(tmp_path.glob("*.log"))) == supervisor.KEPT_LOGS
    assert newest.exists()
