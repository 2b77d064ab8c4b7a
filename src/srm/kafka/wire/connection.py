"""One broker connection for the hot path: pipelined requests, scatter writes, reads in place.

Responses have the order of the requests (Kafka's rule for one connection). Where the broker ends
sessions (KIP-368), the connection logs in again in time: later requests wait for the login, earlier
ones are answered before it. So a login loses and reorders nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from srm.errors import ConfigError, SrmError, UnavailableError
from srm.kafka.wire import tls
from srm.kafka.wire.login import SecurityAccess
from srm.kafka.wire.messages import FLEXIBLE, Cursor, Message, Request
from srm.replication.buffers import BufferPool, PooledBuffer

Part = bytes | bytearray | memoryview
logger = logging.getLogger(__name__)
_MAX_PARTS: Final = 512
_MAX_TLS_PARTS: Final = 32
_CORRELATION: Final = struct.Struct(">i")
_SIZE: Final = struct.Struct(">i")
_TLS_ALERT: Final = 0x1503
"""First bytes of a TLS alert, the answer of a TLS listener to an unencrypted request."""
_HANDSHAKE_BYTES: Final = 1 << 20
"""Limit of an answer before the versions are known; text of another protocol is a size of GB."""
_LOG_IN_AFTER: Final = 0.85
"""Part of a session after which to log in again; the Java client takes 0.85 to 0.95."""
_SMALL_BYTES: Final = 1 << 14
"""Bytes read at the start of an answer; most answers are smaller, and several may be there."""
_WAKE_BYTES: Final = 1 << 20
"""Bytes of a large answer that are worth an event; the kernel's own mark is one byte."""
_WAKE_ANSWERS: Final = 2
"""Smallest number of small answers that, as half of those due, are worth an event."""
_LOOK_EVERY_S: Final = 0.01
"""So long may answers that are there wait for others of their half."""
_T = TypeVar("_T")
Answered = Callable[[_T | UnavailableError], None]


class Api(NamedTuple, Generic[_T]):
    """A version of a request; ``decode`` makes a value of an answer, from its correlation id on."""

    key: int
    version: int
    flexible: bool
    decode: Callable[[PooledBuffer], _T]


class PendingAnswer(NamedTuple):
    """A due answer, of ``least`` bytes, for which the broker may wait ``wait_s``."""

    decode: Callable[[PooledBuffer], Any]
    receive: Callable[[Any], None]
    wait_s: float = 0.0
    least: int = 0


def settle(future: asyncio.Future[Any], made: object) -> None:
    """Give a future what was made of an answer, or the error, unless it is done."""
    if future.done():
        return
    if isinstance(made, UnavailableError):
        future.set_exception(made)
    else:
        future.set_result(made)


class _Sending(NamedTuple):
    """A request on its way, with the answer that it expects."""

    answer: PendingAnswer
    api: Api[Any]
    body: Sequence[Part]


