"""A network of the test: it forwards, and swallows what it is told to without closing anything."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from srm_lab.stack.process import free_port


class Proxy:
    """Forwards connections to a port; for any thread."""

    def __init__(self) -> None:
        self.port = free_port()
        self.target_port = 0
        self.accepted = 0
        self._swallows = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def swallow(self) -> None:
        """From now on nothing passes, on old connections and on new ones; none is closed."""
        self._swallows.set()

    def heal(self) -> None:
        """Forward new connections again; the old ones stay as they are."""
        self._swallows = threading.Event()

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        loop = asyncio.new_event_loop()
        ready = threading.Event()
        done = asyncio.Event()

        async def serve() -> None:
            server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
            ready.set()
            async with server:
                await done.wait()
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

        thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
        thread.start()
        assert ready.wait(120)
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join(120)
            loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        swallows = self._swallows
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(asyncio.CancelledError):  # asyncio logs a connection whose task is cancelled
            await self._forward_both(reader, writer, swallows)

    async def _forward_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        swallows: threading.Event,
    ) -> None:
        if swallows.is_set():
            await asyncio.Event().wait()
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(
                _forward(reader, back, swallows), _forward(there, writer, swallows)
            )
        finally:
            writer.close()
            back.close()


async def _forward(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, swallows: threading.Event
) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            if swallows.is_set():
                await asyncio.Event().wait()  # reads no more either
            writer.write(data)
            await writer.drain()
    if swallows.is_set():
        await asyncio.Event().wait()
    writer.close()
