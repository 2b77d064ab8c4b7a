"""Relay that delays data in each direction without limiting the bandwidth.

    python -m bench.relay ONE_WAY_MS LISTEN_PORT TARGET_PORT

Data is stored without limit until it is due, so the bandwidth is that of the loopback interface.
Only a reader that stops reading stops the writer, as in TCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import deque
from typing import Final

_CHUNK: Final = 1 << 20
_KEPT_BYTES: Final = 256 << 20
_HOST: Final = "127.0.0.1"


class Delay(asyncio.Protocol):
    """One end of a relayed connection; received data is written to its peer later."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._kept: deque[tuple[float, bytes]] = deque()
        self._kept_bytes = 0
        self._reading = True
        self._ended = False
        self.writable = True
        self.peer: Delay | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Prepare for large reads."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("not a stream")
        self.transport = transport
        transport.max_size = _CHUNK  # type: ignore[attr-defined]
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def meet(self, peer: Delay) -> None:
        """Join both ends."""
        self.peer, peer.peer = peer, self
        self.regulate()

    def data_received(self, data: bytes) -> None:
        """Store received data until it is due."""
        due = self._loop.time() + self._delay_s
        if not self._kept:
            self._loop.call_at(due, self._deliver)
        self._kept.append((due, data))
        self._kept_bytes += len(data)
        self.regulate()

    def _deliver(self) -> None:
        """Write all data that is due and schedule the rest."""
        now = self._loop.time()
        if self.peer is None or self.peer.transport is None:
            self._loop.call_at(now + self._delay_s, self._deliver)
            return
        while self._kept and self._kept[0][0] <= now:
            _, data = self._kept.popleft()
            self._kept_bytes -= len(data)
            self.peer.transport.write(data)
        self.regulate()
        if self._kept:
            self._loop.call_at(self._kept[0][0], self._deliver)
        elif self._ended:
            self._hang_up()

    def regulate(self) -> None:
        """Stop reading while the peer does not accept data."""
        peer_takes = self.peer is not None and self.peer.writable
        wanted = peer_takes and self._kept_bytes < _KEPT_BYTES
        if self.transport is None or self.transport.is_closing() or wanted == self._reading:
            return
        self._reading = wanted
        (self.transport.resume_reading if wanted else self.transport.pause_reading)()

    def pause_writing(self) -> None:
        """Stop the other end."""
        self.writable = False
        if self.peer is not None:
            self.peer.regulate()

    def resume_writing(self) -> None:
        """Resume the other end."""
        self.writable = True
        if self.peer is not None:
            self.peer.regulate()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio calls it
        """Close the peer after the stored data."""
        self._ended = True
        if not self._kept:
            self._hang_up()

    def _hang_up(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()


async def relay(delay_s: float, listen_port: int, target_port: int) -> None:
    """Serve until cancelled."""
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def accepted() -> Delay:
        near = Delay(delay_s)
        task = loop.create_task(connect(near))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return near

    async def connect(near: Delay) -> None:
        try:
            _, far = await loop.create_connection(lambda: Delay(delay_s), _HOST, target_port)
        except OSError:
            if near.transport is not None:
                near.transport.close()
            return
        near.meet(far)

    server = await loop.create_server(accepted, _HOST, listen_port)
    await server.serve_forever()


def main() -> None:
    """Run the relay that the arguments describe."""
    one_way_ms, listen_port, target_port = map(int, sys.argv[1:])
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(relay(one_way_ms / 1000, listen_port, target_port))


if __name__ == "__main__":
    main()
