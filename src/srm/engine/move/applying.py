"""Set groups on the target to where they continue."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from srm.domain.group_sync import SyncDecision
from srm.domain.move.plan import MovePlan
from srm.domain.move.positions import PartitionMove
from srm.domain.move.progress import MoveProgress
from srm.domain.move.routes import group_subject
from srm.domain.topics import TopicPartition
from srm.engine.group_sync import apply_exact
from srm.engine.move.problems import left_alone
from srm.engine.move.reading import read_facts
from srm.engine.move.routes import InForce, bring_about
from srm.engine.move.store import MoveContext, MoveStore

log = logging.getLogger(__name__)


def apply_positions(
    context: MoveContext,
    plan: MovePlan,
    attempt: int,
    positions: Mapping[str, Iterable[PartitionMove]],
) -> tuple[SyncDecision, ...]:
    """Write where the groups of an attempt continue; what became of each place is returned.

    Also of what is in place: a run that was killed may have left its ledger unsettled. Where
    another process decides the move at the same time, its offsets count. A group that a later move
    leads is left alone; what came too late is srm's own by the ledger: the next sync replaces it.

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
    ours = {group: {tp: resume for tp, resume, _ in some} for group, some in rows.items() if some}
    seen = {group: {tp: known for tp, _, known in some} for group, some in rows.items()}
    decisions: dict[tuple[str, TopicPartition], SyncDecision] = {}

    def make(now: InForce) -> None:
        decided = {
            group: {TopicPartition.parse(name): offset for name, offset in offsets.items()}
            for group, offsets in MoveStore(context).progress(plan.move_id).intended.items()
        }
        wanted = {
            group: decided.get(group, offsets)
            for group, offsets in ours.items()
            if now.attempt == attempt and now.leads(group_subject(group))
        }
        for one in apply_exact(
            context.forward, wanted, seen=seen, operation=f"move {plan.move_id}"
        ):
            decisions[one.group, one.partition] = one
            if one.applied:
                seen[one.group][one.partition] = one.offset

    bring_about(context, plan, make)
    return tuple(decisions.values())


def apply_after_loss(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveProgress:
    """Set each group to its last known place; return the progress with what became of that.

    A group that cannot be set (it has members on the target already, its coordinator refuses) does
    not keep the others from continuing.

    Raises:
        SrmError: the target does not answer.
    """
    facts = read_facts(context, plan.request, plan.topics, plan.group_names)
    left = left_alone(facts)
    moving = {group.group: group for group in facts.plans if group.group not in left}
    rows = {name: group.positions for name, group in moving.items()}
    decisions = apply_positions(context, plan, progress.attempt, rows)
    left |= {one.group: _why(one) for one in decisions if not one.in_place}
    intended = {
        name: {str(p.target): p.resume for p in group.positions if p.resume is not None}
        for name, group in moving.items()
        if name not in left
    }
    skipped = {name: moving[name].skipped for name in intended}
    log.info("move %s: %d groups are set, %d are not", plan.move_id, len(intended), len(left))
    return progress.at(
        "applied",
        context.now_ms(),
        intended=intended,
        skipped=skipped,
        left_alone=left,
    )


def _why(one: SyncDecision) -> str:
    return f"{one.partition}: {one.action}{one.reason and ', '}{one.reason}"
