"""Fence topics off: nobody writes to them on the side that a move leaves, not even a stray one.

Recorded on that cluster before it is set, and lifted before the record says so: whatever a crash
leaves is found by its record. Only what has a record is ever lifted, so rules that somebody else
has set stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from srm.domain import internal_topics
from srm.domain.move.fence import Fence, fences_in
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import HELD
from srm.engine.move.store import MoveContext, MoveStore
from srm.engine.ports import Cluster
from srm.errors import IntegrityError, SrmError

log = logging.getLogger(__name__)


def set_fence(
    cluster: Cluster, topics: Collection[str], move_id: str, now_ms: int
) -> tuple[str, ...]:
    """Deny everybody to write to topics of a cluster; safe to repeat.

    Returns:
        The topics of which that is news.

    Raises:
        UnavailableError: the cluster does not answer.
        AuthorizationError: srm may not change ACLs there.
        ConfigError: it has no authorizer.
    """
    table = cluster.compacted(internal_topics.MOVES)
    known, denied = _known(cluster), cluster.write_denials(topics)
    ours = {topic for topic in topics if topic in known and known[topic].stands}
    # What was denied before srm came is somebody else's, and not srm's to lift.
    new = sorted(set(topics) - denied - ours)
    records = [Fence(topic, move_id, now_ms) for topic in new]
    if records:
        table.write({fence.key(): fence.value() for fence in records})
    missing = tuple(sorted((ours | set(new)) - denied))
    if missing:
        cluster.deny_writes(missing)
        where = ", ".join(missing)
        log.info("move %s: writes to %s are denied on %s", move_id, where, cluster.alias)
    return missing


def lift_fence(
    cluster: Cluster,
    now_ms: int,
    wanted: Callable[[Fence], bool] = lambda _fence: True,
    *,
    again: bool = False,
) -> tuple[str, ...]:
    """Let everybody write again to topics that srm has fenced on a cluster; safe to repeat.

    Args:
        cluster: which one.
        now_ms: the time, for the record.
        wanted: which fences.
        again: also those that were lifted before, should their rule be there: a process that was
            killed right after it had set one too late has left it.

    Returns:
        The topics.

    Raises:
        UnavailableError: the cluster does not answer.
        AuthorizationError: srm may not change ACLs there.
    """
    table = cluster.compacted(internal_topics.MOVES)
    known = [fence for fence in _known(cluster).values() if wanted(fence)]
    found = cluster.write_denials([fence.topic for fence in known]) if again else frozenset()
    standing = [fence for fence in known if fence.stands or fence.topic in found]
    topics = tuple(sorted(fence.topic for fence in standing))
    if topics:
        cluster.allow_writes(topics)
        lifted = [replace(fence, lifted_ms=now_ms) for fence in standing]
        table.write({fence.key(): fence.value() for fence in lifted})
        log.info("writes to %s are allowed on %s again", ", ".join(topics), cluster.alias)
    return topics


def fence_source(context: MoveContext, plan: MovePlan) -> None:
    """Fence the source of a move that wants it, from its hold on.

    Not before those who follow the hold have written what they had: a look tells when that is.
    """
    if plan.fence != "acl":
        return
    fresh = set_fence(context.source, _there(context, plan), plan.move_id, context.now_ms())
    progress = MoveStore(context).progress(plan.move_id)
    if progress.step not in HELD and not progress.decided:
        # Released while this process set it: who released has lifted what there was then.
        context.source.allow_writes(fresh)
        lift_source(context, plan)


def lift_source(context: MoveContext, plan: MovePlan) -> None:
    """Lift what a move has fenced on its source.

    Raises:
        UnavailableError: the source does not answer.
    """
    if plan.fence == "acl":
        lift_fence(context.source, context.now_ms(), lambda fence: fence.move_id == plan.move_id)


def lift_target(context: MoveContext, plan: MovePlan) -> None:
    """Lift whatever srm has fenced of a move's topics on its target: clients go there now."""
    lift_fence(context.target, context.now_ms(), lambda fence: fence.topic in plan.topics)


def lift_target_if_possible(context: MoveContext, plan: MovePlan) -> None:
    """Do the same for an unplanned move, which nothing is to keep from its decision."""
    try:
        lift_target(context, plan)
    except SrmError as error:
        log.warning("%s", _standing(context.target, error))


def fence_condemned(context: MoveContext, plan: MovePlan) -> None:
    """Fence the source of an unplanned move, if it answers: producers may still reach it.

    After the decision, which does not wait for it.
    """
    if plan.fence != "acl" or context.condemned is None:
        return
    try:
        set_fence(context.condemned, plan.topics, plan.move_id, context.now_ms())
    except SrmError as error:
        log.warning("%s is not fenced: %s", plan.request.source, error)


def unfenced(context: MoveContext, plan: MovePlan) -> tuple[str, ...]:
    """Say which topics of a held move that wants a fence are still open to writers."""
    if plan.fence != "acl":
        return ()
    topics = _there(context, plan)
    denied = context.source.write_denials(topics)
    return tuple(
        f"writes to {topic} are not denied on {plan.request.source} yet"
        for topic in topics
        if topic not in denied
    )


def fence_problems(cluster: Cluster, wanted: str) -> tuple[str, ...]:
    """Say why a cluster cannot be fenced, if that is wanted and so."""
    if wanted != "acl" or not (why := cluster.no_fence_reason()):
        return ()
    return (f"fence acl is not possible: {why}: move without it (--fence none)",)


def release_fence(context: MoveContext, plan: MovePlan) -> tuple[str, ...]:
    """Lift the fence of a move that is being released, before clients are told.

    Nothing keeps a release from going on: what could not be lifted is what is returned.
    """
    if plan.request.unplanned:
        return ()  # it fences after its decision
    try:
        lift_source(context, plan)
    except SrmError as error:
        return (_standing(context.source, error),)
    return ()


def _standing(cluster: Cluster, error: SrmError) -> str:
    return (
        f"writes may still be denied on {cluster.alias}, 'srm failover unfence {cluster.alias}' "
        f"allows them: {error}"
    )


def restore_fence(context: MoveContext, plan: MovePlan) -> None:
    """Fence the source again where a release that came too late has lifted that."""
    if plan.request.unplanned or plan.fence != "acl":
        return
    try:
        if MoveStore(context).progress(plan.move_id).decided:
            fence_source(context, plan)
    except SrmError as error:
        log.warning("%s is not fenced: %s", plan.request.source, error)


def _known(cluster: Cluster) -> dict[str, Fence]:
    def say(error: IntegrityError) -> None:
        log.error("on cluster %s: %s; it is passed over", cluster.alias, error)

    return fences_in(cluster.compacted(internal_topics.MOVES).read(), say)


def _there(context: MoveContext, plan: MovePlan) -> list[str]:
    existing = context.source.partition_counts()
    return [topic for topic in plan.topics if topic in existing]
