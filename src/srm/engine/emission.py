"""Emission of a flow: repairs first, checkpoints after them."""

from __future__ import annotations

from collections.abc import Collection

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import STATE_PARTITIONS
from srm.domain.names import internal_topics
from srm.engine.drill import try_to_remove_leftovers
from srm.engine.groups import checkpoints
from srm.engine.groups.checkpoints import CheckpointSummary, Look
from srm.engine.moves.records import try_to_level
from srm.engine.ports import FlowContext


def tables_of(config: FlowConfig) -> dict[str, list[tuple[str, int]]]:
    """Return the tables that emission and group sync read, by cluster."""
    source, both = config.flow.source, [(internal_topics.LEDGER, 0), (internal_topics.ROUTING, 0)]
    more = internal_topics.MOVES, internal_topics.control(source), config.checkpoints_topic
    state = [(internal_topics.replication(source), number) for number in range(STATE_PARTITIONS)]
    return {source: both, config.flow.target: [*both, *((topic, 0) for topic in more), *state]}


def emit(
    context: FlowContext,
    groups: Collection[str] | None = None,
    *,
    dry_run: bool = False,
    look: Look | None = None,
) -> CheckpointSummary:
    """Write missing routes to a returned cluster, remove leftovers of drills, emit checkpoints.

    The repairs precede a complete emission only, and run while the flow is paused too.
    """
    if context.config.emit_checkpoints_enabled and not groups and not dry_run:
        try_to_level(context)
        try_to_remove_leftovers(context.target, context.now_ms())
    return checkpoints.emit(context, groups, dry_run=dry_run, look=look)
