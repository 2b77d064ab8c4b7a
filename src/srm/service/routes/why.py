"""``/v2/why``: reasons why a topic is (not) copied, a group (not) translated or able to move."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from srm.domain.names.topics import Flow
from srm.engine.why import Kind, Why
from srm.service.views.request_params import ViewsDep
from srm.service.views.responses import MOST_OF_A_NAME, PROBLEMS, answer
from srm.service.views.why_queries import Explaining

router = APIRouter(prefix="/v2", tags=["why"], responses=PROBLEMS)


@router.get("/why/{kind}/{name:path}", response_model=list[Why], summary="Reasons for a state")
async def why(
    request: Request,
    views: ViewsDep,
    kind: Kind,
    name: Annotated[
        str, Path(description="Topic on either side, or group.", max_length=MOST_OF_A_NAME)
    ],
    flow: Annotated[
        str, Query(description="Only this flow, as `A->B`; default: all.", examples=["P->B"])
    ] = "",
) -> Response:
    """Query both clusters of each flow for list, filter, state and rights, and name the remedy.

    The request takes as long as the clusters do. The answer has an item for each flow that knows
    the name, then one with `known` false and the reason for each flow whose target did not answer.
    """
    wanted = [views.look(Flow.parse(flow))] if flow else views.looks()
    flows = [look.flow for look in wanted]
    explaining: Explaining = request.app.state.explaining
    return answer(request, list(await explaining.why(flows, [kind], name)), list[Why])
