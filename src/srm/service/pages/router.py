"""Router of all pages, redirects and static files of the service; the pages of why and of runs."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from srm.errors import NotFoundError
from srm.service.pages import flows, moves, overview
from srm.service.pages.rendering import FAILOVER, Links, PageRoute, move_ids, page, root_of
from srm.service.views.responses import ViewsDep

router = APIRouter(route_class=PageRoute, include_in_schema=False)
for _module in (overview, flows, moves):
    router.include_router(_module.router)


@router.get("/")
def start(request: Request) -> Response:
    return RedirectResponse(f"{root_of(request)}/ui", 307)


@router.get("/ui/why")
def why_page(
    request: Request,
    views: ViewsDep,
    kind: Literal["topic", "group"] = "topic",
    name: str = "",
    flow: str = "",
) -> Response:
    return page(
        request,
        "why.html",
        kind=kind,
        name=name.strip(),
        flow=flow,
        flows=[str(look.flow) for look in views.looks()],
    )


@router.get("/ui/runs/{dag_id}/{run_id}")
def run(request: Request, views: ViewsDep, dag_id: str, run_id: str, task: str = "") -> Response:
    links = Links(root_of(request))
    if dag_id.partition(".")[0] != FAILOVER:
        name = f"{dag_id}.{task}"
        flows = (look.flow for look in views.looks())
        flow = next((one for one in flows if f"{one.source}_to_{one.target}" in name), None)
        return RedirectResponse(links.flow(flow) if flow else links(), 307)
    known = {move.move_id for move in views.moves()}
    found = next((move for move in move_ids(dag_id, run_id) if move in known), None)
    if found is not None:
        return RedirectResponse(links("moves", found), 307)
    return page(request, "no_move.html", dag_id=dag_id, run_id=run_id)


@router.get("/ui/{rest:path}")
def unknown(request: Request, rest: str) -> Response:  # noqa: ARG001 -- the path has it
    raise NotFoundError(f"page {request.url.path} does not exist")


class Files(StaticFiles):
    """Static files that browsers cache but revalidate, so that a new version appears at once."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response
