"""Keeps one replicator application running, for a caller that may be killed at any time.

The application is detached: what it copies does not depend on its supervisor, and the next one
finds it again by its heartbeats. How it does is decided in :mod:`srm.engine.flows.supervision`.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from srm.clock import now_ms
from srm.engine.flows import supervision
from srm.engine.flows.supervision import StateTopics, Watch
from srm.engine.status.status import signs_health, signs_line
from srm.errors import SrmError, UnavailableError
from srm.threads import start_thread

KEPT_LOGS: Final = 10

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
LOG_EVERY_S: Final = 60.0
STOP_GRACE_S: Final = 2.0
"""Airflow kills a task 5 s after its signal to end; the copy is crash-safe, so be quick."""

Show = Callable[[Mapping[str, Any]], None]


@dataclass(eq=False)
class ReplicatorSupervisor:
    """Finds or starts the application that drives some flows; stays with it until it ends."""

    open_topics: Callable[[], AbstractContextManager[StateTopics]]
    command: Callable[[], Sequence[str]]
    logs: Path
    show: Show = lambda _shown: None
    child: subprocess.Popen[bytes] | None = None
    _application: Application | None = None
    was_killed: bool = False

    def run(
        self,
        known: Application | None = None,
        found: Callable[[Application], None] = lambda _application: None,
    ) -> None:
        """Supervise until the application ends in good order, or :meth:`kill` is called.

        ``known`` is what an earlier supervisor has started; ``found`` gets the one for next time.
        UnavailableError: the application failed or its heartbeats stopped: run it again.
        """
        with self.open_topics() as topics:
            application = self._begin(topics, known)
            if application is not None:
                found(application)
                self._supervise(application, topics)

    def begin(self, known: Application | None = None) -> Application | None:
        """Find or start the application and leave it; None if :meth:`kill` was called before."""
        with self.open_topics() as topics:
            return self._begin(topics, known)

    def kill(self, by: str) -> None:
        """End :meth:`run` and the application, on any host; callable from a signal handler."""
        self.was_killed = True
        if self._application is not None:
            self._end(self._application, by)

    def _end(self, application: Application, by: str) -> None:
        """Ask by a record and, on this host, by a signal: the sooner of both ends it."""
        logger.info("Ending the replicator, process %s on %s", application.pid, application.host)
        # With clients of its own: the others may be in the call that a signal has interrupted.
        thread = start_thread("srm-request", partial(request_end, self.open_topics, by))
        application.stop(STOP_GRACE_S)
        thread.join(STOP_GRACE_S)

    def _begin(self, topics: StateTopics, known: Application | None) -> Application | None:
        running = known if known and known.process() else None
        self._application = running or self._find_or_start(topics)
        return self._application

    def _find_or_start(self, topics: StateTopics) -> Application | None:
        watch, said = Watch.over(topics, time.monotonic()), ""
        while not self.was_killed:
            found, now = supervision.look(topics), time.monotonic()
            watch = watch.after(found, now)
            step = watch.next_step(now)
            if step == "supervise":
                driver = watch.living(now)[0]
                logger.info(
                    "Replicator %s on %s already drives all flows: supervising it, not starting "
                    "another",
                    driver.application_id,
                    driver.host,
                )
                return Application(driver.host, driver.pid, 0.0, ours=False, driver=driver.driver)
            if step == "start":
                return self._start()
            if reason := _waits_for(watch):
                if reason != said:
                    logger.warning("%s", reason)
                said = reason
                self.show(progress("stopped" if watch.stopped_by else "unknown", None, watch))
            time.sleep(supervision.POLL_S)
        return None

    def _start(self) -> Application:
        log = new_log(self.logs, "replicator")
        self.child = start(self.command(), os.environ, log)
        logger.info("Started the replicator as process %s, its log is %s", self.child.pid, log)
        return Application.from_child(self.child, log)

    def _supervise(self, application: Application, topics: StateTopics) -> None:
        watch = Watch.over(topics, time.monotonic(), application.driver)
        logged = float("-inf")
        while not self.was_killed and not (application.local and application.process() is None):
            watch = watch.after(supervision.look(topics), time.monotonic())
            verdict = watch.verdict(time.monotonic())
            self.show(progress(verdict, application, watch))
            if time.monotonic() - logged > LOG_EVERY_S:
                logged = time.monotonic()
                lines = [signs_line(sign) for sign in watch.signs]
                lines += [f"{flow}: not known: {error}" for flow, error in watch.errors.items()]
                logger.info("Replicator is %s: %s", verdict, "; ".join(lines))
            if verdict == "ended":
                logger.info("The replicator has ended normally")
                return
            if verdict == "lost":
                self._end(application, requester("supervision, which sees no heartbeats,"))
                raise lost_error(map(str, topics), application)
            self._wait_for_end(application)
        self._judge_end(application)

    def _wait_for_end(self, application: Application) -> None:
        # A child must be waited for by its own object: psutil would consume its exit code.
        waits = self.child or application.process()
        if waits is None:
            time.sleep(LOOK_EVERY_S)
            return
        with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
            waits.wait(LOOK_EVERY_S)

    def _judge_end(self, application: Application) -> None:
        code = self.child.poll() if self.child else None
        if self.was_killed or code == 0:
            logger.info("The replicator has ended")
            return
        raise UnavailableError(
            f"the replicator (process {application.pid}) ended with "
            f"{'an unknown exit code' if code is None else f'exit code {code}'}; it is started "
            f"again, its log is {application.log}\n{tail(application.log)}"
        )


def request_end(open_topics: Callable[[], AbstractContextManager[StateTopics]], by: str) -> None:
    """Request the end of the application; a failure is only logged."""
    try:
        with open_topics() as topics:
            supervision.request_end(topics, "restart", by, now_ms())
    except SrmError as error:
        logger.warning("The request to end the replicator was not written: %s", error)


def lost_error(flows: Iterable[str], application: Application) -> UnavailableError:
    return UnavailableError(
        f"the replicator of {', '.join(flows)} sends no heartbeats (process {application.pid} on "
        f"{application.host}); it is started again, look into "
        f"{application.log or 'its own log'} for the cause\n{tail(application.log)}".rstrip()
    )


def requester(name: str) -> str:
    return f"{name} on {socket.gethostname()}"


def _waits_for(watch: Watch) -> str:
    if watch.stopped_by is not None:
        by = watch.stopped_by.by
        return f"{by} has stopped the replicator, nothing is copied until 'srm replicator restart'"
    if watch.signs:
        return ""
    return f"no flow can be read, a replicator may run: {next(iter(watch.errors.values()), '')}"


def progress(state: str, application: Application | None, watch: Watch) -> dict[str, Any]:
    known = asdict(application) if application else {}
    return {
        "state": state,
        **{key: known.get(key) for key in ("pid", "host", "log")},
        "flows": [{**sign.summary(), "health": signs_health(sign).state} for sign in watch.signs]
        + [
            {"flow": str(f), "health": "UNKNOWN", "reasons": [str(e)]}
            for f, e in watch.errors.items()
        ],
    }


@dataclass(frozen=True, slots=True)
class Application:
    """A started or found application, judged by its heartbeats wherever it runs.

    ``created`` guards against a ``pid`` used again. One that is not ``ours`` was found by its
    heartbeat. Its process group may be a user's shell, so it only ever receives a request.
    """

    host: str
    pid: int
    created: float
    ours: bool
    log: str = ""
    driver: str = ""

    @classmethod
    def from_child(cls, child: subprocess.Popen[bytes], log: Path) -> Application:
        created = psutil.Process(child.pid).create_time()
        return cls(socket.gethostname(), child.pid, created, ours=True, log=str(log))

    @property
    def local(self) -> bool:
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
        """End it with all its processes, soon, if it is ours and on this host."""
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
    """Start a command that outlives its parent: with a session and a log file of its own."""
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(env),
            start_new_session=True,
        )


def new_log(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    older = sorted(folder.glob(f"{name}-*.log"))
    for path in older[: max(0, len(older) - KEPT_LOGS + 1)]:
        path.unlink(missing_ok=True)
    return folder / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%S}.log"


def tail(log: str, lines: int = 20) -> str:
    path = Path(log)
    if not log or not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 16_384))
        text = file.read().decode(errors="replace")
    return "\n".join(text.splitlines()[-lines:])
