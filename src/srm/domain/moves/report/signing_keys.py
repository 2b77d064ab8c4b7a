"""Keys of Ed25519 that reports are signed with and checked.

They are apart from the signatures they make: only who signs or checks loads the library for it.
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
    """A key that signatures are checked with."""

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
            UsageError: it is no public key of Ed25519.
        """
        try:
            key = load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise UsageError(f"no public key in PEM ({error})") from error
        if not isinstance(key, Ed25519PublicKey):
            raise UsageError("the key is not one of Ed25519")
        return cls(key)

    def check(self, document: bytes, signature: Signature | None) -> None:
        """Check that a document is exactly what was signed, with this key.

        Raises:
            NotFoundError: it is not signed.
            IntegrityError: it was changed, or it was signed with another key.
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
    """A private key; as text it shows its id alone."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: PublicKey = PublicKey(key.public_key())
        """What its signatures are checked with."""

    def __repr__(self) -> str:
        return f"SigningKey({short(self.public.key_id)})"

    @classmethod
    def read(cls, pem: bytes, password: str | None = None) -> Self:
        """Read a key in PEM (PKCS#8).

        Raises:
            UsageError: it is no private key of Ed25519, or the password does not open it.
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
