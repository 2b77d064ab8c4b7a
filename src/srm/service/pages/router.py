"""Router of all pages, redirects and static files of the service."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.staticfiles import StaticFiles

from srm.service.pages import flows, groups, moves, overview, runs, why
from srm.service.pages.rendering import PageRoute, nothing_here, root_of

router = APIRouter(route_class=PageRoute, include_in_schema=False)
for _module in (overview, flows, groups, moves, runs, why):
    router.include_router(_module.router)


@router.get("/")
def start(request: Request) -> Response:
    """Redirect to the overview."""
    return RedirectResponse(f"{root_of(request)}/ui", 307)


@router.get("/ui/{rest:path}")
def unknown(request: Request, rest: str) -> Response:  # noqa: ARG001 -- the path has it
    """Answer 404 as a page."""
    return nothing_here(request)


class Files(StaticFiles):
    """Static files that browsers cache but revalidate, so that a new version appears at once."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file with the header that makes the browser revalidate it."""
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response
