"""Tokens for OAUTHBEARER (RFC 7628): fetched from an endpoint, or made here for tests.

One source serves all connections of a cluster, so that a token is fetched once and renewed before
it expires: at four fifths of its lifetime, which is before connections log in again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import httpx
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

from srm.errors import AuthorizationError, ConfigError, SrmError, UnavailableError
from srm.kafka.wire.security import OidcTokens, Sasl, UnsecuredTokens
from srm.kafka.wire.security_tls import authorities

logger = logging.getLogger(__name__)

_RENEW_AT: Final = 0.8
_TIMEOUT_S: Final = 10.0
_DEFAULT_LIFETIME_S: Final = 300


class TokenSource:
    """The current token of one cluster's principal."""

    def __init__(self, alias: str, sasl: Sasl, clock: Callable[[], float] = time.time) -> None:
        """Fetch nothing yet; ``clock`` is epoch seconds.

        Raises:
            ConfigError: the authorities for the token endpoint cannot be read.
        """
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
        """Return a token that is still good for a while.

        Raises:
            AuthorizationError: the endpoint refuses the client.
            UnavailableError: the endpoint does not answer, and there is no token in force.
        """
        async with self._lock:
            if self._clock() >= self._renew_at:
                await self._renew()
            return self._token

    async def _renew(self) -> None:
        now = self._clock()
        tokens = self._tokens
        if isinstance(tokens, OidcTokens):
            try:
                self._token, lifetime_s = await self._fetch(tokens)
            except UnavailableError as error:
                if now >= self._expires_at:
                    raise
                logger.warning("%s; going on with the token in hand", error)
                return
        elif isinstance(tokens, UnsecuredTokens):
            self._token, lifetime_s = unsecured_token(tokens, now), tokens.lifetime_s
        self._renew_at = now + lifetime_s * _RENEW_AT
        self._expires_at = now + lifetime_s

    async def _fetch(self, tokens: OidcTokens) -> tuple[str, float]:
        where = f"cluster {self._alias}: token endpoint {tokens.endpoint}"
        form = {"grant_type": "client_credentials"}
        if tokens.scope:
            form["scope"] = tokens.scope
        try:
            async with httpx.AsyncClient(verify=self._authorities, timeout=_TIMEOUT_S) as client:
                response = await client.post(
                    tokens.endpoint, data=form, auth=(tokens.client_id, tokens.client_secret)
                )
        except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
            raise ConfigError(f"{where}: not an http(s) address") from error
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise ConfigError(
                    f"{where}: its certificate is not accepted; check https.ca.location"
                ) from error
            raise UnavailableError(f"{where}: {error}") from error
        return _granted(where, response)


def _granted(where: str, response: httpx.Response) -> tuple[str, float]:
    """Return token and lifetime in seconds of a token response (RFC 6749, 5.1 and 5.2)."""
    try:
        answer = response.json()
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise UnavailableError(f"{where}: HTTP {response.status_code}")
    token = answer.get("access_token")
    if response.status_code != httpx.codes.OK or not isinstance(token, str):
        reason = answer.get("error_description") or answer.get("error") or "no token in the answer"
        raise AuthorizationError(
            f"{where}: HTTP {response.status_code}: {reason}; check sasl.oauthbearer.client.id, "
            "sasl.oauthbearer.client.secret and sasl.oauthbearer.scope"
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
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def unsecured_token(tokens: UnsecuredTokens, now: float) -> str:
    """Make a token without a signature, valid from ``now`` (epoch seconds).

    Times are whole seconds: a broker's clock reads milliseconds, and to it a token of this very
    moment would be one of the future.
    """
    claims: dict[str, object] = {
        tokens.principal_claim: tokens.principal,
        "iat": int(now),
        "exp": int(now) + tokens.lifetime_s,
    }
    if tokens.scope:
        claims[tokens.scope_claim] = list(tokens.scope)
    return ".".join((_encoded({"alg": "none"}), _encoded(claims), ""))


def _encoded(value: object) -> str:
    text = json.dumps(value, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


class LibraryTokens(AbstractTokenProvider):
    """A token source as aiokafka wants it: with aiokafka's errors."""

    def __init__(self, source: TokenSource) -> None:
        self._source = source

    async def token(self) -> str:
        """Return a token."""
        try:
            return await self._source.token()
        except SrmError as error:
            raise KafkaConnectionError(str(error)) from error

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions."""
        return self._source.extensions
