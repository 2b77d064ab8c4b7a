"""Calls to brokers from any thread: the event loop that their connections live on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import CancelledError
from typing import Final, TypeVar

from srm.errors import UnavailableError
from srm.kafka.wire.brokers import Brokers

_T = TypeVar("_T")
_CLOSE_S: Final = 1.0


class BrokerCalls:
    """A thread with an event loop for the connections of one cluster; started when first needed."""

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self._alias = alias
        self._properties = dict(properties)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._brokers: Brokers | None = None

    def run(self, request: Callable[[Brokers], Awaitable[_T]], timeout_s: float) -> _T:
        """Run a request to its end."""
        asked = asyncio.run_coroutine_threadsafe(
            self._run_bounded(request, timeout_s), self._start()
        )
        try:
            return asked.result()
        except CancelledError:
            raise UnavailableError(
                f"cluster {self._alias}: closed during the request; retry"
            ) from None

    def close(self) -> None:
        """Close the connections and end the thread; the next call starts another."""
        with self._lock:
            loop, thread, brokers = self._loop, self._thread, self._brokers
            self._loop = self._thread = self._brokers = None
        if loop is None or thread is None:
            return
        if brokers is not None:
            loop.call_soon_threadsafe(brokers.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_CLOSE_S)

    async def _run_bounded(
        self, request: Callable[[Brokers], Awaitable[_T]], timeout_s: float
    ) -> _T:
        if self._brokers is None:
            self._brokers = Brokers(self._alias, self._properties)
        try:
            async with asyncio.timeout(timeout_s):
                return await request(self._brokers)
        except TimeoutError as error:
            raise UnavailableError(
                f"cluster {self._alias}: no answer within {timeout_s:g} s; retry"
            ) from error

    def _start(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name=f"srm-{self._alias}", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        for task in asyncio.all_tasks(loop):  # a caller waits for each of them
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
