"""Our own private key, where it is not in a PEM file that OpenSSL can read itself.

Keys given as text, or in a PKCS12 store, can reach OpenSSL only through a file: it is encrypted
under a password that exists in this process alone, so nothing readable is left behind even by a
process that is killed at that moment.
"""

from __future__ import annotations

import secrets
import ssl
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from srm.extras import library

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization import pkcs12
else:
    serialization = library("cryptography.hazmat.primitives.serialization")
    pkcs12 = library("cryptography.hazmat.primitives.serialization.pkcs12")


def load_store(context: ssl.SSLContext, store: bytes, password: str) -> None:
    """Give a context the key of a PKCS12 store, with its certificates; ValueError if it cannot."""
    key, certificate, others = pkcs12.load_key_and_certificates(store, password.encode() or None)
    if key is None or certificate is None:
        raise ValueError("the store holds no key with its certificate")
    _load(
        context,
        key,
        b"".join(c.public_bytes(serialization.Encoding.PEM) for c in (certificate, *others)),
    )


def load_pem(context: ssl.SSLContext, key: bytes, password: str, chain: bytes) -> None:
    """Give a context a key and its chain, both as PEM texts; ValueError if it cannot."""
    _load(context, serialization.load_pem_private_key(key, password.encode() or None), chain)


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
