"""Declaration of the DAGs that rehearse a move on a schedule."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from srm.config.model import FlowConfig
from srm_airflow.alerts import alert_failure
from srm_airflow.settings import dag_id, flow_id, settled_cron


def rehearsal(kind: str, settings: FlowConfig, cron: str) -> dict[str, Any]:
    """Return how such a DAG is declared; a failure is sent to the flow's notifier.

    Args:
        kind: of rehearsal, in the DAG's id.
        settings: the flow.
        cron: when to run (UTC), empty for by hand alone.
    """
    flow = settings.flow
    move = {"operation": kind.replace("_", " "), "source": flow.source, "target": flow.target}
    return {
        "dag_id": dag_id(f"{kind}_{flow_id(settings)}"),
        "schedule": settled_cron(cron) if cron else None,
        "max_active_runs": 1,
        "catchup": False,
        "default_args": {
            "retries": 1,
            "retry_delay": timedelta(seconds=30),
            "on_failure_callback": partial(alert_failure, planned=move),
        },
    }
