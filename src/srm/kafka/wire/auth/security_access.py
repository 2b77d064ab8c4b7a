"""TLS contexts, tokens and SASL login of one cluster's connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from srm.errors import AuthorizationError, ConfigError, SrmError, UnavailableError
from srm.kafka.wire.auth.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Exchange,
    TokenRefusedError,
    oauthbearer,
    plain,
    scram,
)
from srm.kafka.wire.auth.sasl_tokens import TokenSource
from srm.kafka.wire.auth.security import Sasl, Security, Tls
from srm.kafka.wire.auth.security_tls import tls_context
from srm.kafka.wire.messages import Request, error_name

logger = logging.getLogger(__name__)
UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_STATE: Final = 34
AUTHENTICATION_FAILED: Final = 58
Ask = Callable[[Request], Awaitable[Mapping[str, Any]]]
"""Sends a request and returns the answer."""


class SecurityAccess:
    """A TLS context and a source of tokens; files that have changed are read again."""

    def __init__(self, security: Security) -> None:
        """Read the files."""
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
                logger.warning("%s; using what was read before", error)
            else:
                self._stamp = stamp
                logger.info("cluster %s: its TLS files have changed", self.security.alias)
        return self._context

    async def log_in(self, ask: Ask, where: str) -> float:
        """Log in if the settings require it; see :func:`log_in`."""
        if self.security.sasl is None:
            return 0.0
        return await log_in(ask, self.security.sasl, self._tokens, where)


def _stamp(tls: Tls) -> tuple[object, ...]:
    """Return a value that changes with the contents of the files, without reading them."""
    return tuple(
        _file_stamp(Path(location))
        for location in (
            tls.ca_location,
            tls.crl_location,
            tls.certificate_location,
            tls.key_location,
            tls.keystore_location,
        )
        if location
    )


def _file_stamp(path: Path) -> tuple[object, ...]:
    try:
        found = path.stat()
        inside = sorted(path.iterdir()) if path.is_dir() else []
    except OSError:
        return ()
    return (found.st_mtime_ns, found.st_ino, found.st_size, *map(_file_stamp, inside))


async def log_in(ask: Ask, sasl: Sasl, tokens: TokenSource | None, where: str) -> float:
    """Log in (KIP-43, KIP-152); return the seconds until the session ends (KIP-368), 0 for never.

    ``ask`` sends on the connection; ``where`` is cluster and broker, for messages.
    """
    hello = await ask(SASL_HANDSHAKE(sasl.mechanism))
    if hello["error_code"]:
        raise _no_handshake(hello, sasl, where)
    exchange, received, lifetime_ms = await _exchange(sasl, tokens), None, 0
    try:
        # In a thread: SCRAM computes for milliseconds, as many as the broker likes.
        while (payload := await asyncio.to_thread(_next, exchange, received)) is not None:
            answer = await ask(SASL_AUTHENTICATE(payload))
            if answer["error_code"]:
                raise _refusal(answer, sasl, where)
            received, lifetime_ms = answer["payload"], answer["session_lifetime_ms"]
    except TokenRefusedError as error:
        what = f"{where}: token refused: {error}"
        raise AuthorizationError(what, f"check {_keys(sasl)}") from None
    except ValueError as error:
        raise AuthorizationError(f"{where}: the broker's part of the login: {error}") from error
    return float(lifetime_ms) / 1000


async def _exchange(sasl: Sasl, tokens: TokenSource | None) -> Exchange:
    if tokens is not None:
        return oauthbearer(await tokens.token(), tokens.extensions)
    if sasl.mechanism == "PLAIN":
        return plain(sasl.username, sasl.password)
    return scram(sasl.mechanism, sasl.username, sasl.password)


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
