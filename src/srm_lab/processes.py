"""Processes of this machine: by a mark in their environment, and of a replicator application."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import psutil

from srm.spark import WORKER_DAEMON

KILL_SECONDS: Final = 10.0
"""Limit of the wait after SIGKILL."""


def marked_processes(variable: str, value: str) -> list[psutil.Process]:
    """Return other living processes whose environment has ``variable=value``.

    Children inherit the environment, so this finds processes detached from their group.
    """
    ours = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid not in ours and process.environ().get(variable) == value:
                found.append(process)
    return found


def end_processes(processes: Iterable[psutil.Process], timeout: float) -> None:
    """Send SIGTERM, wait up to ``timeout`` seconds, then send SIGKILL to the rest."""
    alive = list(processes)
    for process in alive:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(alive, timeout=timeout)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=KILL_SECONDS)


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is Spark's worker daemon for Python, or a worker it forked.

    psutil.Error: the process is gone, or a zombie without a command line.
    """
    return WORKER_DAEMON in process.cmdline()


def slot_workers(application: psutil.Process) -> list[psutil.Process]:
    """Python workers of slots: children of Spark's worker daemon, which forks one for each task."""
    daemons = []
    for process in application.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if is_worker(process):
                daemons.append(process)
    parents = {process.pid for process in daemons}
    return [process for process in daemons if process.ppid() in parents]
