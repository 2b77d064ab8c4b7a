"""REST API rows of moves and drills, made from the records of a cluster; pure."""

from __future__ import annotations

from srm.domain.recovery.drill import Drill
from srm.service.views.documents import DrillRow, MoveDetail, MoveRow, StepRow
from srm.service.views.snapshots import MoveLook

_ENDED = frozenset({"reported", "released"})


def move_row(look: MoveLook) -> MoveRow:
    """Return the row of a move."""
    plan, report = look.plan, look.report.report if look.report else None
    request, progress = plan.request, look.progress
    ended = progress.step in _ENDED
    return MoveRow(
        plan.move_id,
        request.operation,
        request.mode,
        request.source,
        request.target,
        plan.created_ms,
        progress.step,
        ended,
        None if report is None else report.ok,
        len(plan.topics),
        len(plan.groups),
        None if report is None else report.rpo_records,
        None if report is None else report.rpo_at_least,
        None if report is None else report.rpo_at_most,
        None if report is None else report.rpo_seconds,
        progress.held_seconds if report is None or not progress.is_decided else report.rto_seconds,
        None if report is None else sum(group.re_read for group in report.groups.values()),
        _problems(look),
        look.report is not None and look.report.signed.signature is not None,
        look.waits,
        look.waits_ms or None,
        progress.times_ms.get(progress.step) if ended else None,
    )


def is_running(move: MoveRow) -> bool:
    """Return True for a move that has started, and so holds or moves clients, and not ended."""
    return not move.ended and move.step != "planned"


def is_blocked(look: MoveLook) -> bool:
    """Return True for a planned move that cannot start; a started move is not blocked."""
    return look.progress.step == "planned" and bool(look.plan.blocking)


def _problems(look: MoveLook) -> tuple[str, ...]:
    if look.report is not None:
        return look.report.report.problems
    if is_blocked(look):
        return look.plan.blocking
    given_up = look.progress.step == "released" and look.progress.reason
    return (look.progress.reason,) if given_up else ()


def move_detail(look: MoveLook) -> MoveDetail:
    """Return a move with its steps."""
    times = {"planned": look.plan.created_ms, **look.progress.times_ms}
    steps = tuple(StepRow(step, at) for step, at in sorted(times.items(), key=lambda item: item[1]))
    return MoveDetail(
        move_row(look),
        look.plan.summary(),
        steps,
        look.plan.group_names,
        look.plan.blocking,
        look.plan.warnings,
    )


def drill_row(drill: Drill) -> DrillRow:
    """Return the row of a drill."""
    return DrillRow(
        drill.drill_id,
        drill.flow,
        drill.state,
        drill.time_ms,
        drill.ok,
        len(drill.groups),
        drill.proven,
        drill.rto_seconds,
        drill.all_problems,
    )
