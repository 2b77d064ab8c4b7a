"""Ctrl-C ends a command within a second, even one that waits in a client library's call.

Python handles a signal only between two steps of its own. A thread therefore waits for the signal
as well, and ends the process if the command has not ended by itself.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from srm.errors import INTERRUPTED

_GRACE_S: Final = 0.7
_SHOW_CURSOR: Final = "\x1b[?25h"
_tidying = threading.Event()


def end_soon_after_interrupt() -> None:
    """End this program soon after Ctrl-C, unless it handles signals or tidies up itself."""
    arrivals, wakeup = socket.socketpair()
    wakeup.settimeout(0)
    signal.set_wakeup_fd(wakeup.detach(), warn_on_full_buffer=False)
    watch = threading.Thread(target=_watch, args=(arrivals,), name="srm-interrupts", daemon=True)
    watch.start()


@contextmanager
def tidying_up() -> Iterator[None]:
    """Let the block end in its own time after Ctrl-C: it removes what it has made."""
    _tidying.set()
    try:
        yield
    finally:
        _tidying.clear()


def _watch(arrivals: socket.socket) -> None:
    while numbers := arrivals.recv(64):
        if signal.SIGINT in numbers and _is_unhandled():
            end = threading.Timer(_GRACE_S, _end)
            end.daemon = True
            end.start()


def _is_unhandled() -> bool:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    return handlers == (signal.default_int_handler, signal.SIG_DFL) and not _tidying.is_set()


def _end() -> None:
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    os._exit(INTERRUPTED)
