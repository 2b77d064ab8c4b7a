"""TLS of the service: options of uvicorn, and the certificate of a client."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from srm.config.service import AccessSettings
from srm.errors import ConfigError

PEER: Final = "peer_certificate"
"""Key of the client certificate in the state of a request."""
_logger = logging.getLogger(__name__)


class PeerProtocol(H11Protocol):
    """HTTP/1.1 of uvicorn that adds the client certificate of the connection to requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Store the certificate of the client."""
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, PEER: tls.getpeercert() if tls is not None else None}
        super().connection_made(transport)


def server_options(settings: AccessSettings) -> dict[str, Any]:
    """Return the arguments of uvicorn for TLS; none without a certificate."""
    if settings.certificate_location is None:
        if settings.key_location is not None:
            raise ConfigError("service.ssl.key.location needs service.ssl.certificate.location")
        return {}
    context = server_context(settings)
    options: dict[str, Any] = {"ssl_context_factory": lambda _config, _default: context}
    if settings.auth == "mtls":
        options["http"] = PeerProtocol
    return options


def server_context(settings: AccessSettings) -> ssl.SSLContext:
    """Return a context with the service's certificate, renewed too; ``mtls`` checks clients'."""
    chain = _Chain(settings)
    chain.context.sni_callback = chain.renew
    return chain.context


class _Chain:
    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._written = self._stamp()
        self.context = self._read()

    def renew(self, handshake: ssl.SSLObject, _name: str | None, _of: ssl.SSLContext) -> None:
        """Read the files again if they have changed; called for each handshake."""
        written = self._stamp()
        if written != self._written:
            self._written = written
            try:
                self.context = self._read()
            except ConfigError as error:
                _logger.warning("the old certificate stays in use: %s", error)
        # The handshake has its certificate from the old context; a new context replaces it.
        handshake.context = self.context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        key, password = self._settings.key_location, self._settings.key_password.reveal()
        load(
            "service.ssl.certificate.location",
            self._settings.certificate_location,
            # Without a password OpenSSL would prompt for one on the terminal and wait.
            lambda path: context.load_cert_chain(path, key, lambda: password),
        )
        if self._settings.auth == "mtls":
            # A handshake checks against the authorities of the context that it ends with.
            ca = self._settings.ca_location
            load("service.ssl.ca.location", ca, context.load_verify_locations)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamp(self) -> object:
        files = (self._settings.certificate_location, self._settings.key_location)
        stamps = []
        for file in files:
            try:
                stamps.append(file.stat().st_mtime_ns if file is not None else 0)
            except OSError:
                stamps.append(-1)
        return stamps


def load(key: str, path: Path | None, read: Callable[[Path], object]) -> None:
    """Read the file of a key into a context."""
    if path is None:
        raise ConfigError(f"{key} is missing")
    try:
        read(path)
    except ssl.SSLError as error:
        why = error.reason or "it cannot be used"
        raise ConfigError(f"{key}: {path}: {why.lower().replace('_', ' ')}") from None
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None
