"""Emission of a flow: repairs first, checkpoints after them."""

from __future__ import annotations

from collections.abc import Collection

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import STATE_PARTITIONS
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import tolerate
from srm.engine.drill import remove_leftovers
from srm.engine.groups import checkpoints
from srm.engine.groups.checkpoints import CheckpointSummary, Look
from srm.engine.moves.losses import restore_pause
from srm.engine.moves.registers import level_if_needed
from srm.engine.ports import FlowContext
from srm.errors import SrmError


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

    The repairs precede a complete emission only, and run while the flow is paused too. Their
    failures are only logged.
    """
    if context.config.emit_checkpoints_enabled and not groups and not dry_run:
        flow, target, now_ms = context.config.flow, context.target, context.now_ms()
        routes = f"{flow}: the routes of both clusters"
        tolerate(lambda: level_if_needed(context), routes, SrmError)
        pause = f"{flow}: the pause of an abandoned source"
        tolerate(lambda: restore_pause(context), pause, SrmError)
        leftovers = f"leftovers of a drill on {target.alias} remain for now"
        tolerate(lambda: remove_leftovers(target, now_ms), leftovers, SrmError)
    return checkpoints.emit(context, groups, dry_run=dry_run, look=look)
