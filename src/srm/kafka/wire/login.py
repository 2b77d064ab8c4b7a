"""Login of one cluster's connections: SASL exchanges, tokens for OAUTHBEARER, TLS contexts.

One source of tokens serves all connections of a cluster, so that a token is fetched once and
renewed before it expires: at four fifths of its lifetime, before connections log in again.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from srm.errors import AuthorizationError, ConfigError, SrmError, UnavailableError
from srm.files import file_stamp
from srm.http_post import PostError, basic, post
from srm.kafka.wire.errors import error_name
from srm.kafka.wire.messages import Request
from srm.kafka.wire.requests import SASL_AUTHENTICATE, SASL_HANDSHAKE
from srm.kafka.wire.security import OidcTokens, Sasl, Security, Tls, UnsecuredTokens
from srm.kafka.wire.tls import authorities, tls_context

Exchange = Generator[bytes, bytes, None]

_FEWEST_ITERATIONS: Final = 4096
"""RFC 7677, and Kafka's own client: a broker that wants fewer is after the password."""
_TIMEOUT_S: Final = 10.0
_DEFAULT_LIFETIME_S: Final = 300
_MOST_BYTES: Final = 1 << 20
_OK: Final = 200
_SERVER_ERROR: Final = 500
logger = logging.getLogger(__name__)
_RENEW_AT: Final = 0.8
UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_STATE: Final = 34
AUTHENTICATION_FAILED: Final = 58
Send = Callable[[Request], Awaitable[Mapping[str, Any]]]
"""Sends a request and returns the answer."""


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
        raise ValueError(f"an answer that is not SCRAM: {text!r}")
    return found


async def fetch_token(alias: str, tokens: OidcTokens, trust: ssl.SSLContext) -> tuple[str, float]:
    """Fetch a token; return it and its lifetime in seconds. ``trust``: the authorities for TLS."""
    where = f"cluster {alias}: token endpoint {tokens.endpoint}"
    form = {"grant_type": "client_credentials"}
    if tokens.scope:
        form["scope"] = tokens.scope
    try:
        status, answer = await asyncio.to_thread(
            post,
            tokens.endpoint,
            urlencode(form).encode(),
            {
                "Authorization": basic(tokens.client_id, tokens.client_secret),
                "Content-Type": "application/x-www-form-urlencoded",
            },
            timeout_s=_TIMEOUT_S,
            most=_MOST_BYTES,
            authorities=trust,
        )
    except PostError as error:
        if isinstance(error.cause, ssl.SSLCertVerificationError):
            raise ConfigError(
                f"{where}: its certificate is not accepted", "check https.ca.location"
            ) from error
        if isinstance(error.cause, ValueError):
            raise ConfigError(f"{where}: not an http(s) address") from error
        raise UnavailableError(f"{where}: {error}") from error
    return _parse_grant(where, status, answer)


def _parse_grant(where: str, status: int, content: bytes) -> tuple[str, float]:
    """Return token and lifetime in seconds of a token response (RFC 6749, 5.1 and 5.2)."""
    answer = _object(content)
    if status >= _SERVER_ERROR:
        raise UnavailableError(f"{where}: HTTP {status}")
    token = answer.get("access_token")
    if status != _OK or not isinstance(token, str):
        reason = answer.get("error_description") or answer.get("error") or "no token in the answer"
        raise AuthorizationError(
            f"{where}: HTTP {status}: {reason}",
            "check sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and "
            "sasl.oauthbearer.scope",
        )
    return token, _lifetime_s(answer.get("expires_in"), token)


def _lifetime_s(expires_in: object, token: str) -> float:
    """Seconds a token is good for: what the endpoint says, else what a JWT says about itself."""
    if isinstance(expires_in, int | float | str) and str(expires_in).isdecimal():
        return float(expires_in)
    claims = _claims(token)
    issued, expires = claims.get("iat"), claims.get("exp")
    if isinstance(expires, int | float):
        begin = issued if isinstance(issued, int | float) else time.time()
        return max(0.0, expires - begin)
    return _DEFAULT_LIFETIME_S


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, none of another token."""
    try:
        _, claims, _ = token.split(".")
        return _object(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))
    except ValueError:
        return {}


def _object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; another text is an empty one."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class TokenSource:
    """The current token of one cluster's principal; ``clock`` is epoch seconds."""

    def __init__(self, alias: str, sasl: Sasl, clock: Callable[[], float] = time.time) -> None:
        self._alias = alias
        self._tokens = sasl.tokens
        self._clock = clock
        self._lock = asyncio.Lock()
        self._token = ""
        self._renew_at = self._expires_at = float("-inf")
        self.extensions = dict(sasl.extensions)
        if isinstance(sasl.tokens, OidcTokens):
            self._authorities = authorities(
                alias, sasl.tokens.ca_location, sasl.tokens.ca_pem, "https.ca"
            )

    async def token(self) -> str:
        async with self._lock:
            if self._clock() >= self._renew_at:
                await self._renew()
            return self._token

    async def _renew(self) -> None:
        now = self._clock()
        tokens = self._tokens
        if isinstance(tokens, OidcTokens):
            try:
                self._token, lifetime_s = await fetch_token(self._alias, tokens, self._authorities)
            except UnavailableError as error:
                if now >= self._expires_at:
                    raise
                logger.warning("%s; continuing with the current token", error)
                return
        elif isinstance(tokens, UnsecuredTokens):
            self._token, lifetime_s = unsecured_token(tokens, now), tokens.lifetime_s
        self._renew_at = now + lifetime_s * _RENEW_AT
        self._expires_at = now + lifetime_s


