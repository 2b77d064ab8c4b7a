"""What srm adds to Airflow's pages: live progress as a tab of every task instance.

Operators, triggers and DAG helpers need no registration: Airflow has the plugins folder on its
module path.
"""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

_TASK_INSTANCE = "/api/v2/dags/{DAG_ID}/dagRuns/{RUN_ID}/taskInstances/{TASK_ID}"


class SrmPlugin(AirflowPlugin):
    """Shows the state store of a task, where the replicator and waiting moves report progress."""

    name = "srm"
    external_views: ClassVar[list[dict[str, Any]]] = [
        {
            "name": "Progress",
            "href": f"{_TASK_INSTANCE}/state-store",
            "destination": "task_instance",
            "url_route": "srm-progress",
        }
    ]
