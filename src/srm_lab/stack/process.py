"""One background process that outlives the command which started it.

Each runs in a session and process group of its own. Its identity (pid and start time, so that a
reused pid is never mistaken for it) is kept in a file, by which a later command finds it again.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from srm.errors import StackError
from srm.files import disk_errors, write_atomically
from srm_lab.processes import KILL_SECONDS, end_processes

LOOPBACK: Final = "127.0.0.1"

# Below the range from which Linux and macOS take the local ports of outgoing connections: a port
# from that range might be in use by some client just when a killed broker wants it back.
_FIRST: Final = 20_000
_LAST: Final = 32_000
BLOCK: Final = 60
"""Ports that one process takes in turn: a port that is free now is often wanted only seconds later,
and a broker that is down wants its own one back."""


def is_free(port: int) -> bool:
    """Return whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the JVM does: connections of an earlier server in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


class PortBlock:
    """Consecutive ports that no other process of this user chooses from while this one lives."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.first, self._lock = _lock_block()
        self._taken = 0

    def next(self) -> int | None:
        """Return a port that is free now, the least recently requested one; None if none."""
        for _ in range(BLOCK):
            port = self.first + self._taken % BLOCK
            self._taken += 1
            if is_free(port):
                return port
        return None


def _lock_block() -> tuple[int, int | None]:
    """Return the first port of a block, and the lock that ends with this process.

    Where every block is taken, or no lock can be had, it is any of them, without a lock.
    """
    firsts = list(range(_FIRST, _LAST - BLOCK + 2, BLOCK))
    random.SystemRandom().shuffle(firsts)
    folder = Path(tempfile.gettempdir()) / f"srm-ports-{os.getuid()}"
    for first in firsts:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            lock = os.open(folder / str(first), os.O_CREAT | os.O_RDWR, 0o600)
        except OSError:
            break
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
        else:
            return first, lock
    return firsts[0], None


_blocks: list[PortBlock] = []
_choosing = threading.Lock()


def free_port() -> int:
    """Return a port that is free now, and that other processes of this user do not choose soon.

    StackError: none was found.
    """
    with _choosing:
        # A fork has the block of its parent. One that is full, of ours or of others, is left.
        if _blocks and _blocks[-1].owner == os.getpid() and (port := _blocks[-1].next()):
            return port
        _blocks.append(PortBlock())
        port = _blocks[-1].next()
    if port is None:
        raise StackError(f"no free TCP port between {_FIRST} and {_LAST} on {LOOPBACK}")
    return port


def require_free(port: int, purpose: str) -> None:
    """Check that the port is free.

    StackError: it is taken; the message names the process, as far as the system shows it.
    """
    if not is_free(port):
        holder = _holder(port)
        raise StackError(
            f"port {port}, needed by {purpose}, is taken{f' by {holder}' if holder else ''}: "
            "stop that program, or choose another folder with --home to get other ports"
        )


def answers(port: int) -> bool:
    """Return whether something accepts connections on the port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


def _holder(port: int) -> str | None:
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid is not None
            ):
                return f"process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        return None
    return None


HOME_MARK: Final = "SRM_STACK_HOME"
"""Variable in the environment of all that a stack starts: the stack's folder."""

_TICK_SECONDS: Final = 0.1
_SAME_SECONDS: Final = 2.0
"""Start times count from the boot of the machine, and that is said a second later after its clock
has been corrected."""
_TAIL_LINES: Final = 200
_LINE_LENGTH: Final = 300
_TROUBLE: Final = re.compile(r"ERROR|FATAL|Error:|Exception:")


