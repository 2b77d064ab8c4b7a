"""TLS of the service: what uvicorn is started with, and the certificate that a user has shown."""

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
"""Name in a request's state of the certificate that its connection was made with."""
_logger = logging.getLogger(__name__)


class PeerProtocol(H11Protocol):
    """HTTP/1.1 as uvicorn speaks it; requests carry the certificate of their connection.

    ASGI has a place for it (the TLS extension), which uvicorn does not fill.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note what the other side has shown."""
        tls = transport.get_extra_info("ssl_object")
        self.app_state = {**self.app_state, PEER: tls.getpeercert() if tls is not None else None}
        super().connection_made(transport)


def server_options(settings: AccessSettings) -> dict[str, Any]:
    """Return the arguments of uvicorn that make it speak TLS, none where it shall not.

    Raises:
        ConfigError: a file is missing or cannot be used.
    """
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
    """Return a context with the service's certificate; for ``mtls`` it wants one of users, too.

    A certificate that is renewed counts for the next connection.

    Raises:
        ConfigError: a file is missing or cannot be used.
    """
    chain = _Chain(settings)
    chain.context.sni_callback = chain.renew
    return chain.context


class _Chain:
    """The certificate that the service shows, and when its files were written."""

    def __init__(self, settings: AccessSettings) -> None:
        self._settings = settings
        self._written = self._stamp()
        self.context = self._read()

    def renew(self, handshake: ssl.SSLObject, _name: str | None, _of: ssl.SSLContext) -> None:
        """Read the files again where they have changed; called for each handshake."""
        written = self._stamp()
        if written != self._written:
            self._written = written
            try:
                self.context = self._read()
            except ConfigError as error:
                _logger.warning("the old certificate goes on: %s", error)
        # What a handshake shows was taken from its context before; another one replaces it.
        handshake.context = self.context

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        key, password = self._settings.key_location, self._settings.key_password.reveal()
        load(
            "service.ssl.certificate.location",
            self._settings.certificate_location,
            # Without a password OpenSSL would ask for one on the terminal, and wait.
            lambda path: context.load_cert_chain(path, key, lambda: password),
        )
        if self._settings.auth == "mtls":
            # A handshake checks with the authorities of the context that it ends with.
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
    """Read a file that a key names into a context.

    Raises:
        ConfigError: the file is missing, or is not what it should be.
    """
    if path is None:
        raise ConfigError(f"{key} is missing")
    try:
        read(path)
    except ssl.SSLError as error:
        why = error.reason or "it cannot be used"
        raise ConfigError(f"{key}: {path}: {why.lower().replace('_', ' ')}") from None
    except OSError as error:
        raise ConfigError(f"{key}: {path}: {error.strerror}") from None
