"""A source that is given up, for tests of unplanned moves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world

from srm.domain.flow_state.replication_records import PartitionPosition, SlotReport, read_pause
from srm.domain.moves.plan import MovePlan
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.engine.cluster_ports import away_cluster
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.context import MoveContext
from srm_lab.testing.fake_switch import FakeSwitch

UNPLANNED = replace(REQUEST, mode="unplanned", slow_writer_seconds=0.0)
COPY = TopicPartition("P.Payments", 0)


class Disaster:
    """P with two groups, copied to B except its last records, is given up."""

    def __init__(self, world: World) -> None:
        self.world = world
        for cluster in (world.p, world.b):
            cluster.add_topic(internal_topics.checkpoints("P"))
        world.b.add_topic(internal_topics.replication("P"), 2)
        emit(world.context().forward)
        world.p.produce("Payments", records=7)
        position = Position(100, 101, 107)
        self.copied(position, heard_ms=world.clock())
        self.switch = FakeSwitch(world.b, "P")

    def copied(self, position: Position, heard_ms: int) -> None:
        maps = self.world.maps[Flow("P", "B")]
        known = maps.maps[TopicPartition("Payments", 0)]
        maps.put(TopicPartition("Payments", 0), known.runs, position)
        target = self.world.b.topics()["P.Payments"].topic_id
        source = self.world.p.topics()["Payments"].topic_id
        entry = PartitionPosition(source, 0, target, position, 1, 0)
        maps.reports = (SlotReport("0", 1, heard_ms, (entry,), source_heard_ms=heard_ms),)

    @property
    def context(self) -> MoveContext:
        whole, gone = self.world.context(), away_cluster("P")
        return MoveContext(
            replace(whole.forward, source=gone, switch=self.switch),
            replace(whole.reverse, target=gone),
            whole.monotonic,
            pause=whole.pause,
        )

    def pause(self):
        return read_pause(self.world.b.compacted_topic(internal_topics.replication("P")).read())

    def planned(self, **changes: object) -> MovePlan:
        return moves.plan(self.context, replace(UNPLANNED, **changes), "m1")

    def through(self, *steps: str) -> None:
        for step in steps:
            getattr(moves, step)(self.context, "m1")


@pytest.fixture
def disaster(config) -> Disaster:
    return Disaster(busy_world(config))
