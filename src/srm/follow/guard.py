"""The process between a supervisor and its program; it ends the program if the supervisor dies.

Run as ``python -I -S guard.py SOCKET STOP_SIGNAL GRACE_S json|text COMMAND...``; it imports only
the standard library, so it is small and starts fast. Its line protocol with the supervisor:

==================  ============================================================================
to the guard        ``signal N``: send it to the program; ``stop SECONDS``: stop the program
                    gracefully within this time; ``kill``: kill it at once
from the guard      ``started PID``; ``failed ERRNO``: it cannot be run; ``killed``: the grace
                    time is over; ``ended STATUS``: as from waitpid, no process is left
==================  ============================================================================

A graceful stop sends the stop signal to the program. After the program's end it sends the signal to
the remaining processes, and after the grace time SIGKILL to all. A closed connection is an order to
stop, because the supervisor was killed. If the guard is killed, the kernel sends SIGKILL to the
program. As a subreaper the guard is the parent of all processes the program leaves, so none escapes
by a daemon's double fork or its own session.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

_SET_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals a terminal or a service manager sends to all processes; the supervisor handles them."""
_AGAIN_S: Final = 0.05
_CANNOT_RUN: Final = 127


def become_subreaper() -> None:
    """Make this process the parent of all its orphaned descendants (Linux)."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def processes() -> dict[int, tuple[str, int]]:
    """Return the present state and parent of each process, from /proc."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text("latin-1").rpartition(")")[2].split()[:2]
            except OSError:
                continue  # it has just ended
            found[int(entry.name)] = (state, int(parent))
    return found


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, (state, parent) in processes().items():
        if state not in "ZX":
            children.setdefault(parent, []).append(pid)
    found, left = [], [root]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process; ignore one that has ended or belongs to another user."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class _Guard:
    """One program from its start to its end."""

    def __init__(
        self, supervisor: socket.socket, stop_signal: int, grace_s: float, *, as_json: bool
    ) -> None:
        self._supervisor: socket.socket | None = supervisor
        self._stop_signal = stop_signal
        self._grace_s = grace_s
        self._as_json = as_json
        self._program = 0
        self._status: int | None = None
        self._deadline: float | None = None
        self._killed = False
        self._signalled: set[int] = set()
        self._received = b""

    def run(self, command: list[str]) -> None:
        """Start the program and run until it and all its descendants have ended."""
        become_subreaper()
        awake = self._listen()
        error = self._start(command)
        if error:
            self._say(f"failed {error}")
            return
        self._say(f"started {self._program}")
        while self._reap():
            if self._status is not None:
                self._end_the_rest()
            self._wait(awake)
        self._say(f"ended {self._status}")

    def _listen(self) -> int:
        """Ignore the supervisor's signals; return a descriptor readable when a child ends."""
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        readable, writable = os.pipe()
        os.set_blocking(readable, False)
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        return readable

    def _start(self, command: list[str]) -> int:
        """Run the program; return 0, or the errno if it cannot be run."""
        guard = os.getpid()
        readable, writable = os.pipe()  # closed by exec
        self._program = os.fork()
        if self._program == 0:
            _become(command, guard, writable)
        os.close(writable)
        with os.fdopen(readable, "rb") as reader:
            said = reader.read()
        if said:
            os.waitpid(self._program, 0)
        return int(said or b"0")

    def _reap(self) -> bool:
        """Reap ended children; return whether others are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._status = status

    def _end_the_rest(self) -> None:
        """Send the stop signal to the program's remaining processes, now children of the guard."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._grace_s
        for pid in descendants(os.getpid()):
            if pid not in self._signalled:
                self._signalled.add(pid)
                send_signal(pid, self._stop_signal)

    def _wait(self, awake: int) -> None:
        listened: list[int | socket.socket] = [awake]
        if self._supervisor is not None:
            listened.append(self._supervisor)
        readable, _, _ = select.select(listened, [], [], self._timeout())
        if awake in readable:
            os.read(awake, 4096)
        if self._supervisor in readable:
            self._hear()
        if self._deadline is not None and time.monotonic() >= self._deadline:
            self._kill()

    def _timeout(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _kill(self) -> None:
        for pid in descendants(os.getpid()):
            send_signal(pid, signal.SIGKILL)
        if not self._killed:
            self._killed = True
            self._say("killed")
        self._deadline = time.monotonic() + _AGAIN_S  # the next round finds processes just forked

    def _hear(self) -> None:
        try:
            received = self._supervisor.recv(4096) if self._supervisor is not None else b""
        except OSError:
            received = b""
        if not received:
            self._supervisor = None
            self._warn("the supervisor is gone: stopping its program")
            self._stop(self._grace_s)
        *lines, self._received = (self._received + received).split(b"\n")
        for line in lines:
            self._obey(line.decode())

    def _obey(self, order: str) -> None:
        if order.startswith("stop "):
            self._stop(float(order.removeprefix("stop ")))
        elif order == "kill":
            self._deadline = time.monotonic()
        elif self._status is None:
            send_signal(self._program, int(order.removeprefix("signal ")))

    def _stop(self, grace_s: float) -> None:
        """Stop the program gracefully; a repeated call can only shorten the time."""
        until = time.monotonic() + grace_s
        if self._deadline is None and self._status is None:
            self._signalled.add(self._program)
            send_signal(self._program, self._stop_signal)
        self._deadline = until if self._deadline is None else min(self._deadline, until)

    def _say(self, line: str) -> None:
        if self._supervisor is not None:
            try:
                self._supervisor.sendall(f"{line}\n".encode())
            except OSError:
                self._supervisor = None
                self._stop(self._grace_s)

    def _warn(self, text: str) -> None:
        named = {"event": "orphaned", "level": "ERROR", "message": text, "pid": self._program}
        line = json.dumps(named) if self._as_json else f"srm follow: {text}"
        try:
            os.write(2, f"{line}\n".encode())
        except OSError:
            return  # stderr has no reader


def _become(command: list[str], guard: int, writable: int) -> NoReturn:
    """Replace this process by the program."""
    try:
        for number in signal.valid_signals():  # ignored by Python, the guard or its caller
            if signal.getsignal(number) is signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        _prctl(_SET_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != guard:  # it died before the line above
            os._exit(_CANNOT_RUN)
        os.execvp(command[0], command)  # noqa: S606 -- its purpose
    except OSError as error:
        os.write(writable, str(error.errno).encode())
    os._exit(_CANNOT_RUN)


def main(arguments: list[str]) -> None:
    descriptor, stop_signal, grace_s, form, *command = arguments
    supervisor = socket.socket(fileno=int(descriptor))
    supervisor.set_inheritable(False)
    _Guard(supervisor, int(stop_signal), float(grace_s), as_json=form == "json").run(command)


if __name__ == "__main__":
    main(sys.argv[1:])
