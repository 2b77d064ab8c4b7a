"""Clocks: the time of day, and monotonic seconds for everything that expires.

The monotonic clock continues while a machine is suspended: a claim or lease held through the night
has expired in the morning, as it has for others. Python's monotonic clock stops in the meantime.
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


def now_ms() -> int:
    """Return epoch milliseconds by the system clock."""
    return time.time_ns() // 1_000_000


def now_s() -> float:
    """Return seconds since some moment in the past."""
    return _current()


def until_next(every_s: float) -> float:
    """Return the time until a moment that regular tasks of the whole machine share."""
    rest_s = every_s - now_s() % every_s
    return rest_s if rest_s > every_s / 10 else rest_s + every_s


def pauses(first_s: float, longest_s: float) -> Iterator[float]:
    """Yield pauses between attempts in seconds: each is twice the one before, up to a longest."""
    while True:
        yield first_s
        first_s = min(first_s * 2, longest_s)


@contextmanager
def using(clock: Seconds) -> Iterator[None]:
    """Use another clock, such as that of a simulation."""
    global _current  # noqa: PLW0603 - one clock for the process, as the system's is
    before, _current = _current, clock
    try:
        yield
    finally:
        _current = before
