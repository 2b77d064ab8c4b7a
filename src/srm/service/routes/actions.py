"""Actions of operators, equal to those of ``srm replicator`` and ``srm-control``.

They are a ``POST`` of JSON by an operator, never by a page of another site.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, HTTPException, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ConfigDict, Field, ValidationError

from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.domain.text.documents import adapter
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange, ListName
from srm.engine.flows import supervision
from srm.engine.flows.target_topics import StateTopic
from srm.service.access import access
from srm.service.federation.peers import Opener
from srm.service.views.flow_rows import row_of
from srm.service.views.responses import PROBLEMS, FlowDep, ViewsDep, answer
from srm.wiring import open_cluster

_STRICT = ConfigDict(extra="forbid")
_TIMEOUT_S = 15.0
Pattern = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^,\x00-\x1f]+$")]
Patterns = Annotated[tuple[Pattern, ...], Field(max_length=100)]


@dataclass(frozen=True, slots=True)
class ReplicatorAction:
    """Action on the application that copies a flow.

    ``stop``: it ends, and supervision starts no other one until a restart is requested.
    ``restart``: it ends and supervision starts another one, which reads the configuration again.
    """

    __pydantic_config__ = _STRICT

    action: Literal["stop", "restart"]


@dataclass(frozen=True, slots=True)
class ReplicatorAnswer:
    """State of a request: ``asked``, or ``not-running`` if no replicator copies the flow.

    ``by`` is the user in the request. Other flows of the same application also end.
    """

    flow: str
    action: str
    outcome: supervision.Outcome
    application: str
    host: str
    by: str


@dataclass(frozen=True, slots=True)
class ListsRow:
    """Entries that a list of srm-control allows and denies in addition to the properties file."""

    flow: str
    list: ListName
    allow: tuple[str, ...]
    deny: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListsAction:
    """Entries (names or regular expressions) to add to and remove from one list.

    With ``dry_run`` nothing is written, and the answer shows the effect.
    """

    __pydantic_config__ = _STRICT

    add: Patterns = ()
    remove: Patterns = ()
    add_deny: Patterns = ()
    remove_deny: Patterns = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ListsAnswer:
    """Result of a change of a list; ``already`` and ``absent`` are entries without a change."""

    lists: ListsRow
    added: tuple[str, ...]
    removed: tuple[str, ...]
    already: tuple[str, ...]
    absent: tuple[str, ...]
    dry_run: bool
    by: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """An action without parameters: ``{}``."""

    __pydantic_config__ = _STRICT


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Acknowledgement of a refresh; ``looked_ms`` is the time of the previous one."""

    flow: str
    looked_ms: int


class Actions:
    """Runs the actions of operators on the target of a flow; none blocks for long.

    ``turns`` limits callers from an event loop, which use a thread for each call.
    """

    def __init__(self, config: Config, opener: Opener | None = None) -> None:
        self._config = config
        self.turns = access.ConcurrencyLimit()
        self._open = opener or (lambda alias: open_cluster(config, alias, _TIMEOUT_S))

    def replicator(self, flow: Flow, action: ReplicatorAction, by: str) -> ReplicatorAnswer:
        self._config.flow(flow)
        with self._open(flow.target) as target:
            topics = {flow: StateTopic(target, flow.source)}
            [answer] = supervision.request_action(topics, action.action, by, now_ms(), wait_s=0)
        return row_of(ReplicatorAnswer, answer, flow=str(flow), by=by)

    def lists(self, flow: Flow, name: ListName) -> ListsRow:
        self._config.flow(flow)
        with self._open(flow.target) as target:
            pair = control_lists.load(target, flow).pair(name)
        return row_of(ListsRow, pair, flow=str(flow), list=name)

    def change_lists(self, flow: Flow, name: ListName, action: ListsAction, by: str) -> ListsAnswer:
        config = self._config.flow(flow)
        changes = ListChange(action.add, action.remove, action.add_deny, action.remove_deny)
        with self._open(flow.target) as target:
            if action.dry_run or changes.is_empty:
                summary = control_lists.preview(target, flow, name, changes)
            else:
                replicas = config.internal_replication_factor
                summary = control_lists.change(target, flow, name, changes, now_ms(), replicas)
        shown = row_of(ListsRow, summary.lists, flow=str(flow), list=name)
        return row_of(ListsAnswer, summary, lists=shown, dry_run=action.dry_run, by=by)


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
_Route = TypeVar("_Route", bound=Callable[..., Any])

reading = APIRouter(prefix="/v2/flows", tags=["actions"], responses=PROBLEMS)
router = APIRouter(
    prefix="/v2/flows",
    tags=["actions"],
    responses={**PROBLEMS, **_MORE},
    dependencies=[Depends(access.same_origin)],
)
List = Annotated[ListName, Path(description="Name of the list.", alias="list")]


def actions_of(request: Request) -> Actions:
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
        body = await access.read_limited(request.stream(), _MOST_BYTES)
        if body is None:
            raise HTTPException(413, f"more than {_MOST_BYTES} bytes")
        try:
            return adapter(of).validate_json(body, strict=False)
        except ValidationError as error:
            errors = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
            raise RequestValidationError(errors) from None

    return read


def _action(
    path: str, summary: str, of: type[Any], returns: type[Any]
) -> Callable[[_Route], _Route]:
    """Decorate the route of an action, which a JSON document describes."""
    content = {"application/json": {"schema": adapter(of).json_schema()}}
    return router.post(
        f"/{{source}}/{{target}}/{path}",
        response_model=returns,
        summary=summary,
        openapi_extra={"requestBody": {"required": True, "content": content}},
    )


@reading.get("/{source}/{target}/lists/{list}", response_model=ListsRow, summary="One list")
async def lists(request: Request, actions: ActionsDep, flow: FlowDep, name: List) -> Response:
    """Return the entries that srm-control adds to the properties file, as on the target now."""
    async with actions.turns.turn():
        found = await run_sync(actions.lists, flow, name)
    return answer(request, found)


@_action("replicator", "Stop or restart the replicator", ReplicatorAction, ReplicatorAnswer)
async def replicator(
    request: Request,
    actions: ActionsDep,
    flow: FlowDep,
    action: Annotated[ReplicatorAction, Depends(_body(ReplicatorAction))],
) -> Response:
    """Request the flow's replicator to end; the flow shows the result soon after."""
    by = access.user_of(request).name
    what = f"{action.action} of the replicator of {flow}"
    done = await _done(request, what, partial(actions.replicator, flow, action, by))
    return answer(request, done)


@_action("lists/{list}", "Change one list", ListsAction, ListsAnswer)
async def change_lists(
    request: Request,
    actions: ActionsDep,
    flow: FlowDep,
    name: List,
    action: Annotated[ListsAction, Depends(_body(ListsAction))],
) -> Response:
    """Add and remove entries, or with ``dry_run`` only return the effect."""
    by = access.user_of(request).name
    what = f"change of {name} of {flow}: {action}"
    done = await _done(request, what, partial(actions.change_lists, flow, name, action, by))
    return answer(request, done)


@_action("refresh", "Look at the flow at once", Nothing, Refreshed)
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
    who = f"{access.user_of(request).name} from {access.address(request)}"
    try:
        async with actions_of(request).turns.turn():
            result = await run_sync(act)
    except Exception as error:
        access.audit.warning("%s by %s failed: %s", what, who, error)
        raise
    access.audit.info("%s by %s: %s", what, who, result)
    return result
