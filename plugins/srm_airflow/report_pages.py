"""Serves the page of a move's report in Airflow: a tab of the run that made it.

The tasks of a run leave the page as an XCom; the newest is served. It is read by Airflow's REST API
with the login of the user, so that Airflow itself decides who may read it. The API server alone
imports this module, with the first request.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import httpx
from airflow.api_fastapi.app import cached_app
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

from srm_airflow.moves import PAGE_KEY

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
