"""Maps with an index are read around what is wanted, over clusters in memory and over brokers.

Places that the newest report names may be stale: their owner was killed between writing a newer
version and telling of it, and the log was compacted since.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from tests.map_topics import MapTopic
from tests.slot_reports import records_of
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import (
    REPORTS,
    PartitionNotes,
    PartitionPosition,
    SlotReport,
)
from srm.domain.groups.translation import UNKNOWN_LOG, translate
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, MapEnd, map_partition
from srm.domain.offset_map.offset_map import (
    NotCopiedYet,
    OffsetMap,
    Position,
    Run,
    Runs,
    Translated,
)
from srm.engine.cluster_ports import CompactedTopic, TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.groups.translate import partition_facts
from srm.engine.map_reader import KafkaMapReader
from srm.errors import NotLoadedError

EAGER = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
COMPACTED_S = 240


@dataclass
class World:
    """A flow from P to B whose maps a test writes, one map after the other."""

    site: object
    other_site: object
    flow: Flow
    reader: KafkaMapReader
    partition: TopicPartition
    kind: str

    @property
    def copy_id(self) -> tuple[str, int, str]:
        source = self.site.cluster.topics()[self.partition.topic].topic_id
        target = self.other_site.cluster.topics()[self.partition.topic].topic_id
        return source, self.partition.partition, target

    @property
    def place(self) -> TopicPartition:
        """The partition of the map topic that has the map."""
        number = map_partition(self.partition.topic, self.partition.partition)
        return TopicPartition(internal_topics.offset_map(self.flow.source), number)

    @property
    def table(self) -> CompactedTopic:
        return self.other_site.cluster.compacted_topic(self.place.topic, self.place.partition)

    def blocks(self, count: int) -> list[MapBlock]:
        """Return blocks of two runs each."""
        topic_id, number, target_id = self.copy_id
        made: list[MapBlock] = []
        for n in range(count):
            block = MapBlock(
                self.partition.topic,
                topic_id,
                number,
                target_id,
                (7,),
                Runs.of([Run(100 * n, 90 * n, 10), Run(100 * n + 20, 90 * n + 11, 9)]),
                open_end=False,
                owner=(7, 1),
                previous=made[-1].block_key if made else None,
            )
            made.append(block)
        return made

    def end(self) -> int:
        return self.other_site.cluster.high_watermarks([self.place])[self.place]

    def write(self, blocks: Sequence[MapBlock], per_chunk: int = 8) -> MapEnd:
        """Write a map with its index."""
        ensure_compacted(
            self.other_site.cluster, self.place.topic, MAP_PARTITIONS, extra_configs=EAGER
        )
        topic = MapTopic(first=self.end())
        end = topic.write(self.copy_id, blocks, per_chunk)
        for key, value in topic.rows:  # one by one: a root is written again and again
            self.table.write({key: value})
        return end

    def report(self, end: MapEnd, position: Position) -> None:
        entry = PartitionPosition(*self.copy_id, position, 7, 1, map_end=end)
        topic = internal_topics.replication(self.flow.source)
        ensure_compacted(self.other_site.cluster, topic, 2)
        table = self.other_site.cluster.compacted_topic(topic, REPORTS)
        table.write(records_of(SlotReport("0", 1, 1000, (entry,))))

    def compact_away(self, *places: int) -> None:
        """Let the log cleaner run until nothing stands at these places."""

        def gone() -> bool:
            if self.kind == "fake":
                self.other_site.cluster.compact(self.place.topic, self.place.partition)
            self.table.write({b"filler": b"the active segment is never compacted"})
            return not self.table.at(places)

        eventually(gone, "the log is compacted", COMPACTED_S)

    def load(self, *sources: int) -> OffsetMap:
        maps = self.look(*sources)
        assert not maps.errors
        assert not maps.gaps
        return maps.maps[self.partition]

    def look(self, *sources: int):
        return self.reader.load([self.partition.topic], {self.partition: Wanted.of(sources)})


@pytest.fixture
def world(site, other_site, unique, topic, kind):
    other_site.cluster.create_topics([TopicSpec(topic, 2, 1, {})])
    flow = Flow(f"P{unique}", "B")
    reader = KafkaMapReader(other_site.cluster, site.cluster, flow)
    return World(site, other_site, flow, reader, TopicPartition(topic, 0), kind)


POSITION = Position(6000, 5400, 6000)


def test_a_window_is_read_by_places_and_kept_until_the_report_changes(world, monkeypatch):
    blocks = world.blocks(60)
    world.report(world.write(blocks), POSITION)
    counted = Counted(world, monkeypatch)

    assert world.load(2505).forward(2505) == Translated(2255)
    assert counted.places == 5  # last block, newest chunk, root, a chunk, a block
    assert world.load(2505).forward(2505) == Translated(2255)
    assert counted.places == 5
    assert world.load(2505, 2525).forward(2525) == Translated(2266)  # the same block
    assert counted.places == 5
    assert world.load(4005).forward(4005) == Translated(3605)
    assert counted.places == 7
    assert counted.scans == 0


class Counted:
    """Counts what is read of the map topic."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.places = self.scans = 0
        kind = type(world.table)
        at, scan = kind.at, kind.scan

        def counted_at(table, offsets):
            self.places += len(offsets)
            return at(table, offsets)

        def counted_scan(table, visit):
            self.scans += 1
            return scan(table, visit)

        monkeypatch.setattr(kind, "at", counted_at)
        monkeypatch.setattr(kind, "scan", counted_scan)


