"""A signed report is exactly what was signed, or says what is wrong with it."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.moves.report.reporting import REPORT, SEED, reports, signing_key

from srm.domain.moves.report import MoveReport
from srm.domain.moves.revisions import KeptReport, PublicKey, Signature, Signed, SigningKey
from srm.errors import IntegrityError, NotFoundError, SrmError, UsageError

KEY = signing_key()
VALUE = KeptReport.made(REPORT, KEY).signed.value()


@given(reports)
def test_a_report_survives_its_encoding_signed_or_not(report: MoveReport) -> None:
    for key in (None, KEY):
        kept = KeptReport.made(report, key)
        assert KeptReport.decode(kept.signed.value()) == kept
        assert KeptReport.decode(kept.signed.value()).report == report


@given(st.integers(0, len(VALUE) - 1), st.integers(1, 255))
def test_any_changed_byte_fails_the_check(at: int, change: int) -> None:
    changed = bytearray(VALUE)
    changed[at] ^= change

    with pytest.raises(SrmError):
        Signed.decode(bytes(changed)).check(KEY.public)


@pytest.mark.parametrize("cut", ["start", "end"])
@given(st.integers(1, 200))
def test_what_is_cut_off_or_added_fails_the_check(cut: str, count: int) -> None:
    shorter = VALUE[count:] if cut == "start" else VALUE[:-count]
    longer = b" " * count + VALUE if cut == "start" else VALUE + b" " * count

    for value in (shorter, longer):
        with pytest.raises(SrmError):
            Signed.decode(value).check(KEY.public)


def test_every_byte_of_a_signature_that_is_kept_in_a_file_counts() -> None:
    """Also those that say the same to who decodes base64 or JSON: there is one right file."""
    signature = KEY.sign(REPORT.value()).value()
    Signed.beside(REPORT.value(), signature + b"\n").check(KEY.public)

    for at in range(len(signature)):
        changed = signature[:at] + bytes([signature[at] ^ 1]) + signature[at + 1 :]
        with pytest.raises(SrmError):
            Signed.beside(REPORT.value(), changed).check(KEY.public)


def test_unsigned_changed_and_signed_by_another_are_told_apart() -> None:
    document = REPORT.value()
    KeptReport.made(REPORT, KEY).signed.check(KEY.public)

    with pytest.raises(NotFoundError, match="it is not signed"):
        Signed(document).check(KEY.public)
    with pytest.raises(IntegrityError, match="content was changed after it was signed"):
        Signed(document + b" ", KEY.sign(document)).check(KEY.public)
    other = signing_key(bytes(32))
    with pytest.raises(IntegrityError, match="signed with another key: "):
        Signed(document, other.sign(document)).check(KEY.public)


def test_a_signature_of_somebody_else_does_not_pass_under_the_name_of_the_key() -> None:
    document = REPORT.value()
    forged = replace(KEY.sign(document), signature=signing_key(bytes(32)).sign(document).signature)

    with pytest.raises(IntegrityError, match="content was changed"):
        Signed(document, forged).check(KEY.public)


def test_a_key_is_read_with_its_password_and_never_shown() -> None:
    private = Ed25519PrivateKey.from_private_bytes(SEED)
    plain = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    locked = private.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
    )

    assert SigningKey.read(plain).public.key_id == KEY.public.key_id
    assert SigningKey.read(locked, "word").public.key_id == KEY.public.key_id
    assert repr(KEY) == f"SigningKey({KEY.public.key_id[:16]})"
    for pem, password in ((locked, None), (locked, "wrong"), (plain, "word"), (b"", None)):
        with pytest.raises(UsageError, match="no private key in PEM that can be opened"):
            SigningKey.read(pem, password)


def test_a_key_of_another_kind_is_refused_with_the_command_to_make_one() -> None:
    curve = ec.generate_private_key(ec.SECP256R1())
    private = curve.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = curve.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    with pytest.raises(UsageError, match="not one of Ed25519; make one with: openssl genpkey"):
        SigningKey.read(private)
    with pytest.raises(UsageError, match="not one of Ed25519"):
        PublicKey.read(public)
    with pytest.raises(UsageError, match="no public key"):
        PublicKey.read(private)


def test_a_signature_with_loose_base64_is_refused() -> None:
    """The last character before the padding has bits that decode to nothing."""
    right = KEY.sign(b"{\n}")
    raw = base64.b64decode(right.signature)
    loose = [
        right.signature[:-3] + letter + "=="
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        if letter != right.signature[-3]
        and base64.b64decode(right.signature[:-3] + letter + "==") == raw
    ]

    assert loose
    for signature in loose:
        with pytest.raises(IntegrityError, match="the signature was changed"):
            Signature.decode(replace(right, signature=signature).value())
