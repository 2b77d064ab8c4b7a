"""The application: routes, errors, API documentation; the same inside Airflow and standalone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool

from srm import __version__
from srm.service.answering import answer_errors
from srm.service.routes import flows, health, metrics, moves, topics
from srm.service.views import Views

STATIC: Final = Path(__file__).with_name("static")
_DESCRIPTION: Final = """
What is known of replication flows, topics, consumer groups, checkpoints, metrics and moves.

Times are epoch milliseconds. Lists come in parts: `offset` and `limit`, `total` counts all. Each
answer has an `ETag`; ask with `If-None-Match` to be told only of news. Errors are
`application/problem+json` (RFC 9457).
"""


def create_app(views: Views) -> FastAPI:
    """Make the application over views, which it starts and closes.

    Args:
        views: what it answers from.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        views.start()
        yield
        await run_in_threadpool(views.close)

    app = FastAPI(
        title="SRM Service",
        version=__version__,
        description=_DESCRIPTION,
        root_path=views.config.service.root_path,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.views = views
    answer_errors(app)
    for module in (flows, topics, metrics, moves, health):
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    _document(app)
    return app


def _document(app: FastAPI) -> None:
    """Show the API in Swagger UI, from files that ship with srm."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        root = app.root_path
        files = f"{root}/static/vendor/swagger-ui-dist"
        return get_swagger_ui_html(
            openapi_url=f"{root}{app.openapi_url}",
            title="SRM Service: API",
            swagger_js_url=f"{files}/swagger-ui-bundle.js",
            swagger_css_url=f"{files}/swagger-ui.css",
            swagger_favicon_url=f"{root}/static/icon.svg",
        )