@dataclass(frozen=True)
class ProcessSpec:
    """A process to run. ``env`` is the whole environment; output is appended to ``log``."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    log: Path
    cwd: Path


class ManagedProcess:
    """A process started in the background and found again by its identity file."""

    def __init__(self, name: str, log: Path, identity_file: Path) -> None:
        self.name = name
        self.log = log
        self._identity_file = identity_file
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, spec: ProcessSpec) -> None:
        """Start the process unless it runs already.

        StackError: the program cannot be executed or its files cannot be written.
        """
        if self.running:
            return
        self._end_leftovers()
        with disk_errors(spec.log):
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            spec.cwd.mkdir(parents=True, exist_ok=True)
            output = spec.log.open("ab")
        with output:
            try:
                self._popen = subprocess.Popen(
                    list(spec.command),
                    env=dict(spec.env),
                    cwd=spec.cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise StackError(f"{self.name}: cannot run {spec.command[0]}: {error}") from error
        self._remember(self._popen.pid)

    @property
    def pid(self) -> int | None:
        """Process id (also of its group) while it runs."""
        process = self._find()
        return process.pid if process else None

    @property
    def start_time(self) -> float | None:
        """Start time in epoch seconds while it runs."""
        process = self._find()
        return process.create_time() if process else None

    @property
    def running(self) -> bool:
        """True while the process exists and is not a zombie."""
        return self._find() is not None

    def kill(self) -> None:
        """Send SIGKILL to the process group and wait until it is gone."""
        self.stop(timeout=0)

    def stop(self, timeout: float) -> None:
        """Send SIGTERM to the process group, wait, then SIGKILL what is left.

        ``timeout``: seconds between the two signals; 0 sends SIGKILL at once.
        """
        leader = self._find()
        if leader is not None:
            members = group_members(leader.pid)
            if timeout > 0:
                _signal_group(leader.pid, signal.SIGTERM)
                _, members = psutil.wait_procs(members, timeout=timeout)
            if members:
                _signal_group(leader.pid, signal.SIGKILL)
                psutil.wait_procs(members, timeout=KILL_SECONDS)
        else:
            self._end_leftovers()
        if self._popen is not None:
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(timeout=KILL_SECONDS)
        self._identity_file.unlink(missing_ok=True)

    def wait_until(
        self,
        condition: Callable[[], bool],
        timeout: float,
        what: str,
        *,
        tick: float = _TICK_SECONDS,
    ) -> None:
        """Poll ``condition`` every ``tick`` seconds until it holds.

        StackError: the process ended, or the time (seconds) is up; names the log.
        """
        deadline = time.monotonic() + timeout
        while not condition():
            process = self._find()
            if process is None:
                raise StackError(
                    f"{self.name} ended by itself: {self.last_words()} (see {self.log})"
                )
            if time.monotonic() > deadline:
                raise StackError(
                    f"{self.name} is not {what} after {timeout:.0f} s: {self.last_words()} "
                    f"(see {self.log})"
                )
            with suppress(psutil.TimeoutExpired):
                process.wait(timeout=tick)

    def wait_until_gone(self, timeout: float) -> None:
        """Wait until the process has ended by itself.

        StackError: it still runs after ``timeout`` seconds.
        """
        process = self._find()
        if process is not None:
            try:
                process.wait(timeout=timeout)
            except psutil.TimeoutExpired:
                raise StackError(f"{self.name} still runs after {timeout:.0f} s") from None

    def last_words(self) -> str:
        """Return the most useful recent line of the log: the last error, or the last line."""
        try:
            with self.log.open(encoding="utf-8", errors="replace") as file:
                lines = [line.strip() for line in deque(file, maxlen=_TAIL_LINES) if line.strip()]
        except FileNotFoundError:
            lines = []
        return error_line(lines)

    def _remember(self, pid: int) -> None:
        identity = {"pid": pid, "created": psutil.Process(pid).create_time()}
        write_atomically(self._identity_file, json.dumps(identity).encode())

    def _end_leftovers(self) -> None:
        """End what a killed leader left in its group.

        The kernel does not reuse a leader's pid while its group exists, so a group without that pid
        is still ours. (The environment proves nothing here: Airflow's workers write their process
        title over it.)
        """
        identity = self._identity()
        if not identity:
            return
        leader = int(identity["pid"])
        with suppress(psutil.NoSuchProcess):
            if not started_at(psutil.Process(leader), identity["created"]):
                return  # our group ended long ago, the pid was reused since
        end_processes(group_members(leader), timeout=0)

    def _identity(self) -> dict[str, float]:
        try:
            identity: dict[str, float] = json.loads(self._identity_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return identity

    def _find(self) -> psutil.Process | None:
        if self._popen is not None:
            self._popen.poll()
        identity = self._identity()
        if not identity:
            return None
        try:
            process = psutil.Process(int(identity["pid"]))
            if not started_at(process, identity["created"]):
                return None
            return None if process.status() == psutil.STATUS_ZOMBIE else process
        except psutil.NoSuchProcess:
            return None


def started_at(process: psutil.Process, created: float) -> bool:
    """Return whether a process has this start time in epoch seconds, so its pid was not reused.

    psutil.NoSuchProcess: the process is gone.
    """
    return abs(process.create_time() - created) <= _SAME_SECONDS


def error_line(lines: Sequence[str]) -> str:
    """Return the last line that speaks of an error, or just the last one."""
    errors = [line for line in lines if _TROUBLE.search(line) and not line.startswith("at ")]
    return (errors or lines or ["no output"])[-1][:_LINE_LENGTH]


def group_members(group: int) -> list[psutil.Process]:
    """Return the living processes of a process group."""
    members = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError, PermissionError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
