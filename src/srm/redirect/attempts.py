"""Retry a call with growing pauses until its time is over or it is cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from tenacity import (
    RetryError,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from srm.engine.ports import CallResult

_FIRST_PAUSE_S: Final = 0.3
_LONGEST_PAUSE_S: Final = 5.0


class TryAgainError(Exception):
    """This attempt failed and may be retried; the message has the reason."""


def attempt(once: Callable[[], str], limit_s: float, cancelled: threading.Event) -> CallResult:
    """Call until it succeeds; return its answer, or the reason of its failure.

    Args:
        once: makes one attempt; TryAgainError requests another.
        limit_s: seconds after which no attempt is started.
        cancelled: ends the attempts.
    """
    tries = Retrying(
        stop=stop_after_delay(limit_s) | stop_when_event_set(cancelled),
        wait=wait_random_exponential(multiplier=_FIRST_PAUSE_S, max=_LONGEST_PAUSE_S),
        retry=retry_if_exception_type(TryAgainError),
        sleep=sleep_using_event(cancelled),
    )
    try:
        return CallResult(done=True, said=tries(once))
    except RetryError as error:
        last = error.last_attempt
        return CallResult(done=False, said=f"{last.exception()}; tried {last.attempt_number} times")
    except RefusedError as error:
        return CallResult(done=False, said=str(error))


class RefusedError(Exception):
    """The receiver refused; a retry would get the same answer."""
