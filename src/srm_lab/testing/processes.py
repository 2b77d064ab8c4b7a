"""Processes of a running replicator application."""

from __future__ import annotations

from contextlib import suppress

import psutil

from srm.spark import WORKER_DAEMON


def is_worker(process: psutil.Process) -> bool:
    """Return whether a process is Spark's worker daemon for Python, or a worker it forked.

    Raises:
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
