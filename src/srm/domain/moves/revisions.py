"""Revisions of a report: a chain of documents, each with its signature."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, Self

from srm.domain.moves.report import (
    EarlierRevision,
    MoveReport,
    join_followers,
    unwritten_lines,
)
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


@dataclass(frozen=True, slots=True)
class Signature:
    """Signature of one document.

    ``key_id``: SHA-256 of the public key in DER (SubjectPublicKeyInfo), in hexadecimal.
    ``public_key``: that key in PEM, only for comparison; ``signature``: 64 bytes in base64.
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
        return hashlib.sha256(self.document).hexdigest()

    def value(self) -> bytes:
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

        NotFoundError: it is not signed. IntegrityError: it was changed, or another key signed it.
        """
        found = self.signature
        if self.damage:
            raise IntegrityError(self.damage)
        if found is None:
            raise NotFoundError("it is not signed")
        if (found.key_id, found.public_key) != (key.key_id, key.pem):
            other, this = short(found.key_id), short(key.key_id)
            raise IntegrityError(f"it was signed with another key: {other}, not {this}")
        try:
            key.key.verify(base64.b64decode(found.signature), self.document)
        except exceptions.InvalidSignature as error:
            raise IntegrityError("its content was changed after it was signed") from error


def short(key_id: str) -> str:
    return key_id[:16]


_MAKE: Final = "make one with: openssl genpkey -algorithm ed25519 -out FILE"


class PublicKey:
    """A key that verifies signatures, with the fields of a :class:`Signature`."""

    def __init__(self, key: ed25519.Ed25519PublicKey) -> None:
        self.key = key
        encoding, form = serialization.Encoding, serialization.PublicFormat.SubjectPublicKeyInfo
        self.pem: str = key.public_bytes(encoding.PEM, form).decode()
        der = key.public_bytes(encoding.DER, form)
        self.key_id: str = hashlib.sha256(der).hexdigest()

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


class SigningKey:
    """A private key; its text shows only its id."""

    def __init__(self, key: ed25519.Ed25519PrivateKey) -> None:
        self._key = key
        self.public: PublicKey = PublicKey(key.public_key())

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


@dataclass(frozen=True, slots=True)
class KeptReport:
    """A stored report: its fields, and the bytes they were read from."""

    report: MoveReport
    signed: Signed

    @classmethod
    def decode(cls, value: bytes) -> KeptReport:
        """Decode the value of a record, or an exported file."""
        signed = Signed.decode(value)
        return cls(MoveReport.decode(signed.document), signed)

    @classmethod
    def made(cls, report: MoveReport, key: SigningKey | None) -> KeptReport:
        document = report.value()
        return cls(report, Signed(document, key.sign(document) if key else None))


def report_key(move_id: str) -> str:
    return f"report:{move_id}"


def newest(reports: Iterable[KeptReport]) -> KeptReport | None:
    """Return the report of the highest revision; of equal ones a signed one, then the first."""
    return max(
        reports,
        key=lambda kept: (kept.report.revision, kept.signed.signature is not None),
        default=None,
    )


def next_revision(
    kept: KeptReport | None, report: MoveReport, now_ms: int, key: SigningKey | None
) -> KeptReport:
    """Return the revision after ``kept``, or that one if the report has not changed.

    Facts of earlier revisions that may not be visible again are kept: followers, cluster ids, and
    versions of the programs. Signing an unsigned report does not create a revision. A revision that
    was changed after it was signed contributes nothing, and the next one names it as a problem.
    """
    changed = kept is not None and _was_changed(kept, key)
    if kept is not None and not changed:
        before = kept.report
        report = replace(
            report,
            followers=join_followers(before.followers, report.followers),
            clusters={**report.clusters, **before.clusters},
            versions=before.versions or report.versions,
            config_sha256=before.config_sha256 or report.config_sha256,
        )
    report = _add_problems(report, unwritten_lines(report.followers))
    if kept is None:
        return KeptReport.made(replace(report, revision=1, written_ms=now_ms), key)
    before, signature = kept.report, kept.signed.signature
    joined = replace(
        _add_problems(report, _change_lines(before.previous)),
        revision=before.revision,
        written_ms=before.written_ms,
        previous=before.previous,
    )
    if joined == before and not changed:
        if signature is not None or key is None:
            return kept
        signed = replace(kept.signed, signature=key.sign(kept.signed.document), damage="")
        return replace(kept, signed=signed)
    key_id = "" if signature is None else signature.key_id
    earlier = EarlierRevision(
        before.revision, kept.signed.sha256, before.written_ms, key_id, changed
    )
    made = replace(
        _add_problems(joined, _change_lines((earlier,))),
        revision=before.revision + 1,
        written_ms=now_ms,
        previous=(*before.previous, earlier),
    )
    return KeptReport.made(made, key)


def _was_changed(kept: KeptReport, key: SigningKey | None) -> bool:
    """Return whether it was changed after signing; False if another key signed it."""
    signature = kept.signed.signature
    if kept.signed.damage:
        return True
    if key is None or signature is None or signature.key_id != key.public.key_id:
        return False
    try:
        kept.signed.check(key.public)
    except IntegrityError:
        return True
    return False


def _add_problems(report: MoveReport, found: Iterable[str]) -> MoveReport:
    problems = (*report.problems, *found)
    return replace(report, problems=problems, ok=report.ok and problems == report.problems)


def _change_lines(previous: Iterable[EarlierRevision]) -> Iterator[str]:
    for one in previous:
        if one.changed:
            yield f"revision {one.revision} of this report was changed after it was signed"


def chain_break(earlier: KeptReport, later: KeptReport) -> str | None:
    """Return why a revision does not follow from another of the same move, None if it does."""
    old, new = earlier.report.revision, later.report.revision
    if old == new:
        same = earlier.signed.document == later.signed.document
        return None if same else f"two different revisions {new} exist"
    listed = [one for one in later.report.previous if one.revision == old]
    if not listed:
        return f"revision {new} does not name revision {old} as an earlier one"
    if listed[0].sha256 != earlier.signed.sha256:
        return f"revision {new} follows from a different revision {old}"
    return None
