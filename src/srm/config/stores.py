"""Java's key and trust stores, read into PEM texts: no library of brokers' clients reads JKS.

Stores are read when a process reads its configuration. Their contents stay in memory. The format
JKS is that of Sun's JavaKeyStore: entries, then a SHA-1 over the password and all before it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from srm.errors import ConfigError
from srm.extras import library

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import pkcs12
else:
    serialization = library("cryptography.hazmat.primitives.serialization")
    pkcs12 = library("cryptography.hazmat.primitives.serialization.pkcs12")

_MAGIC: Final = b"\xfe\xed\xfe\xed"
_MIGHTY: Final = b"Mighty Aphrodite"
_SHA1_BYTES: Final = 20
_KEY, _CERTIFICATE = 1, 2
_LONG: Final = 0x80
_PROTECTED_BY_SUN: Final = bytes.fromhex("060a2b060104012a02110101")
"""Encoded 1.3.6.1.4.1.42.2.17.1.1."""


@dataclass(frozen=True, slots=True)
class JavaStore:
    """Contents of a store as PEM texts; ``key`` and its ``chain`` are empty if it has none."""

    certificates: str = ""
    key: str = ""
    chain: str = ""


def read_jks(location: str, password: str, key_password: str | None = None) -> JavaStore | None:
    """Read a store of the format JKS, None for another format, such as keytool's PKCS12.

    ``password``: of the store; empty to read it unchecked.
    ``key_password``: of its key, empty for that of the store; None to leave the key out.
    """
    content = _content(location)
    if not content.startswith(_MAGIC):
        return None
    try:
        return _decode(content, password, key_password)
    except (ValueError, struct.error) as error:
        raise ConfigError(f"{location}: not usable as a JKS store: {error}") from None


def read_trusted(location: str, password: str) -> str:
    """Return the certificates of a trust store, of the format JKS or PKCS12, as PEM text."""
    store = read_jks(location, password)
    found = _pkcs12_certificates(location, password) if store is None else store.certificates
    if not found:
        raise ConfigError(f"{location}: the store holds no trusted certificate")
    return found


def _content(location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        host = socket.gethostname()
        raise ConfigError(f"{location}: cannot be read on {host}: {error.strerror}") from error


def _pkcs12_certificates(location: str, password: str) -> str:
    try:
        store = pkcs12.load_pkcs12(_content(location), password.encode() or None)
    except ValueError as error:
        reason = str(error).partition(".")[0]
        raise ConfigError(f"{location}: not usable as a PKCS12 store: {reason}") from None
    pem = serialization.Encoding.PEM
    return "".join(one.certificate.public_bytes(pem).decode() for one in store.additional_certs)


def _decode(content: bytes, password: str, key_password: str | None) -> JavaStore:
    body, digest = content[:-_SHA1_BYTES], content[-_SHA1_BYTES:]
    secret = password.encode("utf-16-be")
    expected = hashlib.sha1(secret + _MIGHTY + body).digest()  # noqa: S324 - the format's
    # Java and Kafka do not check a store without a password.
    if password and not hmac.compare_digest(expected, digest):
        raise ValueError("its password is wrong, or it is damaged")
    data = BytesIO(body[len(_MAGIC) :])
    version, count = _numbers(data, ">II")
    certificates, key, chain = "", "", ""
    for _ in range(count):
        tag, *_ = _numbers(data, ">I")
        _take(data, ">H")  # alias
        data.read(8)  # date
        if tag == _CERTIFICATE:
            certificates += _certificate(data, version)
        elif tag == _KEY:
            sealed, (length,) = _take(data, ">I"), _numbers(data, ">I")
            found = "".join(_certificate(data, version) for _ in range(length))
            if key_password is not None and not key:
                key, chain = _pem(_unseal(sealed, key_password or password)), found
        else:
            raise ValueError(f"it has an entry of the unknown type {tag}")
    return JavaStore(certificates, key, chain)


def _numbers(data: BytesIO, layout: str) -> tuple[int, ...]:
    return struct.unpack(layout, data.read(struct.calcsize(layout)))


def _take(data: BytesIO, layout: str) -> bytes:
    (size,) = _numbers(data, layout)
    if len(found := data.read(size)) < size:
        raise ValueError("it ends early")
    return found


def _certificate(data: BytesIO, version: int) -> str:
    if version > 1:
        _take(data, ">H")  # its type, X.509
    return ssl.DER_cert_to_PEM_cert(_take(data, ">I"))


def _pem(key: bytes) -> str:
    lines = base64.encodebytes(key).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{lines}-----END PRIVATE KEY-----\n"


def _unseal(sealed: bytes, password: str) -> bytes:
    """Decrypt a key: XOR with a chain of SHA-1 over password and salt, then a check value."""
    algorithm, content = islice(_elements(next(_elements(sealed))), 2)
    if not algorithm.startswith(_PROTECTED_BY_SUN):
        raise ValueError("its key is protected by an unknown algorithm")
    secret = password.encode("utf-16-be")
    digest, encrypted, check = content[:20], content[20:-20], content[-20:]
    stream = b""
    while len(stream) < len(encrypted):
        digest = hashlib.sha1(secret + digest).digest()  # noqa: S324 - the format's
        stream += digest
    key = bytes(a ^ b for a, b in zip(encrypted, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324 - the format's
        raise ValueError("the password of its key (ssl.key.password) is wrong")
    return key


def _elements(der: bytes) -> Iterator[bytes]:
    """Yield the contents of DER elements."""
    data = BytesIO(der)
    while tag := data.read(1):
        size, *_ = _numbers(data, ">B")
        if size & _LONG:
            size = int.from_bytes(data.read(size - _LONG))
        if data.tell() + size > len(der):
            raise ValueError(f"its element {tag.hex()} ends early")
        yield data.read(size)
