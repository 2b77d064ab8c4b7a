"""Connected sockets, plain and encrypted, that a connection uses in the same way."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Final

from srm.errors import UnavailableError
from srm.kafka.wire.security_tls import tls_failure

_RECORD: Final = 16_384
"""Bytes of a full TLS record (RFC 8446, 5.1)."""


class ReadableFirstError(BlockingIOError):
    """Sending goes on once the socket is readable."""


class WritableFirstError(BlockingIOError):
    """Receiving goes on once the socket is writable."""


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
        """Encrypt and send the first of the parts; return how many bytes of them are done with.

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
    host: str, port: int, context: ssl.SSLContext | None, where: str
) -> socket.socket | TlsSocket:
    """Connect over TCP, and with a context over TLS; ``where`` names the broker in messages.

    Raises:
        UnavailableError: the broker does not accept.
        ConfigError: it is not the broker to expect.
        AuthorizationError: it refuses srm's certificate.
    """
    try:
        sock = await _connected(host, port)
    except OSError as error:
        raise UnavailableError(f"{where}: cannot be reached: {error}") from error
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


async def _connected(host: str, port: int) -> socket.socket:
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = infos[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # No buffer sizes: Linux lets buffers grow with what a long way needs, but those that were
        # asked for keep to net.core.rmem_max, 208 KiB where nobody has raised it.
        await loop.sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock


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
