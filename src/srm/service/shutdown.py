"""The end of the threads that look at clusters: told to all at once, and not waited for long."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from typing import Final, Protocol

LEAVE_S: Final = 3.0
"""Time to end in good order. A thread that waits for a cluster which is away ends later by itself,
or with the process: all of them are daemons, and what they hold are connections."""


class Ends(Protocol):
    """Something with a thread."""

    thread: threading.Thread

    def end(self) -> None:
        """Tell the thread to end."""
        ...


def end_all(ending: Collection[Ends], limit_s: float = LEAVE_S) -> None:
    """Tell all to end, and wait for them no longer than the limit, together."""
    for one in ending:
        one.end()
    until = time.monotonic() + limit_s
    for one in ending:
        if one.thread.is_alive():
            one.thread.join(max(0.0, until - time.monotonic()))
