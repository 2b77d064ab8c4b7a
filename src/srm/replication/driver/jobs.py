"""Keeps one slot's job running: submitted again, with a growing pause, whenever it ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from srm.errors import SupersededError

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 15.0
HEALTHY_S: Final = 30.0  # a job that ran for this long was fine: the pause starts small again


@dataclass(slots=True)
class Backoff:
    """Pause before the next attempt, doubled by each one that ends early."""

    next_s: float = FIRST_PAUSE_S

    def after(self, ran_s: float) -> float:
        """Return the pause after an attempt that lasted a number of seconds."""
        if ran_s >= HEALTHY_S:
            self.next_s = FIRST_PAUSE_S
        pause, self.next_s = self.next_s, min(LONGEST_PAUSE_S, self.next_s * 2)
        return pause


def keep_running(
    name: str,
    job: Callable[[], None],
    stop: threading.Event,
    *,
    describe: Callable[[Exception], str] = str,
) -> int:
    """Run ``job`` again and again until ``stop``; return how often it was started.

    ``job`` ends by returning or any exception, of which ``describe`` makes a line. The caller ends
    a running one.

    SupersededError: another application drives the flow: the job would only end again.
    """
    pause, submissions = Backoff(), 0
    while not stop.is_set():
        started = time.monotonic()
        submissions += 1
        try:
            job()
            reason = "it returned"
        except SupersededError:
            raise
        except Exception as error:  # whatever ends a job, it has to run again
            reason = describe(error)
            logger.debug("%s failed", name, exc_info=error)
        if stop.is_set():
            break
        wait = pause.after(time.monotonic() - started)
        logger.warning("%s ended, submitted again in %.1f s: %s", name, wait, reason)
        stop.wait(wait)
    return submissions
