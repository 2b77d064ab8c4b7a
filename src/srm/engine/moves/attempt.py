"""Instructions in force of a move's attempt, and the routes that its steps write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    LEASE_MS,
    CallStep,
    Route,
    RouteState,
    home_subject,
)
from srm.domain.moves.whereabouts import Whereabouts
from srm.engine.moves.context import MoveContext, Side, read_both
from srm.engine.moves.history import RoutingHistory
from srm.engine.moves.store import MoveStore


@dataclass(frozen=True, slots=True)
class InForce:
    """Instructions in force, None before a hold; ``later``: the move that some subjects follow.

    ``away``: those of them that it has not led back to the source of this move, or not yet.
    ``returned``: those that have been on the source since, which one that leads to the target left.
    """

    attempt: int
    step: CallStep | None
    later: Mapping[str, str]
    away: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()

    @property
    def moves(self) -> tuple[str, ...]:
        return tuple(sorted({*self.later.values()}))

    def leads(self, subject: str) -> bool:
        """Return True if this move still holds the clients of a subject or has redirected them."""
        return self.step in {"hold", "go"} and subject not in self.later

    @classmethod
    def read(cls, context: MoveContext, plan: MovePlan) -> Self:
        """Read the current state; one cluster is enough."""
        progress = MoveStore.read(context).progress(plan.move_id)
        tables = [one.routes for one in read_both(context, RoutingHistory.read)[0]]
        return cls.of(plan, progress, Whereabouts(tables))

    @classmethod
    def of(cls, plan: MovePlan, progress: MoveProgress, where: Whereabouts) -> Self:
        """Return the state; a later move that was released has led its clients nowhere."""
        source, target = plan.request.source, plan.request.target
        later = dict[str, Route]()
        for subject in plan.subjects:
            homes = progress.homes.get(subject) or (source,)
            followed = [one for home in homes for one in where.of(subject, home)]
            route = max(followed, key=lambda one: one.rank)
            if (
                plan.move_id not in {one.move_id for one in followed}
                and route.generation >= max(progress.attempt, 1)
                and (route.phase, route.cluster) != (1, target)  # released
            ):
                later[subject] = route
        moves = {subject: route.move_id for subject, route in later.items()}
        away = frozenset(one for one, route in later.items() if route.cluster != source)
        led = {one for one in away if (later[one].phase, later[one].cluster) == (2, target)}
        returned = led | (later.keys() - away)
        return cls(progress.attempt, progress.order_in_force, moves, away, frozenset(returned))


def bring_about(context: MoveContext, plan: MovePlan, make: Callable[[InForce], None]) -> InForce:
    """Call ``make``, which acts outside the control records, until its input is still in force.

    No broker fences such an effect: a process that was stopped right before it may cause it after
    any number of later moves. So ``make`` is called again with the state read after it, and acts on
    that state regardless of earlier calls. Returns the final state.
    """
    now = InForce.read(context, plan)
    while True:
        make(now)
        if (after := InForce.read(context, plan)) == now:
            return now
        now = after


@dataclass(frozen=True, slots=True)
class Attempt:
    """The attempt of a move's progress, and the routes that its steps write."""

    plan: MovePlan
    progress: MoveProgress

    def hold(self, beat: int, now_ms: int) -> dict[str, Route]:
        return self._routes("source", "hold", now_ms, lease_ms=LEASE_MS, beat=beat)

    def release(self, now_ms: int) -> dict[str, Route]:
        return self._routes("source", "go", now_ms)

    def go(self, now_ms: int) -> dict[str, Route]:
        left = self.plan.request.source
        return self._routes("target", "go", now_ms, decided=True, left=left)

    def is_held_by(self, route: Route | None) -> bool:
        ours = (self.progress.attempt, self.plan.move_id)
        return route is not None and (route.state, route.attempt) == ("hold", ours)

    def _routes(self, side: Side, state: RouteState, now_ms: int, **given: Any) -> dict[str, Route]:
        cluster, move_id = getattr(self.plan.request, side), self.plan.move_id
        route = Route(self.progress.attempt, cluster, state, move_id, now_ms, **given)
        led = self.progress.homes
        shared = {homes: replace(route, homes=homes) for homes in {*led.values()}}
        routes = {subject: shared[homes] for subject, homes in led.items()}
        for home in self.plan.homes if route.decided else ():
            left = home if home == route.left else ""  # others have come by a route of their own
            routes[home_subject(home)] = replace(route, homes=(home,), left=left)
        return routes


def homes_on_source(plan: MovePlan, where: Whereabouts) -> dict[str, tuple[str, ...]]:
    """Return the homes of the clients that a move leads, by subject: those on its source.

    With ``reroute`` also those that work elsewhere by the route of clients at home there.
    """
    source = plan.request.source
    found = {subject: {*where.homes_on(subject, source)} for subject in plan.subjects}
    for subject, homes in found.items():
        if plan.request.reroute or not homes:  # those of a hold that it takes over are nowhere yet
            homes |= {source, *(one for led in where.of(subject, source) for one in led.homes)}
    return {subject: tuple(sorted(homes)) for subject, homes in found.items()}


def homes_to_move(request: MoveRequest, routes: Mapping[str, Route]) -> tuple[str, ...]:
    """Return the clusters whose unnamed clients a move of everything sends to its target.

    An unplanned move redirects all clients of the lost source. A planned one only brings back those
    whose home is its target: no gate has checked topics and groups of others.
    """
    prefix, ends = home_subject(""), {request.source, request.target}
    there = {
        subject.removeprefix(prefix)
        for subject, route in routes.items()
        if subject.startswith(prefix) and route.cluster == request.source
    }
    return tuple(sorted(there | ends if request.is_unplanned else there & {request.target}))
