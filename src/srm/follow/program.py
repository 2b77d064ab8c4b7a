"""A program that runs under a guard, its events, and restarts of one that has ended by itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from srm.follow import guard
from srm.threads import start_thread

_GUARD_LOST: Final = -signal.SIGKILL


@dataclass(frozen=True, slots=True)
class Stopping:
    """Graceful stop: the signal, and the seconds until SIGKILL, ``lost_s`` on a lost cluster."""

    signal: int = signal.SIGTERM
    grace_s: float = 30.0
    lost_s: float = 5.0


@dataclass(frozen=True, slots=True)
class ProgramEvent:
    """An event of a program.

    ``value`` of *started*: its pid; *failed* to be run: the errno; *ended*, with all descendants:
    its exit code, or minus the signal. *killed*: it did not end within its grace time.
    """

    kind: Literal["started", "failed", "killed", "ended"]
    value: int = 0


class Program:
    """One run of a program; ``mark`` is an environment variable unique to it, to find orphans."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        stopping: Stopping,
        report: Callable[[ProgramEvent], None],
        *,
        mark: str,
        json_logs: bool = False,
    ) -> None:
        self._report = report
        self._mark = (mark, environ[mark])
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._guard = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", guard.__file__, str(theirs.fileno())),
                    *(str(int(stopping.signal)), str(stopping.grace_s)),
                    "json" if json_logs else "text",
                    *command,
                ],
                env=dict(environ),
                pass_fds=[theirs.fileno()],
            )
        self.guard_pid = self._guard.pid
        start_thread("srm-program", self._listen)

    def stop(self, grace_s: float) -> None:
        """Stop it gracefully; a repeated call can shorten the time."""
        self._order(f"stop {grace_s}")

    def kill(self) -> None:
        self._order("kill")

    def signal(self, number: int) -> None:
        self._order(f"signal {int(number)}")

    def _order(self, order: str) -> None:
        with suppress(OSError):  # it has ended; the event follows
            self._socket.sendall(f"{order}\n".encode())

    def _listen(self) -> None:
        last: ProgramEvent | None = None
        # A guard that ends with an unread order resets the connection, which is its end too.
        with (
            self._socket,
            self._socket.makefile("r", encoding="ascii") as lines,
            suppress(ConnectionResetError),
        ):
            for line in lines:
                last = _event(*line.split())
                if last.kind != "ended":
                    self._report(last)
        self._guard.wait()
        if last is None or last.kind not in {"ended", "failed"}:
            _kill_marked("=".join(self._mark).encode())
            last = ProgramEvent("ended", _GUARD_LOST)
        if last.kind == "ended":
            self._report(last)


def _kill_marked(mark: bytes) -> None:
    """Kill the processes whose environment has a mark: a program that its guard has lost."""
    for pid in guard.processes().keys() - {os.getpid()}:
        with suppress(OSError):  # it has ended, or belongs to another user
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)


def reap_orphans(guard_pid: int | None) -> None:
    """Reap adopted children: the first process of a container gets all orphans."""
    for pid, (state, parent) in guard.processes().items():
        if parent == os.getpid() and state == "Z" and pid != guard_pid:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def exit_code(value: int) -> int:
    """Return the exit code as a shell does: 128 plus the number of the signal that ended it."""
    return 128 - value if value < 0 else value


def _event(kind: str, value: str = "0") -> ProgramEvent:
    number = int(value)
    if kind == "ended":
        number = os.waitstatus_to_exitcode(number)
    return ProgramEvent(kind, number)  # type: ignore[arg-type]  # the guard sends no other kind


Restart = Literal["on-failure", "always", "never"]

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
SETTLED_S: Final = 60.0  # a run of this length resets the back-off


@dataclass
class Restarts:
    """Back-off: 0.5 s, doubled by each short run, to 30 s; ``limit`` of short runs, 0: none."""

    policy: Restart = "on-failure"
    limit: int = 10
    in_a_row: int = 0

    def forget(self) -> None:
        self.in_a_row = 0

    def pause_after(self, code: int, ran_s: float) -> float | None:
        """Return the seconds until the next start, None for no restart."""
        if self.policy == "never" or (self.policy == "on-failure" and code == 0):
            return None
        if ran_s >= SETTLED_S:
            self.in_a_row = 0
        if self.limit and self.in_a_row >= self.limit:
            return None
        self.in_a_row += 1
        return float(min(LONGEST_S, FIRST_S * 2.0 ** min(self.in_a_row - 1, 10)))
