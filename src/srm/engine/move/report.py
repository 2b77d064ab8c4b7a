"""Keep the report of a move."""

from __future__ import annotations

from srm.domain.move.report import MoveReport, build_report
from srm.engine.move.store import MoveContext, MoveStore


def report(context: MoveContext, move_id: str) -> MoveReport:
    """Compute the report of a move at its present step and keep it.

    Raises:
        NotFoundError: there is no such move.
    """
    store = MoveStore(context)
    plan, progress = store.plan(move_id), store.progress(move_id)
    if progress.step in {"gone", "verified"}:
        progress = store.save(progress.at("reported", context.now_ms()))
    result = build_report(plan, progress)
    store.save_report(result)
    return result
