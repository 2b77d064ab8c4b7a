"""Set groups on the target to where they continue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from srm.domain.group_sync import SyncDecision
from srm.domain.move.plan import MovePlan
from srm.domain.move.positions import PartitionMove
from srm.domain.move.routes import group_subject
from srm.domain.topics import TopicPartition
from srm.engine.group_sync import apply_exact
from srm.engine.move.routes import bring_about, routes_now
from srm.engine.move.store import MoveContext, MoveStore

_Offsets = Mapping[str, Mapping[TopicPartition, int]]


def apply_positions(
    context: MoveContext,
    plan: MovePlan,
    attempt: int,
    positions: Mapping[str, Iterable[PartitionMove]],
) -> tuple[SyncDecision, ...]:
    """Write where the groups of an attempt continue; what became of each place is returned.

    Also of what is in place: a run that was killed may have left its ledger unsettled. Where
    another process decides the move beside this one, the offsets that it decided on count. A group
    that a later move leads is left alone; what was written for it too late is srm's own by the
    ledger, and the next group sync or move replaces it.

    Args:
        context: the clusters.
        plan: of the move, whose id the ledger gets.
        attempt: its attempt.
        positions: by group; those without an offset to write are left out.

    Raises:
        SrmError: the target does not answer.
    """
    rows = {
        group: [(p.target, p.resume, p.target_committed) for p in some if p.resume is not None]
        for group, some in positions.items()
    }
    ours: _Offsets = {
        group: {tp: resume for tp, resume, _ in some} for group, some in rows.items() if some
    }
    seen = {group: {tp: known for tp, _, known in some} for group, some in rows.items()}
    decisions: dict[tuple[str, TopicPartition], SyncDecision] = {}

    def asks() -> _Offsets:
        routes, wanted = routes_now(context), {}
        for group, offsets in ours.items():
            route = routes.get(group_subject(group))
            if route is None or (route.move_id, route.generation) != (plan.move_id, attempt):
                continue
            if route.state == "hold":
                wanted[group] = offsets
            elif route.decided:
                wanted[group] = _read_decision(context, plan, group)
        return wanted

    def make(wanted: _Offsets) -> None:
        made = apply_exact(context.forward, wanted, seen=seen, operation=f"move {plan.move_id}")
        for one in made:
            decisions[one.group, one.partition] = one
            if one.applied:
                seen[one.group][one.partition] = one.offset

    bring_about(asks(), asks, make)
    return tuple(decisions.values())


def _read_decision(context: MoveContext, plan: MovePlan, group: str) -> dict[TopicPartition, int]:
    intended = MoveStore(context).progress(plan.move_id).intended.get(group, {})
    return {TopicPartition.parse(name): offset for name, offset in intended.items()}
