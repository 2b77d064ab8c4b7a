"""Moves as a target knows them: one holds clients, one was released, one has a report."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.domain.moves.report.reporting import REPORT, losing

from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress, MoveStep
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import KeptReport
from srm.service.views.flow_rows import MoveLook


def running_move(move_id: str, step: MoveStep, held_ms: int = 30_000) -> MoveLook:
    progress = MoveProgress(move_id).at("holding", held_ms).at(step, held_ms + 5_000)
    return MoveLook(_plan(move_id, MoveRequest("failover", "P", "B")), progress)


def released_move(move_id: str, ended_ms: int = 40_000) -> MoveLook:
    progress = MoveProgress(move_id).at("holding", 1_000).at("released", ended_ms)
    return MoveLook(_plan(move_id, MoveRequest("failback", "P", "B")), progress)


def reported_move(move_id: str, ended_ms: int = 45_000, *, ok: bool = True) -> MoveLook:
    report = replace(losing(REPORT, 3, 3), move_id=move_id, ok=ok, rpo_seconds=0.5)
    progress = MoveProgress(move_id).at("holding", 1_000).at("reported", ended_ms)
    request = MoveRequest("failover", "P", "B", mode="unplanned")
    return MoveLook(_plan(move_id, request), progress, KeptReport.decode(report.value()))


def _plan(move_id: str, request: MoveRequest) -> MovePlan:
    return MovePlan(move_id, 500, request, ("Payments",), (), (), "f")
