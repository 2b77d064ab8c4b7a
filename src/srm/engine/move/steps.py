"""The steps of a move after its plan: hold, wait, apply, go, and release instead of go.

Each step takes a move id, looks at the clusters anew and can be run again after a crash at any
point. What a step has decided is written down before it is done.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from srm.domain import internal_topics
from srm.domain.move.gate import SyncStatus
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import DECIDED, MoveProgress, Observation
from srm.domain.move.routes import Route
from srm.domain.topics import TopicPartition
from srm.engine.group_sync import apply_exact
from srm.engine.move.facts import partitions
from srm.engine.move.look import Look, by_name, look, passed, subjects
from srm.engine.move.plan import compute_plan, config_fingerprint
from srm.engine.move.routes import Redirect, RoutingTables, is_set, redirect
from srm.engine.move.store import MoveContext, MoveStore
from srm.errors import ConflictError, GateClosedError

log = logging.getLogger(__name__)

_MAY_HOLD = frozenset({"planned", "released", "holding"})
_OVER = DECIDED - {"going"}


def hold(context: MoveContext, move_id: str) -> MoveProgress:
    """Tell all clients of the move to stop, finish and leave. RTO counts from here.

    The plan is computed again first: what stands in its way now stops the move before any client
    is touched. Clients see the hold on the source first: that is where they are. A move that has
    sent its clients to the target is left as it is.

    Raises:
        NotFoundError: there is no such move.
        ConflictError: something blocks it, or settings changed since the plan.
    """
    store = MoveStore(context)
    plan, progress = store.plan(move_id), store.progress(move_id)
    if _is_over(context, plan, progress):
        return progress
    if progress.step in _MAY_HOLD:
        progress = _begin_hold(context, store, plan, progress)
    change = Redirect(move_id, subjects(plan), plan.request.source, "hold")
    routes = redirect(context, change, first=context.source)
    _forget_old_acks(context, routes)
    if progress.step != "holding":
        return progress
    log.info("move %s: clients of %s are held", move_id, ", ".join(plan.topics))
    return store.save(progress.at("held", context.now_ms()))


def wait_status(context: MoveContext, move_id: str) -> SyncStatus:
    """Look once whether the move is synchronised; maps and positions are read anew.

    ``ready`` means that :func:`apply` may be called. Repeat until then, or until ``timed_out``. A
    move that has sent its clients to the target is ready.

    Raises:
        NotFoundError: there is no such move.
    """
    store = MoveStore(context)
    plan, progress = store.plan(move_id), store.progress(move_id)
    if _is_over(context, plan, progress):
        return passed(plan)
    return look(context, store, plan, progress).status


def apply(context: MoveContext, move_id: str) -> SyncStatus:
    """Write the translated offsets on the target, read them back, and return the gate's answer.

    A move that has sent its clients to the target is left as it is.

    Raises:
        NotFoundError: there is no such move.
        GateClosedError: it is not synchronised; nothing was written.
        ConflictError: what was written is not what is there.
    """
    store = MoveStore(context)
    plan, progress = store.plan(move_id), store.progress(move_id)
    if _is_over(context, plan, progress):
        return passed(plan)
    seen = look(context, store, plan, progress)
    _require(seen.status.blocking, plan, "offsets may not be applied")
    store.save(_noting_forecast(seen))
    refused: list[str] = []
    for group in seen.facts.groups:
        offsets = {
            TopicPartition(p.target_topic, p.partition): p.resume
            for p in group.positions
            if p.resume is not None
        }  # also those in place: a run that was killed may have left its ledger unsettled
        if offsets:
            decisions = apply_exact(
                context.forward, group.group, offsets, operation=f"move {move_id}"
            )
            refused += [
                f"group {one.group}, {one.partition}: {one.action}, {one.reason}"
                for one in decisions
                if one.action != "unchanged" and not one.applied
            ]
            log.info("move %s: group %s, %d offsets applied", move_id, group.group, len(offsets))
    _require(tuple(refused), plan, "offsets could not be applied")
    after = look(context, store, plan, store.progress(move_id))
    if after.status.unapplied:
        differing = "; ".join(after.status.unapplied)
        raise ConflictError(f"offsets of move {move_id} did not stay as written: {differing}")
    if after.progress.step in {"held", "holding"}:
        store.save(after.progress.at("applied", context.now_ms()))
    return after.status


def go(context: MoveContext, move_id: str) -> MoveProgress:
    """Send all clients to the target, if the gate is open: it is checked here, from the clusters.

    The decision is written down first, then the target's routes, then the source's. As soon as one
    route is visible a client may have gone, so from then on a repeated call finishes what was
    begun and asks no more; before that it asks again.

    Raises:
        NotFoundError: there is no such move.
        GateClosedError: a group is not synchronised; clients stay where they are.
    """
    store = MoveStore(context)
    plan, progress = store.plan(move_id), store.progress(move_id)
    change = Redirect(move_id, subjects(plan), plan.request.target, "go")
    has_gone = _has_gone(context, change)
    if progress.step in _OVER and not has_gone:
        return progress  # later moves have taken the clients elsewhere
    if not has_gone:
        seen = look(context, store, plan, progress)
        status = seen.status
        _require(status.blocking + status.unapplied, plan, "clients may not go")
        progress = store.save(_decision(context, seen))
    redirect(context, change, first=context.target, tolerate_source=True)
    if progress.step not in {"applied", "going"}:
        return progress
    log.info("move %s: clients go to %s", move_id, plan.request.target)
    return store.save(progress.at("gone", context.now_ms()))


def release(context: MoveContext, move_id: str) -> MoveProgress:
    """End the hold and send clients back to the source: the way out before go, safe to repeat.

    Offsets already applied on the target stay; they are srm's own by the ledger, so the next move
    or group offset sync replaces them.

    Raises:
        NotFoundError: there is no such move.
        ConflictError: clients have been sent to the target already.
    """
    store = MoveStore(context)
    plan, progress = store.plan(move_id), store.progress(move_id)
    if _is_over(context, plan, progress):
        raise ConflictError(
            f"move {move_id} has sent clients to {plan.request.target} already: move them back "
            f"with a move from {plan.request.target} to {plan.request.source}"
        )
    merged = RoutingTables.read(context).merged
    ours = [s for s in subjects(plan) if s in merged and merged[s].move_id == move_id]
    change = Redirect(move_id, ours, plan.request.source, "go")
    redirect(context, change, first=context.source)
    if progress.step in {"planned", "released"} and not ours:
        return progress
    log.info("move %s: released, clients go on on %s", move_id, plan.request.source)
    return store.save(progress.at("released", context.now_ms()))


def _begin_hold(
    context: MoveContext, store: MoveStore, plan: MovePlan, progress: MoveProgress
) -> MoveProgress:
    if plan.fingerprint != config_fingerprint(context):
        raise ConflictError(
            f"settings of {plan.request.flow} or its opposite changed since move {plan.move_id} "
            f"was planned: plan it again"
        )
    # The topics and groups were chosen, and shown, when the move was planned: a new one waits.
    pinned = replace(plan.request, topics=plan.topics, groups=plan.group_names)
    fresh = compute_plan(context, pinned, plan.move_id)
    if fresh.blocking:
        raise ConflictError(f"move {plan.move_id} cannot start: {'; '.join(fresh.blocking)}")
    if progress.step == "released":
        progress = replace(MoveProgress(plan.move_id), revision=progress.revision)
    here = partitions(context.source.topics(), plan.topics)
    now, ends = context.now_ms(), by_name(context.source.high_watermarks(here))
    store.save_observation(
        Observation(plan.move_id, now, ends, dict.fromkeys({tp.topic for tp in here}, now))
    )
    return store.save(
        progress.at(
            "holding",
            now,
            lag_at_hold={group.group: group.lag for group in fresh.groups},
            # A repeated hold may come after members have left.
            members_at_hold={
                group.group: max(len(group.members), progress.members_at_hold.get(group.group, 0))
                for group in fresh.groups
            },
            log_ends_at_hold=ends,
        )
    )


def _forget_old_acks(context: MoveContext, routes: Mapping[str, Route]) -> None:
    """Delete what clients said about earlier routes; their client ids may never come back."""
    tables = RoutingTables.read(context)
    old = {
        ack.key(): None
        for ack in tables.acks
        if ack.subject in routes and ack.generation < routes[ack.subject].generation
    }
    if old:
        for cluster in (context.source, context.target):
            cluster.compacted(internal_topics.ROUTING).write(old)


def _noting_forecast(seen: Look) -> MoveProgress:
    """Remember what applying will cost, while it can be seen: afterwards all offsets are ours."""
    before, groups = seen.progress, seen.facts.groups
    return before.noting(
        re_read={
            g.group: max(before.re_read.get(g.group, 0), sum(p.re_read for p in g.positions))
            for g in groups
        },
        skipped={
            g.group: max(before.skipped.get(g.group, 0), sum(p.skipped for p in g.positions))
            for g in groups
        },
    )


def _decision(context: MoveContext, seen: Look) -> MoveProgress:
    groups = seen.facts.groups
    return seen.progress.at(
        "going",
        context.now_ms(),
        log_ends_at_go=seen.log_ends,
        rpo_records=seen.status.rpo_records,
        missing=seen.status.missing,
        intended={
            group.group: {
                f"{p.target_topic}-{p.partition}": p.resume
                for p in group.positions
                if p.resume is not None
            }
            for group in groups
        },
    )


def _has_gone(context: MoveContext, change: Redirect) -> bool:
    merged = RoutingTables.read(context).merged
    return any(s in merged and is_set(merged[s], change) for s in change.subjects)


def _is_over(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> bool:
    """Whether a client may have gone to the target in the name of this move."""
    change = Redirect(plan.move_id, subjects(plan), plan.request.target, "go")
    return progress.step in _OVER or _has_gone(context, change)


def _require(reasons: tuple[str, ...], plan: MovePlan, what: str) -> None:
    if reasons:
        raise GateClosedError(f"move {plan.move_id}: {what} yet: {'; '.join(reasons)}")
