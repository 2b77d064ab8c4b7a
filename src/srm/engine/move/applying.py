"""Set groups on the target to where they continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from srm.domain.group_sync import SyncDecision
from srm.domain.move.positions import PartitionMove
from srm.engine.group_sync import apply_exact
from srm.engine.move.store import MoveContext


def apply_positions(
    context: MoveContext, move_id: str, positions: Mapping[str, Iterable[PartitionMove]]
) -> tuple[SyncDecision, ...]:
    """Write where groups continue; what became of each place is returned.

    Also of what is in place: a run that was killed may have left its ledger unsettled.

    Args:
        context: the clusters.
        move_id: the move, for the ledger.
        positions: by group; those without an offset to write are left out.

    Raises:
        SrmError: the target does not answer.
    """
    rows = {
        group: [(p.target, p.resume, p.target_committed) for p in some if p.resume is not None]
        for group, some in positions.items()
    }
    return apply_exact(
        context.forward,
        {group: {tp: resume for tp, resume, _ in some} for group, some in rows.items() if some},
        seen={group: {tp: known for tp, _, known in some} for group, some in rows.items()},
        operation=f"move {move_id}",
    )
