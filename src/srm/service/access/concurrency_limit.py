"""Limits on expensive concurrent requests: excess requests wait or are refused.

A request to a cluster opens clients and holds a thread; a check of a password takes a core.
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
    """Runs a few requests at the same time, lets a few more wait and refuses the rest.

    Neither a client that repeats requests nor a slow cluster can then occupy the threads that
    render pages.
    """

    def __init__(
        self,
        at_once: int = AT_ONCE,
        waiting: int = WAITING,
        refusal: str = "too many requests to the clusters are running; retry",
    ) -> None:
        self._limit = CapacityLimiter(at_once)
        self._waiting = waiting
        self._refusal = refusal

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and hold it.

        Raises:
            UnavailableError: too many requests wait already.
        """
        if self._limit.statistics().tasks_waiting >= self._waiting:
            raise UnavailableError(self._refusal)
        async with self._limit:
            yield


class FairTurns:
    """Runs one request at a time and alternates between addresses.

    One request per address waits in the common queue. Further requests of that address wait in a
    queue of their own, so that they do not delay other addresses.
    """

    def __init__(self) -> None:
        self._all = ConcurrencyLimit(1, ADDRESSES, "too many other logins are running; retry")
        self._own: WeakValueDictionary[str, ConcurrencyLimit] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, where: str) -> AsyncIterator[None]:
        """Wait for a turn of an address and hold it."""
        refusal = f"too many other logins from {where} are running; retry"
        own = self._own.setdefault(
            where, ConcurrencyLimit(1, WAITING, refusal)
        )  # lives as long as a request waits in it
        async with own.turn(), self._all.turn():
            yield
