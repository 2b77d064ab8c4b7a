"""``/v2/why``: reasons why a topic is (not) copied, a group (not) translated or able to move."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Annotated

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response

from srm import patience
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.why import Kind, Why, ask, in_order, not_found
from srm.errors import SrmError
from srm.service.access.access import AT_ONCE, ConcurrencyLimit
from srm.service.views.responses import MOST_OF_A_NAME, PROBLEMS, ViewsDep, answer
from srm.wiring import open_flow

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


Asking = Callable[[Config, Flow, str, Collection[Kind]], tuple[Why, ...]]


def ask_clusters(config: Config, flow: Flow, name: str, kinds: Collection[Kind]) -> tuple[Why, ...]:
    """Query the clusters of one flow."""
    with patience.limit(patience.DEFAULT_S), open_flow(config, flow, partial=True) as context:
        return ask(context, name, kinds)


class Explaining:
    """Answers why queries, a few at the same time; ``asking`` queries one flow, or its clusters."""

    def __init__(self, config: Config, asking: Asking = ask_clusters) -> None:
        self._config = config
        self._asking = asking
        self._turns = ConcurrencyLimit()
        self._limit = anyio.CapacityLimiter(AT_ONCE)

    async def why(
        self, flows: Collection[Flow], kinds: Collection[Kind], name: str
    ) -> tuple[Why, ...]:
        """Query some flows; omit those that do not know the name, silent targets come last.

        NotFoundError: no flow knows the name; the error suggests similar names. SrmError: none of
        those that answered knows it, or too many queries are waiting.
        """
        async with self._turns.turn():
            return await self._why(flows, kinds, name)

    async def _why(
        self, flows: Collection[Flow], kinds: Collection[Kind], name: str
    ) -> tuple[Why, ...]:
        asked: list[Why] = []
        unasked: dict[Flow, SrmError] = {}

        async def one(flow: Flow) -> None:
            try:
                answers = await run_sync(
                    self._asking, self._config, flow, name, kinds, limiter=self._limit
                )
            except SrmError as error:
                unasked[flow] = error
            else:
                asked.extend(answers)

        async with anyio.create_task_group() as group:
            for flow in flows:
                group.start_soon(one, flow)
        known = in_order(why for why in asked if why.known)
        if not known:
            raise _none_answers(unasked) if unasked else not_found(name, asked)
        told = [(flow, kind) for flow in sorted(unasked) for kind in kinds]
        return (*known, *(_not_asked(flow, kind, name, unasked[flow]) for flow, kind in told))


def _not_asked(flow: Flow, kind: Kind, name: str, error: SrmError) -> Why:
    return Why(flow, kind, name, known=False, ok=None, verdict=f"not known: {error}", steps=())


def _none_answers(unasked: Mapping[Flow, SrmError]) -> SrmError:
    first = min(unasked)
    return type(unasked[first])("; ".join(f"{f}: {unasked[f]}" for f in sorted(unasked)))
