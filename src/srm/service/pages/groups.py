"""``/ui/flows/A/B/groups...``: positions of groups on each side, and whether they can resume."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from fastapi import APIRouter, Request, Response

from srm.clock import now_ms
from srm.domain.text.reason import Reason
from srm.engine.metrics.metrics import PACE_MS, rate_of, seconds_to_go
from srm.engine.status.status import without_groups
from srm.errors import NotFoundError
from srm.service.pages import attention
from srm.service.pages.flows import PART, Offset, Part
from srm.service.pages.overview import groups_of, readiness
from srm.service.pages.rendering import PageRoute, page
from srm.service.views import flow_rows
from srm.service.views.committed import CommitsDep
from srm.service.views.documents import GroupRow, TopicRow
from srm.service.views.responses import FlowDep, Search, ViewsDep, containing
from srm.service.views.series import Copied
from srm.service.views.snapshots import FlowLook
from srm.service.views.views import Views

router = APIRouter(
    prefix="/ui/flows/{source}/{target}/groups", route_class=PageRoute, include_in_schema=False
)

State = Literal["", "ready", "unready"]
WindowsOf = Callable[[str], Iterable[Copied]]
"""Returns the records that were recently copied of a topic."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group and the wait of a planned move of it.

    ``lag`` is the number of records of its topics that are still to be copied.
    ``eta_s`` is the maximum time at their best recent rate (:mod:`srm.engine.why`), else None.
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
    """Show the groups of a flow, those that cannot resume on the target first."""
    look = views.look(flow)
    every = groups_of(views, look)
    found = containing(every, search, lambda row: row.group)
    if state:
        found = [row for row in found if _is_well(row) == (state == "ready")]
    found.sort(key=lambda row: (_is_well(row), row.group))
    shown = found[offset : offset + PART]
    topics, windows = _topics(views, look), _windows(views, look)
    return page(
        request,
        "groups.html",
        flow=flow,
        look=look,
        summary=attention.as_known(flow_rows.summary(look)),
        readiness=readiness(every),
        lines=[group_line(row, topics, windows) for row in shown],
        part=Part(offset, len(shown), len(found)),
        every=len(every),
        search=search,
        state=state,
        without=_without_groups(look),
    )


@router.get("/{group:path}")
def group_page(
    request: Request, views: ViewsDep, flow: FlowDep, group: str, commits: CommitsDep
) -> Response:
    """Show a group by partition."""
    look = views.last_look(flow)[0]
    opposite = views.opposite(flow)
    detail = flow_rows.group_detail(look, group, commits, opposite)
    if detail is None:
        raise NotFoundError(f"group {group!r} has no checkpoint of {flow}: {flow} never saw it")
    back = None if opposite is None else flow_rows.group_detail(opposite, group)
    return page(
        request,
        "group.html",
        flow=flow,
        look=look,
        summary=attention.as_known(flow_rows.summary(look)),
        line=group_line(detail.row, _topics(views, look), _windows(views, look)),
        detail=detail,
        positions=detail.positions,
        unread=detail.unread,
        back=None if back is None else back.row,
        has_back=opposite is not None,
    )


def _without_groups(look: FlowLook) -> Reason:
    """Return why no group of a flow has a checkpoint, without a query of committed offsets."""
    config, flow = look.config, look.flow
    is_emitted = look.view is not None and look.view.proof is not None
    if not config.groups or (config.emit_checkpoints_enabled and is_emitted):
        return without_groups(config)
    if not config.emit_checkpoints_enabled:
        action = f"set {flow}.emit.checkpoints.enabled=true"
        return Reason(f"{flow}.emit.checkpoints.enabled is false", action)
    action = f"srm checkpoints emit --flow '{flow}'"
    return Reason("no checkpoints of this flow were emitted yet", action)


def _is_well(row: GroupRow) -> bool:
    return row.can_go_on is True or row.works_there


def _topics(views: Views, look: FlowLook) -> tuple[TopicRow, ...]:
    return views.topics(look.flow) if look.view is not None else ()


def _windows(views: Views, look: FlowLook) -> WindowsOf:
    series, end_ms = views.series(look.flow.target), now_ms()

    @cache
    def windows(topic: str) -> tuple[Copied, ...]:
        return tuple(series.copied_between(look.flow, topic, end_ms - PACE_MS, end_ms))

    return windows


def group_line(row: GroupRow, topics: tuple[TopicRow, ...], windows: WindowsOf) -> GroupLine:
    """Describe a group for a line of the table or the head of its page."""
    own = [topic for topic in topics if row.group in topic.groups]
    lag = sum(topic.lag for topic in own)
    measured = (window for topic in own if lag for window in windows(topic.topic))
    rate = rate_of(measured, now_ms())
    return GroupLine(row, tuple(topic.topic for topic in own), lag, seconds_to_go(lag, rate))