def unsecured_token(tokens: UnsecuredTokens, now: float) -> str:
    """Make a token without a signature, valid from ``now`` (epoch seconds).

    In whole seconds: to a broker's clock of milliseconds this very moment may be the future.
    """
    claims: dict[str, object] = {
        tokens.principal_claim: tokens.principal,
        "iat": int(now),
        "exp": int(now) + tokens.lifetime_s,
    }
    if tokens.scope:
        claims[tokens.scope_claim] = list(tokens.scope)
    return ".".join((_encode({"alg": "none"}), _encode(claims), ""))


def _encode(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


class SecurityAccess:
    """A TLS context and a source of tokens; files that have changed are read again."""

    def __init__(self, security: Security) -> None:
        self.security = security
        self._context: ssl.SSLContext | None = None
        self._stamp: object = None
        self._tokens: TokenSource | None = None
        if security.tls is not None:
            self._stamp = _stamp(security.tls)
            self._context = tls_context(security.alias, security.tls)
        if security.sasl is not None and security.sasl.tokens is not None:
            self._tokens = TokenSource(security.alias, security.sasl)

    def context(self) -> ssl.SSLContext | None:
        """Return what to encrypt with, None for nothing; in a renewal the former files stay."""
        tls = self.security.tls
        if tls is not None and (stamp := _stamp(tls)) != self._stamp:
            try:
                self._context = tls_context(self.security.alias, tls)
            except ConfigError as error:
                logger.warning("%s; using the files read before", error)
            else:
                self._stamp = stamp
                logger.info("cluster %s: its TLS files have changed", self.security.alias)
        return self._context

    async def log_in(self, send: Send, where: str) -> float:
        """Log in if the settings require it (KIP-43, KIP-152).

        Returns the seconds until the session ends (KIP-368), 0 for never. ``send`` sends on the
        connection; ``where`` is cluster and broker, for messages.
        """
        sasl = self.security.sasl
        if sasl is None:
            return 0.0
        hello = await send(SASL_HANDSHAKE(sasl.mechanism))
        if hello["error_code"]:
            raise _no_handshake(hello, sasl, where)
        exchange, received, lifetime_ms = await self._exchange(sasl), None, 0
        try:
            # In a thread: SCRAM computes for milliseconds, as many as the broker likes.
            while (payload := await asyncio.to_thread(_next, exchange, received)) is not None:
                answer = await send(SASL_AUTHENTICATE(payload))
                if answer["error_code"]:
                    raise _refusal(answer, sasl, where)
                received, lifetime_ms = answer["payload"], answer["session_lifetime_ms"]
        except TokenRefusedError as error:
            what = f"{where}: token refused: {error}"
            raise AuthorizationError(what, f"check {_keys(sasl)}") from None
        except ValueError as error:
            raise AuthorizationError(f"{where}: the broker's part of the login: {error}") from error
        return float(lifetime_ms) / 1000

    async def _exchange(self, sasl: Sasl) -> Exchange:
        if self._tokens is not None:
            return oauthbearer(await self._tokens.token(), self._tokens.extensions)
        if sasl.mechanism == "PLAIN":
            return plain(sasl.username, sasl.password)
        return scram(sasl.mechanism, sasl.username, sasl.password)


def _stamp(tls: Tls) -> tuple[object, ...]:
    named = (getattr(tls, one.name) for one in fields(tls) if one.name.endswith("_location"))
    return tuple(file_stamp(Path(location)) for location in named if location)


def _next(exchange: Exchange, received: bytes | None) -> bytes | None:
    """Return what to send after the broker's last answer; None when nothing is left to send."""
    try:
        return next(exchange) if received is None else exchange.send(received)
    except StopIteration:
        return None


def _no_handshake(hello: Mapping[str, Any], sasl: Sasl, where: str) -> SrmError:
    if hello["error_code"] == UNSUPPORTED_MECHANISM:
        enabled = ", ".join(hello["mechanisms"] or []) or "none"
        return ConfigError(
            f"{where}: sasl.mechanism: {sasl.mechanism} is not enabled on this listener; it has "
            f"{enabled}"
        )
    if hello["error_code"] == ILLEGAL_STATE:
        return ConfigError(f"{where}: the listener has no SASL", "check security.protocol")
    return UnavailableError(f"{where}: no login: {error_name(hello['error_code'])}")


def _refusal(answer: Mapping[str, Any], sasl: Sasl, where: str) -> SrmError:
    reason = answer["error_message"] or error_name(answer["error_code"])
    if answer["error_code"] not in {AUTHENTICATION_FAILED, ILLEGAL_STATE}:
        return UnavailableError(f"{where}: login failed: {reason}")
    return AuthorizationError(f"{where}: login refused: {reason}", f"check {_keys(sasl)}")


def _keys(sasl: Sasl) -> str:
    if sasl.tokens is not None:
        return "the sasl.oauthbearer settings and the clocks"
    return "sasl.username and sasl.password (sasl.jaas.config)"
