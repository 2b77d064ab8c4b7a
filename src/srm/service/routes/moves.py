"""``/v2/moves`` and ``/v2/drills``: running and past moves, their reports, rehearsals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from srm.domain.moves.report import MoveReport
from srm.errors import NotFoundError
from srm.service.federation.merged_lists import everywhere
from srm.service.federation.remote_rows import DRILLS, MOVES
from srm.service.views.documents import DrillRow, MoveDetail, MoveRow, Page
from srm.service.views.flow_rows import is_running
from srm.service.views.responses import PROBLEMS, SliceDep, ViewsDep, answer

router = APIRouter(prefix="/v2", tags=["moves"], responses=PROBLEMS)

_WHICH = "Moves to return; a planned move is neither running nor ended."


@router.get("/moves", response_model=Page[MoveRow], summary="All moves, the newest first")
async def moves(
    request: Request,
    views: ViewsDep,
    part: SliceDep,
    which: Annotated[Literal["all", "running", "ended"], Query(description=_WHICH)] = "all",
) -> Response:
    """Return the moves with their step, lost records (RPO) and time without service (RTO)."""
    wanted: dict[str, Callable[[MoveRow], bool]] = {
        "all": lambda _: True,
        "running": is_running,
        "ended": lambda row: row.ended,
    }
    found = await everywhere(request, views.moves(), MOVES, part, wanted[which])
    return answer(request, found, Page[MoveRow])


@router.get("/moves/{move_id}", response_model=MoveDetail, summary="One move")
async def move(request: Request, views: ViewsDep, move_id: str) -> Response:
    """Return a move with its steps and their times."""
    return answer(request, views.move_detail(move_id))


@router.get("/moves/{move_id}/report", response_model=MoveReport, summary="Report of a move")
async def report(request: Request, views: ViewsDep, move_id: str) -> Response:
    """Return the stored report of a move (docs/formats.md)."""
    found = views.move(move_id).report
    if found is None:
        raise NotFoundError(f"move {move_id!r} has no report yet")
    return answer(request, found.report)


@router.get("/drills", response_model=Page[DrillRow], summary="All drills, the newest first")
async def drills(request: Request, views: ViewsDep, part: SliceDep) -> Response:
    """Return rehearsals of failovers with their results."""
    found = await everywhere(request, views.drills(), DRILLS, part)
    return answer(request, found, Page[DrillRow])
