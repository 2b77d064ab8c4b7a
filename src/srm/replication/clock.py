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


@contextmanager
def using(clock: Seconds) -> Iterator[None]:
    """Let another clock tell the seconds: the one of a simulated world."""
    global _current  # noqa: PLW0603 - one clock for the process, as the system's is
    before, _current = _current, clock
    try:
        yield
    finally:
        _current = before
