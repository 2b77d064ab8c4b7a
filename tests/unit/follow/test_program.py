"""A program ends with its supervisor, whatever that one dies of."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest
from tests.waiting import eventually

from srm.follow.guard import descendants
from srm.follow.program import exit_code
from srm_lab.processes import end_processes, marked_processes

SUPERVISOR = textwrap.dedent("""
    import os, signal, sys, threading
    from srm.follow.program import Program, Stopping
    script, grace = sys.argv[1:3]
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    for descriptor in range(3):  # as a careless parent leaves them behind
        os.dup2(descriptor, 100 + descriptor)
    told = lambda event: print(event.kind, event.value, flush=True)
    Program(["sh", "-c", script, *sys.argv[3:]], os.environ,
            Stopping(grace_s=float(grace)), told, mark="MARK")
    threading.Event().wait()
""")

REAPER = textwrap.dedent("""
    import os, sys
    from srm.follow.guard import become_subreaper, processes
    from srm.follow.program import reap_orphans
    become_subreaper()
    kept = os.posix_spawnp("sh", ["sh", "-c", "exit 0"], os.environ)
    parent = os.posix_spawnp("sh", ["sh", "-c", "sleep 0.1 & exit 0"], os.environ)
    os.waitpid(parent, 0)
    def zombies():
        return {p for p, (state, up) in processes().items() if (state, up) == ("Z", os.getpid())}
    while len(zombies()) < 2:  # the orphan, and the child that somebody else waits for
        pass
    reap_orphans(kept)
    print(zombies() == {kept})
""")


class Supervise(Protocol):
    def __call__(self, script: str, grace_s: float, *arguments: str) -> subprocess.Popen[str]: ...


@pytest.fixture
def supervise() -> Iterator[Supervise]:
    """Run a script in a shell under a supervisor, a process of its own; nothing outlives a test."""
    mark = uuid.uuid4().hex

    def run(script: str, grace_s: float, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, script, str(grace_s), *arguments],
            env={**os.environ, "MARK": mark},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    yield run
    end_processes(marked_processes("MARK", mark), timeout=0)


def started(supervisor: subprocess.Popen[str]) -> int:
    assert supervisor.stdout is not None
    kind, pid = supervisor.stdout.readline().split()
    assert kind == "started"
    return int(pid)


def test_a_killed_supervisor_lets_the_program_end_in_order(
    supervise: Supervise, tmp_path: Path
) -> None:
    file = tmp_path / "told"
    script = 'trap "echo end > $0; exit 0" TERM; echo up > "$0"; while :; do sleep 0.05; done'
    supervisor = supervise(script, 120.0, str(file))
    pid = started(supervisor)
    eventually(lambda: file.exists() and file.read_text() == "up\n", "it runs")
    supervisor.kill()
    _, said = supervisor.communicate(timeout=120)

    eventually(lambda: not psutil.pid_exists(pid), "it has ended")
    assert file.read_text() == "end\n"
    assert "the supervisor is gone" in said


def test_a_killed_supervisor_leaves_no_child_of_the_program_that_will_not_end(
    supervise: Supervise,
) -> None:
    """Not even one whose parent has ended long before, as that of a daemon has."""
    supervisor = supervise('trap "" TERM; (sleep 1000 &); while :; do sleep 0.05; done', 0.3)
    program = psutil.Process(started(supervisor))
    guard = program.ppid()
    eventually(lambda: len(psutil.Process(guard).children()) == 2, "the guard has the orphan")
    below = [program.pid, *descendants(supervisor.pid)]
    supervisor.kill()
    supervisor.communicate(timeout=120)

    eventually(lambda: not any(map(psutil.pid_exists, below)), "all have ended")


def test_the_kernel_ends_a_program_whose_guard_and_supervisor_are_both_out_of_the_way(
    supervise: Supervise,
) -> None:
    supervisor = supervise('trap "" TERM; while :; do sleep 0.05; done', 120.0)
    program = psutil.Process(started(supervisor))
    psutil.Process(supervisor.pid).suspend()
    psutil.Process(program.ppid()).kill()
    try:
        eventually(lambda: not psutil.pid_exists(program.pid), "it has ended")
    finally:
        supervisor.kill()
        supervisor.communicate(timeout=120)


def test_the_program_inherits_no_descriptor_and_no_ignored_signal(
    supervise: Supervise, tmp_path: Path
) -> None:
    """A program that ignores SIGPIPE or SIGTERM by inheritance would run on."""
    file = tmp_path / "told"
    script = 'echo $(ls /proc/$$/fd) > "$0"; grep SigIgn /proc/$$/status >> "$0"'
    supervisor = supervise(script, 1.0, str(file))
    started(supervisor)
    eventually(lambda: file.exists() and "SigIgn" in file.read_text(), "it has looked")
    supervisor.kill()
    supervisor.communicate(timeout=120)

    *descriptors, _, ignored = file.read_text().split()
    assert {"0", "1", "2"} == {
        number for number in descriptors if int(number) < 3 or int(number) >= 100
    }
    of_ours = sum(1 << (number - 1) for number in signal.valid_signals())  # not those of libc
    assert int(ignored, 16) & of_ours == 0


def test_the_first_process_of_a_container_collects_orphans_and_no_child_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REAPER], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "True\n"


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3, 3), (-15, 143), (-9, 137)])
def test_an_end_by_a_signal_has_the_exit_code_a_shell_gives_it(status: int, code: int) -> None:
    assert exit_code(status) == code


def test_descendants_are_found_below_children_that_live() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & wait"]) as shell:
        eventually(lambda: len(descendants(shell.pid)) == 1, "the child runs")
        [child] = descendants(shell.pid)
        assert {shell.pid, child} <= set(descendants(os.getpid()))
        psutil.Process(child).kill()
