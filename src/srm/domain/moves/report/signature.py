"""Signatures of reports: Ed25519 over the exact bytes, with what is needed to check them.

A signature is JSON on one line. In a topic it follows the document it belongs to, on the last line
of the same record, so that the two are never apart; in a folder it is a file beside it.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self

from srm.domain.text.documents import adapter, encode
from srm.errors import IntegrityError

if TYPE_CHECKING:
    from srm.domain.moves.report.signing_keys import PublicKey

_SHOWN: Final = 16


@dataclass(frozen=True, slots=True)
class Signature:
    """What signs one document.

    ``key_id`` is the SHA-256 of the public key in DER (SubjectPublicKeyInfo), in hexadecimal;
    ``public_key`` is that key in PEM. It is there to be compared: whoever checks a signature needs
    the key from somewhere else. ``signature`` are the 64 bytes of Ed25519 in base64.
    """

    key_id: str
    public_key: str
    signature: str
    algorithm: Literal["Ed25519"] = "Ed25519"
    schema: Literal["srm.signature/1"] = "srm.signature/1"

    def value(self) -> bytes:
        """Encode as one line of JSON, without its end."""
        return encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Signature:
        """Decode what :meth:`value` wrote; an end of the line is passed over.

        Raises:
            IntegrityError: it is no signature, or not byte for byte as it was written.
        """
        try:
            found = adapter(Signature).validate_json(value)
            exact = base64.b64encode(base64.b64decode(found.signature)).decode()
        except ValueError as error:  # of pydantic and of base64
            raise IntegrityError("the signature cannot be read: it was changed") from error
        if found.value() != value.removesuffix(b"\n") or exact != found.signature:
            raise IntegrityError("the signature is not as it was written: it was changed")
        return found


@dataclass(frozen=True, slots=True)
class Signed:
    """A document as it is kept: JSON over several lines, then its signature on one more.

    ``signature`` is None where nobody could sign it, and ``damage`` says what is wrong with one
    that cannot be read.
    """

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
        """Take document and signature apart; the document is not read."""
        document, _, last = value.rpartition(b"\n")
        if last == b"}" or not document:
            return cls(value)
        return cls._of(document, last)

    @classmethod
    def beside(cls, content: bytes, signature: bytes | None) -> Self:
        """Take a document whose signature, if there is one, is kept beside it."""
        return cls.decode(content) if signature is None else cls._of(content, signature)

    @classmethod
    def _of(cls, document: bytes, signature: bytes) -> Self:
        try:
            return cls(document, Signature.decode(signature))
        except IntegrityError as error:
            return cls(document, damage=str(error))

    def check(self, key: PublicKey) -> None:
        """Check that the document is exactly what was signed, with this key.

        Raises:
            NotFoundError: it is not signed.
            IntegrityError: document or signature were changed, or it was signed with another key.
        """
        if self.damage:
            raise IntegrityError(self.damage)
        key.check(self.document, self.signature)


def short(key_id: str) -> str:
    """Shorten the id of a key for messages."""
    return key_id[:_SHOWN]
