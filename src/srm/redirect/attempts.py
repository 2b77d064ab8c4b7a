"""Retry a call with growing pauses until its time is over or it is cancelled."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from srm.clock import pauses
from srm.engine.ports import CallResult

_FIRST_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 5.0


class TryAgainError(Exception):
    """This attempt failed and may be retried; the message has the reason."""


def attempt(once: Callable[[], str], limit_s: float, cancelled: threading.Event) -> CallResult:
    """Call until it succeeds or is ``cancelled``; return its answer, or the reason of its failure.

    ``once`` raises TryAgainError for another attempt; none starts after ``limit_s``.
    """
    deadline = time.monotonic() + limit_s
    pause_s = pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
    tries = 0
    while True:
        tries += 1
        try:
            return CallResult(done=True, said=once())
        except RefusedError as error:
            return CallResult(done=False, said=str(error))
        except TryAgainError as error:
            if time.monotonic() >= deadline or cancelled.is_set():
                return CallResult(done=False, said=f"{error}; tried {tries} times")
        cancelled.wait(random.uniform(0, next(pause_s)))  # noqa: S311 - no secret


class RefusedError(Exception):
    """The receiver refused; a retry would get the same answer."""
