"""The SRM service inside Airflow: the same pages and REST API, with Airflow's users and rights.

Users that may read the DAG ``srm_replication`` may view; users that may edit it may act. The API
server alone imports this module, with the first request below its path. Only then it starts to
watch the clusters, and not in each of Airflow's processes that load plugins.
"""

import threading
from dataclasses import replace
from typing import Any, Final

from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, get_auth_manager
from fastapi import Depends, FastAPI, Request
from fastapi.responses import Response

from srm.config.loader import load_config
from srm.config.model import Config
from srm.errors import ConfigError
from srm.service.access.access import Authenticator, Role, User, guard
from srm.service.app import create_app
from srm.service.federation.federation import join
from srm.service.views.responses import answer_errors, problem
from srm.service.views.views import Views
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
    app = create_app(views, Authenticator(identify), joining=joining)
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
        return problem(request, 503, "No configuration", detail)

    return app


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Serve one request."""
    await service()(scope, receive, send)
