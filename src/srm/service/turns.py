"""Few requests at a time reach the clusters: each opens clients of its own and holds a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from anyio import CapacityLimiter

from srm.errors import UnavailableError

AT_ONCE: Final = 4
WAITING: Final = 16


class Turns:
    """Lets a few go on at the same time, a few more wait, and sends away whoever comes then.

    So neither somebody who asks again and again, nor a cluster that answers late, keeps the threads
    busy that pages are made by.

    Args:
        at_once: so many go on.
        waiting: so many wait for their turn.
    """

    def __init__(self, at_once: int = AT_ONCE, waiting: int = WAITING) -> None:
        self._limit = CapacityLimiter(at_once)
        self._waiting = waiting

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it.

        Raises:
            UnavailableError: too many wait already.
        """
        if self._limit.statistics().tasks_waiting >= self._waiting:
            raise UnavailableError("too many others are asking the clusters now; retry")
        async with self._limit:
            yield
