"""Keep the report of a move."""

from __future__ import annotations

from srm.domain.move.report import MoveReport, build_report
from srm.engine.move.control import Change
from srm.engine.move.registers import record
from srm.engine.move.store import MoveContext, MoveStore


def report(context: MoveContext, move_id: str) -> MoveReport:
    """Compute the report of a move at its present step and keep it.

    Raises:
        NotFoundError: there is no such move.
    """
    plan, progress = MoveStore(context).load(move_id)
    if progress.step in {"gone", "verified"}:
        progress = progress.at("reported", context.now_ms())
    result = build_report(plan, progress)
    documents = {f"report:{move_id}": result.value()}
    record(context, Change(progress=(progress,), documents=documents), tolerate_source=True)
    return result
