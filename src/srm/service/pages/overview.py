"""``/ui``: all flows, those in trouble first; what a disaster would cost; what happened lately."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastapi import APIRouter, Request, Response

from srm.domain.topics import Flow
from srm.errors import SrmError
from srm.service.asking import ViewsDep
from srm.service.documents import Event, FlowSummary, GroupRow, MoveRow
from srm.service.flow_rows import summary
from srm.service.looks import FlowLook
from srm.service.pages import trouble
from srm.service.pages.measures import (
    SPAN_NAMES,
    STATISTICS,
    Measures,
    Wish,
    WishDep,
    lately,
    measures,
)
from srm.service.pages.rendering import PageRoute, page
from srm.service.pages.topology import topology
from srm.service.views import Views

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_EVENTS = 8


@dataclass(frozen=True, slots=True)
class Readiness:
    """How many groups of a flow could go on at its target now; ``first`` says why one could not."""

    ready: int
    unready: int
    unknown: int
    first: str = ""

    @property
    def total(self) -> int:
        """All groups."""
        return self.ready + self.unready + self.unknown


@dataclass(frozen=True, slots=True)
class FlowLine:
    """One flow on the overview."""

    flow: FlowSummary
    since_ms: int | None
    behind: trouble.Behind | None
    measures: Measures
    readiness: Readiness


@router.get("/ui")
def overview(request: Request, views: ViewsDep, wanted: WishDep) -> Response:
    """Show all flows."""
    looks = {str(look.flow): look for look in views.looks()}
    flows = trouble.by_trouble(trouble.as_known(summary(look)) for look in looks.values())
    lines = [flow_line(views, looks[flow.flow], wanted) for flow in flows]
    late = {line.flow.flow for line in lines if line.behind and line.flow.state == "RUNNING"}
    moves = views.moves()
    return page(
        request,
        "overview.html",
        headline=trouble.headline(flows, late),
        lines=lines,
        topology=topology([line.flow for line in lines], *_clusters(views), views.config.clusters),
        troubles=[
            line for line in lines if line.flow.flow in late or line.flow.state in trouble.TROUBLES
        ],
        late=late,
        running=running(moves),
        last=next((move for move in moves if move.ok is not None), None),
        events=recent(views, [look.flow for look in looks.values()]),
        wanted=wanted,
        spans=SPAN_NAMES,
        stats=STATISTICS,
    )


def flow_line(views: Views, look: FlowLook, wanted: Wish) -> FlowLine:
    """Describe a flow for a line of the overview, or the head of its own page."""
    found = trouble.as_known(summary(look))
    measured = measures(views, look.flow, "", wanted)
    since = trouble.since_ms(look)
    return FlowLine(
        found,
        since,
        trouble.behind(found.lag, lately(views, look.flow)),
        measured,
        readiness(groups_of(views, look)),
    )


def groups_of(views: Views, look: FlowLook) -> tuple[GroupRow, ...]:
    """Return the groups of a flow, none where it was not seen yet."""
    try:
        return views.groups(look.flow)
    except SrmError:
        return ()


def readiness(rows: tuple[GroupRow, ...]) -> Readiness:
    """Count who could move."""
    unready = [row for row in rows if row.can_move is False]
    first = unready[0].reason if unready else ""
    unknown = sum(row.can_move is None for row in rows)
    return Readiness(len(rows) - len(unready) - unknown, len(unready), unknown, first)


def running(moves: tuple[MoveRow, ...]) -> list[MoveRow]:
    """Return the moves that hold or move somebody now."""
    return [move for move in moves if not move.ended and move.step != "planned"]


def recent(views: Views, flows: Iterable[Flow], most: int = _EVENTS) -> list[Event]:
    """Gather the newest events of flows; of a move or drill the latest, and from one flow alone."""
    every = [event for flow in flows for event in views.events(flow)]
    found: dict[object, Event] = {}
    for event in sorted(every, key=lambda event: -event.time_ms):
        found.setdefault(event.about or (event.time_ms, event.text), event)
    return list(found.values())[:most]


def _clusters(views: Views) -> tuple[dict[str, str], set[str]]:
    """Return a few words on each cluster, and those that do not answer."""
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
