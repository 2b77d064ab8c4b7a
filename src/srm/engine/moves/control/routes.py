"""Routes on both clusters, and the acknowledgements of the clients that follow them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from srm.domain.moves.gate.presence import Presence, StampedAck
from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.redirects import CallStep, step_in_force
from srm.domain.moves.routing.routes import (
    LEASE_MS,
    Ack,
    Route,
    RouteState,
    group_subject,
    home_subject,
    merge,
    merge_tables,
)
from srm.domain.names import internal_topics
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.control.move_records import (
    MoveContext,
    MoveStore,
    read_acks,
    read_both,
    read_routes,
)
from srm.engine.table_ports import Stamped
from srm.errors import UnavailableError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoutingTables:
    """Routes on the target and on the source (None: unavailable), and all acknowledgements.

    Each is stamped by its cluster's broker; the target stamps those of an unavailable source.
    ``target_ms`` and ``source_ms`` are the newest stamps, lower bounds of the brokers' clocks.
    """

    target: Mapping[str, Route]
    source: Mapping[str, Route] | None
    on_target: tuple[StampedAck, ...] = ()
    on_source: tuple[StampedAck, ...] = ()
    target_ms: int = 0
    source_ms: int = 0

    @property
    def stamped_acks(self) -> tuple[StampedAck, ...]:
        """Acknowledgements of clients on both clusters, with their times."""
        return self.on_target + self.on_source

    @property
    def presence(self) -> Presence:
        """Clients present during a hold, whose renewals keep the newest stamps current.

        A client's silence is measured by the clock that stamped its acknowledgements.
        """
        ahead_ms = self.target_ms - self.source_ms
        shifted = (replace(one, stamped_ms=one.stamped_ms + ahead_ms) for one in self.on_source)
        return Presence.of((*self.on_target, *shifted), self.target_ms)

    @property
    def acks(self) -> tuple[Ack, ...]:
        """Acknowledgements of clients, without the times."""
        return tuple(one.ack for one in self.stamped_acks)

    @property
    def merge(self) -> dict[str, Route]:
        """Routes as clients see them."""
        return merge_tables([self.target, self.source or {}])

    def cluster_of(self, group: str) -> str:
        """Return the cluster that a group's route names, also for a hold; empty without a route."""
        subject = group_subject(group)
        route = merge(self.target.get(subject), (self.source or {}).get(subject))
        return "" if route is None else route.cluster

    @classmethod
    def read(cls, context: MoveContext) -> RoutingTables:
        """Read both clusters; an unavailable source is skipped."""
        known, history = cls.of_target(context), source_routing(context)
        if history is None:
            return known
        return replace(
            known,
            source=read_routes(context.source, history),
            on_target=_at_home(known.on_target, context.target.alias),
            on_source=_at_home(read_acks(context.source, history), context.source.alias),
            source_ms=_newest(history),
        )

    @classmethod
    def of_target(cls, context: MoveContext) -> RoutingTables:
        """Read the target alone."""
        history = context.target.compacted_topic(internal_topics.ROUTING).read_history()
        return cls(
            read_routes(context.target, history),
            None,
            read_acks(context.target, history),
            target_ms=_newest(history),
        )


def source_routing(context: MoveContext) -> Mapping[bytes, Sequence[Stamped]] | None:
    """Read the routing topic of the source; None if it is unavailable, which is logged."""
    try:
        return context.source.compacted_topic(internal_topics.ROUTING).read_history()
    except UnavailableError as error:
        log.log(loudness(error), "routes of %s cannot be read: %s", context.source.alias, error)
        return None


def _newest(history: Mapping[bytes, Sequence[Stamped]]) -> int:
    stamps = (rows[-1].timestamp_ms for rows in history.values() if rows[-1].by_broker)
    return max(stamps, default=0)


