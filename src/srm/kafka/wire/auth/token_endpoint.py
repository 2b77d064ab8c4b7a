"""OAuth 2.0 client credentials: a token from an HTTP endpoint (RFC 6749, 4.4)."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
import time
from typing import Any, Final
from urllib.parse import urlencode

from srm.errors import AuthorizationError, ConfigError, UnavailableError
from srm.http_post import PostError, basic, post
from srm.kafka.wire.auth.security import OidcTokens

_TIMEOUT_S: Final = 10.0
_DEFAULT_LIFETIME_S: Final = 300
_MOST_BYTES: Final = 1 << 20
_OK: Final = 200
_SERVER_ERROR: Final = 500


async def fetch_token(
    alias: str, tokens: OidcTokens, authorities: ssl.SSLContext
) -> tuple[str, float]:
    """Fetch a token; return it and its lifetime in seconds. ``authorities`` are for TLS."""
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
            authorities=authorities,
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
    try:
        answer = json.loads(content)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
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
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}
