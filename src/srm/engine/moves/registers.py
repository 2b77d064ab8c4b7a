"""Both clusters of a move as registers that one step at a time reads, checks and writes.

A step first opens the writer of each cluster. Until it is fenced its reads stay current, so a check
and the write after it are atomic (srm.engine.control.control_topics).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, TypeVar

from srm.domain.moves.gate import Presence, StampedAck
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    LEASE_MS,
    Ack,
    CallStep,
    Route,
    RouteState,
    group_subject,
    home_subject,
    merge,
    merge_tables,
    step_in_force,
)
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import Cluster, ControlWriter
from srm.engine.control.control_topics import CONTROL_ID, until_not_fenced
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.records import (
    ControlChange,
    ControlTables,
    MoveContext,
    MoveStore,
    RoutingHistory,
    as_move,
    ensure_topics,
    furthest,
    newest_plan,
    read_both,
)
from srm.engine.ports import FlowContext
from srm.errors import FencedError, SrmError, UnavailableError

log = logging.getLogger(__name__)

Side = Literal["target", "source"]
SIDES: tuple[Side, ...] = ("target", "source")
_OTHER: Final[Mapping[Side, Side]] = {"target": "source", "source": "target"}
_T = TypeVar("_T")


def sides_of(request: MoveRequest) -> tuple[Side, ...]:
    """Return the clusters that a move writes, in order; an abandoned source is not written."""
    return SIDES[:1] if request.is_unplanned else SIDES


class Registers:
    """The control records of both clusters, opened by one step.

    When both are opened, records of any move that a cluster missed while unavailable are added.
    """

    def __init__(self, context: MoveContext) -> None:
        self._clusters: dict[Side, Cluster] = {"target": context.target, "source": context.source}
        self._aliases = frozenset(cluster.alias for cluster in self._clusters.values())
        self._writers: dict[Side, ControlWriter] = {}
        self._tables: dict[Side, ControlTables] = {}
        self._away: dict[Side, UnavailableError] = {}
        self._unsure = 0

    def run(self, what: str, body: Callable[[], _T]) -> _T:
        """Open both clusters and run a body that checks and writes; retry while it is fenced."""

        def attempt() -> _T:
            try:
                self._open()
                return body()
            except UnavailableError as error:
                self.close()
                if self._unsure != 1:
                    raise
                self._unsure += 1  # once: the next open shows whether it was written
                raise FencedError(f"the result of a write is unknown: {error}") from error
            except BaseException:
                self.close()
                raise

        return until_not_fenced(what, attempt)

    def there(self, side: Side) -> bool:
        """Return True if a cluster answered."""
        return side not in self._away

    def require(self, *sides: Side) -> None:
        """Raise the UnavailableError of the first of these clusters that is unavailable."""
        for side in sides:
            if side in self._away:
                raise self._away[side]

    def tables(self, side: Side) -> ControlTables:
        """Return the tables of a cluster; empty if it is unavailable."""
        return self._tables.get(side, ControlTables())

    @property
    def routes(self) -> dict[str, Route]:
        """Routes as clients see them."""
        return merge_tables([table.routes for table in self._tables.values()])

    def progress(self, move_id: str) -> MoveProgress:
        """Return the progress of a move."""
        return furthest(self._tables.values(), move_id)

    def plan(self, move_id: str) -> MovePlan | None:
        """Return the plan of a move, None before there is one."""
        return newest_plan(self._tables.values(), move_id)

    def write(
        self, side: Side, change: ControlChange, before_commit: Callable[[], None] = lambda: None
    ) -> int | None:
        """Write the new part of a change to a cluster, in one transaction; return when.

        That is the broker's time of the routes, epoch milliseconds; None without routes or a stamp.
        """
        self.require(side)
        records = self._tables[side].over(change)
        if not any(records.values()):
            return None
        try:
            stamps = self._writers[side].write(records, before_commit)
        except UnavailableError:
            self._unsure += 1
            raise
        self._tables[side] = self._tables[side].after(change)
        return stamps.get(internal_topics.ROUTING)

    def write_if_there(self, side: Side, change: ControlChange) -> None:
        """Write to a cluster; if it is unavailable, the next step that reaches it adds it."""
        try:
            self.write(side, change)
        except UnavailableError as error:
            other = self._clusters[_OTHER[side]].alias
            log.log(loudness(error), "kept on %s only for now: %s", other, error)
            self._away[side] = error

    def write_both(self, change: ControlChange) -> None:
        """Write the same change to both clusters, the target first; the source may get it later."""
        self.write("target", change)
        self.write_if_there("source", change)

    def _open(self) -> None:
        missing = [side for side in SIDES if side not in self._writers and self.there(side)]
        if missing:
            with ThreadPoolExecutor(len(missing)) as pool:
                for future in [pool.submit(self._open_one, side) for side in missing]:
                    future.result()
        if not self._writers:
            raise self._away["target"]
        if len(self._writers) == len(SIDES) and missing:
            self._level()

    def _open_one(self, side: Side) -> None:
        cluster = self._clusters[side]
        try:
            writer = cluster.control_writer(CONTROL_ID)
            self._tables[side] = ControlTables.read(cluster)
            self._writers[side] = writer
        except UnavailableError as error:
            self._away[side] = error

    def _level(self) -> None:
        """Write to each cluster what it lacks; decisions to the target first."""
        for side in SIDES:
            other = self.tables(_OTHER[side])
            lacking = self._tables[side].lacks(other, self._aliases)
            if lacking != ControlChange():
                log.info("adding records that %s missed", self._clusters[side].alias)
                self.write_if_there(side, lacking)

    def close(self) -> None:
        """Drop the writers and what was read."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        self._tables.clear()
        self._away.clear()


