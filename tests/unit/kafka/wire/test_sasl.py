"""SASL exchanges of the client: the examples of the RFCs, and brokers that do not keep to them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from srm.kafka.wire.login import Exchange, TokenRefusedError, oauthbearer, plain, scram

NONCE = "rOprNGfwEbeRWgbNEkqO"
FULL_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = f"r={FULL_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
"""The example of RFC 7677, section 3: user "user" with password "pencil"."""


def sent(exchange: Exchange, *answers: bytes) -> Iterator[str]:
    """Yield what an exchange sends, up to its end."""
    payload = next(exchange)
    for answer in answers:
        yield payload.decode()
        try:
            payload = exchange.send(answer)
        except StopIteration:
            return
    raise AssertionError(f"it wants to send {payload!r}")


def example(password: str) -> Exchange:
    return scram("SCRAM-SHA-256", "user", password, NONCE)


def test_plain_sends_name_and_password_at_once() -> None:
    assert list(sent(plain("tim", "tanstaaftanstaaf"), b"")) == ["\0tim\0tanstaaftanstaaf"]


def test_a_token_goes_with_its_extensions() -> None:
    [payload] = sent(oauthbearer("vF9dft4qmTc2", {"host": "a", "port": "143"}), b"")

    assert payload == "n,,\x01auth=Bearer vF9dft4qmTc2\x01host=a\x01port=143\x01\x01"


def test_a_token_goes_without_extensions() -> None:
    assert list(sent(oauthbearer("t", {}), b"")) == ["n,,\x01auth=Bearer t\x01\x01"]


def test_the_status_of_a_refused_token_is_the_error() -> None:
    with pytest.raises(TokenRefusedError, match="invalid_token"):
        list(sent(oauthbearer("t", {}), b'{"status":"invalid_token"}'))


def test_scram_256_is_the_example_of_its_rfc() -> None:
    assert list(sent(example("pencil"), FIRST, SIGNATURE)) == [
        f"n,,n=user,r={NONCE}",
        f"c=biws,r={FULL_NONCE},p={PROOF}",
    ]


def test_scram_512_convinces_a_broker_that_has_the_password() -> None:
    """Values by aiokafka's client for the same salt and nonces."""
    proof = (
        "gMGXRcevScNtxZ6/8lQYpGtnsNAc3mGcmNomv+xnoOMw+3R2xNJdMNnzMlTN8PPC6wdp6dybEmDYXYTxwnYPJQ=="
    )
    signature = (
        "ZQnYEgWQMFmmsM8aQMF0nDDCy/AgCzkwk8CmMZYcMg0vSVlKDanekLtifDSeVGT4+5ZxXnJq199RVG2rR7N7Zw=="
    )
    exchange = scram("SCRAM-SHA-512", "user", "pencil", NONCE)

    _, final = sent(exchange, FIRST, f"v={signature}".encode())

    assert final == f"c=biws,r={FULL_NONCE},p={proof}"


def test_a_name_is_quoted_and_the_nonce_is_new_each_time() -> None:
    first, second = (next(scram("SCRAM-SHA-256", "a=b,c", "x")).decode() for _ in range(2))

    assert first.startswith("n,,n=a=3Db=2Cc,r=")
    assert len(first.rpartition("r=")[2]) >= 24
    assert first != second


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([FIRST.replace(b"rOpr", b"Xxxx")], "nonce does not extend"),
        ([FIRST.replace(FULL_NONCE.encode(), NONCE.encode())], "nonce does not extend"),
        ([FIRST.replace(b"4096", b"1000")], "1000 iterations"),
        ([FIRST.replace(b"4096", b"many")], "many"),
        ([b"m=more," + FIRST], "is not SCRAM"),
        ([b""], "is not SCRAM"),
        ([FIRST, b"e=invalid-proof"], "invalid-proof"),
        ([FIRST, b""], "is not SCRAM"),
        ([FIRST, b"v=" + base64.b64encode(bytes(32))], "signature is wrong"),
    ],
)
def test_a_broker_that_breaks_the_rules_is_refused(answers: list[bytes], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        list(sent(example("pencil"), *answers))


def test_a_broker_with_another_password_cannot_sign() -> None:
    with pytest.raises(ValueError, match="signature is wrong"):
        list(sent(example("guess"), FIRST, SIGNATURE))
