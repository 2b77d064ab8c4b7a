"""``/ui/moves...``: running and past moves, their cost, drills, and a form to plan a move."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse

from srm.domain.moves.records.request import FORM, Operation
from srm.domain.names.topics import Flow
from srm.errors import NotFoundError
from srm.pages.html import report_page
from srm.pages.moves import re_read_text, residue_text, verdict_text
from srm.pages.timeline import move_timeline
from srm.service.pages.attention import as_known
from srm.service.pages.move_picture import bars, stages
from srm.service.pages.other_sites import HomesDep
from srm.service.pages.overview import groups_of, readiness, running
from srm.service.pages.rendering import HEADERS, PageRoute, page
from srm.service.views.flow_rows import summary
from srm.service.views.request_params import ViewsDep
from srm.service.views.snapshots import FlowLook
from srm.service.views.views import Views

router = APIRouter(prefix="/ui/moves", route_class=PageRoute, include_in_schema=False)

PAST: Final = 50
_KNOWN: Final = ("name", "kind", "default", "option")
"""Attributes of a setting for the script: its field and its command line option."""
_REPORT_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'self'"


@router.get("")
def moves_page(request: Request, views: ViewsDep, homes: HomesDep) -> Response:
    """Show all moves and drills."""
    moves = views.moves()
    past = [move for move in moves if move.ended or move.step == "planned"]
    under_way = running(moves)
    return page(
        request,
        "moves.html",
        running=[(move, stages(views.move(move.move_id))) for move in under_way],
        past=past[:PAST],
        hidden=max(0, len(past) - PAST),
        picture=bars(past[:PAST]),
        drills=views.drills()[:PAST],
        rehearsed=likely(views),
        homes=homes,
    )


def likely(views: Views) -> FlowLook | None:
    """Return the flow of the most likely next move.

    It starts at the target of the last move if groups can resume on its other end. Without a move
    it is the flow with most such groups, then the first one in the properties file.
    """
    aliases = list(views.config.clusters)
    here = next((move.target for move in views.moves() if move.ok is not None), None)

    def rank(look: FlowLook) -> tuple[bool, bool, int, list[int]]:
        flow, ready = look.flow, readiness(groups_of(views, look)).ready
        places = [aliases.index(alias) for alias in (flow.source, flow.target)]
        return not ready, flow.source != here, -ready, places

    return min(views.looks(), key=rank, default=None)


def _read_by(look: FlowLook | None, groups: Collection[str]) -> set[str]:
    """Return the topics that groups read, by their names in moves."""
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
    """Show the form of a move with preset values."""
    looks = {str(look.flow): look for look in views.looks()}
    look = looks.get(flow) or likely(views)
    chosen = None if look is None else look.flow
    rows = () if look is None else groups_of(views, look)
    topics = () if look is None or look.view is None else views.topics(look.flow)
    return page(
        request,
        "new_move.html",
        flows=[Flow.parse(name) for name in looks],
        flow=chosen,
        operation=chosen and _operation(views, chosen),
        summary=None if look is None else as_known(summary(look)),
        groups=rows,
        topics=topics,
        chosen_groups=set(group),
        chosen_topics=set(topic) or _read_by(look, set(group)),
        readiness=readiness(rows),
        settings=FORM,
        known=[{key: getattr(one, key) for key in _KNOWN} for one in FORM.values()],
    )


def _operation(views: Views, flow: Flow) -> Operation:
    """Return the operation of a move along a flow, by the order of the clusters."""
    place = list(views.config.clusters).index
    return "failback" if place(flow.source) > place(flow.target) else "failover"


@router.get("/{move_id}")
def move_page(request: Request, views: ViewsDep, move_id: str) -> Response:
    """Show the progress and the result of one move."""
    look = views.move(move_id)
    kept = look.report
    report = None if kept is None else kept.report
    flow = Flow(look.plan.request.source, look.plan.request.target)
    seen = next((one for one in views.looks() if one.flow == flow), None)
    return page(
        request,
        "move.html",
        move=views.move_detail(move_id),
        flow=flow,
        known={row.group for row in groups_of(views, seen)} if seen else set(),
        plan=look.plan,
        stages=stages(look),
        report=report,
        timeline=None if report is None else move_timeline(report),
        re_read="" if report is None else re_read_text(report),
        watched="" if report is None else residue_text(report),
        verdict="" if report is None else verdict_text(report),
    )


@router.get("/{move_id}/report")
def report(views: ViewsDep, move_id: str) -> Response:
    """Return the report of a move as the page of ``srm failover report``."""
    kept = views.move(move_id).report
    if kept is None:
        raise NotFoundError(f"move {move_id!r} has no report yet")
    return HTMLResponse(
        report_page(kept), headers={**HEADERS, "Content-Security-Policy": _REPORT_POLICY}
    )
