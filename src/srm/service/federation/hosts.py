"""Under which names the service answers.

A page elsewhere can give its own name the address of this machine (DNS rebinding): for the browser
what it asks is of that page then, and needs nobody's leave. What the browser sends is that name.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srm.config.service import ServiceSettings
from srm.errors import ConfigError
from srm.service.federation.announcements import announced_host
from srm.service.views.responses import problem

ANY: Final = ("*",)
_KEY: Final = "service.allowed.hosts"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_NAMED: Final = "srm.named"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def allowed_hosts(settings: ServiceSettings) -> tuple[str, ...]:
    """Return the names under which a service that stands alone answers; ``*`` is any.

    Those of the configuration; without, any, but for a service that asks nobody who he is and that
    this machine alone reaches. Its own names are always among them: those of this machine, its
    address, and the name that it announces to other services.

    Raises:
        ConfigError: a name that is configured is none.
    """
    given, access = settings.access.allowed_hosts, settings.access
    if not given and (access.auth != "none" or not is_loopback(settings.host)):
        return ANY
    own = [*_LOOPBACK, settings.host]
    if settings.remote.advertise:
        own.append(announced_host(settings))
    return tuple(dict.fromkeys((*map(_pattern, given), *map(_bracket, own))))


def _pattern(name: str) -> str:
    """Return a name as it is compared: without port, ``*`` or ``*.`` at its begin at most."""
    rest = name.removeprefix("*.")
    has_port = ":" in rest and not rest.endswith("]")
    if name != "*" and (not rest or "*" in rest or "/" in rest or has_port):
        raise ConfigError(f"{_KEY}: {name}: give names or addresses without port, or *.DOMAIN")
    return name


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


class AllowedHosts:
    """ASGI middleware that refuses requests for a host under another name.

    Args:
        app: the application.
        hosts: the names, without port; ``*.example.org``: those below it.
    """

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
    """Drop the plain text that Starlette would answer."""


def _refusal(request: Request) -> ASGIApp:
    asked = request.headers.get("Host", "no host")
    detail = f"this service does not answer as {asked}: name it in {_KEY} if it is to"
    return problem(request, 403, "Not a name of this service", detail)
