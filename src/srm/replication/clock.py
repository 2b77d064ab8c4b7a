"""Seconds that only grow, for everything that expires in the data plane.

The clock continues while a machine is suspended: a claim that was held through the night is over in
the morning, as it is for the brokers. Python's monotonic clock stands still meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

Seconds = Callable[[], float]


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


_SYSTEM: Final[Seconds] = _boot_time if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic
_current: Seconds = _SYSTEM


def now_s() -> float:
    """Return seconds since some moment in the past."""
    return _current()


def until_next(every_s: float) -> float:
    """Return how long it is to the next multiple of some seconds.

    What is done at regular intervals is done at the same moments, on the whole machine: then a
    processor that has little to do is woken once for all of it. A moment that is very near is
    passed over, as a timer may be a little early.
    """
    rest_s = every_s - now_s() % every_s
    return rest_s if rest_s > every_s / 10 else rest_s + every_s


@contextmanager
def using(clock: Seconds) -> Iterator[None]:
    """Let another clock tell the seconds: the one of a simulated world."""
    global _current  # noqa: PLW0603 - one clock for the process, as the system's is
    before, _current = _current, clock
    try:
        yield
    finally:
        _current = before
