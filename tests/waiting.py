"""Waits for a condition, never for a time, on a clock that stops while the machine is starved."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

DEADLINE_S: Final = 120.0
"""Costs nothing where things work: on a busy machine a JVM starts in a minute."""

_PRESSURE: Final = Path("/proc/pressure/cpu")
_LEAST_SHARE: Final = 0.1
"""At least this share of the time counts, however starved the machine is."""


class Pressure(NamedTuple):
    """Wait of runnable tasks for a core, as the Linux kernel measures it; 0 without that.

    Args:
        recent: percent of the last ten seconds in which a task waited.
        total_s: seconds since the boot in which a task waited.
    """

    recent: float
    total_s: float


def cpu_pressure() -> Pressure:
    """Read the pressure on the cores now."""
    try:
        some = _PRESSURE.read_text(encoding="ascii").splitlines()[0]
    except OSError:
        return Pressure(0.0, 0.0)
    fields = dict(field.split("=") for field in some.split()[1:])
    return Pressure(float(fields["avg10"]), int(fields["total"]) / 1e6)


class Stopwatch:
    """Seconds since it was made, without those in which tasks waited for a core.

    A deadline on it is as long on a quiet machine, and up to ten times longer on a starved one.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._waited_s = cpu_pressure().total_s

    @property
    def wall_s(self) -> float:
        """Seconds on the clock."""
        return time.monotonic() - self._began

    @property
    def elapsed_s(self) -> float:
        """Seconds that count."""
        wall_s = self.wall_s
        starved_s = max(0.0, cpu_pressure().total_s - self._waited_s)
        return max(_LEAST_SHARE * wall_s, wall_s - starved_s)


def eventually(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> float:
    """Poll a condition until it holds; return the seconds that took.

    Looking takes a third of the time at most, and is the rarer the longer it has been in vain: what
    is waited for needs the processor more.
    """
    watch = Stopwatch()
    looked = time.monotonic()
    while not condition():
        elapsed_s, wall_s, now = watch.elapsed_s, watch.wall_s, time.monotonic()
        assert elapsed_s < deadline_s, (
            f"not within {deadline_s:.0f} s ({wall_s:.0f} s on the clock): {what}"
        )
        time.sleep(max(0.02, 2 * (now - looked), min(0.25, wall_s / 20)))
        looked = time.monotonic()
    return watch.wall_s


async def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Look at a condition again and again until it holds, while the event loop does the rest."""
    watch = Stopwatch()
    while not condition():
        if watch.elapsed_s >= deadline_s:
            raise TimeoutError(f"not within {deadline_s:.0f} s")
        await asyncio.sleep(0.001)
