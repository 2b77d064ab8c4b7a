"""Fence topics off: nobody writes to them on the side that a move leaves, not even a stray one.

Recorded on that cluster before it is set, and lifted before the record says so: whatever a crash
leaves is found by its record. Only what has a record is ever lifted, so rules that somebody else
has set stay. ACLs have no writer that shuts out an older one: after each change the routes are read
again, and what they do not ask for any more is lifted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from srm.domain import internal_topics
from srm.domain.move.fence import Fence, fences_in
from srm.domain.move.plan import MovePlan
from srm.domain.move.routes import merge_tables, topic_subject
from srm.engine.control_records import CONTROL_ID, until_not_fenced
from srm.engine.move.routes import bring_about, routes_now, routes_of
from srm.engine.move.store import MoveContext, MoveStore
from srm.engine.ports import Cluster
from srm.errors import IntegrityError, SrmError

log = logging.getLogger(__name__)

_JUST_NOW_MS: Final = 600_000
"""A rule that is back so soon after it was lifted was set by a late process, not by a person."""


def set_fence(
    cluster: Cluster,
    topics: Collection[str],
    move_id: str,
    now_ms: int,
    asks: Callable[[], Collection[str]] | None = None,
) -> tuple[str, ...]:
    """Deny everybody to write to topics of a cluster; safe to repeat.

    Args:
        cluster: which one.
        topics: which of its topics.
        move_id: the move that fences them.
        now_ms: the time, for the record.
        asks: returns the topics that are still to be fenced, asked while the record is written.

    Returns:
        The topics of which that is news.

    Raises:
        UnavailableError: the cluster does not answer.
        AuthorizationError: srm may not change ACLs there.
        ConfigError: it has no authorizer.
    """
    denied = cluster.write_denials(topics)

    def records(known: Mapping[str, Fence]) -> list[Fence]:
        wanted = set(topics) if asks is None else {*topics} & {*asks()}
        ours = {topic for topic in wanted if topic in known and known[topic].stands}
        # What was denied before srm came is somebody else's, and not srm's to lift.
        new = {topic for topic in ours if known[topic].move_id != move_id} | (
            wanted - ours - denied
        )
        return [Fence(topic, move_id, now_ms) for topic in sorted(new)]

    _record(cluster, records)
    known = _known(cluster)
    ours = {topic for topic in topics if topic in known and known[topic].stands_for(move_id)}
    if missing := tuple(sorted(ours - denied)):
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

    A rule that a late process sets while the record is written is found and removed as well.

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
    lifted: set[str] = set()
    while True:
        known = [fence for fence in _known(cluster).values() if wanted(fence)]
        suspects = [fence.topic for fence in known if again or fence.topic in lifted]
        found = cluster.write_denials(suspects) if suspects else frozenset()
        topics = {fence.topic for fence in known if fence.stands} | found
        if not topics:
            return tuple(sorted(lifted))
        cluster.allow_writes(sorted(topics))
        _record(cluster, partial(_lift_records, topics, now_ms))
        log.info("writes to %s are allowed on %s again", ", ".join(sorted(topics)), cluster.alias)
        lifted |= topics


def _lift_records(topics: Collection[str], now_ms: int, known: Mapping[str, Fence]) -> list[Fence]:
    standing = [known[topic] for topic in sorted(topics) if topic in known and known[topic].stands]
    return [replace(fence, lifted_ms=now_ms) for fence in standing]


def fence_source(context: MoveContext, plan: MovePlan) -> None:
    """Fence the source of a move that wants it, from its hold on.

    Not before those who follow the hold have written what they had: a look tells when that is.
    """
    if plan.fence != "acl":
        return
    topics = _there(context, plan)
    known = [fence for fence in _known(context.source).values() if fence.topic in topics]
    of_others = any(fence.stands and fence.move_id != plan.move_id for fence in known)
    if of_others or unfenced(context, plan):
        _fence(context, context.source, plan, topics)


def _fence(context: MoveContext, cluster: Cluster, plan: MovePlan, topics: Collection[str]) -> None:
    """Fence the topics that the routes of a move close on a cluster, and no others."""

    def asks() -> frozenset[str]:
        # With those of the cluster itself: an unplanned move does not read its source.
        routes = merge_tables([routes_now(context), routes_of(cluster)])
        return frozenset(
            topic
            for topic in topics
            if (route := routes.get(topic_subject(topic))) is not None
            and route.move_id == plan.move_id
            and (route.state == "hold" or route.decided)
        )

    def make(closed: Collection[str]) -> None:
        set_fence(cluster, closed, plan.move_id, context.now_ms(), asks)
        lift_fence(
            cluster,
            context.now_ms(),
            lambda fence: fence.move_id == plan.move_id and fence.topic in {*topics} - {*closed},
            again=True,
        )

    bring_about(asks(), asks, make)


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


def lift_target_if_possible(context: MoveContext, plan: MovePlan, *, again: bool = False) -> None:
    """Do the same, and only log where that fails.

    ``again``: what was lifted a moment ago, and a late process has set since.
    """
    now_ms = context.now_ms()

    def wanted(fence: Fence) -> bool:
        return fence.topic in plan.topics and now_ms - fence.lifted_ms < _JUST_NOW_MS

    try:
        if again:
            lift_fence(context.target, now_ms, wanted, again=True)
        else:
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
        _fence(context, context.condemned, plan, plan.topics)
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


def _record(cluster: Cluster, records: Callable[[Mapping[str, Fence]], Sequence[Fence]]) -> None:
    """Write fences as the control records of a cluster: one that is overtaken looks again."""
    if not records(_known(cluster)):
        return

    def attempt() -> None:
        writer = cluster.control_writer(CONTROL_ID)
        try:
            changed = {fence.key(): fence.value() for fence in records(_known(cluster))}
            writer.write({internal_topics.MOVES: changed})
        finally:
            writer.close()

    until_not_fenced(f"fence on {cluster.alias}", attempt)


def _known(cluster: Cluster) -> dict[str, Fence]:
    def say(error: IntegrityError) -> None:
        log.error("on cluster %s: %s; it is passed over", cluster.alias, error)

    return fences_in(cluster.compacted(internal_topics.MOVES).read(), say)


def _there(context: MoveContext, plan: MovePlan) -> list[str]:
    existing = context.source.partition_counts()
    return [topic for topic in plan.topics if topic in existing]