def transact(context: MoveContext, what: str, body: Callable[[Registers], _T]) -> _T:
    """Run one body that checks and writes the control records of both clusters."""
    with closing(Registers(context)) as registers:
        return registers.run(what, lambda: body(registers))


def level(context: MoveContext) -> None:
    """Write to each cluster the routes and moves that it lacks; safe to repeat.

    Without them a cluster that was lost lets its clients, and the next move, follow outdated
    routes.
    """
    ensure_topics(context)
    transact(context, "the routes of both clusters", lambda registers: registers.require(*SIDES))


def record(context: MoveContext, change: ControlChange) -> None:
    """Write the same change to both clusters; an unavailable source gets it later."""
    transact(context, "writing the state of a move", lambda one: one.write_both(change))


def try_to_level(context: FlowContext) -> None:
    """Write what a cluster of a flow lacks, opening writers only if needed; log a failure."""
    sides = context.target, context.source
    try:
        target, source = (RoutingHistory.read(cluster).routes for cluster in sides)
        if target == source:
            return
        tables = [ControlTables.read(cluster) for cluster in sides]
        aliases = frozenset(cluster.alias for cluster in sides)
        if any(one.lacks(other, aliases).routes for one, other in (tables, reversed(tables))):
            level(as_move(context))
    except SrmError as error:
        log.warning("%s: the routes of both clusters: %s", context.config.flow, error)


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
        known, source = cls.of_target(context), source_routing(context)
        if source is None:
            return known
        return replace(
            known,
            source=source.routes,
            on_target=_at_home(known.on_target, context.target.alias),
            on_source=_at_home(source.acks, source.alias),
            source_ms=source.newest_ms,
        )

    @classmethod
    def of_target(cls, context: MoveContext) -> RoutingTables:
        """Read the target alone."""
        target = RoutingHistory.read(context.target)
        return cls(target.routes, None, target.acks, target_ms=target.newest_ms)


def source_routing(context: MoveContext) -> RoutingHistory | None:
    """Read the routing topic of the source; None if it is unavailable, which is logged."""
    try:
        return RoutingHistory.read(context.source)
    except UnavailableError as error:
        log.log(loudness(error), "routes of %s cannot be read: %s", context.source.alias, error)
        return None


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
        routes = merge_tables([one.routes for one in read_both(context, RoutingHistory.read)])
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
    any number of later moves. So ``make`` is called again with the state read after it, and acts on
    that state regardless of earlier calls. Returns the final state.
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
        ours = ("hold", self.plan.move_id, self.generation)
        return route is not None and (route.state, route.move_id, route.generation) == ours

    def _route(self, side: Side, state: RouteState, now_ms: int) -> Route:
        cluster = getattr(self.plan.request, side)
        return Route(self.generation, cluster, state, self.plan.move_id, now_ms)


def homes_to_move(request: MoveRequest, routes: Mapping[str, Route]) -> tuple[str, ...]:
    """Return the clusters whose unnamed clients a move of everything sends to its target.

    An unplanned move redirects all clients of the lost source. A planned one only brings back those
    whose home is its target: no gate has checked topics and groups of others.
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
