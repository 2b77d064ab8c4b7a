"""Application with routes, errors, host names and API documentation, standalone or inside Airflow.

A foreign page can give its own name the address of this machine (DNS rebinding). Its requests then
count as same-origin for the browser, but their Host header has the foreign name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import uvicorn
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from srm import __version__, telemetry
from srm.config.model import Config, ServiceSettings
from srm.domain.text.documents import adapter
from srm.errors import ConfigError
from srm.service.access.access import Authenticator, anonymous, guard
from srm.service.access.logins import access_of, is_loopback, server_options
from srm.service.federation.federation import InternalPaths, Joining, join
from srm.service.federation.merged_lists import answer_from_elsewhere
from srm.service.federation.peers import announced_host
from srm.service.pages.router import Files
from srm.service.pages.router import router as pages
from srm.service.prometheus.exposition import ExportedMetrics, Exposition, WatchRequests
from srm.service.routes import actions, flows, metrics
from srm.service.routes.actions import Actions
from srm.service.routes.flows import Explaining
from srm.service.views.documents import Problem, ServiceHealth, TargetHealth
from srm.service.views.responses import ViewsDep, answer, answer_errors, problem
from srm.service.views.views import Views
from srm.service.views.watching import CommittedOffsets

ANY: Final = ("*",)
_KEY: Final = "service.allowed.hosts"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


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
    own = [f"[{host}]" if ":" in host and not host.startswith("[") else host for host in own]
    return tuple(dict.fromkeys((*map(_pattern, given), *own)))


def _pattern(name: str) -> str:
    """Check a name: without port, and with a wildcard only as ``*`` or as ``*.`` at its start."""
    rest = name.removeprefix("*.")
    has_port = ":" in rest and not rest.endswith("]")
    if name != "*" and (not rest or "*" in rest or "/" in rest or has_port):
        raise ConfigError(f"{_KEY}: {name}: give names or addresses without port, or *.DOMAIN")
    return name


class AllowedHosts:
    """ASGI middleware that refuses requests whose Host header has another name."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = scope["type"] != "http"

        async def allow(_scope: Scope, _receive: Receive, _send: Send) -> None:
            nonlocal allowed
            allowed = True

        async def drop(_message: Message) -> None:
            """Drop the plain-text answer of Starlette."""

        if not allowed:
            judge = TrustedHostMiddleware(allow, self._hosts, www_redirect=False)
            await judge(scope, receive, drop)
        if allowed:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        host = request.headers.get("Host", "no host")
        detail = f"host {host} is not allowed; add it to {_KEY}"
        refusal = problem(request, 403, detail)
        await refusal(scope, receive, send)


STATIC: Final = Path(__file__).with_name("static")
_DOCS_HEADERS: Final = {
    # The page starts by an inline script. It has buttons that act: no other site may frame it.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
}
_DESCRIPTION: Final = """
Replication flows, topics, consumer groups, checkpoints, metrics and moves.

Times are epoch milliseconds. Lists are returned in parts: `offset`, `limit`, and `total` of all.
Each answer has an `ETag`; with `If-None-Match` an unchanged answer is 304. Errors are
`application/problem+json` (RFC 9457).
"""


def create_app(
    views: Views,
    access: Authenticator | None = None,
    acting: Actions | None = None,
    joining: Joining | None = None,
    hosts: Sequence[str] = ANY,
) -> FastAPI:
    """Create the application; it starts and closes ``views`` and ``joining``."""
    joined = joining or join(views.config, views.watched_targets)
    exported = ExportedMetrics(views)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        views.start()
        joined.start()
        await run_in_threadpool(exported.start)
        yield
        await run_in_threadpool(exported.close)
        await run_in_threadpool(telemetry.flush)  # a signal ends uvicorn, without an exit handler
        await joined.close()
        await run_in_threadpool(views.close)

    app = FastAPI(
        title="SRM Service",
        version=__version__,
        description=_DESCRIPTION,
        root_path=views.config.service.root_path,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.views = views
    app.state.actions = acting or Actions(views.config)
    app.state.explaining = Explaining(views.config)
    app.state.committed = CommittedOffsets(views.config)
    app.state.joining, app.state.federation = joined, joined.federation
    app.state.exposition = exposition = Exposition(views)
    answer_errors(app)
    answer_from_elsewhere(app)
    app.add_middleware(InternalPaths)
    if "*" not in hosts:
        app.add_middleware(AllowedHosts, hosts=hosts)
    app.add_middleware(WatchRequests, exposition=exposition)
    app.router.routes.extend(_routes(access or anonymous))
    return app


@lru_cache(maxsize=8)
def _routes(identify: Authenticator) -> tuple[BaseRoute, ...]:
    """Return all routes, guarded by one identification, compiled once (0.1 s) for all apps."""
    router = APIRouter()
    readers = [Depends(guard(identify, "reader"))]
    for part in (
        flows.router,
        flows.topics_router,
        metrics.router,
        flows.moves_router,
        flows.why_router,
        metrics.prometheus_router,
        actions.reading,
        pages,
        _documentation,
    ):
        router.include_router(part, dependencies=readers)
    router.include_router(actions.router, dependencies=[Depends(guard(identify, "operator"))])
    router.include_router(_open)
    return (*router.routes, Mount("/static", Files(directory=STATIC), name="static"))


_open: Final = APIRouter(tags=["service"])
"""Open to all without authentication."""


@_open.get("/health", response_model=ServiceHealth, summary="The service itself")
async def health(request: Request, views: ViewsDep) -> Response:
    """Return 200 after a look at every target, 503 before."""
    targets = tuple(TargetHealth(look.alias, look.looked_ms, look.error) for look in views.targets)
    ready = all(target.looked_ms for target in targets)
    return answer(request, ServiceHealth(ready, targets), status=200 if ready else 503)


_documentation: Final = APIRouter(include_in_schema=False)
"""API documentation, also in Swagger UI, from files that ship with srm."""


@_documentation.get("/openapi.json")
async def _openapi(request: Request) -> JSONResponse:
    root = request.scope.get("root_path")
    described = request.app.openapi()
    described["components"]["schemas"]["Problem"] = adapter(Problem).json_schema()
    return JSONResponse({**described, **({"servers": [{"url": root}]} if root else {})})


@_documentation.get("/docs")
async def _docs(request: Request) -> HTMLResponse:
    root = request.scope.get("root_path", "")
    files = f"{root}/static/vendor/swagger-ui-dist"
    page = get_swagger_ui_html(
        openapi_url=f"{root}/openapi.json",
        title="SRM Service: API",
        swagger_js_url=f"{files}/swagger-ui-bundle.js",
        swagger_css_url=f"{files}/swagger-ui.css",
        swagger_favicon_url=f"{root}/static/icon.svg",
    )
    page.headers.update(_DOCS_HEADERS)
    return page


def server_config(
    config: Config, host: str | None = None, port: int | None = None
) -> uvicorn.Config:
    settings = replace(
        config.service,
        host=config.service.host if host is None else host,
        port=config.service.port if port is None else port,
    )
    config = replace(config, service=settings)
    access = access_of(settings, settings.host)
    options = server_options(settings.access)
    return uvicorn.Config(
        create_app(Views(config), access, hosts=allowed_hosts(settings)),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        **options,
    )
