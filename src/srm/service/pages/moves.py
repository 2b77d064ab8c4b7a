"""``/ui/moves...``: running and past moves, their cost, drills, and a form to plan a move."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from srm.domain.moves.progress import HELD, STEPS, Carrier, release_of, run_again
from srm.domain.moves.report import Bounds, read_again_by
from srm.domain.moves.request import FORM, Operation
from srm.domain.names.topics import Flow
from srm.domain.text.amount import few
from srm.pages.html import move_timeline, report_page, round_up
from srm.pages.moves import residue_text
from srm.service.federation.merged_lists import HomesDep
from srm.service.pages.overview import readiness
from srm.service.pages.rendering import HEADERS, PageRoute, page
from srm.service.views import flow_rows
from srm.service.views.documents import MoveRow
from srm.service.views.responses import ViewsDep
from srm.service.views.views import Views

router = APIRouter(prefix="/ui/moves", route_class=PageRoute, include_in_schema=False)

PAST: Final = 50
_KNOWN: Final = ("name", "kind", "default", "option")
"""Attributes of a setting for the script: its field and its command line option."""
_REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"


@router.get("")
def moves_page(request: Request, views: ViewsDep, homes: HomesDep) -> Response:
    moves = views.moves()
    past = [move for move in moves if move.ended or move.step == "planned"]
    return page(
        request,
        "moves.html",
        running=[
            (move, stages(views.move(move.move_id))) for move in moves if flow_rows.is_running(move)
        ],
        past=past[:PAST],
        hidden=max(0, len(past) - PAST),
        picture=bars(past[:PAST]),
        drills=views.drills()[:PAST],
        rehearsed=likely(views),
        homes=homes,
    )


def likely(views: Views) -> flow_rows.FlowLook | None:
    """Return the flow of the most likely next move.

    It starts at the target of the last move if groups can resume on its other end, else it is the
    flow with most such groups, then the first one in the properties file.
    """
    aliases = list(views.config.clusters)
    here = next((move.target for move in views.moves() if move.ok is not None), None)

    def rank(look: flow_rows.FlowLook) -> tuple[bool, bool, int, list[int]]:
        flow, ready = look.flow, readiness(views.groups_of(look)).ready
        places = [aliases.index(alias) for alias in (flow.source, flow.target)]
        return not ready, flow.source != here, -ready, places

    return min(views.looks(), key=rank, default=None)


def _read_by(look: flow_rows.FlowLook | None, groups: Collection[str]) -> set[str]:
    view = None if look is None else look.view
    return {
        one.topic if one.direction == "forward" else one.target_topic
        for plan in (() if view is None else view.groups)
        if plan.group in groups
        for one in plan.positions
    }


@router.get("/new")
def new_page(
    request: Request,
    views: ViewsDep,
    flow: str = "",
    group: Annotated[list[str], Query()] = [],  # noqa: B006 -- FastAPI copies it
    topic: Annotated[list[str], Query()] = [],  # noqa: B006 -- as above
) -> Response:
    looks = {str(look.flow): look for look in views.looks()}
    look = looks.get(flow) or likely(views)
    chosen = None if look is None else look.flow
    rows = () if look is None else views.groups_of(look)
    topics = () if look is None else views.topics_of(look)
    return page(
        request,
        "new_move.html",
        flows=[Flow.parse(name) for name in looks],
        flow=chosen,
        operation=chosen and _operation(views, chosen),
        summary=None if look is None else flow_rows.summary(look),
        groups=rows,
        topics=topics,
        chosen_groups=set(group),
        chosen_topics=set(topic) or _read_by(look, set(group)),
        readiness=readiness(rows),
        settings=FORM,
        known=[{key: getattr(one, key) for key in _KNOWN} for one in FORM.values()],
    )


def _operation(views: Views, flow: Flow) -> Operation:
    place = list(views.config.clusters).index
    return "failback" if place(flow.source) > place(flow.target) else "failover"


@router.get("/{move_id}")
def move_page(request: Request, views: ViewsDep, move_id: str) -> Response:
    look = views.move(move_id)
    report = None if look.report is None else look.report.report
    flow = look.plan.request.flow
    seen = views.find(flow)
    return page(
        request,
        "move.html",
        move=flow_rows.move_detail(look),
        flow=flow,
        known={row.group for row in views.groups_of(seen)} if seen else set(),
        stages=stages(look),
        report=report,
        timeline=None if report is None else move_timeline(report),
        read_again={} if report is None else read_again_by(report),
        watched="" if report is None else residue_text(report),
    )


@router.get("/{move_id}/report")
def report(views: ViewsDep, move_id: str) -> Response:
    headers = {**HEADERS, "Content-Security-Policy": _REPORT_POLICY}
    return HTMLResponse(report_page(views.report(move_id)), headers=headers)


_REACHED: Final = {then.intent: step.ended for step, then in pairwise(STEPS) if then.intent}
"""Steps that are the intent of a stage, with the stage before it, which has ended."""
_BARS: Final = 30
_MOST_LABELLED: Final = 10

StageState = Literal["done", "now", "next", "undone"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage; ``reasons``: of its wait; ``carrier``: of the one now.

    ``way_out``: command that sends clients back.
    ``again``: command that continues a move that no process carries.
    """

    name: str
    text: str
    state: StageState
    time_ms: int | None = None
    seconds: float | None = None
    reasons: tuple[str, ...] = ()
    carrier: Carrier | None = None
    way_out: str = ""
    again: str = ""


