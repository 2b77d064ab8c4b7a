"""Few requests at a time do what costs much: each waits for its turn, or is sent away.

What reaches the clusters opens clients of its own and holds a thread; a guess at a password takes a
core.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from anyio import CapacityLimiter

from srm.errors import UnavailableError

AT_ONCE: Final = 4
WAITING: Final = 16
ADDRESSES: Final = 64


class ConcurrencyLimit:
    """Lets a few go on at the same time, a few more wait, and sends away whoever comes then.

    So neither somebody who asks again and again, nor a cluster that answers late, keeps the threads
    busy that pages are made by.

    Args:
        at_once: so many go on.
        waiting: so many wait for their turn.
        refusal: what is told to further ones.
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        waiting: int = WAITING,
        refusal: str = "too many others are asking the clusters now; retry",
    ) -> None:
        self._limit = CapacityLimiter(at_once)
        self._waiting = waiting
        self._refusal = refusal

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it.

        Raises:
            UnavailableError: too many wait already.
        """
        if self._limit.statistics().tasks_waiting >= self._waiting:
            raise UnavailableError(self._refusal)
        async with self._limit:
            yield


class FairTurns:
    """Lets one go on at a time, by addresses in turn: one of each waits in the line of all.

    Others from there wait behind it, in a line of their own. So however many come from one address,
    who comes from elsewhere has one of them before him.
    """

    def __init__(self) -> None:
        self._all = ConcurrencyLimit(1, ADDRESSES, "too many others are logging in now; retry")
        self._own: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, where: str) -> AsyncIterator[None]:
        """Wait for the turn of somebody who comes from an address, and have it.

        Raises:
            UnavailableError: too many wait already, from there or of all.
        """
        refusal = f"too many others are logging in from {where} now; retry"
        own = self._own.setdefault(
            where, ConcurrencyLimit(1, WAITING, refusal)
        )  # kept while it is waited in
        async with own.turn(), self._all.turn():
            yield
