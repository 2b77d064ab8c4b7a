"""Reports that only Airflow's REST API takes: notes of runs, progress of a trigger.

Both only help operators, so a failure is logged and has no other effect.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx

from srm_airflow.compat import conf

logger = logging.getLogger(__name__)

URL_VARIABLE: Final = "SRM_AIRFLOW_URL"
TOKEN_VARIABLE: Final = "SRM_AIRFLOW_TOKEN"  # noqa: S105 - a name, not a token
TIMEOUT_S: Final = 15.0
LONGEST_NOTE: Final = 1000
PROGRESS_KEY: Final = "progress"


class AirflowRest:
    """Writes to one run of one DAG; the first failure ends all further attempts.

    $SRM_AIRFLOW_URL is the address, by default ``[api] base_url``, which people use.
    $SRM_AIRFLOW_TOKEN authenticates. Without it the client requests a token from Airflow, which
    gives one where all users are administrators. The constructor does no I/O.
    """

    def __init__(self, dag_id: str, run_id: str) -> None:
        url = os.environ.get(URL_VARIABLE) or conf.get("api", "base_url", fallback="")
        self._base = url.rstrip("/")
        self._run = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        self.works = bool(self._base)

    def set_note(self, text: str) -> None:
        """Write the note of the run."""
        self._send("PATCH", self._run, {"note": text[:LONGEST_NOTE]}, {"update_mask": "note"})

    def set_progress(self, task_id: str, map_index: int, progress: Mapping[str, Any]) -> None:
        """Write a task's progress into its state store, as a running task does itself."""
        path = f"{self._run}/taskInstances/{quote(task_id)}/state-store/{PROGRESS_KEY}"
        self._send("PUT", path, {"value": dict(progress)}, {"map_index": str(map_index)})

    def _send(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> None:
        if not self.works:
            return
        try:
            with httpx.Client(base_url=self._base, timeout=TIMEOUT_S, trust_env=False) as client:
                self._token = self._token or _new_token(client)
                headers = {"Authorization": f"Bearer {self._token}"}
                answer = client.request(method, path, params=query, json=body, headers=headers)
                answer.raise_for_status()
        except (httpx.HTTPError, KeyError, ValueError) as error:
            self.works = False
            logger.warning(
                "Airflow's REST API at %s took no note or progress: %s; set $%s or $%s",
                self._base,
                error,
                URL_VARIABLE,
                TOKEN_VARIABLE,
            )


def _new_token(client: httpx.Client) -> str:
    answer = client.get("/auth/token")
    answer.raise_for_status()
    return str(answer.json()["access_token"])