class Connection:
    """A connected, non-blocking socket with requests in flight. Not thread-safe."""

    def __init__(
        self, sock: tls.AnySocket, where: str, pool: BufferPool, access: SecurityAccess
    ) -> None:
        self._sock = sock
        self._tls = isinstance(sock, tls.TlsSocket)
        self._max_parts = _MAX_TLS_PARTS if self._tls else _MAX_PARTS
        self.where = where
        self._pool = pool
        self._access = access
        self._client_id = access.security.client_id.encode()
        self._timeout_s = access.security.request_timeout_s
        self._loop = asyncio.get_running_loop()
        self._alive_at = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._waiting: deque[tuple[int, PendingAnswer]] = deque()
        self._outgoing: deque[memoryview] = deque()
        self._writing = False
        self._watches_writable = False
        self._flush_when_readable = False
        self._read_when_writable = False
        self._log_in_at = float("inf")
        self._held: deque[_Sending] | None = None
        self._login: asyncio.Task[None] | None = None
        self._next_id = 0
        self._small = bytearray(_SMALL_BYTES)
        self._got_small = 0
        self._body: PooledBuffer | None = None
        self._body_size = 0
        self._got = 0
        self._wake_bytes = 1
        self._look_at: asyncio.TimerHandle | None = None
        self._corked = False
        self._end: SrmError | None = None
        self.versions: Mapping[int, tuple[int, int]] = {}
        """Lowest and highest version of each request by its key; set once it is open."""
        self._loop.add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def open(
        cls, host: str, port: int, pool: BufferPool, access: SecurityAccess, timeout_s: float = 0.0
    ) -> Connection:
        """Connect over TCP, with TLS and a login where the settings demand them, in time.

        ``timeout_s``: that of the settings if 0.
        """
        where = f"cluster {access.security.alias}, broker {host}:{port}"
        timeout_s = timeout_s or access.security.connect_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                sock = await tls.connect(
                    host, port, access.context(), where, access.security.request_timeout_s
                )
                connection = cls(sock, where, pool, access)
                try:
                    await connection._log_in()
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError as error:
            raise UnavailableError(f"{where}: no answer within {timeout_s:g} s") from error
        return connection

    @property
    def is_closed(self) -> bool:
        return self._end is not None

    def serves(self, message: Message) -> bool:
        low, high = self.versions.get(message.api_key, (0, -1))
        return low <= message.version <= high

    def request(self, api: Api[_T], body: Sequence[Part], wait_s: float = 0) -> asyncio.Future[_T]:
        """Send one request; the future holds what is made of the answer.

        The parts are sent as they are, without a copy: do not change them before the answer.
        Where the request lets the broker wait before it answers, ``wait_s`` says how long. The
        future fails with UnavailableError, whatever ends the connection.
        """
        future: asyncio.Future[_T] = self._loop.create_future()
        answer = PendingAnswer(api.decode, partial(settle, future), wait_s)
        self._send_or_hold(_Sending(answer, api, body))
        return future

    def send(self, api: Api[_T], body: Sequence[Part], answered: Answered[_T], least: int) -> None:
        """Send one request as :meth:`request`; ``answered`` is called, never before the end.

        The answer has ``least`` bytes at least, and may wait for others.
        """
        self._send_or_hold(_Sending(PendingAnswer(api.decode, answered, 0.0, least), api, body))

    def _send_or_hold(self, request: _Sending) -> None:
        if self._held is not None:
            self._held.append(request)
        elif self._loop.time() < self._log_in_at or self.is_closed:
            self._send(request)
        else:
            self._held = deque([request])
            self._login = self._loop.create_task(self._log_in_again())

    def _fail(self, answer: PendingAnswer, reason: SrmError | None) -> None:
        self._loop.call_soon(answer.receive, UnavailableError(str(reason)))

    @contextlib.contextmanager
    def cork(self) -> Iterator[None]:
        self._corked = True
        try:
            yield
        finally:
            self._corked = False
            if not self._writing and not self.is_closed:
                self._flush()

    async def query(self, request: Request) -> dict[str, Any]:
        return await self._exchange(self._send_or_hold, request)

    async def _exchange(self, send: Callable[[_Sending], None], request: Request) -> dict[str, Any]:
        def decode(body: PooledBuffer) -> dict[str, Any]:
            made = request.decode(Cursor(body.view, _CORRELATION.size))
            self._note_pause(made.get("throttle_time_ms", 0))
            return made

        future: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        answer = PendingAnswer(decode, partial(settle, future))
        of = request.message
        api = Api(of.api_key, of.version, of.form is FLEXIBLE, decode)
        send(_Sending(answer, api, [request.encode()]))
        try:
            return await future
        except UnavailableError:
            if self._end is not None:
                raise self._end from None
            raise

    def close(self, reason: str | SrmError = "closed") -> None:
        if self._end is not None:
            return
        if isinstance(reason, str):
            reason = UnavailableError(f"{self.where}: {reason}")
        self._end = reason
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
        self._sock.close()
        self._outgoing.clear()
        for _, answer in self._waiting:
            self._fail(answer, reason)
        self._waiting.clear()
        for timer in (self._watch, self._look_at):
            if timer is not None:
                timer.cancel()
        for held in self._held or ():
            self._fail(held.answer, reason)
        self._held = None
        if self._login is not None:
            self._login.cancel()

    # ----- logging in

    async def _log_in(self) -> None:
        now = partial(self._exchange, self._send)  # other requests wait for the login
        lifetime_s = await self._access.log_in(now, self.where)
        if lifetime_s:
            self._log_in_at = self._loop.time() + lifetime_s * _LOG_IN_AFTER

    async def _log_in_again(self) -> None:
        try:
            await self._log_in()
        except SrmError as error:
            self.close(error)
        held, self._held = self._held or (), None
        for request in held:
            self._send(request)

    # ----- giving up

    def _note_life(self, muted_s: float = 0.0) -> None:
        """Count the broker's silence from now on, or from the end of a pause that it announced."""
        self._alive_at = max(self._alive_at, self._loop.time() + muted_s)

    def _note_pause(self, pause_ms: int) -> None:
        """Expect nothing during a pause: a broker reads nothing more while a quota is used up."""
        if pause_ms:
            self._note_life(pause_ms / 1000)

    def _watch_over(self, oldest: PendingAnswer) -> None:
        """Look after the connection again when the answer that is due next would be late."""
        due = self._alive_at + self._timeout_s + oldest.wait_s
        if self._watch is not None:
            if self._watch.when() <= due:
                return
            self._watch.cancel()
        self._watch = self._loop.call_at(due, self._look_after)

    def _look_after(self) -> None:
        self._watch = None
        self._receive()  # what is there may have been too little for an event
        if not self._waiting:
            return
        _, oldest = self._waiting[0]
        silent_s = self._loop.time() - self._alive_at
        if silent_s >= self._timeout_s + oldest.wait_s:
            self.close(f"no answer and no other data for {silent_s:.1f} s")
        else:
            self._watch_over(oldest)

    # ----- sending

    def _send(self, request: _Sending) -> None:
        answer, api, body = request
        if self.is_closed:
            self._fail(answer, self._end)
            return
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        name = self._client_id
        header = struct.pack(">hhih", api.key, api.version, self._next_id, len(name)) + name
        if api.flexible:
            header += b"\x00"
        size = len(header) + sum(len(part) for part in body)
        if not self._waiting:
            self._note_life()
            self._watch_over(answer)
        self._waiting.append((self._next_id, answer))
        self._outgoing.append(memoryview(_SIZE.pack(size) + header))
        # An empty part would never count as sent.
        self._outgoing.extend(memoryview(part) for part in body if part)
        if not self._writing and not self._corked:
            self._flush()

    def _flush(self) -> None:
        try:
            while self._outgoing:
                count = min(len(self._outgoing), self._max_parts)
                parts = [self._outgoing[i] for i in range(count)]
                self._drop_sent(self._sock.sendmsg(parts))
                if self._writing:  # the buffer was full: the broker has taken data since
                    self._note_life()
        except tls.ReadableFirstError:
            self._writing = self._flush_when_readable = True
            self._watch_writable(wanted=self._read_when_writable)
        except (BlockingIOError, InterruptedError):
            self._writing = True
            self._watch_writable(wanted=True)
        except OSError as error:
            self._break(error)
        else:
            self._writing = False
            self._watch_writable(wanted=self._read_when_writable)
        self._wake_when_due()

    def _watch_writable(self, *, wanted: bool) -> None:
        if wanted == self._watches_writable:
            return
        self._watches_writable = wanted
        if wanted:
            self._loop.add_writer(self._sock.fileno(), self._on_writable)
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _on_writable(self) -> None:
        if self._read_when_writable:
            self._read_when_writable = False
            self._receive()
        if not self.is_closed:
            self._flush()

    def _drop_sent(self, sent: int) -> None:
        while sent:
            first = self._outgoing[0]
            if sent < len(first):
                self._outgoing[0] = first[sent:]
                return
            sent -= len(first)
            self._outgoing.popleft()

    # ----- receiving

    def _on_readable(self) -> None:
        if self._flush_when_readable:
            self._flush_when_readable = False
            self._flush()
        self._receive()

    def _receive(self) -> None:
        try:
            while not self.is_closed and self._read_once():
                pass
        except tls.WritableFirstError:
            self._read_when_writable = True
            self._watch_writable(wanted=True)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._break(error)

    def _read_once(self) -> bool:
        """Read what is there into the current place; False when that was all, or the end."""
        if self._body is None:
            view = memoryview(self._small)[self._got_small :]
        else:
            view = memoryview(self._body.data)[self._got : self._body_size]
        count = self._sock.recv_into(view)
        if count == 0:
            self.close("the broker closed the connection")
            return False
        self._note_life()
        if self._body is None:
            self._got_small += count
            self._take_small()
        else:
            self._got += count
            if self._got == self._body_size:
                body, self._body = self._body, None
                self._answer(body)
        self._wake_when_due()
        # Less than there was room for is all there was; TLS may hold decrypted bytes that no event
        # announces.
        return (count == len(view) and bool(self._waiting)) or self._tls

    def _take_small(self) -> None:
        """Take the answers out of what was read, up to one that is not there as a whole."""
        data = memoryview(self._small)
        at, end = 0, self._got_small
        while end - at >= _SIZE.size and self._body is None and not self.is_closed:
            (size,) = _SIZE.unpack_from(data, at)
            if size >> 16 == _TLS_ALERT:
                what = f"{self.where}: the listener requires TLS"
                self.close(ConfigError(what, "check security.protocol"))
                return
            if not self.versions and size > _HANDSHAKE_BYTES:
                text = ascii(_SIZE.pack(size).decode("latin-1")).strip("'")
                what = f"{self.where} answers {text}, not Kafka"
                self.close(ConfigError(what, "check bootstrap.servers"))
                return
            if size < _CORRELATION.size:
                self.close(f"an answer of {size} bytes")
                return
            at += _SIZE.size
            body = self._pool.take(size)
            got = min(size, end - at)
            body.data[:got] = data[at : at + got]
            at += got
            if got == size:
                self._answer(body)
            else:
                self._body, self._body_size, self._got = body, size, got
        left = bytes(data[at:end])
        self._small[: len(left)] = left
        self._got_small = len(left)

    def _wake_when_due(self) -> None:
        """Have the next event when a good part of what is due is there (SO_RCVLOWAT).

        Else each piece of a large answer, and each of many small ones, would be an event. Small
        ones are looked for after a short time in any case.
        """
        if self.is_closed or not isinstance(self._sock, socket.socket):
            return
        half = len(self._waiting) // 2
        if self._body is not None:
            missing = self._body_size - self._got
        elif half >= _WAKE_ANSWERS:
            missing = -self._got_small
            for _, answer in islice(self._waiting, half):
                missing += _SIZE.size + answer.least if answer.least else -_WAKE_BYTES
            if missing > 1 and self._look_at is None:
                self._look_at = self._loop.call_later(_LOOK_EVERY_S, self._look)
        else:
            missing = 1
        count = min(max(1, missing), _WAKE_BYTES)
        if count != self._wake_bytes:
            self._wake_bytes = count
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def _look(self) -> None:
        self._look_at = None
        self._receive()
        self._wake_when_due()

    def _answer(self, body: PooledBuffer) -> None:
        (correlation_id,) = _CORRELATION.unpack_from(body.data)
        expected, answer = self._waiting.popleft()
        if correlation_id != expected:
            self._waiting.appendleft((expected, answer))
            self.close(f"received answer {correlation_id} instead of {expected}")
            return
        try:
            made = answer.decode(body)
        except Exception as error:  # noqa: BLE001 - any error: what follows cannot be read either
            self._waiting.appendleft((expected, answer))
            self.close(f"unreadable answer: {error!r}")
            return
        self._note_pause(getattr(made, "throttle_time_ms", 0))
        try:
            answer.receive(made)
        except Exception:  # the later answers have to be read
            logger.exception("%s: the receiver of an answer failed", self.where)

    def _break(self, error: OSError) -> None:
        """Close after an error; a broker reports its verdict on a certificate in a TLS alert."""
        is_alert = isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or "")
        self.close(tls.tls_failure(self.where, error) if is_alert else str(error))
