"""A map topic, reports, and processes that write a map and may be killed at any record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from tests.slot_reports import records_of

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    AssignedPartition,
    PartitionPosition,
    SlotReport,
)
from srm.domain.flow_state.replication_state import newest_position, positions_by_copy
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.offset_map.map_loader import carry_out, reach
from srm.domain.offset_map.map_records import (
    MAP_PARTITIONS,
    BlockKey,
    Entries,
    IndexEntry,
    MapBlock,
    MapEnd,
    decode_block,
    is_index_key,
    map_partition,
)
from srm.domain.offset_map.map_tree import NO_ENTRIES, MapTree, Rows, chunk_at, entry_block
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowMaps
from srm.errors import IntegrityError
from srm.replication.mapping.map_writer import MapWriter
from srm.replication.mapping.starts import Start, known_maps, start_of
from srm_lab.testing.fake_cluster import FakeCluster

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")


class KilledError(Exception):
    """The process was killed."""


@dataclass
class World:
    """What Kafka holds: the records of the map topic by their places, and the newest report."""

    records: dict[int, tuple[bytes, bytes | None]] = field(default_factory=dict)
    end: int = 0
    report: tuple[Position, MapEnd | None] | None = None
    pairs: list[tuple[int, int]] = field(default_factory=list)
    lives: int = 10**9
    appended: int = 0

    def append(self, records: Iterable[tuple[bytes, bytes | None]]) -> dict[bytes, int]:
        """Acknowledge records one by one, until the process is killed."""
        places = {}
        for key, value in records:
            self._live()
            self.records[self.end] = key, value
            places[key] = self.end
            self.end += 1
        return places

    def tell(self, position: Position, end: MapEnd | None) -> None:
        self._live()
        self.report = position, end

    def _live(self) -> None:
        self.appended += 1
        if self.appended > self.lives:
            raise KilledError

    def compact(self) -> None:
        """Let the log cleaner keep the newest record of each key, and no tombstones."""
        newest = {key: place for place, (key, _) in self.records.items()}
        self.records = {
            place: (key, value)
            for place, (key, value) in self.records.items()
            if newest[key] == place and value is not None
        }

    def at(self, offsets: Collection[int]) -> Rows:
        """Read places, as a start does."""
        return self.rows(offsets)

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Read everything, as a start does."""
        for place, (key, value) in sorted(self.records.items()):
            visit(place, key, value)

    def rows(self, places: Iterable[int]) -> Rows:
        return {place: self.records[place] for place in places if place in self.records}

    def tree(self) -> MapTree:
        """Follow the newest report."""
        if self.report is None or self.report[1] is None:
            return MapTree()
        reading = reach(ASSIGNED.copy_id, self.report[1])
        found = carry_out({None: reading}, self.rows)[None]
        if isinstance(found, IntegrityError):
            raise found
        return found

    def read(self) -> OffsetMap:
        """Read the whole map that the newest report reaches."""
        tree = self.tree()
        blocks = self.blocks(tree)
        chunks = [*self.chunks(tree).values(), *([tree.chunk] if tree.chunk else [])]
        last = [IndexEntry.of_block(tree.last, tree.last_place)] if tree.last else []
        parts = (chunk.entries.slice(chunk.deleted) for chunk in chunks)
        entries = sum((*parts, Entries.of(last)), NO_ENTRIES)
        position = self.report[0] if self.report else None
        loaded = {number: block.runs for number, block in enumerate(blocks)}
        return OffsetMap.window(
            entries, loaded, position, open_end=bool(blocks) and blocks[-1].open_end
        )

    def load(self) -> FlowMaps:
        """Load the map as the control plane does, from records of a cluster."""
        target, source = FakeCluster("B"), FakeCluster("P")
        target.add_topic(ASSIGNED.target_topic, topic_id=ASSIGNED.target_topic_id)
        source.add_topic(ASSIGNED.topic, topic_id=ASSIGNED.topic_id)
        map_topic, state_topic = internal_topics.offset_map("P"), internal_topics.replication("P")
        number = map_partition(ASSIGNED.topic, ASSIGNED.partition)
        target.add_topic(map_topic, MAP_PARTITIONS)
        target.add_topic(state_topic, STATE_PARTITIONS)
        table, end = target.compacted_topic(map_topic, number), 0
        for place, (key, value) in sorted(self.records.items()):
            target.produce(map_topic, number, place - end)
            table.write({key: value})
            end = place + 1
        if self.report is not None:
            position, map_end = self.report
            entry = PartitionPosition(*ASSIGNED.copy_id, position, 7, 0, map_end=map_end)
            records = records_of(SlotReport("0", 1, 1000, (entry,)))
            target.compacted_topic(state_topic, REPORTS).write(records)
        return KafkaMapReader(target, source, Flow("P", "B")).load([ASSIGNED.topic])

    def chunks(self, tree: MapTree) -> dict:  # type: ignore[type-arg]
        root = tree.root
        if root is None:
            return {}
        return {
            n: chunk_at(root, n, self.rows([root.entries[n].place]))
            for n in range(len(root.entries))
        }

    def blocks(self, tree: MapTree) -> list[MapBlock]:
        found = []
        for chunk in [*self.chunks(tree).values(), *([tree.chunk] if tree.chunk else [])]:
            places = chunk.entries.place.tolist()
            found += [
                entry_block(chunk, n, self.rows([places[n]]))
                for n in range(chunk.deleted, len(places))
            ]
        return [*found, *([tree.last] if tree.last else [])]

    def live_blocks(self) -> list[MapBlock]:
        """Return all blocks of the topic, whatever the report reaches."""
        newest = dict(self.records.values())
        return [
            decode_block(key, value)
            for key, value in newest.items()
            if value is not None and not is_index_key(key)
        ]


def write_out(world: World, writer: MapWriter, position: Position) -> None:
    """Do what a reporter does each second."""
    index = writer.index
    index.take(writer.changed_blocks(position), writer.replaced_blocks())
    while due := index.due():
        index.written(world.append(due))
    world.tell(position, index.end)
    index.on_report()


def runs_of(pairs: list[tuple[int, int]]) -> list[Run]:
    """Join records to runs."""
    runs: list[Run] = []
    for source, target in pairs:
        last = runs[-1] if runs else None
        if last and (last.source_end, last.target_end) == (source, target):
            runs[-1] = Run(last.source_start, last.target_start, last.count + 1)
        else:
            runs.append(Run(source, target, 1))
    return runs


def starts(
    partitions: Sequence[AssignedPartition],
    blocks: Sequence[MapBlock],
    reports: Sequence[SlotReport],
    damaged: Sequence[BlockKey] = (),
) -> dict[AssignedPartition, Start]:
    """Find starts from all that the topic holds; no report names a place."""
    world = World()
    world.append([(key.encode(), b"damaged") for key in damaged])
    world.append([(block.key(), block.value()) for block in blocks])
    reported = positions_by_copy(reports)
    wanted = {}
    for assigned in partitions:
        newest = newest_position(reported.get(assigned.copy_id, ()))
        wanted[assigned] = newest.map_end if newest else None
    found = {}
    for assigned, known in known_maps(wanted, world).items():
        own = reported.get(assigned.copy_id, ())
        former = [
            entry
            for copy_id, entries in reported.items()
            if copy_id[1:] == assigned.copy_id[1:] and copy_id != assigned.copy_id
            for entry in entries
        ]
        start = start_of(known, own, former)
        if start is not None:
            found[assigned] = start
    return found
