"""Emission of a flow: repairs first, checkpoints after them."""

from __future__ import annotations

from collections.abc import Collection

from srm.engine.drill import try_to_remove_leftovers
from srm.engine.groups import checkpoints
from srm.engine.groups.checkpoints import CheckpointSummary
from srm.engine.moves.records import try_to_level
from srm.engine.ports import FlowContext


def emit(
    context: FlowContext, groups: Collection[str] | None = None, *, dry_run: bool = False
) -> CheckpointSummary:
    """Write missing routes to a returned cluster, remove leftovers of drills, emit checkpoints.

    The repairs precede a complete emission only, and run while the flow is paused too.
    """
    if context.config.emit_checkpoints_enabled and not groups and not dry_run:
        try_to_level(context)
        try_to_remove_leftovers(context.target, context.now_ms())
    return checkpoints.emit(context, groups, dry_run=dry_run)
