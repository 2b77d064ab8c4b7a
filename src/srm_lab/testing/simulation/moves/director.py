"""Operators who move everything to and fro by chance, while clusters die and return."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from srm.domain.moves.disaster import Choice, Outcome
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import (
    FenceKind,
    KnownRoutes,
    Route,
    group_subject,
    topic_subject,
)
from srm.domain.text.amount import reasons_text
from srm.engine.emission import emit
from srm.engine.flows.supervision import pause_in_force
from srm.engine.groups.group_sync import sync
from srm.engine.moves import holding, planning, steps, verification
from srm.engine.moves.context import MoveContext
from srm.engine.moves.history import RoutingHistory
from srm.engine.recovery import ReturnedFlow
from srm.errors import AuthorizationError, GateClosedError, SrmError
from srm_lab.testing.fake_consumer import FakeConsumer, Reset
from srm_lab.testing.simulation.moves.sites import TOPIC, Host, SiteLogs, Sites

HOME = "P"


class ClientRoutes:
    """Routes known to clients: all they have ever seen, and the age of holds."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._known = KnownRoutes(HOME)
        self._since: dict[tuple[str, Route], int] = {}

    def refresh(self) -> None:
        """Read the routes on all clusters that answer."""
        now = self._sites.clock()
        for cluster in self._sites.clusters.values():
            try:
                found = RoutingHistory.read(cluster).routes
            except SrmError:
                continue
            for subject, route in found.items():
                self._known.add(subject, route)
                self._since.setdefault((subject, route), now)

    def cluster_of(self, subject: str) -> str:
        """Return the cluster that clients of a subject use now, empty while they are held."""
        route = self._known.of(subject)
        if route.state == "go":
            return route.cluster
        since = self._since[subject, route]
        lapsed = route.lease_ms and self._sites.clock() - since > route.lease_ms
        return route.cluster if lapsed else ""


@dataclass
class Reading:
    """One record that a group has got: its number, where, and the move that led it there."""

    serial: int
    cluster: str
    move: int


@dataclass(eq=False)
class Group:
    """A group of one consumer that reads the topic and its copy, wherever the route leads."""

    name: str
    reset: Reset
    passes_markers: bool
    commits: float
    """Chance that it commits after a poll."""
    most: int = 5
    consumer: FakeConsumer | None = None
    cluster: str = ""
    led_by: int = 0
    """Number of moves that were begun when it came to its cluster."""
    read: list[Reading] = field(default_factory=list)
    since_commit: set[int] = field(default_factory=set)
    uncommitted: set[int] = field(default_factory=set)
    """Records that it had read when a cluster died, and could not commit."""

    def commit(self) -> None:
        """Commit what it has read."""
        if self.consumer is not None:
            self.consumer.commit()
        self.since_commit.clear()


class Applications:
    """All applications; ``moves`` counts the moves that were begun."""

    def __init__(self, sites: Sites, groups: list[Group]) -> None:
        self.sites = sites
        self.groups = groups
        self.routes = ClientRoutes(sites)
        self.moves = 0
        self.refused = 0
        self.born: dict[int, str] = {}

    def step(self, *, produce: bool = True) -> None:
        """Let each application do something."""
        self.routes.refresh()
        if produce:
            self._produce()
        for group in self.groups:
            self._follow(group)
            if group.consumer is not None and group.cluster not in self.sites.down:
                self._work(group, group.consumer)

    def drain(self) -> bool:
        """Let each group read; return whether there was nothing more for any."""
        before = sum(len(group.read) for group in self.groups)
        self.step(produce=False)
        return sum(len(group.read) for group in self.groups) == before

    def lose(self, alias: str) -> None:
        """Let a cluster die with the connections to it."""
        for group in self.groups:
            if group.cluster == alias and group.consumer is not None:
                group.consumer.close()
                group.consumer = None
                group.uncommitted |= group.since_commit
                group.since_commit.clear()

    def readings(self) -> dict[str, dict[int, list[Reading]]]:
        """Return by group and record when it was read."""
        found: dict[str, dict[int, list[Reading]]] = {}
        for group in self.groups:
            rows = defaultdict[int, list[Reading]](list)
            for one in group.read:
                rows[one.serial].append(one)
            found[group.name] = rows
        return found

    def _produce(self) -> None:
        rng = self.sites.rng
        alias = self.routes.cluster_of(topic_subject(TOPIC))
        if not alias or alias in self.sites.down or rng.random() < 0.4:
            return
        number, count = rng.randrange(self.sites.partitions), rng.randint(1, 4)
        try:
            new = self.sites.write(alias, number, count, in_transaction=rng.random() < 0.3)
        except AuthorizationError:
            self.refused += 1
        else:
            self.born.update(dict.fromkeys(new, alias))

    def _follow(self, group: Group) -> None:
        wanted = self.routes.cluster_of(group_subject(group.name))
        if group.consumer is not None and wanted != group.cluster:
            if group.cluster not in self.sites.down:
                group.commit()
            group.consumer.close()
            group.consumer = None
        if group.consumer is None and wanted and wanted not in self.sites.down:
            other = "B" if wanted == "P" else "P"
            group.cluster, group.led_by = wanted, self.moves
            group.consumer = FakeConsumer(
                self.sites.clusters[wanted],
                group.name,
                (TOPIC, f"{other}.{TOPIC}"),
                reset=group.reset,
                passes_markers=group.passes_markers,
            )

    def _work(self, group: Group, consumer: FakeConsumer) -> None:
        rng = self.sites.rng
        for place, offset in consumer.poll(rng.randint(1, group.most)):
            serial = self.sites.records[group.cluster, place][offset]
            if serial is None:
                raise RuntimeError(f"{group.name} has read a marker: {place} at {offset}")
            group.read.append(Reading(serial, group.cluster, group.led_by))
            group.since_commit.add(serial)
        if rng.random() < group.commits:
            group.commit()


