"""``/ui/flows/A/B/groups...``: where groups stand on each side, and whether they could move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, Request, Response

from srm.engine.why import rate_of, seconds_to_go
from srm.errors import NotFoundError
from srm.service import flow_rows
from srm.service.answering import Search, containing
from srm.service.asking import FlowDep, ViewsDep
from srm.service.documents import GroupRow, TopicRow
from srm.service.looks import FlowLook
from srm.service.pages.flows import PART, Offset, Part
from srm.service.pages.overview import groups_of, readiness
from srm.service.pages.rendering import PageRoute, page
from srm.service.views import Views
from srm.wiring import now_ms

router = APIRouter(
    prefix="/ui/flows/{source}/{target}/groups", route_class=PageRoute, include_in_schema=False
)

State = Literal["", "ready", "unready"]


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group with what a planned move of it would have to wait for.

    ``lag`` are records of its topics that are still to be copied, ``eta_s`` how long that takes at
    their rate of late, as :mod:`srm.engine.why` says it; None: no metrics say.
    """

    row: GroupRow
    topics: tuple[str, ...]
    lag: int
    eta_s: float | None


@router.get("")
def groups_page(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    search: Search = "",
    state: State = "",
    offset: Offset = 0,
) -> Response:
    """Show the groups of a flow: those that could not move come first."""
    look = views.look(flow)
    every = groups_of(views, look)
    found = containing(every, search, lambda row: row.group)
    if state:
        found = [row for row in found if (row.can_move is True) == (state == "ready")]
    found.sort(key=lambda row: (row.can_move is True, row.group))
    shown = found[offset : offset + PART]
    topics = _topics(views, look)
    return page(
        request,
        "groups.html",
        flow=flow,
        look=look,
        summary=flow_rows.summary(look),
        readiness=readiness(every),
        lines=[group_line(row, topics) for row in shown],
        part=Part(offset, len(shown), len(found)),
        every=len(every),
        search=search,
        state=state,
    )


@router.get("/{group:path}")
def group_page(request: Request, views: ViewsDep, flow: FlowDep, group: str) -> Response:
    """Show a group by partition."""
    look = views.seen(flow)[0]
    detail = flow_rows.group_detail(look, group)
    if detail is None:
        raise NotFoundError(f"group {group!r} has no checkpoint of {flow}: {flow} never saw it")
    opposite = next((one for one in views.looks() if one.flow == flow.reversed), None)
    back = None if opposite is None else flow_rows.group_detail(opposite, group)
    return page(
        request,
        "group.html",
        flow=flow,
        look=look,
        line=group_line(detail.row, _topics(views, look)),
        positions=detail.positions,
        back=None if back is None else back.row,
        has_back=opposite is not None,
    )


def _topics(views: Views, look: FlowLook) -> tuple[TopicRow, ...]:
    return views.topics(look.flow) if look.view is not None else ()


def group_line(row: GroupRow, topics: tuple[TopicRow, ...]) -> GroupLine:
    """Describe a group for a line of the table, or the head of its own page."""
    own = [topic for topic in topics if row.group in topic.groups]
    lag = sum(topic.lag for topic in own)
    rate = rate_of((topic.measured for topic in own if topic.measured is not None), now_ms())
    return GroupLine(row, tuple(topic.topic for topic in own), lag, seconds_to_go(lag, rate))
