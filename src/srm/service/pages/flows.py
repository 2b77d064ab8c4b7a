"""``/ui/flows/...``: one flow with topics, charts and events; a topic by partition; its groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final, Literal

from fastapi import APIRouter, Request, Response

from srm.clock import now_ms
from srm.domain.text.amount import Reason
from srm.engine.metrics.metrics import PACE_MS, rate_of, seconds_to_go
from srm.engine.status.status import GOING_ON, IN_TROUBLE, without_groups
from srm.errors import NotFoundError
from srm.service.pages import figures, overview
from srm.service.pages.rendering import PageRoute, page
from srm.service.views import flow_rows
from srm.service.views.documents import GroupRow, TopicRow
from srm.service.views.flow_rows import FlowLook
from srm.service.views.responses import (
    DetailDep,
    FlowDep,
    Metric,
    Offset,
    Search,
    Slice,
    ViewsDep,
    containing,
)
from srm.service.views.series import Copied
from srm.service.views.views import Views

router = APIRouter(
    prefix="/ui/flows/{source}/{target}", route_class=PageRoute, include_in_schema=False
)

_EVENTS: Final = 30

Sort = Literal["state", "topic", "partitions", "groups", "lag"] | Metric
Order = Literal["asc", "desc"]

_STATES: Final = ("STOPPED", "DEGRADED", "UNKNOWN", "PAUSED", "RUNNING", "OFF")
_BY: Final[dict[str, Callable[[TopicRow], Any]]] = {
    "state": lambda row: (-_STATES.index(row.state), row.lag),
    "topic": lambda row: row.topic,
    "partitions": lambda row: row.partitions,
    "groups": lambda row: len(row.groups),
    "lag": lambda row: row.lag,
}
_STATE_OF: Final = {"bad": IN_TROUBLE, "good": GOING_ON}


@dataclass(frozen=True, slots=True)
class TopicLine:
    """One topic in the table of a flow."""

    row: TopicRow
    measures: figures.Measures
    behind: overview.Behind | None


@router.get("")
def flow_page(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    wanted: figures.WishDep,
    search: Search = "",
    state: str = "",
    sort: Sort = "state",
    order: Order | None = None,
    offset: Offset = 0,
) -> Response:
    look = views.look(flow)
    every = flow_rows.as_of(views.topics_of(look), now_ms())
    found = containing(every, search, lambda row: row.topic, lambda row: row.remote_topic)
    if state:
        found = [row for row in found if row.state == state.upper()]
    direction = order or ("asc" if sort == "topic" else "desc")
    found.sort(key=lambda row: row.topic)
    found.sort(key=_key(sort, wanted), reverse=direction == "desc")
    part = Slice(offset, figures.PART).page(found)
    return page(
        request,
        "flow.html",
        line=overview.flow_line(views, look, wanted),
        topics=[_line(views, look, row, wanted) for row in part.items],
        part=part,
        every=len(every),
        counts={name: sum(row.state == name for row in every) for name in _STATES},
        events=overview.recent(views, [flow], _EVENTS),
        search=search,
        state=state.upper(),
        sort=sort,
        order=direction,
        wanted=wanted,
    )


def _key(sort: str, wanted: figures.Wish) -> Callable[[TopicRow], Any]:
    if sort in _BY:
        return _BY[sort]
    return partial(flow_rows.figure, metric=sort, statistic=wanted.statistic(sort))


def _line(views: Views, look: FlowLook, row: TopicRow, wanted: figures.Wish) -> TopicLine:
    found = figures.measures(views, look.flow, row.topic, wanted)
    is_known = row.lag and look.silent_since_ms is None
    late = figures.lately(views, look.flow, row.topic) if is_known else ()
    return TopicLine(row, found, overview.behind(row.lag, late))


@router.get("/topics/{topic}")
def topic_page(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    topic: str,
    wanted: figures.WishDep,
    state: Literal["", "bad", "good"] = "",
    offset: Offset = 0,
) -> Response:
    row = views.topic(flow, topic)
    look, view = views.last_look(flow)
    every = view.partitions.get(row.topic, ())
    found = [one for one in every if not state or one.state in _STATE_OF[state]]
    found.sort(key=lambda row: (row.state not in IN_TROUBLE, not row.note_texts, row.partition))
    return page(
        request,
        "topic.html",
        flow=flow,
        summary=flow_rows.summary(look),
        line=_line(views, look, row, wanted),
        is_flow_measured=bool(figures.newest(look.measured.get(""), wanted).windows),
        part=Slice(offset, figures.PART).page(found),
        every=len(every),
        events=[event for event in views.events(flow) if event.topic == row.topic][:_EVENTS],
        state=state,
        wanted=wanted,
    )


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group, the lag of its topics, and the maximum time to copy that at the best recent rate.

    ``own_lag`` is that of its commits on the source; None if not known.
    """

    row: GroupRow
    topics: tuple[str, ...]
    own_lag: int | None
    lag: int
    eta_s: float | None


@router.get("/groups")
def groups_page(
    request: Request,
    views: ViewsDep,
    flow: FlowDep,
    search: Search = "",
    state: Literal["", "ready", "unready"] = "",
    offset: Offset = 0,
) -> Response:
    look = views.look(flow)
    every = views.groups_of(look)
    found = containing(every, search, lambda row: row.group)
    if state:
        found = [row for row in found if _is_well(row) == (state == "ready")]
    found.sort(key=lambda row: (_is_well(row), row.group))
    part = Slice(offset, figures.PART).page(found)
    return page(
        request,
        "groups.html",
        flow=flow,
        look=look,
        summary=flow_rows.summary(look),
        readiness=overview.readiness(every),
        lines=group_lines(views, look, part.items),
        part=part,
        every=len(every),
        search=search,
        state=state,
        without=_without_groups(look),
    )


@router.get("/groups/{group:path}")
def group_page(
    request: Request, views: ViewsDep, flow: FlowDep, group: str, detail: DetailDep
) -> Response:
    if detail is None:
        raise NotFoundError(f"group {group!r} has no checkpoint of {flow}: {flow} never saw it")
    look, opposite = views.look(flow), views.find(flow.reverse)
    back = None if opposite is None else flow_rows.group_detail(opposite, group)
    [line] = group_lines(views, look, [detail.row])
    return page(
        request,
        "group.html",
        flow=flow,
        look=look,
        summary=flow_rows.summary(look),
        line=line,
        detail=detail,
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


def group_lines(views: Views, look: FlowLook, rows: Iterable[GroupRow]) -> list[GroupLine]:
    """Describe groups; the windows of a topic are read once for all its groups."""
    topics, series, end_ms = views.topics_of(look), views.series(look.flow.target), now_ms()
    opposite = views.find(look.flow.reverse)

    @cache
    def windows(topic: str) -> list[Copied]:
        return series.copied_between(look.flow, topic, end_ms - PACE_MS, end_ms)

    def line(row: GroupRow) -> GroupLine:
        own = [topic for topic in topics if row.group in topic.groups]
        lag = sum(topic.lag for topic in own)
        measured = (window for topic in own if lag for window in windows(topic.topic))
        eta_s = seconds_to_go(lag, rate_of(measured, end_ms))
        own_lag = flow_rows.group_lag(look, row.group, opposite)
        return GroupLine(row, tuple(topic.topic for topic in own), own_lag, lag, eta_s)

    return [line(row) for row in rows]
