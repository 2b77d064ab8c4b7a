"""Threads that end with the process, and signal handlers that may wait: they run in one."""

from __future__ import annotations

import ctypes
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

_T = TypeVar("_T")


def share_heaps() -> None:
    """Have glibc give all threads two heaps, not 8 for each core: each one keeps its peak."""
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(-8, 2)  # M_ARENA_MAX


def start_thread(name: str, run: Callable[[], object]) -> threading.Thread:
    """Start a thread that ends with the process."""
    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread


def fulfil(future: Future[_T], call: Callable[[], _T]) -> None:
    """Give the result of a call, or its error, to who waits for the future."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 -- it is raised by who waits
        future.set_exception(error)


def on_signals(*numbers: signal.Signals, call: Callable[[int], None]) -> None:
    """Call a function with each signal that arrives, in a separate thread.

    A handler interrupts the main thread at any point. If that is in ``threading.Event.wait``, which
    holds the event's lock for some instructions, a handler that sets the event waits forever.
    Adding to a ``SimpleQueue`` is always safe.
    """
    arrived: queue.SimpleQueue[int] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            call(arrived.get())

    start_thread("srm-signals", listen)
    for number in numbers:
        signal.signal(number, lambda received, _frame: arrived.put(received))
