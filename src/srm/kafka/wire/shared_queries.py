"""Queries that arise together and share a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from srm.errors import UnavailableError

_Query = TypeVar("_Query", bound=Hashable)
_Answer = TypeVar("_Answer")


class SharedQueries(Generic[_Query, _Answer]):
    """Queries of one kind, which one request can carry together; for one event loop.

    A slot that gets a thousand partitions queries the leader and the start of each: that costs a
    request for each broker, not for each partition.
    """

    def __init__(
        self, send: Callable[[Sequence[_Query]], Awaitable[Mapping[_Query, _Answer]]]
    ) -> None:
        """``send`` carries out some queries, each once."""
        self._send = send
        self._waiting: dict[_Query, asyncio.Future[_Answer]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def find(self, query: _Query) -> _Answer:
        """Return the answer to a query.

        Raises:
            SrmError: as ``send``.
        """
        return await asyncio.shield(self.begin(query))

    def begin(self, query: _Query) -> asyncio.Future[_Answer]:
        """Send a query with the next request; the future is shared, so do not cancel it."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._leave)
        if query not in self._waiting:
            self._waiting[query] = loop.create_future()
        return self._waiting[query]

    def _leave(self) -> None:
        queries, self._waiting = self._waiting, {}
        task = asyncio.get_running_loop().create_task(self._request(queries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request(self, queries: Mapping[_Query, asyncio.Future[_Answer]]) -> None:
        failure: Exception = UnavailableError("the broker left the query out of its answer")
        try:
            answers = await self._send(list(queries))
            for query in queries.keys() & answers.keys():
                queries[query].set_result(answers[query])
        except Exception as error:  # noqa: BLE001 - each of the callers raises it
            failure = error
        for future in queries.values():
            if not future.done():
                future.set_exception(failure)
                future.exception()  # the caller may be gone
