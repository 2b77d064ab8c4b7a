"""Tokens for OAUTHBEARER (RFC 7628): fetched from an endpoint, or made here for tests.

One source serves all connections of a cluster, so that a token is fetched once and renewed before
it expires: at four fifths of its lifetime, which is before connections log in again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from collections.abc import Callable
from typing import Final

from srm.errors import UnavailableError
from srm.kafka.wire.auth.security import OidcTokens, Sasl, UnsecuredTokens
from srm.kafka.wire.auth.security_tls import authorities
from srm.kafka.wire.auth.token_endpoint import fetch_token

logger = logging.getLogger(__name__)

_RENEW_AT: Final = 0.8


class TokenSource:
    """The current token of one cluster's principal."""

    def __init__(self, alias: str, sasl: Sasl, clock: Callable[[], float] = time.time) -> None:
        """Fetch nothing yet; ``clock`` is epoch seconds."""
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
        """Return a token that is still good for a while."""
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
                logger.warning("%s; continuing with the token in hand", error)
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
