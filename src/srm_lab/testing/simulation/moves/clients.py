"""Applications that follow the routes of moves: consumers of groups, and one producer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from srm.domain.moves.routing import Route, group_subject, home_route, merge, topic_subject
from srm.engine.moves.records import RoutingHistory
from srm.errors import AuthorizationError, SrmError
from srm_lab.testing.fake_consumer import FakeConsumer, Reset
from srm_lab.testing.simulation.moves.sites import TOPIC, Sites

HOME = "P"


class KnownRoutes:
    """Routes known to clients: the highest they have ever seen, and the age of holds."""

    def __init__(self, sites: Sites) -> None:
        self._sites = sites
        self._known: dict[str, Route] = {}
        self._since: dict[tuple[str, int, int], int] = {}

    def refresh(self) -> None:
        """Read the routes on all clusters that answer."""
        now = self._sites.clock()
        for cluster in self._sites.clusters.values():
            try:
                found = RoutingHistory.read(cluster).routes
            except SrmError:
                continue
            for subject, route in found.items():
                newest = merge(self._known.get(subject), route) or route
                self._known[subject] = newest
                self._since.setdefault((subject, newest.generation, newest.beat), now)

    def where(self, subject: str) -> str:
        """Return the cluster that clients of a subject use now, empty while they are held."""
        route = self._known.get(subject, home_route(HOME))
        if route.state == "go":
            return route.cluster
        since = self._since[subject, route.generation, route.beat]
        lapsed = route.lease_ms and self._sites.clock() - since > route.lease_ms
        return route.cluster if lapsed else ""


@dataclass
class Reading:
    """One record that a group has got: its number, where, and how many moves were begun then."""

    serial: int
    cluster: str
    moves: int


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
        self.routes = KnownRoutes(sites)
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
        alias = self.routes.where(topic_subject(TOPIC))
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
        wanted = self.routes.where(group_subject(group.name))
        if group.consumer is not None and wanted != group.cluster:
            if group.cluster not in self.sites.down:
                group.commit()
            group.consumer.close()
            group.consumer = None
        if group.consumer is None and wanted and wanted not in self.sites.down:
            other = "B" if wanted == "P" else "P"
            group.cluster = wanted
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
            group.read.append(Reading(serial, group.cluster, self.moves))
            group.since_commit.add(serial)
        if rng.random() < group.commits:
            group.commit()
