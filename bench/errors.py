"""Error of the benchmark, and a wait that raises it."""

from __future__ import annotations

import time
from collections.abc import Callable


class BenchError(Exception):
    """A case could not be measured; the others continue."""


def wait(condition: Callable[[], bool], seconds: float, what: str, tick: float = 0.05) -> float:
    """Poll a condition until it holds and return the elapsed seconds.

    Raises:
        BenchError: it does not hold in time.
    """
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise BenchError(f"not within {seconds:.0f} s: {what}")
        time.sleep(tick)
    return time.monotonic() - began
