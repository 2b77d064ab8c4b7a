"""Check of the host names under which the service answers.

A foreign page can give its own name the address of this machine (DNS rebinding). Its requests then
count as same-origin for the browser, but their Host header has the foreign name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srm.config.service import ServiceSettings
from srm.errors import ConfigError
from srm.service.access.logins import is_loopback
from srm.service.federation.peers import announced_host
from srm.service.views.responses import problem

ANY: Final = ("*",)
_KEY: Final = "service.allowed.hosts"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_NAMED: Final = "srm.named"


def allowed_hosts(settings: ServiceSettings) -> tuple[str, ...]:
    """Return the host names under which a standalone service answers; ``*`` is any.

    These are the configured names plus its own: those of this machine, its address and the
    announced name. Without configured names any name is allowed, unless the service has no login
    and listens on loopback only.
    """
    given, access = settings.access.allowed_hosts, settings.access
    if not given and (access.auth != "none" or not is_loopback(settings.host)):
        return ANY
    own = [*_LOOPBACK, settings.host]
    if settings.remote.advertise:
        own.append(announced_host(settings))
    return tuple(dict.fromkeys((*map(_pattern, given), *map(_bracket, own))))


def _pattern(name: str) -> str:
    """Check a name: without port, and with a wildcard only as ``*`` or as ``*.`` at its start."""
    rest = name.removeprefix("*.")
    has_port = ":" in rest and not rest.endswith("]")
    if name != "*" and (not rest or "*" in rest or "/" in rest or has_port):
        raise ConfigError(f"{_KEY}: {name}: give names or addresses without port, or *.DOMAIN")
    return name


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class AllowedHosts:
    """ASGI middleware that refuses requests whose Host header has another name."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._judge = TrustedHostMiddleware(_note, hosts, www_redirect=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] == "http":
            judged = {**scope}
            await self._judge(judged, receive, _nowhere)
            if _NAMED not in judged:
                await _refusal(Request(scope))(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _note(scope: Scope, _receive: Receive, _send: Send) -> None:
    scope[_NAMED] = True


async def _nowhere(_message: Message) -> None:
    """Drop the plain-text answer of Starlette."""


def _refusal(request: Request) -> ASGIApp:
    asked = request.headers.get("Host", "no host")
    detail = f"this service does not answer as {asked}; to allow it, add it to {_KEY}"
    return problem(request, 403, "Not a name of this service", detail)
