"""Background processes: found again by a later command, stopped with all they have."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from srm.errors import StackError
from srm_lab.processes import end_processes, marked_processes
from srm_lab.stack.process import (
    HOME_MARK,
    ManagedProcess,
    ProcessSpec,
    error_line,
    group_members,
)

STUBBORN = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); "
FOREVER = "time.sleep(600)"
WITH_CHILD = (
    "import subprocess,sys,time; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
    "print('up', flush=True); time.sleep(600)"
)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ManagedProcess]:
    managed = ManagedProcess("thing", tmp_path / "thing.log", tmp_path / "thing.pid")
    yield managed
    managed.kill()
    end_processes(marked_processes(HOME_MARK, str(tmp_path)), timeout=0)


def start(process: ManagedProcess, code: str) -> None:
    home = process.log.parent
    env = {**os.environ, HOME_MARK: str(home)}
    process.start(ProcessSpec(process.name, [sys.executable, "-c", code], env, process.log, home))


def has_ended(process: psutil.Process) -> bool:
    """Whether a process is gone, or a zombie that nobody has collected yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def said_up(process: ManagedProcess) -> bool:
    return "up" in process.log.read_text()


def test_another_object_finds_the_process_by_its_file(process: ManagedProcess) -> None:
    start(process, WITH_CHILD)

    found = ManagedProcess("thing", process.log, process.log.with_suffix(".pid"))
    assert found.running
    assert found.pid == process.pid
    assert found.start_time == process.start_time


def test_starting_a_running_process_changes_nothing(process: ManagedProcess) -> None:
    start(process, WITH_CHILD)
    pid = process.pid
    start(process, WITH_CHILD)

    assert process.pid == pid


def test_a_reused_pid_is_not_taken_for_the_process(tmp_path: Path) -> None:
    file = tmp_path / "thing.pid"
    file.write_text(json.dumps({"pid": os.getpid(), "created": 1.0}))
    process = ManagedProcess("thing", tmp_path / "thing.log", file)

    assert not process.running
    process.stop(timeout=1)  # and survives this


def test_a_process_is_found_again_after_the_clock_was_corrected(tmp_path: Path) -> None:
    """Its start is told in the time of day, which then is another by a second."""
    file = tmp_path / "thing.pid"
    created = psutil.Process().create_time() - 1
    file.write_text(json.dumps({"pid": os.getpid(), "created": created}))

    assert ManagedProcess("thing", tmp_path / "thing.log", file).running


def test_a_damaged_identity_file_means_not_running(tmp_path: Path) -> None:
    file = tmp_path / "thing.pid"
    file.write_text("{")

    assert not ManagedProcess("thing", tmp_path / "thing.log", file).running


def test_stop_ends_the_whole_group(process: ManagedProcess) -> None:
    start(process, WITH_CHILD)
    process.wait_until(lambda: said_up(process), 120, "up")
    members = group_members(process.pid or 0)
    assert len(members) == 2

    process.stop(timeout=60)

    assert not process.running
    assert not any(member.is_running() for member in members)


def test_what_ignores_sigterm_is_killed_after_the_time(process: ManagedProcess) -> None:
    start(process, STUBBORN + FOREVER)
    process.wait_until(lambda: said_up(process), 120, "up")

    begun = time.monotonic()
    process.stop(timeout=0.5)

    assert not process.running
    assert 0.5 <= time.monotonic() - begun < 60


def test_what_a_killed_leader_left_is_ended_before_the_next_start(process: ManagedProcess) -> None:
    start(process, WITH_CHILD)
    process.wait_until(lambda: said_up(process), 120, "up")
    leader = process.pid
    assert leader
    (orphan,) = [member for member in group_members(leader) if member.pid != leader]
    os.kill(leader, signal.SIGKILL)
    process.wait_until_gone(60)

    start(process, WITH_CHILD)

    assert process.running
    assert not orphan.is_running()


def test_stopping_ends_what_a_killed_leader_left_even_under_another_name(
    process: ManagedProcess,
) -> None:
    """Airflow's workers write their title over their environment: no mark tells whose they are."""
    child = "import setproctitle,time; setproctitle.setproctitle('worker'); " + FOREVER
    start(
        process,
        f"import subprocess,sys,time; subprocess.Popen([sys.executable, '-c', {child!r}]); "
        f"print('up', flush=True); {FOREVER}",
    )
    process.wait_until(lambda: said_up(process), 120, "up")
    leader = process.pid
    assert leader
    orphans = [member for member in group_members(leader) if member.pid != leader]
    os.kill(leader, signal.SIGKILL)
    process.wait_until_gone(60)

    process.stop(timeout=5)

    assert orphans
    assert not any(orphan.is_running() for orphan in orphans)


def test_waiting_for_a_process_that_ended_quotes_its_last_error(process: ManagedProcess) -> None:
    start(process, "raise ValueError('no such setting')")

    with pytest.raises(StackError, match="thing ended by itself: ValueError: no such setting"):
        process.wait_until(lambda: False, 120, "ready")


def test_waiting_has_an_end(process: ManagedProcess) -> None:
    start(process, WITH_CHILD)

    with pytest.raises(StackError, match="thing is not ready after 0 s"):
        process.wait_until(lambda: False, 0.2, "ready")


def test_a_missing_program_is_one_clear_line(process: ManagedProcess, tmp_path: Path) -> None:
    spec = ProcessSpec("thing", ["/no/such/program"], {}, process.log, tmp_path)

    with pytest.raises(StackError, match="thing: cannot run /no/such/program"):
        process.start(spec)


def test_a_detached_process_is_found_by_the_mark_it_inherited(tmp_path: Path) -> None:
    code = (
        "import subprocess,sys; "
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], "
        "start_new_session=True)"
    )
    environ = {**os.environ, HOME_MARK: str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=120)

    (detached,) = marked_processes(HOME_MARK, str(tmp_path))
    end_processes([detached], timeout=60)

    assert has_ended(detached)


def test_the_telling_line_is_the_last_error_not_the_stack_below_it() -> None:
    lines = ["INFO fine", "java.lang.Exception: bad port", "at kafka.Kafka.main(Kafka.scala)"]

    assert error_line(lines) == "java.lang.Exception: bad port"
    assert error_line(["one", "two"]) == "two"
    assert error_line([]) == "no output"
