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

from srm_airflow.compat import HAS_TASK_STATE, conf

logger = logging.getLogger(__name__)

URL_VARIABLE: Final = "SRM_AIRFLOW_URL"
TOKEN_VARIABLE: Final = "SRM_AIRFLOW_TOKEN"  # noqa: S105 - a name, not a token
USER_VARIABLE: Final = "SRM_AIRFLOW_USER"
PASSWORD_VARIABLE: Final = "SRM_AIRFLOW_PASSWORD"  # noqa: S105 - a name, not a password
CLIENT_VARIABLE: Final = "SRM_AIRFLOW_CLIENT_ID"
CLIENT_SECRET_VARIABLE: Final = "SRM_AIRFLOW_CLIENT_SECRET"  # noqa: S105 - a name, not a secret
TIMEOUT_S: Final = 15.0
LONGEST_NOTE: Final = 1000
PROGRESS_KEY: Final = "progress"


class AirflowRest:
    """Writes to one run of one DAG; the first failure of either kind ends further ones of it.

    $SRM_AIRFLOW_URL is the address, by default ``[api] base_url``, which people use. The client
    logs in as :func:`_login` says, and again when its token is refused, so it never gets too old.
    The constructor does no I/O.
    """

    def __init__(self, dag_id: str, run_id: str) -> None:
        url = os.environ.get(URL_VARIABLE) or conf.get("api", "base_url", fallback="")
        self._base = url.rstrip("/")
        self._run = f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}"
        self._token = os.environ.get(TOKEN_VARIABLE, "")
        self.takes_notes = bool(self._base)
        self.takes_progress = self.takes_notes and HAS_TASK_STATE

    @property
    def works(self) -> bool:
        """False once nothing more is sent."""
        return self.takes_notes or self.takes_progress

    def set_note(self, text: str) -> None:
        body = {"note": text[:LONGEST_NOTE]}
        if self.takes_notes:
            self.takes_notes = self._send("PATCH", self._run, body, {"update_mask": "note"})

    def set_progress(self, task_id: str, map_index: int, progress: Mapping[str, Any]) -> None:
        """Write a task's progress into its state store, as a running task does itself."""
        path = f"{self._run}/taskInstances/{quote(task_id)}/state-store/{PROGRESS_KEY}"
        body, query = {"value": dict(progress)}, {"map_index": str(map_index)}
        if self.takes_progress:
            self.takes_progress = self._send("PUT", path, body, query)

    def _send(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> bool:
        try:
            with httpx.Client(base_url=self._base, timeout=TIMEOUT_S, trust_env=False) as client:
                fresh = not self._token
                self._token = self._token or _login(client)
                while True:
                    headers = {"Authorization": f"Bearer {self._token}"}
                    answer = client.request(method, path, params=query, json=body, headers=headers)
                    if fresh or answer.status_code != httpx.codes.UNAUTHORIZED:
                        break
                    fresh, self._token = True, _login(client)
                answer.raise_for_status()
        except (httpx.HTTPError, KeyError, ValueError) as error:
            logger.warning(
                "Airflow's REST API at %s rejected the %s: %s; check $%s, and the login: $%s "
                "and $%s, or $%s",
                self._base,
                "note" if method == "PATCH" else "progress",
                error,
                URL_VARIABLE,
                USER_VARIABLE,
                PASSWORD_VARIABLE,
                TOKEN_VARIABLE,
            )
            return False
        return True


def _login(client: httpx.Client) -> str:
    """Return a new token: by user and password, by client credentials, or without a login.

    Airflow gives one without a login where all users are administrators.
    """
    environ = os.environ
    if user := environ.get(USER_VARIABLE):
        login = {"username": user, "password": environ.get(PASSWORD_VARIABLE, "")}
        answer = client.post("/auth/token", json=login)
    elif client_id := environ.get(CLIENT_VARIABLE):
        login = {
            "grant_type": "client_credentials",
            "client_id": client_id,
            "client_secret": environ.get(CLIENT_SECRET_VARIABLE, ""),
        }
        answer = client.post("/auth/token", json=login)
    else:
        answer = client.get("/auth/token")
    answer.raise_for_status()
    return str(answer.json()["access_token"])
