"""The client's part of SASL, as exchanges that get answers; ValueError: a broker's is wrong."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Generator, Mapping
from typing import Final

from srm.kafka.wire.messages import (
    BYTES,
    CLASSIC,
    INT16,
    INT64,
    NAMES,
    TEXT,
    Message,
    Structure,
)

Exchange = Generator[bytes, bytes, None]

SASL_HANDSHAKE: Final = Message(
    17, 1, Structure(mechanism=TEXT), Structure(error_code=INT16, mechanisms=NAMES), CLASSIC
)
SASL_AUTHENTICATE: Final = Message(
    36,
    1,
    Structure(payload=BYTES),
    Structure(error_code=INT16, error_message=TEXT, payload=BYTES, session_lifetime_ms=INT64),
    CLASSIC,
)
_FEWEST_ITERATIONS: Final = 4096
"""RFC 7677, and Kafka's own client: a broker that wants fewer is after the password."""


class TokenRefusedError(ValueError):
    """The broker refuses a token; the message is its status (RFC 7628, 3.2.3)."""


def plain(username: str, password: str) -> Exchange:
    """RFC 4616."""
    answer = yield f"\0{username}\0{password}".encode()
    if answer:
        raise ValueError("PLAIN has no second step")


def oauthbearer(token: str, extensions: Mapping[str, str]) -> Exchange:
    """RFC 7628, with SASL extensions (KIP-342)."""
    pairs = {"auth": f"Bearer {token}", **extensions}
    fields = ["n,,", *(f"{key}={value}" for key, value in pairs.items()), "", ""]
    answer = yield "\x01".join(fields).encode()
    if answer:
        raise TokenRefusedError(answer.decode(errors="replace"))


def scram(mechanism: str, username: str, password: str, nonce: str = "") -> Exchange:
    """RFC 5802; ``nonce`` is random where none is given. Like Kafka without SASLprep."""
    hash_name = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    nonce = nonce or secrets.token_urlsafe(24)
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = (yield f"n,,{client_first}".encode()).decode()
    given = _attributes(server_first, "rsi")
    if not given["r"].startswith(nonce) or given["r"] == nonce:
        raise ValueError("its nonce does not extend the client's")
    iterations = int(given["i"])
    if iterations < _FEWEST_ITERATIONS:
        raise ValueError(f"{iterations} iterations are fewer than {_FEWEST_ITERATIONS}")

    def sign(key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, hash_name)

    salt = base64.b64decode(given["s"], validate=True)
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_final = f"c=biws,r={given['r']}"
    message = f"{client_first},{server_first},{client_final}".encode()
    client_key = sign(salted, b"Client Key")
    signature = sign(hashlib.new(hash_name, client_key).digest(), message)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{client_final},p={base64.b64encode(proof).decode()}".encode()
    proved = base64.b64decode(_attributes(answer.decode(), "v")["v"], validate=True)
    if not hmac.compare_digest(proved, sign(sign(salted, b"Server Key"), message)):
        raise ValueError("its signature is wrong: it does not know the password")


def _attributes(text: str, wanted: str) -> dict[str, str]:
    found = dict(each.split("=", 1) for each in text.split(",") if "=" in each)
    if "e" in found:
        raise ValueError(found["e"])
    if "m" in found or not found.keys() >= {*wanted}:
        raise ValueError(f"an answer that SCRAM does not have: {text!r}")
    return found
