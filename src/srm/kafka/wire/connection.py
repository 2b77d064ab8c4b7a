"""One broker connection for the hot path: pipelined requests, scatter writes, reads in place.

Responses come in the order of the requests (Kafka's rule for one connection), so a queue of futures
is all the correlation that is needed; the correlation id is checked all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import Final

from srm.errors import UnavailableError
from srm.kafka.wire.buffers import BufferPool, PooledBuffer

Part = bytes | bytearray | memoryview

_MAX_PARTS: Final = 512
_SOCKET_BUFFER: Final = 1 << 22
_CORRELATION: Final = struct.Struct(">i")
_SIZE: Final = struct.Struct(">i")


class Connection:
    """A connected, non-blocking socket with requests in flight. Not thread-safe."""

    def __init__(self, sock: socket.socket, where: str, pool: BufferPool) -> None:
        self._sock = sock
        self._where = where
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, asyncio.Future[PooledBuffer]]] = deque()
        self._outgoing: deque[memoryview] = deque()
        self._writing = False
        self._next_id = 0
        self._size_bytes = bytearray(4)
        self._body: PooledBuffer | None = None
        self._body_size = 0
        self._got = 0
        self._closed = False
        self._loop.add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def open(cls, host: str, port: int, pool: BufferPool, timeout_s: float) -> Connection:
        """Connect over TCP.

        Raises:
            UnavailableError: the broker does not accept in time.
        """
        where = f"{host}:{port}"
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = infos[0]
            sock = socket.socket(family, kind, protocol)
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
            try:
                await asyncio.wait_for(loop.sock_connect(sock, address), timeout_s)
            except BaseException:
                sock.close()
                raise
        except (OSError, TimeoutError) as error:
            raise UnavailableError(f"broker {where} cannot be reached: {error}") from error
        return cls(sock, where, pool)

    @property
    def closed(self) -> bool:
        """Whether the connection is of no more use."""
        return self._closed

    def request(
        self, api_key: int, version: int, body: Sequence[Part], *, flexible: bool
    ) -> asyncio.Future[PooledBuffer]:
        """Send one request; the future holds the response body after its header.

        The parts are sent as they are, without a copy: do not change them before the answer.
        """
        future: asyncio.Future[PooledBuffer] = self._loop.create_future()
        if self._closed:
            future.set_exception(UnavailableError(f"broker {self._where}: connection is closed"))
            return future
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        header = struct.pack(">hhih", api_key, version, self._next_id, 3) + b"srm"
        if flexible:
            header += b"\x00"
        size = len(header) + sum(len(part) for part in body)
        self._waiting.append((self._next_id, future))
        self._outgoing.append(memoryview(_SIZE.pack(size) + header))
        self._outgoing.extend(memoryview(part) for part in body)
        if not self._writing:
            self._flush()
        return future

    def close(self, reason: str = "closed") -> None:
        """Close the socket and fail what is in flight."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._outgoing.clear()
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(UnavailableError(f"broker {self._where}: {reason}"))
        self._waiting.clear()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                parts = [self._outgoing[i] for i in range(min(len(self._outgoing), _MAX_PARTS))]
                self._drop_sent(self._sock.sendmsg(parts))
        except (BlockingIOError, InterruptedError):
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._sock.fileno(), self._flush)
            return
        except OSError as error:
            self.close(str(error))
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._sock.fileno())

    def _drop_sent(self, sent: int) -> None:
        while sent:
            first = self._outgoing[0]
            if sent < len(first):
                self._outgoing[0] = first[sent:]
                return
            sent -= len(first)
            self._outgoing.popleft()

    def _on_readable(self) -> None:
        try:
            while not self._closed and self._read_once():
                pass
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(str(error))

    def _read_once(self) -> bool:
        """Read what is there into the current place; False when the peer has hung up."""
        if self._body is None:
            view = memoryview(self._size_bytes)[self._got :]
        else:
            view = memoryview(self._body.data)[self._got : self._body_size]
        count = self._sock.recv_into(view)
        if count == 0:
            self.close("the broker closed the connection")
            return False
        self._got += count
        if self._body is None:
            if self._got == 4:
                (self._body_size,) = _SIZE.unpack(self._size_bytes)
                self._body = self._pool.take(self._body_size)
                self._got = 0
        elif self._got == self._body_size:
            body, self._body, self._got = self._body, None, 0
            self._answer(body)
        return True

    def _answer(self, body: PooledBuffer) -> None:
        (correlation_id,) = _CORRELATION.unpack_from(body.data)
        expected, future = self._waiting.popleft()
        if correlation_id != expected:
            self.close(f"answer {correlation_id} came where {expected} was due")
        elif not future.done():
            future.set_result(body)
