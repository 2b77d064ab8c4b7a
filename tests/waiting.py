"""Waiting for a condition, never for a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEADLINE_S = 120.0
"""Costs nothing where things work: on a busy machine a JVM starts in a minute."""


def eventually(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> float:
    """Poll a condition until it holds; return the seconds that took.

    Looking takes a third of the time at most, and is the rarer the longer it has been in vain: what
    is waited for needs the processor more.
    """
    began = looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now - began < deadline_s, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(max(0.02, 2 * (now - looked), min(0.25, (now - began) / 20)))
        looked = time.monotonic()
    return time.monotonic() - began


async def until(condition: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Look at a condition again and again until it holds, while the event loop does the rest."""
    async with asyncio.timeout(deadline_s):
        while not condition():  # noqa: ASYNC110 - a state, not an event
            await asyncio.sleep(0.001)
