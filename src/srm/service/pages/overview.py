"""``/ui``: all flows, those in trouble first, the cost of a disaster, and recent events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from srm.domain.names.topics import Flow
from srm.errors import SrmError
from srm.service.federation.merged_lists import ElsewhereDep
from srm.service.pages import attention
from srm.service.pages.metric_charts import (
    Measures,
    Wish,
    WishDep,
    lately,
    measures,
    newest,
)
from srm.service.pages.rendering import Links, PageRoute, page
from srm.service.pages.topology import topology
from srm.service.views.documents import Event, FlowSummary, GroupRow, MoveRow
from srm.service.views.flow_rows import is_running, summary
from srm.service.views.responses import ViewsDep
from srm.service.views.snapshots import FlowLook
from srm.service.views.views import Views

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_EVENTS = 8


@dataclass(frozen=True, slots=True)
class Readiness:
    """Counts of groups of a flow that can resume on its target, cannot, or work ``there`` already.

    ``first`` is the first reason why a group cannot, or why that is not known.
    """

    ready: int
    unready: int
    unknown: int
    first: str = ""
    there: int = 0

    @property
    def total(self) -> int:
        """Number of all groups that do not work there."""
        return self.ready + self.unready + self.unknown


@dataclass(frozen=True, slots=True)
class OverviewLine:
    """One flow on the overview; ``home``: address of the other service that watches it."""

    flow: FlowSummary
    since_ms: int | None
    behind: attention.Behind | None
    measures: Measures
    readiness: Readiness
    is_here: bool = True
    home: str = ""

    @property
    def page(self) -> str:
        """Address of the page of the flow on another service, else empty."""
        return Links(self.home).flow(self.flow.flow) if self.home else ""


@router.get("/ui")
def overview(request: Request, views: ViewsDep, others: ElsewhereDep, wanted: WishDep) -> Response:
    """Show all flows, including those that other services watch."""
    every = [flow_line(views, look, wanted) for look in views.looks()]
    here = {line.flow.flow for line in every}
    every += [line_of(flow, others.homes, wanted) for flow in others.flows if flow.flow not in here]
    lines = sorted(every, key=lambda line: attention.rank(line.flow))
    flows = [line.flow for line in lines]
    late = {line.flow.flow for line in lines if line.behind and line.flow.state == "RUNNING"}
    moves = views.moves()
    return page(
        request,
        "overview.html",
        headline=attention.headline(flows, late),
        lines=lines,
        topology=topology(flows, *_clusters(views), views.config.clusters),
        unasked=others.unasked,
        troubles=[
            line
            for line in lines
            if line.flow.flow in late or line.flow.state in attention.TROUBLES
        ],
        late=late,
        running=running(moves),
        last=max((move for move in moves if move.ended), key=_ended_ms, default=None),
        events=recent(views, [look.flow for look in views.looks()]),
        wanted=wanted,
    )


def flow_line(views: Views, look: FlowLook, wanted: Wish) -> OverviewLine:
    """Describe a flow for a line of the overview or the head of its page."""
    found = attention.as_known(summary(look))
    measured = measures(views, look.flow, "", wanted)
    since = attention.since_ms(look)
    return OverviewLine(
        found,
        since,
        None if found.error else attention.behind(found.lag, lately(views, look.flow)),
        measured,
        readiness(groups_of(views, look)),
    )


def line_of(flow: FlowSummary, homes: Mapping[str, str], wanted: Wish) -> OverviewLine:
    """Describe a flow that another service watches, from the answer of that service."""
    found = attention.as_known(flow)
    measured = newest(found.measured, wanted)
    home = homes.get(flow.target, "")
    return OverviewLine(found, None, None, measured, readiness(()), is_here=False, home=home)


def groups_of(views: Views, look: FlowLook) -> tuple[GroupRow, ...]:
    """Return the groups of a flow; empty before its first successful query."""
    try:
        return views.groups(look.flow)
    except SrmError:
        return ()


def readiness(rows: tuple[GroupRow, ...]) -> Readiness:
    """Count the groups that can resume on the target now."""
    asked = [row for row in rows if not row.works_there]
    unready = [row for row in asked if row.can_go_on is False]
    unknown = [row for row in asked if row.can_go_on is None]
    first = next((row.reason for row in (*unready, *unknown)), "")
    ready, there = len(asked) - len(unready) - len(unknown), len(rows) - len(asked)
    return Readiness(ready, len(unready), len(unknown), first, there)


def running(moves: tuple[MoveRow, ...]) -> list[MoveRow]:
    """Return the moves that hold or move clients now."""
    return [move for move in moves if is_running(move)]


def _ended_ms(move: MoveRow) -> int:
    return move.created_ms if move.ended_ms is None else move.ended_ms


def recent(views: Views, flows: Iterable[Flow], most: int = _EVENTS) -> list[Event]:
    """Return the newest events of flows, with one event per move or drill, the latest."""
    every = [event for flow in flows for event in views.events(flow)]
    found: dict[object, Event] = {}
    for event in sorted(every, key=lambda event: -event.time_ms):
        found.setdefault(event.about or (event.flow, event.time_ms, event.text), event)
    return list(found.values())[:most]


def _clusters(views: Views) -> tuple[dict[str, str], set[str]]:
    notes, away = dict[str, str](), set[str]()
    for alias, text in _silent(views):
        notes.setdefault(alias, text)
        away.add(alias)
    for target in views.targets:
        if target.cluster_id:
            notes.setdefault(target.alias, target.cluster_id)
    return notes, away


def _silent(views: Views) -> Iterator[tuple[str, str]]:
    for target in views.targets:
        if target.error:
            yield target.alias, "does not answer"
    for look in views.looks():
        if look.view is not None and look.view.status.source_error:
            yield look.flow.source, "does not answer"
