"""What every implementation of the MapReader port promises.

``fakes`` and ``kafka`` are the real reader over clusters in memory and over brokers; ``stated`` is
the fake reader, which is told the maps instead of finding them in records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from tests.slot_reports import records_of

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, map_partition
from srm.domain.offset_map.offset_map import NoMap, OffsetMap, Position, Run, Translated
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import MapReader
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader


class Stated:
    """The fake reader."""

    def __init__(self) -> None:
        self.reader = FakeMapReader()

    def know(
        self, partition: TopicPartition, runs: Iterable[Run], position: Position | None = None
    ) -> None:
        self.reader.put(partition, runs, position)

    def status(self, status: PartitionStatus) -> None:
        self.reader.statuses[TopicPartition(status.topic, status.partition)] = status


@dataclass
class Recorded:
    """The real reader, with records on cluster B of a flow from P."""

    reader: MapReader
    site: object
    other_site: object
    flow: Flow
    positions: list[PartitionPosition] = field(default_factory=list)

    def know(
        self, partition: TopicPartition, runs: Iterable[Run], position: Position | None = None
    ) -> None:
        topic_id = self.site.cluster.topics()[partition.topic].topic_id
        target_id = self.other_site.cluster.topics()[partition.topic].topic_id
        previous = None
        for run in runs:
            block = MapBlock(
                partition.topic,
                topic_id,
                partition.partition,
                target_id,
                (7,),
                (run,),
                previous=previous,
            )
            previous = block.block_key
            self.write_block(block, block.value())
        if position is not None:
            self.positions.append(
                PartitionPosition(topic_id, partition.partition, target_id, position, 7, 1)
            )
            self.write_state(records_of(SlotReport("0", 1, 1000, tuple(self.positions))))

    def status(self, status: PartitionStatus) -> None:
        self.write_state({status.key(): status.value()})

    def write_block(self, block: MapBlock, value: bytes) -> None:
        topic = internal_topics.offset_map(self.flow.source)
        ensure_compacted(self.other_site.cluster, topic, MAP_PARTITIONS)
        place = map_partition(block.topic, block.partition)
        self.other_site.cluster.compacted_topic(topic, place).write({block.key(): value})

    def write_state(self, records: dict[bytes, bytes]) -> None:
        topic = internal_topics.replication(self.flow.source)
        ensure_compacted(self.other_site.cluster, topic, STATE_PARTITIONS)
        self.other_site.cluster.compacted_topic(topic, REPORTS).write(records)


@pytest.fixture
def recorded(site, other_site, unique):
    flow = Flow(f"P{unique}", "B")
    return Recorded(KafkaMapReader(other_site.cluster, site.cluster, flow), site, other_site, flow)


@pytest.fixture(params=["stated", "recorded"])
def world(request):
    return Stated() if request.param == "stated" else request.getfixturevalue("recorded")


@pytest.fixture
def copied(topic, other_site):
    """Create the topic on the target, too."""
    other_site.cluster.create_topics([TopicSpec(topic, 2, 1, {})])
    return topic


def test_where_nothing_was_copied_there_are_no_maps(world, copied):
    maps = world.reader.load([copied])

    assert not maps.maps
    assert not maps.errors
    assert maps.get(TopicPartition(copied, 0)).forward(0) == NoMap()


def test_a_topic_that_does_not_exist_has_no_maps(world, copied):
    assert not world.reader.load([f"{copied}-no"]).maps


def test_runs_and_position_become_the_map_of_their_partition(world, copied):
    first, second = TopicPartition(copied, 0), TopicPartition(copied, 1)
    world.know(first, [Run(100, 60, 5), Run(106, 65, 1)], Position(120, 79, 130))
    world.know(second, [Run(0, 0, 3)], Position(3, 3, 3))

    maps = world.reader.load([copied])

    assert maps.maps == {
        first: OffsetMap((Run(100, 60, 5), Run(106, 65, 14)), Position(120, 79, 130)),
        second: OffsetMap((Run(0, 0, 3),), Position(3, 3, 3)),
    }
    assert maps.get(first).forward(102) == Translated(62)


def test_only_the_topics_that_were_asked_for_are_loaded(world, copied, site, other_site):
    another = f"{copied}-2"
    site.cluster.create_topics([TopicSpec(another, 1, 1, {})])
    other_site.cluster.create_topics([TopicSpec(another, 1, 1, {})])
    world.know(TopicPartition(copied, 0), [Run(0, 0, 1)])
    world.know(TopicPartition(another, 0), [Run(0, 0, 2)])
    world.status(PartitionStatus(copied, 0, "copying"))
    world.status(PartitionStatus(another, 0, "stopped", "lost", 3, 5))

    maps = world.reader.load([another])

    assert maps.maps.keys() == {TopicPartition(another, 0)}
    assert maps.statuses == {
        TopicPartition(another, 0): PartitionStatus(another, 0, "stopped", "lost", 3, 5)
    }


def test_an_unreadable_block_makes_only_its_partition_unusable(recorded, copied, site):
    """A hole in the middle of a map would translate to a later record."""
    recorded.know(TopicPartition(copied, 0), [Run(0, 0, 5), Run(20, 15, 5)])
    recorded.know(TopicPartition(copied, 1), [Run(0, 0, 5)])
    topic_id = site.cluster.topics()[copied].topic_id
    block = MapBlock(copied, topic_id, 0, topic_id, (7,), (Run(10, 8, 3),))
    recorded.write_block(block, block.value()[:-3])

    maps = recorded.reader.load([copied])

    assert maps.maps == {TopicPartition(copied, 1): OffsetMap((Run(0, 0, 5),))}
    assert "damaged" in maps.errors[TopicPartition(copied, 0)]
    assert maps.get(TopicPartition(copied, 0)).forward(2) == NoMap()


def test_a_source_topic_that_was_created_again_starts_with_an_empty_map(recorded, copied, site):
    recorded.know(TopicPartition(copied, 0), [Run(0, 0, 5)], Position(5, 5, 5))

    site.delete_topic(copied)
    site.cluster.create_topics([TopicSpec(copied, 2, 1, {})])
    assert not recorded.reader.load([copied]).maps

    recorded.know(TopicPartition(copied, 0), [Run(0, 5, 2)])
    assert recorded.reader.load([copied]).maps == {
        TopicPartition(copied, 0): OffsetMap((Run(0, 5, 2),))
    }


def test_a_target_topic_that_was_created_again_starts_with_an_empty_map(
    recorded, copied, other_site
):
    recorded.know(TopicPartition(copied, 0), [Run(0, 0, 5)], Position(5, 5, 5))

    other_site.delete_topic(copied)
    other_site.cluster.create_topics([TopicSpec(copied, 2, 1, {})])

    assert not recorded.reader.load([copied]).maps


def test_without_its_source_the_topics_are_those_that_were_copied_last(copied, other_site, unique):
    """An unplanned move: the maps on the surviving side are all there is."""
    flow = Flow(f"P{unique}", "B")
    dead = FakeCluster("P")
    dead.fail()
    world = Recorded(KafkaMapReader(other_site.cluster, dead, flow), None, other_site, flow)
    target_id = other_site.cluster.topics()[copied].topic_id
    for topic_id, run in (("A" * 22, Run(50, 0, 5)), ("A" * 21 + "Q", Run(0, 5, 5))):
        block = MapBlock(copied, topic_id, 1, target_id, (7,), (run,))
        world.write_block(block, block.value())

    maps = world.reader.load([copied, f"{copied}-no"])

    assert maps.maps == {TopicPartition(copied, 1): OffsetMap((Run(0, 5, 5),))}
