"""Connected sockets, plain and encrypted, that a connection uses in the same way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from srm.errors import UnavailableError
from srm.kafka.wire.auth.security_tls import tls_failure

_RECORD: Final = 16_384
"""Bytes of a full TLS record (RFC 8446, 5.1)."""
_NEXT_ADDRESS_S: Final = 0.25


class ReadableFirstError(BlockingIOError):
    """Sending continues once the socket is readable."""


class WritableFirstError(BlockingIOError):
    """Receiving continues once the socket is writable."""


class TlsSocket:
    """A non-blocking TLS socket that is used like a plain one.

    ``recv_into`` and ``sendmsg`` raise BlockingIOError where a plain socket would, and its
    subclasses above where TLS itself has something to do first. Decrypted bytes may be left that
    no event announces: receive until there is nothing more.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self._refused: memoryview | None = None
        self.fileno = sock.fileno
        self.close = sock.close

    def recv_into(self, view: memoryview) -> int:
        """Decrypt into the view, at most one record; 0 at the end of the stream."""
        try:
            return self._sock.recv_into(view)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            raise WritableFirstError from None

    def sendmsg(self, parts: Sequence[memoryview]) -> int:
        """Encrypt and send the first of the parts; return the number of bytes done with.

        Small parts share a record. After a refusal OpenSSL wants to see the same bytes again.
        """
        block = _block(parts) if self._refused is None else self._refused
        self._refused = block
        try:
            sent = self._sock.send(block)
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLWantReadError:
            raise ReadableFirstError from None
        self._refused = None
        return sent


def _block(parts: Sequence[memoryview]) -> memoryview:
    """Return the first part if it is large, else what fills a record, from as many as it takes."""
    if len(parts) == 1 or len(parts[0]) >= _RECORD:
        return parts[0]
    taken: list[memoryview] = []
    left = _RECORD
    for part in parts:
        taken.append(part[:left])
        left -= len(taken[-1])
        if not left:
            break
    return memoryview(b"".join(taken))


async def connect(
    host: str, port: int, context: ssl.SSLContext | None, where: str, timeout_s: float
) -> socket.socket | TlsSocket:
    """Connect over TCP, and with a context over TLS; ``where`` names the broker in messages.

    The kernel gives the connection up when the other side has acknowledged nothing for
    ``timeout_s``, also while nothing is sent.
    """
    try:
        sock = await _connect(host, port)
    except ConnectionRefusedError as error:
        raise UnavailableError(f"{where}: connection refused") from error
    except OSError as error:
        raise UnavailableError(f"{where}: cannot be reached: {error}") from error
    _watch(sock, timeout_s)
    if context is None:
        return sock
    encrypted = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    try:
        await _shake_hands(encrypted)
    except OSError as error:
        encrypted.close()
        raise tls_failure(where, error) from error
    except BaseException:
        encrypted.close()
        raise
    return TlsSocket(encrypted)


def _watch(sock: socket.socket, timeout_s: float) -> None:
    """Let the kernel probe an idle peer, and close the connection to one that is gone.

    No TCP_USER_TIMEOUT: a broker whose quota pauses the connection takes no bytes so long.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    whole_s = max(1, int(timeout_s))
    for name, value in (
        ("TCP_KEEPIDLE", max(1, whole_s // 2)),
        ("TCP_KEEPINTVL", max(1, whole_s // 6)),
        ("TCP_KEEPCNT", 3),
    ):
        option = getattr(socket, name, None)
        if option is not None:  # Linux has them all
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


async def _connect(host: str, port: int) -> socket.socket:
    """Connect to the first address that accepts; none is waited for alone (RFC 8305)."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    left = list(dict.fromkeys(infos))
    attempts: set[asyncio.Task[socket.socket]] = set()
    failure: OSError | None = None
    try:
        while left or attempts:
            if left:
                attempts.add(loop.create_task(_connected_to(left.pop(0))))
            done, attempts = await asyncio.wait(
                attempts,
                timeout=_NEXT_ADDRESS_S if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for attempt in done:
                error = attempt.exception()
                if error is None:
                    done.discard(attempt)
                    attempts |= done
                    return attempt.result()
                if not isinstance(error, OSError):
                    raise error
                failure = failure or error
    finally:
        for attempt in attempts:
            attempt.add_done_callback(_close_late)
            attempt.cancel()
    raise failure or OSError(f"{host} has no address")


async def _connected_to(info: tuple[Any, ...]) -> socket.socket:
    family, kind, protocol, _, address = info
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # No buffer sizes: Linux grows buffers with the latency of the path, but limits explicit
        # sizes to net.core.rmem_max, 208 KiB by default.
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_late(attempt: asyncio.Task[socket.socket]) -> None:
    """Another address was faster."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


async def _shake_hands(sock: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            await _event(loop.add_reader, loop.remove_reader, sock.fileno())
        except ssl.SSLWantWriteError:
            await _event(loop.add_writer, loop.remove_writer, sock.fileno())
        else:
            return


async def _event(
    add: Callable[..., Any], remove: Callable[[int], Any], file_descriptor: int
) -> None:
    happened = asyncio.Event()
    add(file_descriptor, happened.set)
    try:
        await happened.wait()
    finally:
        remove(file_descriptor)
