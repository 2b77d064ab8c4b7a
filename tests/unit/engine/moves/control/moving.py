"""Clusters P and B in memory with a topic copied both ways, for tests of moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

from tests import moves

from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.flow_state.replication_records import SlotReport
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.moves.context import MoveContext
from srm.engine.moves.history import RoutingHistory
from srm.engine.ports import FlowContext
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

THREE_CLUSTERS = """
clusters = P, B, C
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
P->B.enabled = true
B->P.enabled = true
P->C.enabled = true
C->P.enabled = true
topics = Payments.*, Refunds
groups = .*
"""

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
P->B.enabled = true
B->P.enabled = true
topics = Payments.*
groups = .*
"""


class Killed(BaseException):
    """The process died at this point."""


class KillableCluster(FakeCluster):
    """Dies just before, or just after, the n-th write; ``watch`` sees each write that was made."""

    def __init__(self, alias: str, writes: Writes, clock: FakeClock) -> None:
        super().__init__(alias, clock=clock)
        self._writes = writes

    def commit_idle(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._writes.around(lambda: super(KillableCluster, self).commit_idle(group, offsets))

    def compacted_topic(self, topic: str, partition: int = 0):
        table = super().compacted_topic(topic, partition)
        write = table.write
        table.write = lambda records: self._writes.around(lambda: write(records))
        return table

    def control_writer(self, transactional_id: str):
        writer = super().control_writer(transactional_id)
        # Of a transaction the records of each topic are no writes of their own.
        writer._topic = super().compacted_topic
        write = writer.write

        def around(tables, before_commit=lambda: None):
            if any(tables.values()):
                return self._writes.around(lambda: write(tables, before_commit))
            return {}

        writer.write = around
        return writer


class Writes:
    """Counts the writes of all clusters."""

    def __init__(self) -> None:
        self.count = 0
        self.die_at: tuple[int, bool] | None = None
        self.watch: Callable[[], None] = lambda: None
        self.before: dict[int, Callable[[], None]] = {}

    def around(self, write: Callable[[], Any]) -> Any:
        """Make a write; ``before`` has what others do while this process stands before its n-th."""
        self.count += 1
        self.before.pop(self.count, lambda: None)()
        at, after = self.die_at or (0, False)
        if self.count == at and not after:
            raise Killed
        result = write()
        self.watch()
        if self.count == at:
            raise Killed
        return result


class World:
    """Clusters P and B with Payments on both, copied both ways on demand."""

    def __init__(
        self,
        config: Config,
        partitions: int = 1,
        aliases: Sequence[str] = ("P", "B"),
        topics: Sequence[str] = ("Payments",),
    ) -> None:
        self.config = config
        self.partitions = partitions
        self.clock = FakeClock()
        self.writes = Writes()
        self.clusters = {
            alias: KillableCluster(alias, self.writes, self.clock) for alias in aliases
        }
        self.maps = {Flow(*pair): FakeMapReader() for pair in permutations(aliases, 2)}
        for topic in topics:
            for alias in aliases:
                self.clusters[alias].add_topic(topic, partitions)
            for alias, other in permutations(aliases, 2):
                self.clusters[alias].add_topic(f"{other}.{topic}", partitions)

    @property
    def p(self) -> KillableCluster:
        return self.clusters["P"]

    @property
    def b(self) -> KillableCluster:
        return self.clusters["B"]

    def context(self, source: str = "P", target: str = "B") -> MoveContext:
        return MoveContext(
            self._flow(source, target),
            self._flow(target, source),
            lambda: self.clock() / 1000,
            pause=lambda seconds: self.passing(round(seconds * 1000)),
        )

    def _flow(self, source: str, target: str) -> FlowContext:
        flow = Flow(source, target)
        return FlowContext(
            self.config.flow(flow),
            self.clusters[source],
            self.clusters[target],
            self.maps[flow],
            self.maps[flow.reverse],
            self.clock,
        )

    def copy(self, source: str, target: str, markers: int = 0, topic: str = "Payments") -> None:
        """Let the replicator catch up; ``markers`` are offsets a new claim takes on the target."""
        flow, remote = Flow(source, target), f"{source}.{topic}"
        for number in range(self.partitions):
            tp = TopicPartition(topic, number)
            known = self.maps[flow].load([topic]).get(tp)
            start = known.position.source_next if known.position else 0
            end = self.clusters[source].log_ends([tp])[tp]
            self.clusters[target].mark(remote, number, markers)
            there = self.clusters[target].produce(remote, number, 0)
            runs = [*known.runs]
            if end > start:
                runs.append(Run(start, there, end - start))
                there = self.clusters[target].produce(remote, number, end - start)
            self.maps[flow].put(tp, runs, Position(end, there, end))

    def report(self, source: str, target: str) -> None:
        """Let a slot of the flow say that it lives."""
        self.maps[Flow(source, target)].reports = (SlotReport("0", 1, self.clock(), ()),)

    def passing(self, milliseconds: int = 6_000) -> None:
        self.clock.advance(milliseconds)

    def routes(self, alias: str) -> dict[str, Route]:
        return RoutingHistory.read(self.clusters[alias]).routes

    def start(self, group: str, alias: str, committed: Mapping[str, int]) -> None:
        """Let a group work on a cluster and commit; offsets by topic, partition 0."""
        self.clusters[alias].join(group)
        self.clusters[alias].commit(
            group, {TopicPartition(topic, 0): offset for topic, offset in committed.items()}
        )

    def obey(self, *groups: str, alias: str = "P") -> None:
        """Let the members of groups do what a hold asks for."""
        for group in groups:
            if self.clusters[alias].groups([group])[group].members:
                self.clusters[alias].leave(group)

    def offsets(self, alias: str, group: str) -> dict[str, int]:
        return {str(tp): at for tp, at in self.clusters[alias].committed_offsets(group).items()}


def config_in(home: Path, properties: str = PROPERTIES) -> Config:
    path = home / "srm.properties"
    path.write_text(properties)
    loaded = load_config(path)
    flows = {
        flow: replace(settings, internal_replication_factor=1)
        for flow, settings in loaded.flow_configs.items()
    }
    return replace(loaded, flow_configs=flows)


def busy_world(config: Config) -> World:
    """100 payments on P; near is 5 behind, far 90; a claim marker on B after the first 60."""
    world = World(config)
    world.p.produce("Payments", records=60)
    world.copy("P", "B")
    world.p.produce("Payments", records=40)
    world.copy("P", "B", markers=1)
    world.copy("B", "P")
    world.start("near", "P", {"Payments": 95})
    world.start("far", "P", {"Payments": 10})
    return world


REQUEST = MoveRequest("failover", "P", "B", ("Payments",), ("near", "far"))


def planned(world: World, request: MoveRequest = REQUEST, move_id: str = "m1") -> MoveContext:
    context = world.context(request.source, request.target)
    moves.plan(context, request, move_id)
    return context


def held(world: World, request: MoveRequest = REQUEST) -> MoveContext:
    context = planned(world, request)
    moves.hold(context, "m1")
    world.obey("near", "far", alias=request.source)
    world.passing(2_000)
    return context


WRITES_OF_A_MOVE = 19


def run_through(world: World) -> None:
    """Run a whole move as whoever restarts it would: from the top, by the same id."""
    context = world.context()
    moves.plan(context, REQUEST, "m1")
    moves.hold(context, "m1")
    world.obey("near", "far")
    world.passing(2_000)
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    moves.go(context, "m1")
