"""Pages that the API server mounts: the SRM service with Airflow's users, reports of moves.

The API server alone imports this module, with the first request below their paths. Only then the
service watches the clusters, and not in each of Airflow's processes that load plugins. Users that
may read the DAG ``srm_replication`` may view; users that may edit it may act.
"""

import threading
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import httpx
from airflow.api_fastapi.app import cached_app
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, get_auth_manager
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse, Response

from srm.config.loader import load_config
from srm.config.model import Config
from srm.errors import ConfigError
from srm.service.access.access import Role, User, guard
from srm.service.app import create_app
from srm.service.federation.federation import join
from srm.service.views.responses import answer_errors, problem
from srm.service.views.views import Views
from srm_airflow.moves import PAGE_KEY
from srm_airflow.settings import dag_id

_DAG: Final = DagDetails(id=dag_id("replication"))
_lock = threading.Lock()
_made: list[FastAPI] = []


def identify(user: GetUserDep) -> User:
    """Give the user that Airflow knows, with the roles that his rights amount to."""
    manager = get_auth_manager()
    roles: set[Role] = set()
    if manager.is_authorized_dag(method="GET", user=user, details=_DAG):
        roles.add("reader")
    if manager.is_authorized_dag(method="PUT", user=user, details=_DAG):
        roles.add("operator")
    return User(user.get_name(), frozenset(roles))


def service() -> FastAPI:
    """Return the application, which starts to watch the clusters with the first request."""
    with _lock:
        if not _made:
            try:
                config = load_config(None)
            except ConfigError as error:
                return _without_config(error)
            _made.append(_start(config))
        return _made[0]


def _start(config: Config) -> FastAPI:
    """Make the application and start to watch: what is mounted has no start of its own."""
    # Other services would have to log in to Airflow: it queries them, they do not query it.
    remote = replace(config.service.remote, advertise=False)
    config = replace(config, service=replace(config.service, remote=remote))
    views = Views(config)
    joining = join(config, views.watched_targets)
    app = create_app(views, identify, joining=joining)
    views.start()
    joining.start()
    return app


def _without_config(error: ConfigError) -> FastAPI:
    """Say what is wrong to those who would see the pages; the next request looks again."""
    app = FastAPI(openapi_url=None)
    answer_errors(app)
    detail = str(error)

    @app.get("/{path:path}", dependencies=[Depends(guard(identify, "reader"))])
    def explain(request: Request, path: str) -> Response:  # noqa: ARG001 -- any path
        return problem(request, 503, detail)

    return app


async def serve(scope: Any, receive: Any, send: Any) -> None:
    await service()(scope, receive, send)


# Whatever a name of a topic or a client contains: nothing is run and nothing is loaded.
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
}
_NONE: Final = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><title>No report</title>"
    "<style>body{font:15px system-ui,sans-serif;color-scheme:light dark;padding:24px}</style>"
    "<p>This run has left no report of a move (yet)."
)
_LOGIN: Final = ("authorization", "cookie")

app: Final = FastAPI(title="srm", docs_url=None, redoc_url=None, openapi_url=None)


@app.get("/{dag_id}/{run_id}")
async def report(dag_id: str, run_id: str, request: Request) -> HTMLResponse:
    """Return the newest page that the tasks of a run have left."""
    tasks = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/taskInstances"
    login = {name: request.headers[name] for name in _LOGIN if name in request.headers}
    transport = httpx.ASGITransport(cached_app())
    async with httpx.AsyncClient(
        transport=transport, base_url=str(request.base_url), headers=login
    ) as api:
        listed = await _get(api, f"{tasks}/~/xcomEntries", {"xcom_key": PAGE_KEY, "limit": 100})
        left = listed["xcom_entries"] if listed else []
        for one in sorted(left, key=lambda one: str(one["timestamp"]), reverse=True):
            entry = f"{tasks}/{quote(one['task_id'])}/xcomEntries/{PAGE_KEY}"
            found = await _get(api, entry, {"map_index": one["map_index"]})
            if found and found["value"]:
                return HTMLResponse(str(found["value"]), headers=_HEADERS)
    return HTMLResponse(_NONE, status_code=404, headers=_HEADERS)


async def _get(api: httpx.AsyncClient, path: str, query: dict[str, Any]) -> dict[str, Any] | None:
    """Return what Airflow answers; None where it has nothing there."""
    answer = await api.get(path, params=query)
    if answer.status_code == httpx.codes.NOT_FOUND:
        return None
    if answer.is_error:
        raise HTTPException(answer.status_code, answer.reason_phrase)
    return dict(answer.json())
