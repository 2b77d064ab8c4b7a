"""``/ui/runs/...``: redirect from the run of a DAG in Airflow to its move or flow."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from srm.domain.names.topics import Flow
from srm.service.pages.airflow import FAILOVER, move_ids
from srm.service.pages.rendering import Links, PageRoute, page, root_of
from srm.service.views.request_params import ViewsDep
from srm.service.views.views import Views

router = APIRouter(prefix="/ui/runs", route_class=PageRoute, include_in_schema=False)


@router.get("/{dag_id}/{run_id}")
def run(request: Request, views: ViewsDep, dag_id: str, run_id: str, task: str = "") -> Response:
    """Redirect to the move of a run, or to its flow."""
    links = Links(root_of(request))
    if dag_id.partition(".")[0] != FAILOVER:
        flow = _flow_in(views, f"{dag_id}.{task}")
        return RedirectResponse(links.flow(flow) if flow else links(), 307)
    known = {move.move_id for move in views.moves()}
    found = next((move for move in move_ids(dag_id, run_id) if move in known), None)
    if found is not None:
        return RedirectResponse(links("moves", found), 307)
    return page(request, "no_move.html", dag_id=dag_id, run_id=run_id)


def _flow_in(views: Views, name: str) -> Flow | None:
    """Return the flow in the name of a DAG or task; None if it works on several."""
    return next(
        (
            look.flow
            for look in views.looks()
            for written in (f"{look.flow.source}_to_{look.flow.target}",)
            if written in name
        ),
        None,
    )
