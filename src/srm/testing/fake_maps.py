"""Offset maps as a test states them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from srm.domain.offset_map import OffsetMap, Position, Run
from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import PartitionStatus, SlotReport
from srm.domain.topics import TopicPartition
from srm.engine.ports import FlowMaps


class FakeMapReader:
    """Holds the maps of one flow (implements the engine's MapReader)."""

    def __init__(self, maps: Mapping[TopicPartition, OffsetMap] | None = None) -> None:
        self.maps: dict[TopicPartition, OffsetMap] = dict(maps or {})
        self.errors: dict[TopicPartition, str] = {}
        self.reports: tuple[SlotReport, ...] = ()
        self.statuses: dict[TopicPartition, PartitionStatus] = {}
        self.notes: dict[TopicPartition, tuple[PartitionNotes, ...]] = {}

    def put(
        self, partition: TopicPartition, runs: Iterable[Run], position: Position | None = None
    ) -> None:
        """Replace the map of one source partition.

        Raises:
            IntegrityError: the runs contradict each other.
        """
        self.maps[partition] = OffsetMap.of(runs, position)

    def load(self, topics: Collection[str]) -> FlowMaps:
        """Return what the test stated about the given source topics."""
        return FlowMaps(
            {p: offset_map for p, offset_map in self.maps.items() if p.topic in topics},
            self.reports,
            {p: status for p, status in self.statuses.items() if p.topic in topics},
            {p: reason for p, reason in self.errors.items() if p.topic in topics},
            {p: notes for p, notes in self.notes.items() if p.topic in topics},
        )