@dataclass(frozen=True, slots=True)
class InForce:
    """Instructions in force, None before a hold; ``later``: the move that some subjects follow."""

    attempt: int
    step: CallStep | None
    later: Mapping[str, str]

    @property
    def moves(self) -> tuple[str, ...]:
        """The later moves, each once."""
        return tuple(sorted({*self.later.values()}))

    def leads(self, subject: str) -> bool:
        """Return True if this move still holds the clients of a subject or has redirected them."""
        return self.step in {"hold", "go"} and subject not in self.later

    @classmethod
    def read(cls, context: MoveContext, plan: MovePlan) -> Self:
        """Read the current state; one cluster is enough."""
        progress = MoveStore(context).progress(plan.move_id)
        history = read_both(
            context,
            lambda c: read_routes(c, c.compacted_topic(internal_topics.ROUTING).read_history()),
        )
        routes = merge_tables(history)
        later = {
            subject: route.move_id
            for subject in plan.subjects
            if (route := routes.get(subject)) is not None
            and route.move_id != plan.move_id
            and route.generation >= progress.attempt
        }
        return cls(progress.attempt, step_in_force(progress.step), later)


def bring_about(context: MoveContext, plan: MovePlan, make: Callable[[InForce], None]) -> InForce:
    """Call ``make``, which acts outside the control records, until its input is still in force.

    No broker fences such an effect: a process that was stopped right before it may cause it after
    any number of later moves. So ``make`` is called again with the state read after it, and acts
    on that state regardless of earlier calls. Returns the final state.
    """
    now = InForce.read(context, plan)
    while True:
        make(now)
        if (after := InForce.read(context, plan)) == now:
            return now
        now = after


def between_same(context: MoveContext, plan: MovePlan) -> MoveContext | None:
    """Return the context for another move's plan, None if it is not between these two clusters."""
    both = (context, replace(context, forward=context.reverse, reverse=context.forward))
    return next((one for one in both if one.forward.config.flow == plan.request.flow), None)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a move by its generation, and the routes that its steps write."""

    plan: MovePlan
    generation: int

    def hold(self, beat: int, now_ms: int) -> dict[str, Route]:
        """Return the routes that stop the clients, or renew the hold with a higher beat."""
        route = replace(self._route("source", "hold", now_ms), lease_ms=LEASE_MS, beat=beat)
        return dict.fromkeys(self.plan.subjects, route)

    def release(self, now_ms: int) -> dict[str, Route]:
        """Return the routes that let the clients continue on the source."""
        return dict.fromkeys(self.plan.subjects, self._route("source", "go", now_ms))

    def go(self, now_ms: int, decided_ms: int = 0) -> dict[str, Route]:
        """Return the routes to the target; ``decided_ms`` is the broker's time, if unplanned."""
        route = self._route("target", "go", now_ms)
        clients = (*self.plan.subjects, *self.plan.home_subjects)
        return dict.fromkeys(clients, replace(route, decided=True, decided_ms=decided_ms))

    def is_held_by(self, route: Route | None) -> bool:
        """Return True if a route is the hold of this attempt."""
        return route is not None and route.is_hold_of(self.plan.move_id, self.generation)

    def _route(self, side: Literal["source", "target"], state: RouteState, now_ms: int) -> Route:
        cluster = getattr(self.plan.request, side)
        return Route(self.generation, cluster, state, self.plan.move_id, now_ms)


def homes_to_move(request: MoveRequest, routes: Mapping[str, Route]) -> tuple[str, ...]:
    """Return the clusters whose unnamed clients a move of everything sends to its target.

    An unplanned move redirects all clients of the lost source, also those that no move has named.
    A planned one only brings back those whose home is its target: a source that still serves keeps
    clients whose topics and groups no gate has checked.
    """
    if request.topics or request.groups:
        return ()
    prefix, ends = home_subject(""), {request.source, request.target}
    there = {
        subject.removeprefix(prefix)
        for subject, route in routes.items()
        if subject.startswith(prefix) and route.cluster == request.source
    }
    return tuple(sorted(there | ends if request.is_unplanned else there & {request.target}))


def _at_home(acks: Iterable[StampedAck], alias: str) -> tuple[StampedAck, ...]:
    """Return acknowledgements stored on the cluster they concern, so that one clock stamps each."""
    return tuple(one for one in acks if one.ack.cluster == alias)