_TICK_MS: Final = 500
_PATIENCE: Final = 60
"""Looks at a gate before a move counts as stuck: half a minute in which all clients obey."""


@dataclass(frozen=True)
class Ended:
    """A move that was decided: its number, report, and what the settlement found afterwards."""

    number: int
    report: MoveReport
    outcomes: tuple[Outcome, ...] = ()


@dataclass(eq=False)
class Director:
    """Plays the operators; ``problems`` is what they could not do and should have been able to."""

    sites: Sites
    clients: Applications
    rng: random.Random
    say: Callable[[str], None]
    faults: frozenset[str]
    problems: list[str] = field(default_factory=list)
    moves: list[tuple[int, MoveContext, str]] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    episodes: list[str] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    depth: int = 0
    at: str = "P"

    # ----- time

    def tick(self, count: int = 1) -> None:
        """Let time pass: flows copy, applications work, checkpoints and offsets are written."""
        for _ in range(count):
            self.sites.clock.advance(_TICK_MS)
            for flow, copier in self.sites.copiers.items():
                if not {flow.source, flow.target} & self.sites.down and self.rng.random() < 0.8:
                    copier.step()
            self.clients.step()
            if self.rng.random() < 0.3:
                self.emit()

    def emit(self) -> None:
        """Emit checkpoints and synchronise the offsets of groups, of both flows."""
        for flow in self.sites.copiers:
            if not {flow.source, flow.target} & self.sites.down:
                context = self.sites.flow(flow, self._host("scheduler"))
                with suppress(SrmError):
                    emit(context)
                    sync(context)

    def _host(self, name: str) -> Host:
        skewed = "clocks" in self.faults and self.rng.random() < 0.5
        return Host(name, self.sites.clock, self.rng.randint(-90_000, 90_000) if skewed else 0)

    def _between(self, request: MoveRequest, host: Host) -> MoveContext:
        """Return what the steps of a move need; life continues while a step pauses."""
        context = self.sites.move(request.flow, host, unplanned=request.is_unplanned)
        return replace(context, pause=lambda seconds: self.tick(ceil(seconds * 1000 / _TICK_MS)))

    # ----- what operators do

    def move_over(self) -> None:
        """Move everything to the other cluster."""
        source, target = self.at, self._other(self.at)
        fence: FenceKind = self.rng.choice(("none", "acl")) if "late" in self.faults else "none"
        self._move(MoveRequest("failover", source, target, fence=fence))

    def disaster(self) -> None:
        """Let the cluster in use die, and move everything to the other one without it."""
        source, target = self.at, self._other(self.at)
        self.say(f"{source} dies")
        self.sites.clusters[source].fail()
        self.sites.down.add(source)
        self.clients.lose(source)
        self.tick(self.rng.randint(0, 6))
        self._move(MoveRequest("failover", source, target, mode="unplanned"))
        self._bring_back(source)

    def _bring_back(self, alias: str) -> None:
        """Let a cluster return, unless others have seen it return already."""
        if alias in self.sites.down:
            self.tick(self.rng.randint(0, 8))
            self.say(f"{alias} returns")
            self.sites.clusters[alias].recover()
            self.sites.down.discard(alias)
            self.tick(self.rng.randint(0, 6))

    def settle(self) -> None:
        """Settle what is paused, with any choice."""
        for flow, copier in self.sites.copiers.items():
            context = self.sites.flow(flow, self._host("settler"))
            if pause_in_force(context) is None:
                continue
            choice: Choice = self.rng.choice(("merge", "keep", "discard"))
            self.say(f"settle {flow}: {choice}")
            returned = ReturnedFlow(context, SiteLogs(self.sites, copier))
            try:
                try:
                    done = returned.settle({}, choice, "ann")
                except GateClosedError as error:
                    if f"--merge {TOPIC}" not in str(error):
                        raise
                    done = returned.settle({TOPIC: "merge"}, choice, "ann")
            except SrmError as error:
                self.problems.append(f"settle {flow} is refused: {error}")
            else:
                self.outcomes.append(done.outcome)
                self.say(f"residue: {done.outcome.records}")

    def home(self) -> None:
        """Settle everything, and move back to the first cluster."""
        self.settle()
        self.tick(4)
        if self.at != "P":
            self.move_over()

    def _move(self, request: MoveRequest) -> None:
        self.clients.moves += 1
        number, move_id = self.clients.moves, self._new_id()
        what = f"{request.mode} {request.flow}"
        self.episodes.append(what)
        self.say(f"{move_id}: {what}")
        host = self._host(f"host-{move_id}")
        if "late" in self.faults and not self.depth and self.rng.random() < 0.6:
            host.stall_at = self.rng.randint(1, 25)
            host.others = lambda: self._take_over(request, move_id, number)
        context = self._between(request, host)
        try:
            plan = self._plan(context, request, move_id)
            if plan.blocking:
                self.problems.append(f"{what} is blocked: {reasons_text(plan.blocking)}")
                return
            self.carry_on(context, plan, number)
        except SrmError as error:
            if host.stall_at == 0 or host.writes < host.stall_at:
                self.problems.append(f"{what} fails: {type(error).__name__}: {error}")
                with suppress(SrmError):
                    holding.release(context, move_id)
            else:
                self.say(f"the late process ends: {error}")
        finally:
            host.stall_at = 0  # what is read of it at the end is no step

    def _plan(self, context: MoveContext, request: MoveRequest, move_id: str) -> MovePlan:
        """Plan a move, and once again after doing what the plan says is to be done first."""
        plan = planning.plan(context, request, move_id)
        if "name it with --group" in "; ".join(plan.warnings):
            request = replace(request, groups=tuple(one.name for one in self.clients.groups))
            move_id = f"{move_id}g"
            plan = planning.plan(context, request, move_id)
        advice = "; ".join(plan.blocking)
        if "settle its return first" in advice:
            self.settle()
            self.tick(4)
            plan = planning.plan(context, request, move_id)
            advice = "; ".join(plan.blocking)
        if "let it catch up on" in advice:
            self.tick(20)
            return planning.plan(context, request, move_id)
        if "--reroute" in advice:
            self.say(f"{move_id}: {advice}")
            return planning.plan(context, replace(request, reroute=True), f"{move_id}r")
        return plan

    def _new_id(self) -> str:
        """Return the id of a move: not always one that sorts after those of earlier moves."""
        prefix = self.rng.choice("abc") if "names" in self.faults else "m"
        return f"{prefix}{self.clients.moves}"

    def _take_over(self, request: MoveRequest, move_id: str, number: int) -> None:
        """Do the rest from another host while the first one is stopped, and maybe move back."""
        self.depth += 1
        self.say(f"{move_id} stalls")
        other = self._between(request, self._host("other"))
        try:
            self.carry_on(other, self._plan(other, request, move_id), number)
            if self.at == request.target and self.rng.random() < 0.7:
                if request.is_unplanned:
                    self._bring_back(request.source)
                    self.settle()
                self.tick(4)
                self.move_over()
        except SrmError as error:
            self.say(f"{move_id} is not taken over: {error}")
        self.say(f"{move_id} wakes up")
        self.depth -= 1

    def carry_on(self, context: MoveContext, plan: MovePlan, number: int) -> None:
        """Take a planned move from its hold to its report."""
        request, move_id = plan.request, plan.move_id
        holding.hold(context, move_id)
        status = steps.wait_status(context, move_id)
        for _ in range(_PATIENCE):
            if status.ready:
                with suppress(GateClosedError):
                    steps.apply(context, move_id)
                    holding.go(context, move_id)
                    break
            self.tick()
            status = steps.wait_status(context, move_id)
        else:
            self.problems.append(
                f"{request.mode} {request.flow}: its gate never opens: "
                f"{reasons_text(status.blocking) or 'no reason'}"
            )
            holding.release(context, move_id)
            return
        if number not in self.gone:  # a late process moves no client
            self.gone.add(number)
            self.at = request.target
        self.say(f"{move_id}: gone")
        for _ in range(_PATIENCE):
            self.tick()
            if verification.verify(context, move_id).done:
                break
        report = verification.report(context, move_id)
        self.say(f"{move_id}: ok={report.ok} rpo={report.rpo_records} {report.problems}")
        if all(known != number for known, _, _ in self.moves):
            self.moves.append((number, context, move_id))

    def results(self) -> list[Ended]:
        """Return the moves with what their reports say at last."""
        found = []
        for number, context, move_id in self.moves:
            with suppress(SrmError):
                verification.watch_residue(context, move_id)
            outcomes = tuple(one for one in self.outcomes if one.move_id == move_id)
            found.append(Ended(number, verification.report(context, move_id), outcomes))
        return found

    def _other(self, alias: str) -> str:
        return "B" if alias == "P" else "P"
