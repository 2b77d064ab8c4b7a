"""Signatures of reports: Ed25519 over the exact bytes, with the data to verify them.

A signature is JSON on one line. In a topic it is the last line of its document's record, so that
they stay together. In a folder it is a file next to the document.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from srm.domain.text.documents import adapter, encode
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


_SHOWN: Final = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of one document.

    ``key_id``: SHA-256 of the public key in DER (SubjectPublicKeyInfo), in hexadecimal.
    ``public_key``: that key in PEM, only for comparison: verify with a key from another source.
    ``signature``: the 64 bytes of Ed25519 in base64.
    """

    key_id: str
    public_key: str
    signature: str
    algorithm: Literal["Ed25519"] = "Ed25519"
    schema: Literal["srm.signature/1"] = "srm.signature/1"

    def value(self) -> bytes:
        """Encode as one line of JSON, without a newline."""
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Signature:
        """Decode the output of :meth:`value`; a final newline is skipped."""
        try:
            found = adapter(Signature).validate_json(value)
            exact = base64.b64encode(base64.b64decode(found.signature)).decode()
        except ValueError as error:  # of pydantic and of base64
            raise IntegrityError("the signature cannot be read: it was changed") from error
        if found.value() != value.removesuffix(b"\n") or exact != found.signature:
            raise IntegrityError("the signature was changed")
        return found


@dataclass(frozen=True, slots=True)
class Signed:
    """A stored document: JSON on several lines, then its signature, if any, on one more."""

    document: bytes
    signature: Signature | None = None
    damage: str = ""

    @property
    def sha256(self) -> str:
        """Hash of the document, in hexadecimal."""
        return hashlib.sha256(self.document).hexdigest()

    def value(self) -> bytes:
        """Encode as the value of a record."""
        if self.signature is None:
            return self.document
        return self.document + b"\n" + self.signature.value()

    @classmethod
    def decode(cls, value: bytes) -> Self:
        """Split document and signature, without reading the document."""
        document, _, last = value.rpartition(b"\n")
        if last == b"}" or not document:
            return cls(value)
        return cls._of(document, last)

    @classmethod
    def beside(cls, content: bytes, signature: bytes | None) -> Self:
        """Return a document whose signature, if there is one, is a file next to it."""
        return cls.decode(content) if signature is None else cls._of(content, signature)

    @classmethod
    def _of(cls, document: bytes, signature: bytes) -> Self:
        try:
            return cls(document, Signature.decode(signature))
        except IntegrityError as error:
            return cls(document, damage=str(error))

    def check(self, key: PublicKey) -> None:
        """Check that the document is unchanged since it was signed with this key.

        Raises:
            NotFoundError: the document is not signed.
            IntegrityError: document or signature were changed, or another key signed it.
        """
        if self.damage:
            raise IntegrityError(self.damage)
        key.check(self.document, self.signature)


def short(key_id: str) -> str:
    """Shorten the id of a key for messages."""
    return key_id[:_SHOWN]


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
        """Read a key in PEM; only Ed25519 is accepted."""
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
        """Read a key in PEM (PKCS#8); only Ed25519 is accepted."""
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
