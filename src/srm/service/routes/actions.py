"""Actions of operators: ``POST`` of JSON by an operator, never by a page of another site."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final, TypeVar

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from srm.domain.text.documents import adapter
from srm.engine.control.control_lists import ListName
from srm.service.access.access import address, audit, same_origin, user_of
from srm.service.access.operator_actions import (
    Actions,
    ListsAction,
    ListsAnswer,
    ListsRow,
    Nothing,
    Refreshed,
    ReplicatorAction,
    ReplicatorAnswer,
)
from srm.service.views.responses import PROBLEMS, FlowDep, ViewsDep, answer

_MOST_BYTES: Final = 1 << 16
_MORE: Final[dict[int | str, dict[str, Any]]] = {
    status: {**PROBLEMS[400], "description": text}
    for status, text in (
        (409, "Concurrent changes prevented this one; try again"),
        (413, "The request is too long"),
        (415, "The request is not JSON"),
    )
}
_T = TypeVar("_T")

reading = APIRouter(prefix="/v2/flows", tags=["actions"], responses=PROBLEMS)
router = APIRouter(
    prefix="/v2/flows",
    tags=["actions"],
    responses={**PROBLEMS, **_MORE},
    dependencies=[Depends(same_origin)],
)
List = Annotated[ListName, Path(description="Name of the list.", alias="list")]


def actions_of(request: Request) -> Actions:
    """Return the actions of the application."""
    found: Actions = request.app.state.actions
    return found


ActionsDep = Annotated[Actions, Depends(actions_of)]


def _body(of: type[_T]) -> Callable[[Request], Awaitable[_T]]:
    """Return a dependency that reads a body of limited size after authentication.

    FastAPI would read the whole body before.
    """

    async def read(request: Request) -> _T:
        media_type = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise HTTPException(415, "send JSON, with Content-Type: application/json")
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BYTES:
                raise HTTPException(413, f"more than {_MOST_BYTES} bytes")
        try:
            return adapter(of).validate_json(bytes(body), strict=False)
        except ValidationError as error:
            told = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
            raise RequestValidationError(told) from None

    return read


def _document(of: type[Any]) -> dict[str, Any]:
    schema = adapter(of).json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@reading.get("/{source}/{target}/lists/{list}", response_model=ListsRow, summary="One list")
async def lists(request: Request, actions: ActionsDep, flow: FlowDep, name: List) -> Response:
    """Return the entries that srm-control adds to the properties file, as on the target now."""
    async with actions.turns.turn():
        found = await run_sync(actions.lists, flow, name)
    return answer(request, found)


@router.post(
    "/{source}/{target}/replicator",
    response_model=ReplicatorAnswer,
    summary="Stop or restart the replicator",
    openapi_extra=_document(ReplicatorAction),
)
async def replicator(
    request: Request,
    actions: ActionsDep,
    flow: FlowDep,
    action: Annotated[ReplicatorAction, Depends(_body(ReplicatorAction))],
) -> Response:
    """Request the flow's replicator to end; the flow shows the result soon after."""
    by = user_of(request).name
    what = f"{action.action} of the replicator of {flow}"
    done = await _done(request, what, partial(actions.replicator, flow, action, by))
    return answer(request, done)


@router.post(
    "/{source}/{target}/lists/{list}",
    response_model=ListsAnswer,
    summary="Change one list",
    openapi_extra=_document(ListsAction),
)
async def change_lists(
    request: Request,
    actions: ActionsDep,
    flow: FlowDep,
    name: List,
    action: Annotated[ListsAction, Depends(_body(ListsAction))],
) -> Response:
    """Add and remove entries, or with ``dry_run`` only return the effect."""
    by = user_of(request).name
    what = f"change of {name} of {flow}: {action}"
    done = await _done(request, what, partial(actions.change_lists, flow, name, action, by))
    return answer(request, done)


@router.post(
    "/{source}/{target}/refresh",
    response_model=Refreshed,
    summary="Look at the flow at once",
    openapi_extra=_document(Nothing),
)
async def refresh(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    _nothing: Annotated[Nothing, Depends(_body(Nothing))],
) -> Response:
    """Request a look at the flow at once; ``looked_ms`` is the time of the last look."""
    look = views.look(flow)
    await _done(request, f"refresh of {flow}", partial(views.refresh, flow.target))
    return answer(request, Refreshed(str(flow), look.looked_ms))


async def _done(request: Request, what: str, act: Callable[[], _T]) -> _T:
    who = f"{user_of(request).name} from {address(request)}"
    try:
        async with actions_of(request).turns.turn():
            result = await run_sync(act)
    except Exception as error:
        audit.warning("%s by %s failed: %s", what, who, error)
        raise
    audit.info("%s by %s: %s", what, who, result)
    return result
