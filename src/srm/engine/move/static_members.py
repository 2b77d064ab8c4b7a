"""Static members (KIP-345) stay in their group when they leave, until their session times out."""

from __future__ import annotations

import logging
from dataclasses import replace

from srm.domain.move.plan import MovePlan
from srm.domain.move.routes import group_subject
from srm.engine.move.look import Look
from srm.engine.move.routes import bring_about, routes_now
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
    waiting: dict[str, list[str]] = {}
    for group in plan.group_names:
        described = look.clusters.source.group(group)
        instances = [one for one in described.instance_ids if f"{group}/{one}" not in removed]
        if instances and _had_time(look, group, len(described.members)):
            waiting[group] = instances
    if not waiting:
        return

    def asks() -> frozenset[str]:
        routes, attempt = routes_now(context), look.progress.attempt
        held = (
            group
            for group in waiting
            if (route := routes.get(group_subject(group))) is not None
            and route.is_hold_of(plan.move_id, attempt)
        )
        return frozenset(held)

    def make(held: frozenset[str]) -> None:
        for group in sorted(held - made):
            _remove(context, group, waiting[group])
        for group in sorted(made - held):
            log.warning(
                "group %s was not held any more when %s were removed: they join again",
                group,
                ", ".join(waiting[group]),
            )
        made.update(held)

    made: set[str] = set()
    bring_about(asks(), asks, make)
    if not made:
        return
    removed |= {f"{group}/{one}" for group in made for one in waiting[group]}
    store.save_observation(replace(look.seen, removed=tuple(sorted(removed))))


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
