"""The note of a DAG run, by Airflow's REST API: tasks have no other way to write it."""

from __future__ import annotations

import logging
import os
from typing import Any, Final
from urllib.parse import quote

import httpx
from airflow.sdk import conf

logger = logging.getLogger(__name__)

TOKEN_VARIABLE: Final = "SRM_AIRFLOW_TOKEN"  # noqa: S105 - a name, not a token
TIMEOUT_S: Final = 15.0
LONGEST: Final = 1000


def set_run_note(dag_run: Any, text: str) -> None:
    """Write the note of a run; a note is a convenience, so a failure is only logged.

    $SRM_AIRFLOW_TOKEN authenticates; without it, Airflow is asked for a token, which it gives where
    all users are administrators.
    """
    base = conf.get("api", "base_url", fallback="").rstrip("/")
    if not base:
        logger.info("No note was written: [api] base_url is not set")
        return
    path = f"/api/v2/dags/{quote(dag_run.dag_id)}/dagRuns/{quote(dag_run.run_id)}"
    try:
        with httpx.Client(base_url=base, timeout=TIMEOUT_S, trust_env=False) as client:
            token = os.environ.get(TOKEN_VARIABLE) or _token(client)
            client.patch(
                path,
                params={"update_mask": "note"},
                json={"note": text[:LONGEST]},
                headers={"Authorization": f"Bearer {token}"},
            ).raise_for_status()
    except (httpx.HTTPError, KeyError, ValueError) as error:
        logger.warning("No note was written to the run: %s; set $%s", error, TOKEN_VARIABLE)


def _token(client: httpx.Client) -> str:
    answer = client.get("/auth/token")
    answer.raise_for_status()
    return str(answer.json()["access_token"])
