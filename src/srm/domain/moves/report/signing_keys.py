"""Ed25519 keys that sign and verify reports.

A module of its own, so that only programs that sign or verify load the cryptography library.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from srm.domain.moves.report.signature import Signature, short
from srm.errors import IntegrityError, NotFoundError, UsageError

_MAKE: Final = "make one with: openssl genpkey -algorithm ed25519 -out FILE"


class PublicKey:
    """A key that verifies signatures."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.pem: str = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        """The key in PEM."""
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.key_id: str = hashlib.sha256(der).hexdigest()
        """The SHA-256 of the key in DER, in hexadecimal."""

    @classmethod
    def read(cls, pem: bytes) -> Self:
        """Read a key in PEM.

        Raises:
            UsageError: the key is not an Ed25519 public key.
        """
        try:
            key = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError(f"no public key in PEM ({error})") from error
        if not isinstance(key, Ed25519PublicKey):
            raise UsageError("the key is not one of Ed25519")
        return cls(key)

    def check(self, document: bytes, signature: Signature | None) -> None:
        """Check that a document is unchanged since it was signed with this key.

        Raises:
            NotFoundError: the document is not signed.
            IntegrityError: the document was changed, or another key signed it.
        """
        if signature is None:
            raise NotFoundError("it is not signed")
        if (signature.key_id, signature.public_key) != (self.key_id, self.pem):
            raise IntegrityError(
                f"it was signed with another key: {short(signature.key_id)}, not "
                f"{short(self.key_id)}"
            )
        try:
            self._key.verify(base64.b64decode(signature.signature), document)
        except InvalidSignature as error:
            raise IntegrityError("its content was changed after it was signed") from error


class SigningKey:
    """A private key; its text shows only its id."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: PublicKey = PublicKey(key.public_key())
        """The key that verifies its signatures."""

    def __repr__(self) -> str:
        return f"SigningKey({short(self.public.key_id)})"

    @classmethod
    def read(cls, pem: bytes, password: str | None = None) -> Self:
        """Read a key in PEM (PKCS#8).

        Raises:
            UsageError: the key is not an Ed25519 private key, or the password does not open it.
        """
        try:
            key = load_pem_private_key(pem, password.encode() if password else None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UsageError(f"no private key in PEM that can be opened ({error})") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError(f"the key is not one of Ed25519; {_MAKE}")
        return cls(key)

    def sign(self, document: bytes) -> Signature:
        """Sign a document; the same bytes always get the same signature."""
        made = base64.b64encode(self._key.sign(document)).decode()
        return Signature(self.public.key_id, self.public.pem, made)
