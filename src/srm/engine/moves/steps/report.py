"""Store the report of a move, and keep it current while its source is watched."""

from __future__ import annotations

from dataclasses import dataclass

from srm.domain.moves.records.progress import GroupResume
from srm.domain.moves.report.report import MoveReport
from srm.engine.moves.control.move_records import MoveContext, MoveStore
from srm.engine.moves.reporting.evidence import keep_report
from srm.engine.moves.steps.verify import look_for_stragglers, observe
from srm.errors import ConflictError


@dataclass(frozen=True, slots=True)
class ResidueWatch:
    """Result of one look for residue; ``over``: the watch is finished."""

    report: MoveReport
    over: bool


def report(context: MoveContext, move_id: str) -> MoveReport:
    """Compute the report of a move at its present step and store it."""
    plan, progress = MoveStore(context).load(move_id)
    if progress.step in {"gone", "verified"}:
        progress = progress.at("reported", context.now_ms())
    return keep_report(context, plan, progress)


def watch_residue(context: MoveContext, move_id: str) -> ResidueWatch:
    """Look once for writes and reads on the source after go, and update the report.

    Groups that had not yet processed records when the report was made are looked at again. Repeat
    until ``over``: the time of the request has passed, or another move has held or redirected the
    producers, so later residue is not this move's. After that only other news is stored: an
    approval, the outcome of a disaster.

    Raises:
        ConflictError: its clients have not been sent to the target.
    """
    plan, progress = MoveStore(context).load(move_id)
    if not progress.is_decided:
        raise ConflictError(
            f"move {move_id} is at step {progress.step}; residue exists only after go"
        )
    if not progress.residue_over:
        open_groups = [
            group
            for group in plan.group_names
            if not progress.resumed.get(group, GroupResume()).has_settled
        ]
        progress = look_for_stragglers(context, plan, observe(context, plan, progress, open_groups))
    return ResidueWatch(keep_report(context, plan, progress), progress.residue_over)
