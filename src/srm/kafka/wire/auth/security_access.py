"""TLS contexts and tokens of one cluster's connections, from its security settings."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from srm.errors import ConfigError
from srm.kafka.wire.auth.sasl import Ask, log_in
from srm.kafka.wire.auth.sasl_tokens import LibraryTokens, TokenSource
from srm.kafka.wire.auth.security import Security, Tls
from srm.kafka.wire.auth.security_tls import tls_context

logger = logging.getLogger(__name__)


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
        """Log in where the settings ask for it; see :func:`srm.kafka.wire.auth.sasl.log_in`."""
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
