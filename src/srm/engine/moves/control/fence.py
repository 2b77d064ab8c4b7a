"""Write fences: ACLs that deny all writes to topics on the side that a move leaves.

A fence is recorded on that cluster before it is set, and lifted before the record says so, so that
its record survives a crash. Only recorded fences are lifted, so ACLs of others stay.
No broker fences outdated changes of ACLs. So the routes are read again after each change, and
fences that they no longer require are lifted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import MoveProgress
from srm.domain.moves.routing.routes import topic_subject
from srm.domain.names import internal_topics
from srm.domain.text.documents import Document
from srm.engine.cluster_ports import Cluster
from srm.engine.control.control_records import CONTROL_ID, until_not_fenced
from srm.engine.moves.control.move_records import MoveContext, MoveStore, decode_or_none
from srm.engine.moves.control.routes import InForce, between_same, bring_about
from srm.errors import ConflictError, SrmError

log = logging.getLogger(__name__)

_PREFIX: Final = b"fence:"


@dataclass(frozen=True, slots=True)
class Fence(Document):
    """One fenced topic, in ``__srm-moves`` of its cluster under ``fence:<topic>``.

    The record is written before the deny ACL, so a later run can lift a fence that a crash has
    left. ``lifted_ms`` is when the fence was lifted, 0 before.
    """

    KIND = "record of a fence"
    topic: str
    move_id: str
    set_ms: int
    lifted_ms: int = 0

    @property
    def stands(self) -> bool:
        """Return whether writes may still be denied because of it."""
        return not self.lifted_ms

    def key(self) -> bytes:
        """Encode the record key."""
        return _PREFIX + self.topic.encode()


_JUST_NOW_MS: Final = 600_000
"""A rule that is back within this time after its lifting was set by a late process of srm."""


def set_fence(
    cluster: Cluster,
    topics: Collection[str],
    move_id: str,
    now_ms: int,
    allowed: Callable[[], Collection[str]] | None = None,
) -> None:
    """Deny all writes to topics (``allowed`` ones, when that is recorded); safe to repeat."""
    denied = cluster.write_denials(topics)

    def records(known: Mapping[str, Fence]) -> list[Fence]:
        # Earlier denials are ACLs of others, which srm does not lift.
        new = {topic for topic in topics if topic not in known or not known[topic].stands} - denied
        wanted = new & {*allowed()} if new and allowed is not None else new
        return [Fence(topic, move_id, now_ms) for topic in sorted(wanted)]

    _record(cluster, records)
    known = read_fences(cluster)
    ours = {topic for topic in topics if topic in known and known[topic].stands}
    if missing := sorted(ours - denied):
        cluster.deny_writes(missing)
        log.info("move %s: no writes to %s on %s", move_id, ", ".join(missing), cluster.alias)


def lift_fence(
    cluster: Cluster,
    now_ms: int,
    wanted: Callable[[Fence], bool] = lambda _fence: True,
    since_ms: int | None = None,
) -> tuple[str, ...]:
    """Allow writes again to topics that srm fenced, or unfenced since ``since_ms``; return them."""
    since_ms = now_ms if since_ms is None else since_ms
    lifted: set[str] = set()
    while True:
        known = [fence for fence in read_fences(cluster).values() if wanted(fence)]
        open_now = [f.topic for f in known if not f.stands and f.lifted_ms >= since_ms]
        found = cluster.write_denials(open_now) if open_now else frozenset()
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


def keep_fence(context: MoveContext, plan: MovePlan) -> None:
    """Fence the topics whose clients follow this move, and lift its fences of other topics."""
    topics = _there(context, plan)

    def ours(now: InForce) -> set[str]:
        return {topic for topic in topics if now.leads(topic_subject(topic))}

    def make(now: InForce) -> None:
        closed, now_ms = ours(now), context.now_ms()
        set_fence(
            context.source, closed, plan.move_id, now_ms, lambda: ours(InForce.read(context, plan))
        )
        lift_fence(
            context.source,
            now_ms,
            lambda f: f.move_id == plan.move_id and f.topic in {*topics} - closed,
            since_ms=0,
        )

    _fence_for_later(context, bring_about(context, plan, make))


def _fence_for_later(context: MoveContext, now: InForce) -> None:
    """Set the fences of later moves again: this one may have lifted theirs."""
    for move_id in now.moves:
        later = MoveStore(context).find_plan(move_id)
        if later is not None and (between := between_same(context, later)) is not None:
            fence_if_possible(between, later)


def lift_late_fence(context: MoveContext, plan: MovePlan) -> None:
    """Lift what a killed process has left where clients follow a later move; log a failure."""
    source = _source_of(context, plan)
    if plan.fence != "acl" or source is None:
        return

    def make(now: InForce) -> None:
        lift_fence(
            source,
            context.now_ms(),
            lambda f: f.move_id == plan.move_id and topic_subject(f.topic) in now.later,
            since_ms=0,
        )

    try:
        if InForce.read(context, plan).later:
            _fence_for_later(context, bring_about(context, plan, make))
    except SrmError as error:
        log.warning("fences of move %s on %s are unknown: %s", plan.move_id, source.alias, error)


def require_in_force(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> None:
    """Refuse to continue a move that has ended and whose clients follow a later one."""
    if progress.is_decided and (later := InForce.read(context, plan).moves):
        lift_late_fence(context, plan)
        ended = datetime.fromtimestamp(max(progress.times_ms.values()) / 1000, UTC)
        raise ConflictError(
            f"move {plan.move_id} ended at {ended:%F %T} UTC, superseded by move "
            f"{', '.join(later)}; nothing was moved. Trigger a new run, or plan with another id"
        )


def lift_target(context: MoveContext, plan: MovePlan) -> None:
    """Lift srm's fences of a move's topics on its target, since clients go there now."""
    now_ms = context.now_ms()
    wanted = frozenset(plan.topics)
    lift_fence(context.target, now_ms, lambda f: f.topic in wanted, now_ms - _JUST_NOW_MS)
    _fence_for_later(context, InForce.read(context, plan))


def lift_target_if_possible(context: MoveContext, plan: MovePlan) -> None:
    """Call :func:`lift_target`, but only log a failure: it must not stop the move."""
    for problem in _attempt(context.target, lambda: lift_target(context, plan)):
        log.warning("%s", problem)


def fence_if_possible(context: MoveContext, plan: MovePlan) -> None:
    """Fence the source of a decided move if it answers, since producers may still reach it.

    This includes an abandoned source, and one whose fence a late release has lifted.
    """
    source = _source_of(context, plan)
    if plan.fence != "acl" or source is None:
        return
    there = replace(context, forward=replace(context.forward, source=source))
    try:
        keep_fence(there, plan)
    except SrmError as error:
        log.warning("%s is not fenced: %s", plan.request.source, error)


def _source_of(context: MoveContext, plan: MovePlan) -> Cluster | None:
    return context.condemned if plan.request.is_unplanned else context.source


def topics_without_fence(context: MoveContext, plan: MovePlan) -> tuple[str, ...]:
    """Return messages for topics of a held, to be fenced move that are still open to writers."""
    if plan.fence != "acl":
        return ()
    topics = _there(context, plan)
    denied = context.source.write_denials(topics)
    return tuple(
        f"writes to {topic} are not denied on {plan.request.source} yet"
        for topic in topics
        if topic not in denied
    )


def release_fence(context: MoveContext, plan: MovePlan, *, is_over: bool) -> tuple[str, ...]:
    """Lift the fence before a release, then keep what routes require; return a failure's text."""
    if plan.request.is_unplanned or plan.fence != "acl":
        return ()  # an unplanned one fences after its decision
    if is_over:
        return _attempt(context.source, lambda: keep_fence(context, plan))
    return _attempt(
        context.source,
        lambda: lift_fence(
            context.source, context.now_ms(), lambda fence: fence.move_id == plan.move_id
        ),
    )


