"""Processes of a running replicator application."""

from __future__ import annotations

from contextlib import suppress

import psutil


def slot_workers(application: psutil.Process) -> list[psutil.Process]:
    """Python workers of slots: children of Spark's worker daemon, which forks one for each task."""
    daemons = []
    for process in application.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # a zombie has no command line
            if "pyspark.daemon" in process.cmdline():
                daemons.append(process)
    parents = {process.pid for process in daemons}
    return [process for process in daemons if process.ppid() in parents]
