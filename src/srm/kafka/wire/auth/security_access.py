"""TLS contexts, tokens and SASL login of one cluster's connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aiokafka.conn import OAuthAuthenticator, SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.admin import SaslAuthenticateRequest_v1, SaslHandShakeRequest_v1

from srm.errors import AuthorizationError, ConfigError, SrmError, UnavailableError
from srm.kafka.wire.auth.sasl_tokens import LibraryTokens, TokenSource
from srm.kafka.wire.auth.security import Sasl, Security, Tls
from srm.kafka.wire.auth.security_tls import tls_context

logger = logging.getLogger(__name__)
UNSUPPORTED_MECHANISM: Final = 33
ILLEGAL_STATE: Final = 34
AUTHENTICATION_FAILED: Final = 58
Ask = Callable[[Any], Awaitable[Any]]
"""Sends a request of aiokafka's protocol and returns the response."""


class SecurityAccess:
    """A TLS context and a source of tokens, as far as the settings ask for them.

    Renewed certificates count for the connections that are opened after the renewal: what the
    settings name is read again when it has changed.
    """

    def __init__(self, security: Security) -> None:
        """Read the files.

        Raises:
            ConfigError: a file is missing or is not what its key says.
        """
        self.security = security
        self._context: ssl.SSLContext | None = None
        self._stamp: object = None
        self._tokens: LibraryTokens | None = None
        if security.tls is not None:
            self._stamp = _stamp(security.tls)
            self._context = tls_context(security.alias, security.tls)
        if security.sasl is not None and security.sasl.tokens is not None:
            self._tokens = LibraryTokens(TokenSource(security.alias, security.sasl))

    def context(self) -> ssl.SSLContext | None:
        """Return what a new connection is encrypted with, None for nothing.

        While renewed files do not fit together, as in the middle of a renewal, the former ones
        are used on.
        """
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


async def log_in(ask: Ask, sasl: Sasl, tokens: LibraryTokens | None, where: str) -> float:
    """Log in (KIP-43, KIP-152); return the seconds until the session ends (KIP-368), 0 for never.

    The mechanisms and the bytes of the requests are aiokafka's.

    Args:
        ask: sends on the connection.
        sasl: principal and mechanism.
        tokens: the source of tokens, for OAUTHBEARER.
        where: cluster and broker, for messages.

    Raises:
        AuthorizationError: the broker refuses the principal.
        ConfigError: the broker does not have the mechanism, or expects no login.
        UnavailableError: the connection breaks, or no token is available.
    """
    hello = await ask(SaslHandShakeRequest_v1(sasl.mechanism))
    if hello.error_code:
        raise _no_handshake(hello, sasl, where)
    authenticator, received, lifetime_ms = _authenticator(sasl, tokens), None, 0
    while (payload := await _next(authenticator, received, where)) is not None:
        answer = await ask(SaslAuthenticateRequest_v1(payload))
        if answer.error_code:
            raise _refusal(answer, sasl, where)
        received, lifetime_ms = answer.sasl_auth_bytes, answer.session_lifetime_ms
    if sasl.tokens is not None and received:  # RFC 7628, 3.2.3: the status of a refusal
        status = bytes(received).decode(errors="replace")
        raise AuthorizationError(f"{where}: token refused: {status}", f"check {_keys(sasl)}")
    return float(lifetime_ms) / 1000


def _authenticator(sasl: Sasl, tokens: LibraryTokens | None) -> Any:
    if tokens is not None:
        return OAuthAuthenticator(sasl_oauth_token_provider=tokens)
    credentials = {
        "loop": asyncio.get_running_loop(),
        "sasl_plain_username": sasl.username,
        "sasl_plain_password": sasl.password,
    }
    if sasl.mechanism == "PLAIN":
        return SaslPlainAuthenticator(**credentials)
    return ScramAuthenticator(**credentials, sasl_mechanism=sasl.mechanism)


async def _next(authenticator: Any, received: bytes | None, where: str) -> bytes | None:
    """Return what to send after the broker's last answer; None when nothing is left to send."""
    try:
        step = await authenticator.step(received)
    except KafkaError as error:
        if isinstance(error.__cause__, SrmError):
            raise error.__cause__ from None
        raise UnavailableError(f"{where}: login failed: {error}") from error
    except (ValueError, KeyError, AssertionError) as error:
        # A broker that cannot prove that it knows the password, or that speaks another dialect.
        raise AuthorizationError(f"{where}: the broker's part of the login: {error}") from error
    return None if step is None else bytes(step[0])


def _no_handshake(hello: Any, sasl: Sasl, where: str) -> SrmError:
    if hello.error_code == UNSUPPORTED_MECHANISM:
        enabled = ", ".join(hello.enabled_mechanisms) or "none"
        return ConfigError(
            f"{where}: sasl.mechanism: {sasl.mechanism} is not enabled on this listener; it has "
            f"{enabled}"
        )
    if hello.error_code == ILLEGAL_STATE:
        return ConfigError(f"{where}: the listener has no SASL", "check security.protocol")
    return UnavailableError(f"{where}: no login: {for_code(hello.error_code).__name__}")


def _refusal(answer: Any, sasl: Sasl, where: str) -> SrmError:
    reason = answer.error_message or for_code(answer.error_code).__name__
    if answer.error_code not in {AUTHENTICATION_FAILED, ILLEGAL_STATE}:
        return UnavailableError(f"{where}: login failed: {reason}")
    return AuthorizationError(f"{where}: login refused: {reason}", f"check {_keys(sasl)}")


def _keys(sasl: Sasl) -> str:
    if sasl.tokens is not None:
        return "the sasl.oauthbearer settings and the clocks"
    return "sasl.username and sasl.password (sasl.jaas.config)"