def _attempt(cluster: Cluster, lift: Callable[[], object]) -> tuple[str, ...]:
    try:
        lift()
    except SrmError as error:
        unfence = f"'srm failover unfence {cluster.alias}' allows them"
        return (f"writes may still be denied on {cluster.alias}, {unfence}: {error}",)
    return ()


def _record(cluster: Cluster, records: Callable[[Mapping[str, Fence]], Sequence[Fence]]) -> None:
    if not records(read_fences(cluster)):
        return

    def attempt() -> None:
        writer = cluster.control_writer(CONTROL_ID)
        try:
            changed = {fence.key(): fence.value() for fence in records(read_fences(cluster))}
            writer.write({internal_topics.MOVES: changed})
        finally:
            writer.close()

    until_not_fenced(f"fence on {cluster.alias}", attempt)


def read_fences(cluster: Cluster) -> dict[str, Fence]:
    """Read the fences of a cluster by topic; a damaged record is skipped, and stops no move."""
    rows = cluster.compacted_topic(internal_topics.MOVES).read()
    found = (
        decode_or_none(value, Fence.decode, f"on cluster {cluster.alias}: {key!r}: ")
        for key, value in rows.items()
        if key.startswith(_PREFIX)
    )
    return {fence.topic: fence for fence in found if fence is not None}


def _there(context: MoveContext, plan: MovePlan) -> list[str]:
    existing = context.source.partition_counts()
    return [topic for topic in plan.topics if topic in existing]
