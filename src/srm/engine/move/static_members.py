"""Static members (KIP-345) stay in their group when they leave, until their session times out."""

from __future__ import annotations

import logging
from dataclasses import replace

from srm.domain.move.plan import MovePlan
from srm.domain.move.routes import group_subject
from srm.engine.move.look import Look
from srm.engine.move.store import MoveContext, MoveStore
from srm.errors import AuthorizationError

log = logging.getLogger(__name__)

_GRACE_MS = 5_000
"""For members that do not say that they have left."""


def remove_static_members(
    context: MoveContext, store: MoveStore, plan: MovePlan, look: Look
) -> None:
    """Take static members out of held groups, each once: the gate need not wait for their session.

    Only when they had time to commit: each has said that it is held, or some seconds have passed.
    One that still runs joins again, and then the gate names it.
    """
    removed = set(look.seen.removed)
    for group in plan.group_names:
        described = look.clusters.source.group(group)
        instances = [one for one in described.instance_ids if f"{group}/{one}" not in removed]
        if not instances or not _had_time(look, group, len(described.members)):
            continue
        try:
            context.source.remove_static_members(group, instances)
        except AuthorizationError as error:
            log.warning("static members of group %s have to time out: %s", group, error)
        else:
            log.info("group %s: static members %s removed", group, ", ".join(instances))
        removed |= {f"{group}/{one}" for one in instances}
    if removed != set(look.seen.removed):
        store.save_observation(replace(look.seen, removed=tuple(sorted(removed))))


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
