"""The replicator application as a process of its own: started, found and ended on this host.

What it does is judged by its heartbeats (:mod:`srm.engine.flows.supervision`), wherever it runs. A
process id only helps on the host of the process, and only to see or bring about its end sooner.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import psutil

from srm.domain.flow_state.replication_records import DriverHeartbeat

KEPT_LOGS: Final = 10


@dataclass(frozen=True, slots=True)
class Application:
    """A started or found application. ``created`` guards against a process id used again.

    ``ours`` is False for one that was found by its heartbeat. Its process group may be a user's
    shell, so it only ever receives a request. ``driver`` is its id in heartbeats, if known.
    """

    host: str
    pid: int
    created: float
    ours: bool
    log: str = ""
    driver: str = ""

    @classmethod
    def from_child(cls, child: subprocess.Popen[bytes], log: Path) -> Application:
        """Describe a child of this process."""
        created = psutil.Process(child.pid).create_time()
        return cls(socket.gethostname(), child.pid, created, ours=True, log=str(log))

    @classmethod
    def from_heartbeat(cls, driver: DriverHeartbeat) -> Application:
        """Describe an application by its heartbeat."""
        return cls(driver.host, driver.pid, 0.0, ours=False, driver=driver.driver)

    @property
    def local(self) -> bool:
        """True if the process runs on this host, so its end can be detected."""
        return self.host == socket.gethostname()

    def process(self) -> psutil.Process | None:
        """Return the local process, None where it is gone or runs on another host."""
        if not self.local:
            return None
        try:
            process = psutil.Process(self.pid)
            same = self.created == 0 or abs(process.create_time() - self.created) <= 2
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if same and alive else None

    def stop(self, grace_s: float) -> None:
        """End it with all its processes, if it is ours and on this host.

        It may be killed at any time, so it is not given much.
        """
        process = self.process()
        if process is None or not self.ours:
            return
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(os.getpgid(process.pid), sign)
                process.wait(grace_s)
            except psutil.TimeoutExpired:
                continue
            except (ProcessLookupError, psutil.NoSuchProcess):
                return
            else:
                return


def start(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command that outlives its parent, with a session and a log file of its own.

    A child that held an Airflow task's pipes would make a killed task look alive to Airflow.
    """
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
            close_fds=True,
        )


def new_log(folder: Path, name: str) -> Path:
    """Name a log file for a new start and drop the oldest ones."""
    folder.mkdir(parents=True, exist_ok=True)
    older = sorted(folder.glob(f"{name}-*.log"))
    for path in older[: max(0, len(older) - KEPT_LOGS + 1)]:
        path.unlink(missing_ok=True)
    return folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"


def tail(log: str, lines: int = 20) -> str:
    """Return the last lines of a log file, empty when there is none."""
    path = Path(log)
    if not log or not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16_384))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
