"""Routes on both clusters: what clients follow."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from srm.domain import internal_topics
from srm.domain.move import routes as routing
from srm.domain.move.routes import Ack, Route, RouteState
from srm.engine.move.store import MoveContext
from srm.engine.ports import Cluster
from srm.errors import UnavailableError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoutingTables:
    """Routes on the target and on the source (None: away), and all acknowledgements."""

    target: Mapping[str, Route]
    source: Mapping[str, Route] | None
    acks: tuple[Ack, ...]

    @property
    def merged(self) -> dict[str, Route]:
        """Routes as clients see them."""
        return routing.merge_tables([self.target, self.source or {}])

    @classmethod
    def read(cls, context: MoveContext) -> RoutingTables:
        """Read both clusters; a source that is away is passed over."""
        target = context.target.compacted(internal_topics.ROUTING).read()
        try:
            source = context.source.compacted(internal_topics.ROUTING).read()
        except UnavailableError as error:
            log.warning("routes of %s cannot be read: %s", context.source.alias, error)
            return cls(routing.routes_of(target), None, routing.acks_of(target))
        acks = routing.acks_of(target) + routing.acks_of(source)
        return cls(routing.routes_of(target), routing.routes_of(source), acks)


@dataclass(frozen=True, slots=True)
class Redirect:
    """Routes to set: all ``subjects`` to ``cluster`` and ``state`` in the name of ``move_id``."""

    move_id: str
    subjects: Sequence[str]
    cluster: str
    state: RouteState


def redirect(
    context: MoveContext, change: Redirect, *, first: Cluster, tolerate_source: bool = False
) -> dict[str, Route]:
    """Write routes to both clusters, ``first`` before the other; can be run again at any time.

    A route that this move has set already is kept with its generation and only written where it
    is missing, so that a crash between the two clusters is repaired by the next run. Clients
    follow the higher generation, so between the two writes all of them see the new route.
    """
    tables = RoutingTables.read(context)
    merged, now = tables.merged, context.now_ms()
    routes: dict[str, Route] = {}
    for subject in change.subjects:
        known = merged.get(subject)
        settled = known is not None and is_set(known, change)
        routes[subject] = (
            known
            if known is not None and settled
            else routing.successor([known], change.cluster, change.state, change.move_id, now)
        )
    ordered = sorted((context.target, context.source), key=lambda cluster: cluster is not first)
    for cluster in ordered:
        present = tables.target if cluster is context.target else tables.source or {}
        missing = {s: r for s, r in routes.items() if present.get(s) != r}
        try:
            if missing:
                cluster.compacted(internal_topics.ROUTING).write(
                    {subject.encode(): route.value() for subject, route in missing.items()}
                )
        except UnavailableError as error:
            if not tolerate_source or cluster is not context.source:
                raise
            log.warning("routes are set on %s only: %s", context.target.alias, error)
    return routes


def is_set(route: Route, change: Redirect) -> bool:
    """Whether a route is already what the change asks for, set by the same move."""
    return (
        route.move_id == change.move_id
        and route.state == change.state
        and route.cluster == change.cluster
    )
