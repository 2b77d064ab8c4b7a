"""Redirectors that srm calls: a webhook and a command."""

from __future__ import annotations

from collections.abc import Mapping

from srm.config.model import RedirectSettings
from srm.domain.moves.routing import RedirectKind
from srm.engine.ports import Caller
from srm.redirect.command import Command
from srm.redirect.webhook import Webhook


def callers(settings: RedirectSettings) -> Mapping[RedirectKind, Caller]:
    """Return the redirectors with complete settings."""
    found: dict[RedirectKind, Caller] = {}
    if settings.webhook_url and settings.webhook_secret:
        found["webhook"] = Webhook(
            settings.webhook_url.reveal(),
            settings.webhook_secret.reveal(),
            settings.webhook_timeout.total_seconds(),
        )
    if settings.command:
        found["command"] = Command(settings.command, settings.command_timeout.total_seconds())
    return found
