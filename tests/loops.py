"""An event loop for tests of time limits: its clock stops until the test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.waiting import eventually

_T = TypeVar("_T")


class StillLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only when the test moves it on.

    Threads, sockets and whoever answers take the real time that they need: no limit passes then.
    """

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s


def run_still(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a test in a loop whose time passes by :func:`pass_time` alone."""
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        return runner.run(work)


async def pass_time(seconds: float) -> None:
    """Move the time on; timers that are due, and bytes that have arrived, have their effect."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, StillLoop)
    loop.now_s += seconds
    await settle()


async def settle() -> None:
    """Let what is due now have its effect."""
    for _ in range(10):
        await asyncio.sleep(0)


async def happens(condition: Callable[[], object], what: str) -> None:
    """Wait in real time for a condition, while no time passes for the loop."""
    await asyncio.to_thread(eventually, condition, what)
