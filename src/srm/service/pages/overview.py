"""``/ui``: all flows, those in trouble first, the cost of a disaster, and recent events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter, Request, Response

from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.engine.status.status import IN_TROUBLE
from srm.service.federation.merged_lists import ElsewhereDep
from srm.service.pages.figures import Measures, Wish, WishDep, arrow, lately, measures, newest
from srm.service.pages.rendering import Links, PageRoute, page
from srm.service.pages.topology import topology
from srm.service.views.documents import Event, FlowSummary, GroupRow, State
from srm.service.views.flow_rows import FlowLook, is_running, summary
from srm.service.views.responses import ViewsDep
from srm.service.views.series import Measured
from srm.service.views.views import Views

_WORST_FIRST: Final[tuple[State, ...]] = (
    *("STOPPED", "DEGRADED", "UNKNOWN"),
    *("PAUSED", "RUNNING", "IDLE", "OFF"),
)
TROUBLES: Final = _WORST_FIRST[:3]
"""States that need attention."""
BEHIND_S: Final = 10.0
"""A flow counts as behind if its lag equals this many seconds of its own traffic."""
_CAUGHT_UP: Final = 0.1
"""A flow fell behind when its lag last was at most this fraction of the current lag."""


@dataclass(frozen=True, slots=True)
class Behind:
    """A lagging flow: start of the lag (``is_longer``: or earlier), lag in seconds."""

    since_ms: int
    seconds: float
    is_longer: bool = False


@dataclass(frozen=True, slots=True)
class Headline:
    """The first line of the overview; ``state`` is that of the worst flow."""

    state: State
    text: str


def rank(flow: FlowSummary) -> tuple[int, int, str]:
    """Return the sort key by state, the worst first, then by lag."""
    return _WORST_FIRST.index(flow.state), -flow.lag, flow.flow


def headline(flows: Sequence[FlowSummary], late: Collection[str] = ()) -> Headline:
    """Summarize the state of all flows; ``late`` names those that are behind."""
    if not flows:
        return Headline("IDLE", "No flow is configured")
    worst = min(flows, key=rank)
    needing = [flow for flow in flows if flow.state in TROUBLES]
    if needing:
        unseen = (
            "is unknown: latest look failed"
            if worst.looked_ms or worst.error
            else "is not known yet"
        )
        word = unseen if worst.state == "UNKNOWN" else f"is {worst.state.lower()}"
        return Headline(worst.state, _count_text(needing, flows, word, "need attention"))
    behind_now = [flow for flow in flows if flow.flow in late]
    if behind_now:
        return Headline("DEGRADED", _count_text(behind_now, flows, "is behind", "are behind"))
    running = sum(flow.state == "RUNNING" for flow in flows)
    if running == len(flows):
        every = {1: "The flow is", 2: "Both flows are"}.get(running, f"All {running} flows are")
        return Headline("RUNNING", f"{every} running")
    if not running:
        return Headline(worst.state, f"{amount(len(flows), 'flow')}, none is running")
    return Headline("RUNNING", f"{running} running, {len(flows) - running} paused, idle or off")


def _count_text(
    some: Sequence[FlowSummary], flows: Sequence[FlowSummary], one: str, more: str
) -> str:
    if len(some) == 1:
        return f"{arrow(some[0].flow)} {one}"
    return f"{len(some)} of {amount(len(flows), 'flow')} {more}"


def since_ms(look: FlowLook) -> int | None:
    """Return since when a flow is in trouble or paused; None if it is not, or if unknown.

    For an unreachable target this is the time of the last successful query.
    """
    view = look.view
    if look.error:
        return look.looked_ms or None
    if view is None or view.health.state in {"RUNNING", "IDLE", "OFF"}:
        return None
    status = view.status
    if status.pause is not None:
        return status.pause.time_ms
    if status.driver is not None and not status.driver.alive and view.health.state == "STOPPED":
        return status.time_ms - status.driver.age_ms
    if status.source_error and view.status.heard_ms:
        return view.status.heard_ms
    times = [
        one.since_ms
        for partitions in view.partitions.values()
        for one in partitions
        if one.since_ms and one.state in IN_TROUBLE
    ]
    return min(times, default=None)


def behind(lag: int, windows: Sequence[Measured]) -> Behind | None:
    """Detect from metrics windows whether a flow or topic is behind, and since when.

    ``lag``: records still to copy now. ``windows``: by time, without overlaps and idle periods.

    None if the lag is worth less than :data:`BEHIND_S` of its traffic, or if the newest window
    has hardly any of it. Slots report positions once a second, so that some lag is normal.
    """
    seconds = sum((w.end_ms - w.start_ms) / 1000 for w in windows)
    records = sum(w.records for w in windows)
    if not lag or not records or not seconds:
        return None
    newest = windows[-1]
    # A burst counts with its current traffic, a stopped copy with its earlier traffic.
    rate = max(records / seconds, newest.records * 1000 / (newest.end_ms - newest.start_ms))
    worth = lag / rate
    if worth < BEHIND_S or newest.replication_records_lag.sum <= _CAUGHT_UP * lag:
        return None
    later = newest
    for window in reversed(windows[:-1]):
        is_idle_between = later.start_ms > window.end_ms
        if is_idle_between or window.replication_records_lag.sum <= _CAUGHT_UP * lag:
            return Behind(later.start_ms, worth)
        later = window
    return Behind(later.start_ms, worth, is_longer=True)


router = APIRouter(route_class=PageRoute, include_in_schema=False)

_EVENTS = 8


@dataclass(frozen=True, slots=True)
class Readiness:
    """Counts of groups that can resume on the target, cannot, or work ``there``; ``first``: why."""

    ready: int
    unready: int
    unknown: int
    first: str = ""
    there: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.unready + self.unknown


@dataclass(frozen=True, slots=True)
class OverviewLine:
    """One flow on the overview; ``home``: address of the other service that watches it."""

    flow: FlowSummary
    since_ms: int | None
    behind: Behind | None
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
    every = [flow_line(views, look, wanted) for look in views.looks()]
    here = {line.flow.flow for line in every}
    every += [line_of(flow, others.homes, wanted) for flow in others.flows if flow.flow not in here]
    lines = sorted(every, key=lambda line: rank(line.flow))
    flows = [line.flow for line in lines]
    late = {line.flow.flow for line in lines if line.behind and line.flow.state == "RUNNING"}
    moves = views.moves()
    return page(
        request,
        "overview.html",
        headline=headline(flows, late),
        lines=lines,
        topology=topology(flows, *_clusters(views), views.config.clusters),
        unwatched=others.unwatched,
        troubles=[line for line in lines if line.flow.flow in late or line.flow.state in TROUBLES],
        late=late,
        running=[move for move in moves if is_running(move)],
        last=max(
            (move for move in moves if move.ended),
            key=lambda move: move.ended_ms or move.created_ms,
            default=None,
        ),
        events=recent(views, [look.flow for look in views.looks()]),
        wanted=wanted,
    )


def flow_line(views: Views, look: FlowLook, wanted: Wish) -> OverviewLine:
    found = summary(look)
    return OverviewLine(
        found,
        since_ms(look),
        None if found.lag_at_ms is not None else behind(found.lag, lately(views, look.flow)),
        measures(views, look.flow, "", wanted),
        readiness(views.groups_of(look)),
    )


def line_of(flow: FlowSummary, homes: Mapping[str, str], wanted: Wish) -> OverviewLine:
    measured = newest(flow.measured, wanted)
    home = homes.get(flow.target, "")
    return OverviewLine(flow, None, None, measured, readiness(()), is_here=False, home=home)


def readiness(rows: tuple[GroupRow, ...]) -> Readiness:
    to_move = [row for row in rows if not row.works_there]
    unready = [row for row in to_move if row.can_go_on is False]
    unknown = [row for row in to_move if row.can_go_on is None]
    first = next((row.reason for row in (*unready, *unknown)), "")
    ready, there = len(to_move) - len(unready) - len(unknown), len(rows) - len(to_move)
    return Readiness(ready, len(unready), len(unknown), first, there)


def recent(views: Views, flows: Iterable[Flow], most: int = _EVENTS) -> list[Event]:
    """Return the newest events of flows, with one event per move or drill, the latest."""
    every = [event for flow in flows for event in views.events(flow)]
    found: dict[object, Event] = {}
    for event in sorted(every, key=lambda event: -event.time_ms):
        found.setdefault(event.about or (event.flow, event.time_ms, event.text), event)
    return list(found.values())[:most]


def _clusters(views: Views) -> tuple[dict[str, str], set[str]]:
    silent = {target.alias for target in views.targets if target.error}
    for look in views.looks():
        if look.view is not None and look.view.status.source_error:
            silent.add(look.flow.source)
    notes = {target.alias: target.cluster_id for target in views.targets}
    return notes | dict.fromkeys(silent, "does not answer"), silent
