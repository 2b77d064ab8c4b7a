"""Signals that may set events: what a handler does must not wait for what it has interrupted."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable


def on_signals(*numbers: signal.Signals, call: Callable[[int], None]) -> None:
    """Have a function called, on a thread of its own, with each signal that arrives.

    A handler runs inside whatever the main thread does at that time. If that is
    ``threading.Event.wait``, which holds the event's lock for some instructions, a handler that
    sets the event waits for ever. Adding to a ``SimpleQueue`` is safe wherever it happens.

    Args:
        numbers: the signals; only the main thread may ask for them.
        call: called with the number of each, one after the other.
    """
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            call(arrived.get())

    threading.Thread(target=listen, name="srm-signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda received, _frame: arrived.put(received))
