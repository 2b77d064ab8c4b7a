"""Concurrency limits of claims: a slow broker does not delay partitions of other brokers.

A thousand claims at once would all end late, and hold the memory of a thousand walks. In sequence
they take long where brokers are remote. A partition that waits for a failing broker must not delay
one that could be copied.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar

from srm.errors import UnavailableError
from srm.replication.log_reader import FETCH_BYTES, WAIT_MS, LogReader
from srm.replication.ports import FetchedPartition

T = TypeVar("T")

_CLAIMS_AT_ONCE: Final = 16
_CLAIM_S: Final = 0.1
"""A claim takes about 10 ms. What takes longer waits for a broker, and needs no permit for that."""
_SHORT_WALKS_AT_ONCE: Final = 16
_SHORT_WALK_BYTES: Final = 16 << 20
"""A crash leaves at most one second of copying to be walked."""
_LONG_WALKS_AT_ONCE: Final = 4


class ClaimPermits:
    """Concurrent claims for each target broker, not counting those that take too long."""

    def __init__(self) -> None:
        self._free: defaultdict[int, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_CLAIMS_AT_ONCE)
        )

    @asynccontextmanager
    async def hold(self, node: int) -> AsyncIterator[None]:
        """Hold a permit for a node, until the end or until it has taken too long."""
        free = self._free[node]
        await free.acquire()
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                free.release()

        overdue = asyncio.get_running_loop().call_later(_CLAIM_S, release)
        try:
            yield
        finally:
            overdue.cancel()
            release()


class Meter:
    """Counts what a walk reads of both logs."""

    def __init__(self, limit: float) -> None:
        self._left = limit

    def read(self, count: int) -> None:
        """Count bytes; LongWalkError: there are more than the limit."""
        self._left -= count
        if self._left < 0:
            raise LongWalkError("a walk turned out to be long")


class LongWalkError(UnavailableError):
    """More is to be read than short walks may."""


@dataclass(frozen=True, slots=True)
class MeteredReader(LogReader):
    """Reads a partition as long as its meter lets it."""

    meter: Meter

    async def fetch(
        self, offset: int, max_bytes: int = FETCH_BYTES, wait_ms: int = WAIT_MS
    ) -> FetchedPartition:
        """See :meth:`LogReader.fetch`."""
        fetched = await LogReader.fetch(self, offset, max_bytes, wait_ms)
        self.meter.read(len(fetched.records))
        return fetched


class WalkPermits:
    """Concurrent walks, bounded by memory: short ones per pair of brokers, and long ones.

    A walk is short until it has read too much. Then it ends, releases its memory and starts again
    as a long one. Long walks are few, because each may hold its whole lookahead.
    """

    def __init__(self) -> None:
        self._short: defaultdict[tuple[int, int], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_SHORT_WALKS_AT_ONCE)
        )
        self._long = asyncio.Semaphore(_LONG_WALKS_AT_ONCE)

    async def walk(self, pair: tuple[int, int], walk: Callable[[Meter], Awaitable[T]]) -> T:
        """Walk, if need be twice, through a :class:`MeteredReader` with this meter."""
        try:
            async with self._short[pair]:
                return await walk(Meter(_SHORT_WALK_BYTES))
        except LongWalkError:
            pass
        async with self._long:
            return await walk(Meter(float("inf")))
