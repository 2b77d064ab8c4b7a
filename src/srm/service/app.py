"""Application with routes, errors and API documentation, standalone or inside Airflow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute, Mount

from srm import __version__, telemetry
from srm.domain.text.documents import adapter
from srm.service.access.access import OPEN, Authenticator, guard
from srm.service.access.operator_actions import Actions
from srm.service.federation.federation import InternalPaths, Joining, join
from srm.service.federation.hosts import ANY, AllowedHosts
from srm.service.federation.merged_lists import answer_from_elsewhere
from srm.service.pages.router import Files
from srm.service.pages.router import router as pages
from srm.service.prometheus.exposition import ExportedMetrics, Exposition
from srm.service.prometheus.requests import WatchRequests
from srm.service.routes import actions, flows, metrics, moves, prometheus, topics, why
from srm.service.routes.why import Explaining
from srm.service.views.committed import CommittedOffsets
from srm.service.views.documents import Problem, ServiceHealth, TargetHealth
from srm.service.views.responses import ViewsDep, answer, answer_errors
from srm.service.views.views import Views

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
    """Create the application; it starts and closes the views.

    ``joining``: finds and queries other services, started and closed like the views; by default as
    configured.
    ``hosts``: accepted host names, see :mod:`srm.service.federation.hosts`; by default any.
    """
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
    app.add_middleware(WatchRequests, metrics=exposition.requests)
    app.router.routes.extend(_routes((access or OPEN).identify))
    return app


@lru_cache(maxsize=8)
def _routes(identify: Callable[..., Any]) -> tuple[BaseRoute, ...]:
    """Return all routes, guarded by one identification, compiled once (0.1 s) for all apps."""
    router = APIRouter()
    readers = [Depends(guard(identify, "reader"))]
    for module in (flows, topics, metrics, moves, why, prometheus):
        router.include_router(module.router, dependencies=readers)
    router.include_router(actions.reading, dependencies=readers)
    router.include_router(actions.router, dependencies=[Depends(guard(identify, "operator"))])
    router.include_router(pages, dependencies=readers)
    router.include_router(_documentation, dependencies=readers)
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
