"""Removal of static members (KIP-345), which stay in their group until their session times out."""

from __future__ import annotations

import logging
from dataclasses import replace

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.routing.routes import group_subject
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.control.routes import InForce, bring_about
from srm.engine.moves.steps.gate_reading import Look
from srm.errors import AuthorizationError

log = logging.getLogger(__name__)

_GRACE_MS = 5_000
"""Time to commit for members that do not acknowledge the hold."""


def remove_static_members(context: MoveContext, plan: MovePlan, look: Look) -> None:
    """Remove static members from held groups, each once, so that the gate does not wait for them.

    Only after they had time to commit: each has acknowledged the hold, or some seconds have passed.
    A member that still runs joins again, and the gate reports it.
    """
    removed = set(look.seen.removed)
    waiting: dict[str, list[str]] = {}
    for group in plan.group_names:
        described = look.clusters.source.group(group)
        instances = [one for one in described.instance_ids if f"{group}/{one}" not in removed]
        if instances and _had_time(look, group, len(described.members)):
            waiting[group] = instances
    if not waiting:
        return

    done: set[str] = set()

    def make(now: InForce) -> None:
        held = {group for group in waiting if now.leads(group_subject(group))}
        for group in sorted(held - done):
            _remove(context, group, waiting[group])
        for group in sorted(done - held):
            log.warning("group %s was no longer held: its static members join again", group)
        done.update(held)

    bring_about(context, plan, make)
    removed |= {f"{group}/{one}" for group in done for one in waiting[group]}
    if removed != look.seen.removed:
        context.observations[plan.move_id] = replace(look.seen, removed=frozenset(removed))


def _remove(context: MoveContext, group: str, instances: list[str]) -> None:
    try:
        context.source.remove_static_members(group, instances)
    except AuthorizationError as error:
        log.warning("static members of group %s have to time out: %s", group, error)
    else:
        log.info("group %s: static members %s removed", group, ", ".join(instances))


def _had_time(look: Look, group: str, members: int) -> bool:
    held = [
        ack
        for ack in look.clusters.routing.acks
        if ack.subject == group_subject(group)
        and ack.generation == look.progress.attempt
        and ack.state == "held"
    ]
    since = look.facts.held_ms
    waited = since is not None and look.facts.now_ms - since >= _GRACE_MS
    return waited or len(held) >= members