def stages(look: flow_rows.MoveLook) -> tuple[Stage, ...]:
    progress = look.progress
    times: dict[str, int] = {"planned": look.plan.created_ms, **progress.times_ms}
    if "holding" in times:
        times.setdefault("held", times["holding"])
    steps = [step for step in STEPS if not (look.plan.request.is_unplanned and step.name == "wait")]
    names: list[str] = [step.ended for step in steps]
    released = progress.step == "released"
    last_known = [name for name in names if name in times][-1]
    at = names.index(last_known if released else _last_stage(look))
    blocked, unverified = flow_rows.is_blocked(look), _missing_proof(look)
    found, previous = [], None
    for number, step in enumerate(steps):
        name, time_ms = step.ended, times.get(step.ended)
        state = _state(number, at, released=released or blocked)
        text, reasons, carrier = step.text, tuple[str, ...](), None
        if name == "verified" and unverified:
            state, text, reasons = "undone", "not verified", few(unverified)
        elif blocked and number == at + 1:
            reasons = few(look.plan.blocking)
        elif state == "now":
            reasons, carrier = look.waits, look.carrier
        elif released and number == at + 1 and "held" in times:
            time_ms, text = times.get("released"), f"released here: {step.text}"
        elif name == "verified" and state == "done" and not progress.had_members:
            text = "no group had members that could resume"
        seconds = None
        if previous is not None and time_ms is not None:
            seconds = max(0.0, (time_ms - previous) / 1000)
        out, again = (_way_out(look), _continuation(look)) if state == "now" else ("", "")
        found.append(Stage(step.title, text, state, time_ms, seconds, reasons, carrier, out, again))
        previous = previous if time_ms is None else time_ms
    if released:
        text = "clients are sent back to the source"
        found.append(Stage("Released", text, "done", times.get("released")))
    return tuple(found)


def _way_out(look: flow_rows.MoveLook) -> str:
    if look.progress.step not in HELD:
        return ""
    return release_of(look.plan.request.flow, look.plan.move_id)


def _continuation(look: flow_rows.MoveLook) -> str:
    if look.carrier is None or look.carrier.alive:
        return ""
    return run_again(look.plan.request.flow, look.plan.move_id)


def _missing_proof(look: flow_rows.MoveLook) -> tuple[str, ...]:
    """Return the problems of a move that was reported before all its groups had resumed."""
    progress, report = look.progress, look.report
    if report is None or progress.step != "reported" or "verified" in progress.times_ms:
        return ()
    return report.report.problems


def _last_stage(look: flow_rows.MoveLook) -> str:
    """Return the last ended stage; the wait ends when nothing is left to wait for."""
    step = look.progress.step
    if step == "held" and "ready" in look.progress.times_ms and not look.waits:
        return "ready"
    return _REACHED.get(step, step)


def _state(number: int, at: int, *, released: bool) -> StageState:
    if number <= at:
        return "done"
    if released:
        return "undone"
    return "now" if number == at + 1 else "next"


@dataclass(frozen=True, slots=True)
class MoveBar:
    """A past move in the chart, in percent; ``x``: left edge; least and most: lost records."""

    move: MoveRow
    x: float
    width: float
    rto_percent: float
    least_percent: float
    most_percent: float


@dataclass(frozen=True, slots=True)
class Bars:
    """Time without service and lost records of past moves, the oldest on the left."""

    bars: tuple[MoveBar, ...]
    longest_s: float
    top_records: int

    @property
    def are_labelled(self) -> bool:
        """Return whether each bar has room for its figure above it."""
        return len(self.bars) <= _MOST_LABELLED


def bars(past: Sequence[MoveRow]) -> Bars | None:
    """Draw the moves that have an RTO; None for fewer than two."""
    known = [move for move in past if move.rto_seconds is not None][:_BARS]
    if len(known) < 2:
        return None
    longest_s = max(move.rto_seconds or 0.0 for move in known)
    top_s = round_up(longest_s) if longest_s > 0 else 1.0
    known.sort(key=lambda move: move.created_ms)
    found = [(move.result and move.result.lost) or Bounds(0, 0) for move in known]
    lost = [(one.least, max(one.least, one.most or 0)) for one in found]
    top_records = max(most for _, most in lost)
    width = round(min(4.0, 60 / len(known)), 2)
    return Bars(
        tuple(
            MoveBar(
                move,
                round(100 * (number + 0.5) / len(known) - width / 2, 2),
                width,
                round(100 * (move.rto_seconds or 0.0) / top_s, 2),
                *(round(100 * count / max(1, top_records), 2) for count in lost[number]),
            )
            for number, move in enumerate(known)
        ),
        longest_s,
        top_records,
    )
