"""Serves the page of a move's report in Airflow: a tab of the run that made it.

The tasks of a run leave the page as an XCom; the newest is served, only to users that may read
XComs of that DAG. The API server alone imports this module, with the first request.
"""

from __future__ import annotations

from typing import Final

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.xcom import XComModel
from fastapi import Depends, FastAPI
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

app: Final = FastAPI(title="srm", docs_url=None, redoc_url=None, openapi_url=None)

_MAY_READ: Final = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.XCOM))


@app.get("/{dag_id}/{run_id}", dependencies=[_MAY_READ])
def report(dag_id: str, run_id: str, session: SessionDep) -> HTMLResponse:
    """Return the newest page that the tasks of a run have left."""
    left = session.scalars(XComModel.get_many(run_id=run_id, dag_ids=dag_id, key=PAGE_KEY)).all()
    for one in sorted(left, key=lambda one: one.timestamp, reverse=True):
        if page := XComModel.deserialize_value(one):
            return HTMLResponse(str(page), headers=_HEADERS)
    return HTMLResponse(_NONE, status_code=404, headers=_HEADERS)
