"""``/ui/why``: explain why a topic or group is or is not where it should be."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request, Response

from srm.service.pages.rendering import PageRoute, page
from srm.service.views.request_params import ViewsDep

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/ui/why")
def why_page(
    request: Request,
    views: ViewsDep,
    kind: Literal["topic", "group"] = "topic",
    name: str = "",
    flow: str = "",
) -> Response:
    """Show the form, and the answer if a name is given."""
    return page(
        request,
        "why.html",
        kind=kind,
        name=name.strip(),
        flow=flow,
        flows=[str(look.flow) for look in views.looks()],
    )
