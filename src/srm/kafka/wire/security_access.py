"""What connections of one cluster are opened with: made once, from its security settings."""

from __future__ import annotations

import ssl
from typing import Any

from srm.kafka.wire.sasl import Ask, log_in
from srm.kafka.wire.sasl_tokens import LibraryTokens, TokenSource
from srm.kafka.wire.security import Security
from srm.kafka.wire.security_tls import tls_context


class Access:
    """A TLS context and a source of tokens, as far as the settings ask for them.

    The files that the settings name are read here, so a renewed certificate counts for processes
    that start after it.
    """

    def __init__(self, security: Security) -> None:
        """Read the files.

        Raises:
            ConfigError: a file is missing or is not what its key says.
        """
        self.security = security
        self.context: ssl.SSLContext | None = None
        self._tokens: LibraryTokens | None = None
        if security.tls is not None:
            self.context = tls_context(security.alias, security.tls)
        if security.sasl is not None and security.sasl.tokens is not None:
            self._tokens = LibraryTokens(TokenSource(security.alias, security.sasl))

    async def log_in(self, ask: Ask, where: str) -> float:
        """Log in where the settings ask for it; see :func:`srm.kafka.wire.sasl.log_in`."""
        if self.security.sasl is None:
            return 0.0
        return await log_in(ask, self.security.sasl, self._tokens, where)

    def library_settings(self) -> dict[str, Any]:
        """Return the same settings as arguments of aiokafka's client."""
        settings: dict[str, Any] = {
            "security_protocol": self.security.protocol,
            "ssl_context": self.context,
        }
        if self.security.sasl is not None:
            settings["sasl_mechanism"] = self.security.sasl.mechanism
            if self._tokens is not None:
                settings["sasl_oauth_token_provider"] = self._tokens
            else:
                settings["sasl_plain_username"] = self.security.sasl.username
                settings["sasl_plain_password"] = self.security.sasl.password
        return settings
