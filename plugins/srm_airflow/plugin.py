"""Pages of srm in Airflow: its own, live progress of each task, reports of moves.

Operators, triggers and DAG helpers need no registration: Airflow has the plugins folder on its
module path.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final

from airflow.plugins_manager import AirflowPlugin

from srm_airflow.additions import PAGES, RunLink
from srm_airflow.compat import HAS_TASK_STATE

_TASK_INSTANCE = "/api/v2/dags/{DAG_ID}/dagRuns/{RUN_ID}/taskInstances/{TASK_ID}"
HOSTS_VARIABLE: Final = "SRM_AIRFLOW_HOSTS"
_REPORTS = "/srm/reports"
_PROGRESS = [
    {
        "name": "Progress",
        "href": f"{_TASK_INSTANCE}/state-store",
        "destination": "task_instance",
        "url_route": "srm-progress",
    }
]


async def serve_reports(scope: Any, receive: Any, send: Any) -> None:
    """Serve the pages of reports; their modules are imported with the first request."""
    from srm_airflow.apps import app  # noqa: PLC0415 - workers load plugins too

    await app(scope, receive, send)


async def serve_service(scope: Any, receive: Any, send: Any) -> None:
    """Serve the SRM service: imported and started with the first request."""
    from srm_airflow.apps import serve  # noqa: PLC0415 - workers load plugins too

    await serve(scope, receive, send)


def host_check() -> list[dict[str, Any]]:
    """Refuse requests for other names than those of $SRM_AIRFLOW_HOSTS, if it is set.

    A page of another site that lets its name lead to this machine is refused by that.
    """
    hosts = [host.strip() for host in os.environ.get(HOSTS_VARIABLE, "").split(",") if host.strip()]
    if not hosts:
        return []
    from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: PLC0415 - as above

    return [
        {
            "name": "hosts of srm",
            "middleware": TrustedHostMiddleware,
            "args": [],
            "kwargs": {"allowed_hosts": hosts, "www_redirect": False},
        }
    ]


class SrmPlugin(AirflowPlugin):
    """Shows the pages of srm at the top of the navigation, and in tabs of runs and tasks.

    Tabs of a run are the move that it makes, live, and its report. Tabs of a task are the flow or
    move that it works on, and its state store, where the replicator and waiting moves report
    progress.
    """

    name = "srm"
    external_views: ClassVar[list[dict[str, Any]]] = [
        {
            "name": "SRM",
            "href": PAGES,
            "destination": "nav",
            "nav_top_level": True,
            "icon": "/srm/static/icon.svg",
            "icon_dark_mode": "/srm/static/icon-dark.svg",
            "url_route": "srm",
        },
        {
            "name": "Move",
            "href": f"{PAGES}/runs/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "srm-move",
        },
        {
            "name": "SRM",
            "href": f"{PAGES}/runs/{{DAG_ID}}/{{RUN_ID}}?task={{TASK_ID}}",
            "destination": "task_instance",
            "url_route": "srm-task",
        },
        *(_PROGRESS if HAS_TASK_STATE else []),
        {
            "name": "Report of the move",
            "href": f"{_REPORTS}/{{DAG_ID}}/{{RUN_ID}}",
            "destination": "dag_run",
            "url_route": "srm-report",
        },
    ]
    operator_extra_links: ClassVar[list[RunLink]] = [RunLink()]
    fastapi_apps: ClassVar[list[dict[str, Any]]] = [
        {"name": "srm reports", "app": serve_reports, "url_prefix": _REPORTS},
        # After what is below it: the first that matches serves.
        {"name": "srm", "app": serve_service, "url_prefix": "/srm"},
    ]
    fastapi_root_middlewares: ClassVar[list[dict[str, Any]]] = host_check()
