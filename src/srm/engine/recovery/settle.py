"""Settle the return of a source: decide about the residue, then resume the flow.

One transaction on the target writes all decisions and ends the pause. A process killed before it
leaves the flow paused; after it nothing is left to do.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.moves.records.outcome import Choice, Outcome
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.recovery.settlement import Settlement, decisions, outcome_of, plan_settlement
from srm.domain.recovery.source_return import SourceReturn
from srm.domain.text.amount import some
from srm.engine.control.compacted import ensure_compacted
from srm.engine.flows.supervision import pause_in_force
from srm.engine.moves.control.move_records import MoveStore, as_move
from srm.engine.moves.control.registers import level
from srm.engine.ports import FlowContext, FlowSwitch
from srm.engine.recovery.look import ReturnedLogs, Show, look_at_source
from srm.errors import ConflictError, GateClosedError, SrmError, UnavailableError
from srm.replication.restore.flow_state import open_restores

log = logging.getLogger(__name__)

_MERGE: Final = "run it again when a broker leads the partition, or merge its topic"


@dataclass(frozen=True, slots=True)
class SettledReturn:
    """Findings, plan and result; ``outcome`` is added to the report of the disaster."""

    found: SourceReturn
    settlement: Settlement
    outcome: Outcome
    applied: bool


def plan_return(
    context: FlowContext,
    logs: ReturnedLogs,
    named: Mapping[str, Choice],
    default: Choice | None,
    by: str,
    show: Show = lambda _: None,
) -> SettledReturn:
    """Return what is to be decided, and the effect of the choices; nothing is written."""
    found = look_at_source(context, logs, show)
    settlement = plan_settlement(found, named, default)
    undecided = _open_moves(context, found, settlement)
    blocked = (*settlement.blocked, *open_restores(context), *undecided)
    settlement = replace(settlement, blocked=blocked)
    move_id = found.pause.move_id if found.pause else ""
    outcome = outcome_of(found, settlement, move_id, by, context.now_ms())
    return SettledReturn(found, settlement, outcome, applied=False)


def settle_return(
    context: FlowContext,
    logs: ReturnedLogs,
    named: Mapping[str, Choice],
    default: Choice | None,
    by: str,
    show: Show = lambda _: None,
    approve: Callable[[SettledReturn], bool] = lambda _: True,
) -> SettledReturn:
    """Carry out the choices and end the pause; safe to repeat.

    The copies to decide on are sealed and looked at again. After that no record in flight from a
    slot of before the disaster can arrive. Merged copies need no final end.

    ``default``: the choice for all other topics, but not for rebuilt or missing ones.
    ``approve``: called before a decision is written; False: nothing is decided. Raises a
    GateClosedError if something is undecided, or cannot be settled.
    """
    switch = _switch(context)
    before = pause_in_force(context)
    if before is None:
        raise ConflictError(f"flow {context.config.flow} is not paused: there is nothing to settle")
    request, sealed = uuid.uuid4().hex[:12], set[TopicPartition]()
    while True:
        planned = plan_return(context, logs, named, default, by, show)
        if planned.settlement.blocked:
            raise GateClosedError(f"not settled: {'; '.join(planned.settlement.blocked)}")
        notes = decisions(planned.found, planned.settlement, request, by, context.now_ms())
        unsealed = _copies(context, notes) - sealed
        if not unsealed:
            break
        _seal(context, unsealed, show)
        sealed |= unsealed
    if not approve(planned):
        return planned
    now = pause_in_force(context)
    if now is None or now.request != before.request:
        raise _overtaken(context, "paused again" if now else "settled")
    show("routes and moves of both clusters")
    level(as_move(context))
    if before.moves:
        show("the outcome of the disaster")
    for move_id in before.moves:
        store_outcome(context, replace(planned.outcome, move_id=move_id))
    show("the decision")
    if not switch.resume({note.key(): note.value() for note in notes}, before.request):
        raise _overtaken(context, "settled")
    return SettledReturn(planned.found, planned.settlement, planned.outcome, applied=True)


def _open_moves(context: FlowContext, found: SourceReturn, settlement: Settlement) -> Iterator[str]:
    """Yield the undecided moves of the pause, if something would be kept or discarded.

    Until a move is decided its clients may stay on the source, and their records are not residue.
    """
    left_out = [topic for topic, choice in settlement.choices.items() if choice != "merge"]
    if not left_out or found.pause is None:
        return
    store = MoveStore(as_move(context))
    for move_id in found.pause.moves:
        if store.find_plan(move_id) is None or (at := store.progress(move_id)).is_decided:
            continue
        yield (
            f"move {move_id} has paused {context.config.flow} and is {at.step}, not decided: "
            f"{some(left_out)} can only be merged; finish it (repeat its 'srm failover run' with "
            f"--move-id {move_id}) or end it ('srm failover release {move_id}')"
        )


def _overtaken(context: FlowContext, how: str) -> ConflictError:
    return ConflictError(
        f"flow {context.config.flow} was {how} by another process; check 'srm return status'"
    )


def _switch(context: FlowContext) -> FlowSwitch:
    if context.switch is None:
        raise UnavailableError(f"flow {context.config.flow} cannot be paused or resumed from here")
    return context.switch


def _copies(context: FlowContext, notes: Iterable[PartitionNotes]) -> set[TopicPartition]:
    names, topics = context.config.names, context.target.topics()
    found = set()
    for note in notes:
        remote = names.remote(note.topic)
        if remote in topics and note.partition < topics[remote].partitions:
            found.add(TopicPartition(remote, note.partition))
    return found


def _seal(context: FlowContext, copies: Collection[TopicPartition], show: Show) -> None:
    """Fence slots that may still write to copies."""
    target = context.config.flow.target
    show(f"sealing {len(copies):,} partitions of {target}")
    failed = _switch(context).seal(copies)
    if failed:
        [(copy, why), *others] = sorted(failed.items())
        more = f", and {len(others)} more" if others else ""
        raise UnavailableError(f"{copy} on {target} cannot be sealed{more}: {why}", _MERGE)


def store_outcome(context: FlowContext, outcome: Outcome) -> None:
    """Write the outcome to the moves topics of both clusters; a failure is logged."""
    replicas = context.config.internal_replication_factor
    for cluster in (context.target, context.source):
        try:
            if cluster is context.target:
                ensure_compacted(cluster, internal_topics.MOVES, 1, replicas)
            if internal_topics.MOVES in cluster.topics():
                cluster.compacted_topic(internal_topics.MOVES).write(outcome.to_records())
        except SrmError as error:
            log.warning(
                "the outcome of move %s is not on %s: %s", outcome.move_id, cluster.alias, error
            )
