"""Offset maps as a test states them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import PartitionStatus, SlotReport
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_index import Entries, IndexEntry, IndexKey, IndexKind, IndexRecord
from srm.domain.offset_map.map_loader import Answers, Wanted, WantedOffsets, load, unread
from srm.domain.offset_map.map_records import MapBlock, MapEnd, topic_id_text
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
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

    def load(self, topics: Collection[str], wanted: WantedOffsets | None = None) -> FlowMaps:
        """Return what the test stated about the given source topics, as little as was requested.

        With offsets, a map is a window around them: a caller that forgot one gets an error.
        """
        return FlowMaps(
            {
                p: known if wanted is None else _window(known, wanted.get(p))
                for p, known in self.maps.items()
                if p.topic in topics
            },
            self.reports,
            {p: status for p, status in self.statuses.items() if p.topic in topics},
            {p: reason for p, reason in self.errors.items() if p.topic in topics},
            {p: notes for p, notes in self.notes.items() if p.topic in topics},
        )


_ID: Final = topic_id_text(bytes(16))
_COPY: Final = (_ID, 0, _ID)
_RUNS_PER_BLOCK: Final = 2


def _window(known: OffsetMap, wanted: Wanted | None) -> OffsetMap:
    """Return a map around what is wanted, as if it had been written in the smallest of blocks."""
    if wanted is None:
        return OffsetMap() if known.position is None else unread(known.position)
    runs = known.runs
    blocks = [
        MapBlock("", *_COPY, (), runs[at : at + _RUNS_PER_BLOCK], open_end=False, owner=(0, at))
        for at in range(0, len(runs), _RUNS_PER_BLOCK)
    ]
    if not blocks:
        return known
    rows = [(block.key(), block.value()) for block in blocks]
    entries = Entries.of(IndexEntry.of_block(block, at) for at, block in enumerate(blocks[:-1]))
    chunk = IndexRecord(IndexKey(IndexKind.CHUNK, *_COPY, (0, 0)), entries)
    rows.append((chunk.key.encode(), chunk.value()))
    end = MapEnd(blocks[-1].block_key.target_start, blocks[-1].owner, len(blocks) - 1, len(blocks))
    steps = load(_COPY, end, known.position, wanted)
    needs = next(steps)
    try:
        while True:
            answers: Answers = {need: rows[need.place] for need in needs}
            needs = steps.send(answers)
    except StopIteration as stop:
        found: OffsetMap = stop.value.offset_map
        return found
