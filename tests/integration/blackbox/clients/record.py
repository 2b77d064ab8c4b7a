"""What a client writes down, one line per event: the only evidence the audit accepts.

A line is ``time_ms kind cluster topic partition offset id``, separated by tabs. Kinds: ``joined``
(the group gave this client partitions), ``acked`` (the broker has the record for good), ``open``
(in a transaction that is not decided), ``aborted``, ``failed``, ``processed``.
"""

from __future__ import annotations

import queue
import signal
import threading
import time
from pathlib import Path
from typing import TextIO


class Record:
    """Appends events of one client on one cluster to its file; a line is whole or not there."""

    def __init__(self, path: Path, cluster: str) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1)
        self._cluster = cluster
        self._lock = threading.Lock()

    def write(
        self,
        kind: str,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        id: str = "",  # noqa: A002 -- the column's name
    ) -> None:
        """Append one event."""
        now = time.time_ns() // 1_000_000
        line = f"{now}\t{kind}\t{self._cluster}\t{topic}\t{partition}\t{offset}\t{id}\n"
        with self._lock:
            self._file.write(line)


def stop_on_sigterm() -> threading.Event:
    """Return an event that SIGTERM sets: the client ends in order, as a deployment ends it.

    It is set by a thread: a handler that interrupts ``stop.wait`` would wait for its lock for ever.
    """
    stop, arrived = threading.Event(), queue.SimpleQueue[int]()

    def listen() -> None:
        arrived.get()
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda number, _frame: arrived.put(number))
    return stop
