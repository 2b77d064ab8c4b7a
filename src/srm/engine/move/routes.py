"""Routes on both clusters: what clients follow, and what they say about it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

from srm.domain import internal_topics
from srm.domain.move.plan import MovePlan
from srm.domain.move.presence import StampedAck
from srm.domain.move.progress import MoveProgress
from srm.domain.move.routes import (
    Ack,
    Route,
    group_subject,
    later_moves,
    merge,
    merge_tables,
    topic_subject,
)
from srm.engine.away import loudness
from srm.engine.move.control import read_acks, read_routes
from srm.engine.move.store import MoveContext, read_both
from srm.engine.ports import Cluster
from srm.errors import ConflictError, UnavailableError

log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class RoutingTables:
    """Routes on the target and on the source (None: away), and all acknowledgements.

    Those are stamped by the cluster that has them: of a source that is away, by the target.
    """

    target: Mapping[str, Route]
    source: Mapping[str, Route] | None
    on_target: tuple[StampedAck, ...] = ()
    on_source: tuple[StampedAck, ...] = ()

    @property
    def announced(self) -> tuple[StampedAck, ...]:
        """What clients have said, on either cluster."""
        return self.on_target + self.on_source

    def announced_by(self, ahead_ms: int) -> tuple[StampedAck, ...]:
        """What clients have said, all by the target's clock, which is so far ahead."""
        shifted = (replace(one, stamped_ms=one.stamped_ms + ahead_ms) for one in self.on_source)
        return (*self.on_target, *shifted)

    @property
    def acks(self) -> tuple[Ack, ...]:
        """What clients have said, without the times."""
        return tuple(one.ack for one in self.announced)

    @property
    def merged(self) -> dict[str, Route]:
        """Routes as clients see them."""
        return merge_tables([self.target, self.source or {}])

    def cluster_of(self, group: str) -> str:
        """Where a group belongs, by its route, or is held; empty: it has none."""
        subject = group_subject(group)
        route = merge(self.target.get(subject), (self.source or {}).get(subject))
        return "" if route is None else route.cluster

    @classmethod
    def read(cls, context: MoveContext) -> RoutingTables:
        """Read both clusters; a source that is away is passed over."""
        known = cls.of_target(context)
        target, acks = known.target, known.on_target
        try:
            history = context.source.compacted(internal_topics.ROUTING).read_history()
        except UnavailableError as error:
            log.log(loudness(error), "routes of %s cannot be read: %s", context.source.alias, error)
            return cls(target, None, acks)
        source = read_routes(context.source, history)
        return cls(
            target,
            source,
            _at_home(acks, context.target.alias),
            _at_home(read_acks(context.source, history), context.source.alias),
        )

    @classmethod
    def of_target(cls, context: MoveContext) -> RoutingTables:
        """Read the target alone."""
        history = context.target.compacted(internal_topics.ROUTING).read_history()
        return cls(read_routes(context.target, history), None, read_acks(context.target, history))


def read_later_moves(context: MoveContext, plan: MovePlan, attempt: int) -> Mapping[str, str]:
    """Return the later move that leads each subject of an attempt, by subject, as read now.

    Raises:
        UnavailableError: neither cluster answers.
    """
    return later_moves(subjects(plan), plan.move_id, attempt, routes_now(context))


def require_in_force(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> None:
    """Refuse to continue a move that has ended, and whose clients a later one leads.

    Raises:
        ConflictError: it has ended so.
        UnavailableError: neither cluster answers.
    """
    later = set(read_later_moves(context, plan, progress.attempt).values())
    if progress.decided and later:
        ended = max(progress.times_ms.values(), default=plan.created_ms)
        raise ConflictError(
            f"move {plan.move_id} ended at {datetime.fromtimestamp(ended / 1000, UTC):%F %T} UTC, "
            f"superseded by move {', '.join(sorted(later))}; nothing was moved: trigger a new run, "
            f"or plan a move with another id"
        )


def routes_now(context: MoveContext) -> dict[str, Route]:
    """Read the routes as clients see them; one cluster is enough.

    Raises:
        UnavailableError: neither cluster answers.
    """
    return merge_tables(read_both(context, routes_of))


def routes_of(cluster: Cluster) -> dict[str, Route]:
    """Read the routes that one cluster has."""
    return read_routes(cluster, cluster.compacted(internal_topics.ROUTING).read_history())


def bring_about(wanted: _T, asks: Callable[[], _T], make: Callable[[_T], None]) -> _T:
    """Make something outside the control records so, until the routes ask for what was made.

    No broker fences such an effect: a process that was stopped right before it may have it after
    any number of later moves. So the routes are read again after it, and what they ask for then
    replaces it.

    Args:
        wanted: what the routes asked for when they were last read.
        asks: reads them, and returns what they ask for now.
        make: brings that about, whatever was so before.

    Returns:
        What was made last.
    """
    while True:
        make(wanted)
        if (now := asks()) == wanted:
            return wanted
        wanted = now


def subjects(plan: MovePlan) -> tuple[str, ...]:
    """Return the routing subjects of a move: producers' topics, then groups."""
    return (
        *(topic_subject(topic) for topic in plan.topics),
        *(group_subject(group) for group in plan.group_names),
    )


def _at_home(acks: Iterable[StampedAck], alias: str) -> tuple[StampedAck, ...]:
    """What clients said to the cluster that it concerns; elsewhere it stands in case that is away.

    Each is stamped by one clock so, and counted once.
    """
    return tuple(one for one in acks if one.ack.cluster == alias)
