"""Start, find and judge the replicator application from outside.

Its sign of life is the driver heartbeat in ``srm-replication.<SOURCE>.internal`` of each flow. A
process id only helps on the host where the process runs, and only to notice its end sooner.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from srm.domain.internal_topics import replication
from srm.domain.replication_records import (
    DRIVER_KEY,
    DriverHeartbeat,
    PartitionStatus,
    SlotReport,
)
from srm.domain.topics import Flow
from srm.engine.ports import CompactedTopic
from srm.errors import UnavailableError

LOST_AFTER_S: Final = 30.0
"""A readable topic without a new heartbeat for this long means that the application is gone."""
STARTUP_S: Final = 180.0
"""A cold Spark application on a busy machine may need this long for its first heartbeat."""
CURRENT_MS: Final = 15_000
"""Slot reports this much older than the heartbeat belong to an earlier application."""
KEPT_LOGS: Final = 10
KEPT_REASONS: Final = 20

Verdict = Literal["starting", "running", "lost"]


@dataclass(frozen=True, slots=True)
class FlowSigns:
    """What the topic of one flow says: who drives it and how far its slots are.

    ``remaining`` counts source offsets not copied yet, markers included.
    """

    flow: str
    driver: DriverHeartbeat | None
    slots: int
    partitions: int
    remaining: int
    stopped: tuple[str, ...]

    def summary(self) -> dict[str, Any]:
        """Return plain JSON for the task's state."""
        return {
            "flow": self.flow,
            "application_id": self.driver.application_id if self.driver else "",
            "driver": f"{self.driver.host}/{self.driver.pid}" if self.driver else "",
            "heartbeat_ms": self.driver.time_ms if self.driver else 0,
            "slots": self.slots,
            "partitions": self.partitions,
            "remaining": self.remaining,
            "stopped": len(self.stopped),
            "reasons": list(self.stopped[:KEPT_REASONS]),
        }


def read_signs(flow: Flow, records: Mapping[bytes, bytes]) -> FlowSigns:
    """Interpret the current records of ``srm-replication.<SOURCE>.internal``."""
    driver = DriverHeartbeat.decode(records[DRIVER_KEY]) if DRIVER_KEY in records else None
    oldest = driver.time_ms - CURRENT_MS if driver else 0
    reports = [
        report
        for key, value in records.items()
        if key.startswith(b"slot:") and (report := SlotReport.decode(key, value)).time_ms >= oldest
    ]
    positions = [entry.position for report in reports for entry in report.positions]
    statuses = (
        PartitionStatus.decode(value)
        for key, value in records.items()
        if key.startswith(b"status:")
    )
    return FlowSigns(
        flow=str(flow),
        driver=driver,
        slots=len(reports),
        partitions=len(positions),
        remaining=sum(max(0, p.source_end - p.source_next) for p in positions),
        stopped=tuple(
            f"{status.topic}-{status.partition}: {status.reason}"
            for status in statuses
            if status.state == "stopped"
        ),
    )


@dataclass
class Watch:
    """Judges the heartbeats of all flows by when they change, on this host's monotonic clock."""

    topics: Mapping[Flow, CompactedTopic]
    began: float = field(init=False)
    _beats: dict[Flow, tuple[str, int]] = field(default_factory=dict)
    _changed: dict[Flow, float] = field(default_factory=dict)
    _unreadable: set[Flow] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.began = time.monotonic()

    @classmethod
    def over(cls, clusters: Mapping[str, Any], flows: Sequence[Flow]) -> Watch:
        """Watch the topics of the flows on their target clusters."""
        return cls(
            {flow: clusters[flow.target].compacted(replication(flow.source)) for flow in flows}
        )

    def look(self) -> list[FlowSigns]:
        """Read each flow's topic once; a cluster that does not answer is left out."""
        signs: list[FlowSigns] = []
        for flow, topic in self.topics.items():
            try:
                signs.append(read_signs(flow, topic.read()))
            except UnavailableError:
                # The driver cannot write either: no judgement, and a fresh start afterwards.
                self._unreadable.add(flow)
                continue
            self._note(flow, signs[-1].driver)
        return signs

    def _note(self, flow: Flow, driver: DriverHeartbeat | None) -> None:
        beat = (driver.driver, driver.time_ms) if driver else ("", 0)
        first = flow not in self._beats
        if beat != self._beats.get(flow):
            self._beats[flow] = beat
            if not first:
                self._changed[flow] = time.monotonic()
        elif flow in self._unreadable and flow in self._changed:
            self._changed[flow] = time.monotonic()
        self._unreadable.discard(flow)

    def verdict(self) -> Verdict:
        """Say whether every flow is driven, as far as their topics could be read."""
        now = time.monotonic()
        if any(flow not in self._changed for flow in self.topics):
            waiting_for_a_cluster = bool(self._unreadable)
            started_late = now - self.began > STARTUP_S and not waiting_for_a_cluster
            return "lost" if started_late else "starting"
        silent = (
            flow
            for flow, changed in self._changed.items()
            if now - changed > LOST_AFTER_S and flow not in self._unreadable
        )
        return "lost" if next(silent, None) else "running"

    def seen_alive(self, within_s: float) -> bool:
        """Look for up to ``within_s`` seconds whether all flows are driven already."""
        if not all(sign.driver for sign in self.look()):
            return False
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline and self.verdict() != "running":
            time.sleep(0.5)
            self.look()
        return self.verdict() == "running"


@dataclass(frozen=True, slots=True)
class Application:
    """A started or found application. ``created`` guards against a process id used again.

    ``ours`` is False for one that somebody started by hand: it is supervised, never stopped.
    """

    host: str
    pid: int
    created: float
    ours: bool
    log: str = ""

    def process(self) -> psutil.Process | None:
        """Return the local process, None where it is gone or runs on another host."""
        if self.host != socket.gethostname():
            return None
        try:
            process = psutil.Process(self.pid)
            same = self.created == 0 or abs(process.create_time() - self.created) < 1
            alive = process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return None
        return process if same and alive else None

    @classmethod
    def started(cls, child: subprocess.Popen[bytes], log: Path) -> Application:
        """Describe a child of this process."""
        created = psutil.Process(child.pid).create_time()
        return cls(socket.gethostname(), child.pid, created, ours=True, log=str(log))

    @classmethod
    def found(cls, driver: DriverHeartbeat) -> Application:
        """Describe an application that was started elsewhere, by its heartbeat."""
        return cls(driver.host, driver.pid, 0.0, ours=False)

    @property
    def local(self) -> bool:
        """Whether the end of the process can be noticed from here."""
        return self.host == socket.gethostname()


def start(command: Sequence[str], env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a command that outlives the task, with a session and a log file of its own.

    A child that held the task's pipes would make a killed task look alive to Airflow.
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


def stop(application: Application, grace_s: float) -> None:
    """End a local application with all its processes; it may be killed at any time."""
    process = application.process()
    if process is None:
        return
    group = os.getpgid(process.pid)
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(group, sign)
            process.wait(grace_s)
        except psutil.TimeoutExpired:
            continue
        except (ProcessLookupError, psutil.NoSuchProcess):
            return
        else:
            return


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