def test_a_group_before_a_noted_loss_is_translated_and_told_what_it_will_not_find(world):
    """The range that was lost lies in a block that the group's commit does not need."""
    world.report(world.write(world.blocks(60)), POSITION)
    source_id = world.copy_id[0]
    note = PartitionNotes("0", world.partition.topic, 0, source_id)
    note = note.with_loss(3010, 3020, "too large", 0)
    state = internal_topics.replication(world.flow.source)
    world.other_site.cluster.compacted_topic(state, REPORTS).write({note.key(): note.value()})

    maps = world.look(205)

    side = (world.partition, {world.partition: UNKNOWN_LOG})
    found = translate(partition_facts({"forward": maps}, "forward", side, side, "B"), 205)
    assert (found.state, found.offset, found.refused) == ("translated", 185, 10)


def test_only_positions_are_read_where_nothing_is_wanted(world, monkeypatch):
    world.report(world.write(world.blocks(3)), POSITION)
    counted = Counted(world, monkeypatch)

    found = world.reader.load([world.partition.topic], {}).maps[world.partition]

    assert (found.position, counted.places, counted.scans) == (POSITION, 0, 0)
    assert isinstance(found.forward(6001), NotCopiedYet)
    with pytest.raises(NotLoadedError):
        found.forward(50)


def test_the_whole_map_is_read_through_its_index_too(world):
    blocks = world.blocks(30)
    world.report(world.write(blocks), Position(3000, 2700, 3000))

    found = world.reader.load([world.partition.topic]).maps[world.partition]

    assert found.runs == tuple(run for block in blocks for run in block.runs)


def test_what_a_stopped_owner_left_next_to_the_tree_is_no_part_of_the_map(world):
    blocks = world.blocks(30)
    end = world.write(blocks)
    stray = replace(blocks[3], runs=Runs.of([Run(900, 271, 5)]), owner=(7, 0))
    world.table.write({stray.key(): stray.value()})
    world.report(end, Position(3000, 2700, 3000))

    assert world.load(305).forward(305) == Translated(275)
    assert world.reader.load([world.partition.topic]).maps[world.partition].records == 30 * 19


def test_a_last_block_that_was_written_again_since_the_report_is_found_by_its_key(world, caplog):
    """Its owner was killed before it told, and the log was cleaned."""
    blocks = world.blocks(20)
    end = world.write(blocks)
    world.report(end, Position(1929, 1730, 2000))
    newer = replace(blocks[-1], runs=Runs.of([*blocks[-1].runs, Run(1950, 1740, 5)]))
    world.table.write({newer.key(): newer.value()})
    world.compact_away(end.place)

    with caplog.at_level(logging.WARNING):
        found = world.load(205, 1952)

    assert found.forward(205) == Translated(185)
    assert found.forward(1952) == Translated(1742)


def test_an_index_that_was_written_again_since_the_report_costs_reading_all_blocks(world):
    blocks = world.blocks(20)
    end = world.write(blocks)
    world.report(end, Position(2000, 1800, 2000))
    [(key, value)] = world.table.at([end.index_place]).values()
    world.table.write({key: value})
    world.compact_away(end.index_place)

    found = world.load(205)

    assert found.forward(205) == Translated(185)
    assert found.runs.records == 20 * 19


def test_a_block_that_was_written_again_is_found_by_its_key(world):
    blocks = world.blocks(20)
    end = world.write(blocks)
    world.report(end, Position(2000, 1800, 2000))
    world.table.write({blocks[2].key(): blocks[2].value()})
    world.compact_away(2)

    assert world.load(205).forward(205) == Translated(185)


def test_a_missing_last_block_refuses_what_is_in_it_and_says_what_helps(world):
    """The blocks before it know nothing of it: forward(60) was 11 instead of 70."""
    blocks = world.blocks(20)
    end = world.write(blocks)
    world.table.write({blocks[-1].key(): None})
    world.report(replace(end, place=world.end() + 1000), Position(1929, 1730, 2000))

    maps = world.look(205, 1905)

    assert "the last block, from target offset 1710 on, is missing" in maps.gaps[world.partition]
    assert "restart the replicator" in maps.gaps[world.partition]
    found = maps.maps[world.partition]
    assert found.forward(205) == Translated(185)
    assert isinstance(found.forward(1905), NotCopiedYet)
    assert found.position is None


def test_a_missing_block_refuses_only_what_is_in_it(world):
    blocks = world.blocks(20)
    end = world.write(blocks)
    world.report(end, Position(2000, 1800, 2000))
    world.table.write({blocks[2].key(): None})
    world.compact_away(2)

    maps = world.look(205, 1205)

    assert "from target offset 180 on is missing" in maps.gaps[world.partition]
    assert maps.maps[world.partition].forward(1205) == Translated(1085)
    with pytest.raises(NotLoadedError):
        maps.maps[world.partition].forward(205)


def test_an_index_of_another_time_in_its_place_is_not_taken_for_that_of_the_report(world):
    """The map topic lost its end, and what was written since stands where the report points."""
    blocks = world.blocks(20)
    chained = [replace(b, previous=blocks[n - 1].block_key) for n, b in enumerate(blocks) if n]
    end = world.write([blocks[0], *chained])
    others = [replace(b, owner=(7, 2), runs=Runs.of(b.runs[:1])) for b in blocks]
    strange = world.write(others)
    world.report(replace(end, index_place=strange.index_place), Position(2000, 1800, 2000))

    found = world.load(205, 225)

    assert found.forward(225) == Translated(196)
    assert found.forward(205) == Translated(185)
