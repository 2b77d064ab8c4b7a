"""Shutdown of the threads that look at clusters: signalled all at once, with a short wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Final, Protocol

LEAVE_S: Final = 3.0
"""Time for an orderly end. A thread that waits for an unavailable cluster ends later, or with the
process: all are daemon threads that hold only connections."""


class Ends(Protocol):
    """An object with a thread."""

    thread: threading.Thread

    def end(self) -> None:
        """Signal the thread to end."""
        ...


def end_all(ending: Collection[Ends], limit_s: float = LEAVE_S) -> None:
    """Signal all to end, and wait for all of them together at most ``limit_s``."""
    for one in ending:
        one.end()
    until = time.monotonic() + limit_s
    for one in ending:
        if one.thread.is_alive():
            one.thread.join(max(0.0, until - time.monotonic()))
