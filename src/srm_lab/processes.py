"""Find and end processes of this machine by a mark in their environment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import psutil

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
