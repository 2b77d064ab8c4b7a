"""Ed25519 keys that sign and verify reports."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Final, Self

from srm.domain.moves.report.signature import Signature, short
from srm.errors import IntegrityError, NotFoundError, UsageError
from srm.extras import library

if TYPE_CHECKING:
    from cryptography import exceptions
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    exceptions = library("cryptography.exceptions")
    serialization = library("cryptography.hazmat.primitives.serialization")
    ed25519 = library("cryptography.hazmat.primitives.asymmetric.ed25519")

_MAKE: Final = "make one with: openssl genpkey -algorithm ed25519 -out FILE"


class PublicKey:
    """A key that verifies signatures."""

    def __init__(self, key: ed25519.Ed25519PublicKey) -> None:
        self._key = key
        encoding, form = serialization.Encoding, serialization.PublicFormat.SubjectPublicKeyInfo
        self.pem: str = key.public_bytes(encoding.PEM, form).decode()
        """The key in PEM."""
        der = key.public_bytes(encoding.DER, form)
        self.key_id: str = hashlib.sha256(der).hexdigest()
        """The SHA-256 of the key in DER, in hexadecimal."""

    @classmethod
    def read(cls, pem: bytes) -> Self:
        """Read a key in PEM.

        Raises:
            UsageError: the key is not an Ed25519 public key.
        """
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, exceptions.UnsupportedAlgorithm) as error:
            raise UsageError(f"no public key in PEM ({error})") from error
        if not isinstance(key, ed25519.Ed25519PublicKey):
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
        except exceptions.InvalidSignature as error:
            raise IntegrityError("its content was changed after it was signed") from error


class SigningKey:
    """A private key; its text shows only its id."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
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
            key = serialization.load_pem_private_key(pem, password.encode() if password else None)
        except (ValueError, TypeError, exceptions.UnsupportedAlgorithm) as error:
            raise UsageError(f"no private key in PEM that can be opened ({error})") from error
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise UsageError(f"the key is not one of Ed25519; {_MAKE}")
        return cls(key)

    def sign(self, document: bytes) -> Signature:
        """Sign a document; the same bytes always get the same signature."""
        made = base64.b64encode(self._key.sign(document)).decode()
        return Signature(self.public.key_id, self.public.pem, made)
