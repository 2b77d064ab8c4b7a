"""TLS of connections: contexts made of a cluster's settings, keys, sockets, meaning of errors."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, TypeVar

from srm.config.security import DEFAULT_SUITES, NO_TLS_1_3, ONLY_TLS_1_3, trust
from srm.errors import AuthorizationError, ConfigError, SrmError, UnavailableError
from srm.extras import library
from srm.kafka.wire.security import Tls

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import pkcs12
else:
    serialization = library("cryptography.hazmat.primitives.serialization")
    pkcs12 = library("cryptography.hazmat.primitives.serialization.pkcs12")

_T = TypeVar("_T")
_NAME_MISMATCHES: Final = frozenset({62, 64})
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""
_RECORD: Final = 16_384
"""Bytes of a full TLS record (RFC 8446, 5.1)."""
_NEXT_ADDRESS_S: Final = 0.25


def load_store(context: ssl.SSLContext, store: bytes, password: str) -> None:
    """Give a context the key of a PKCS12 store, with its certificates; ValueError if it cannot."""
    key, certificate, others = pkcs12.load_key_and_certificates(store, password.encode() or None)
    if key is None or certificate is None:
        raise ValueError("the store holds no key with its certificate")
    pem = serialization.Encoding.PEM
    _load(context, key, b"".join(c.public_bytes(pem) for c in (certificate, *others)))


def _load(context: ssl.SSLContext, key: PrivateKeyTypes, chain: bytes) -> None:
    password = secrets.token_bytes(32).hex()
    sealed = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(password.encode()),
    )
    with TemporaryDirectory(prefix="srm-") as folder:
        file = Path(folder, "client.pem")
        file.write_bytes(chain + b"\n" + sealed)
        context.load_cert_chain(file, password=password)


def tls_context(alias: str, tls: Tls) -> ssl.SSLContext:
    """Make a context; reads the files that the settings name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED if tls.verify_certificate else ssl.CERT_NONE
    _limit(context, alias, tls.cipher_suites)
    _load_authorities(context, alias, tls.ca_location, tls.ca_pem, "ssl.ca")
    if tls.crl_location:
        _reading(
            f"cluster {alias}: ssl.crl.location: {tls.crl_location}",
            lambda: context.load_verify_locations(tls.crl_location),
        )
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    _load_own_certificate(context, alias, tls)
    return context


def _limit(context: ssl.SSLContext, alias: str, suites: str) -> None:
    if suites == ONLY_TLS_1_3:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    words = suites.split(":")
    if not {*words} <= {"", DEFAULT_SUITES, NO_TLS_1_3}:
        _reading(f"cluster {alias}: ssl.cipher.suites", lambda: context.set_ciphers(suites))
    if NO_TLS_1_3 in words:
        context.maximum_version = ssl.TLSVersion.TLSv1_2


def authorities(alias: str, location: str, pem: str, key: str) -> ssl.SSLContext:
    """Make a context that trusts the given authorities, the system's where none are given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_authorities(context, alias, location, pem, key)
    return context


def _load_authorities(context: ssl.SSLContext, alias: str, path: str, pem: str, key: str) -> None:
    if path:
        where = f"cluster {alias}: {key}.location: {path}"
        _reading(where, lambda: trust(context, path))
    if pem:
        _reading(f"cluster {alias}: {key}.pem", lambda: context.load_verify_locations(cadata=pem))
    if not path and not pem:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)


def _load_own_certificate(context: ssl.SSLContext, alias: str, tls: Tls) -> None:
    where = f"cluster {alias}: "
    if tls.keystore_location:
        where += f"ssl.keystore.location: {tls.keystore_location}"
        store = _reading(where, Path(tls.keystore_location).read_bytes)
        _reading(where, lambda: load_store(context, store, tls.keystore_password))
        return
    certificate = tls.certificate_location or tls.certificate_pem
    private_key = tls.key_location or tls.key_pem
    if not certificate and not private_key:
        return
    if not certificate or not private_key:
        missing = "ssl.key.location" if certificate else "ssl.certificate.location"
        raise ConfigError(
            f"{where}{missing} is missing: a certificate needs its key, and a key its certificate"
        )
    if tls.certificate_location and tls.key_location:
        where += f"ssl.certificate.location: {tls.certificate_location}, ssl.key.location: "
        _reading(
            where + tls.key_location,
            # Without the function OpenSSL would ask the terminal for the password.
            lambda: context.load_cert_chain(
                tls.certificate_location, tls.key_location, lambda: tls.key_password
            ),
        )
        return
    where += "ssl.certificate.pem, ssl.key.pem"
    chain = tls.certificate_pem.encode() or _file(where, tls.certificate_location)
    pem = tls.key_pem.encode() or _file(where, tls.key_location)
    secret = tls.key_password.encode() or None
    _reading(where, lambda: _load(context, serialization.load_pem_private_key(pem, secret), chain))


def _file(where: str, location: str) -> bytes:
    return _reading(f"{where}: {location}", Path(location).read_bytes)


def _reading(where: str, read: Callable[[], _T]) -> _T:
    """Turn what is wrong with a file or a text into one line."""
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ssl.SSLError as error:
        raise ConfigError(f"{where}: not usable: {_reason(error)}") from error
    except OSError as error:
        host = socket.gethostname()
        raise ConfigError(f"{where}: cannot be read on {host}: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        reason = str(error).split(". ", maxsplit=1)[0].rstrip(".")
        raise ConfigError(f"{where}: not usable: {reason}") from error


def _reason(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason; where it has none, a file is not PEM or its password is wrong."""
    return error.reason.replace("_", " ").lower() if error.reason else "no PEM, or a wrong password"


def tls_failure(where: str, error: OSError) -> SrmError:
    """Say what a TLS error means; ``where`` names the cluster and the broker."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = (error.verify_message or "").rstrip(".")
        if error.verify_code in _NAME_MISMATCHES:
            return ConfigError(
                f"{where}: {reason}: the address in bootstrap.servers or advertised.listeners is "
                "not in the broker's certificate",
                "see ssl.endpoint.identification.algorithm",
            )
        return ConfigError(
            f"{where}: the broker's certificate is not accepted: {reason}",
            "check ssl.ca.location (ssl.truststore.location)",
        )
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError):
        return UnavailableError(
            f"{where}: the broker closed the connection during the TLS handshake; if this "
            "persists, its listener has no TLS",
            "check security.protocol",
        )
    reason = _reason(error)
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        return AuthorizationError(
            f"{where}: the broker refuses srm's certificate ({reason})",
            "check ssl.certificate.location (ssl.keystore.location)",
        )
    if "wrong version number" in reason or "record layer" in reason or "http request" in reason:
        return ConfigError(f"{where}: the listener has no TLS", "check security.protocol")
    return ConfigError(
        f"{where}: TLS handshake failed: {reason}",
        "check security.protocol, ssl.enabled.protocols and ssl.cipher.suites",
    )


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


AnySocket = socket.socket | TlsSocket


async def connect(
    host: str, port: int, context: ssl.SSLContext | None, where: str, timeout_s: float
) -> AnySocket:
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
            limit_s, first = _NEXT_ADDRESS_S if left else None, asyncio.FIRST_COMPLETED
            done, attempts = await asyncio.wait(attempts, timeout=limit_s, return_when=first)
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


async def _event(add: Callable[..., Any], remove: Callable[[int], Any], number: int) -> None:
    happened = asyncio.Event()
    add(number, happened.set)
    try:
        await happened.wait()
    finally:
        remove(number)
