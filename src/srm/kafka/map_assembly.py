"""From the records of a flow's state topics to its offset maps: pure, no I/O.

What makes a map wrong without looking wrong, and what is done about it here:

- blocks of a topic that was deleted and created again, on either side: they carry both topic ids,
  only those of the current topics count;
- a position from before either topic was created again: it carries both topic ids, too;
- a block that is missing or cannot be read: a hole in the middle would translate to a later record,
  so the whole partition is left out and reported.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from srm.domain.map_records import MapBlock, decode_block, decode_block_key, missing_before
from srm.domain.offset_map import OffsetMap, Position, Run
from srm.domain.partition_notes import KEY_PREFIX, PartitionNotes, with_notes
from srm.domain.replication_records import (
    AssignedPartition,
    Assignment,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
from srm.domain.reported_positions import newest_position, positions_by_copy
from srm.domain.topics import TopicPartition
from srm.engine.ports import FlowMaps
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)

PartitionId = tuple[str, int]
"""Source topic id and partition number."""


@dataclass(frozen=True)
class ReplicationState:
    """The records of the topic ``srm-replication.<SOURCE>.internal``, decoded."""

    assignments: tuple[Assignment, ...] = ()
    reports: tuple[SlotReport, ...] = ()
    statuses: tuple[PartitionStatus, ...] = ()
    notes: tuple[PartitionNotes, ...] = ()

    def told(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, PartitionStatus]:
        """Return the statuses of the partitions of some topics, with what slots have noted.

        Args:
            topic_ids: current id of each topic by its name: notes about a former one are left out.
        """
        found = {
            TopicPartition(status.topic, status.partition): status
            for status in self.statuses
            if status.topic in topic_ids
        }
        noted = self.noted(topic_ids)
        told = {place: with_notes(found.get(place), noted[place]) for place in noted}
        return found | {place: status for place, status in told.items() if status is not None}

    def noted(
        self, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[PartitionNotes, ...]]:
        """Return what slots have noted of the partitions of the topics with these ids."""
        noted = defaultdict[TopicPartition, tuple[PartitionNotes, ...]](tuple)
        for entry in self.notes:
            if topic_ids.get(entry.topic) == entry.topic_id:
                noted[TopicPartition(entry.topic, entry.partition)] += (entry,)
        return dict(noted)

    def assigned(self) -> dict[PartitionId, tuple[int, AssignedPartition]]:
        """Return the newest assignment of each partition, with its generation."""
        newest: dict[PartitionId, tuple[int, AssignedPartition]] = {}
        for assignment in sorted(self.assignments, key=lambda a: a.generation):
            for entry in assignment.partitions:
                newest[entry.topic_id, entry.partition] = (assignment.generation, entry)
        return newest


def decode_state(table: Mapping[bytes, bytes]) -> ReplicationState:
    """Decode what can be decoded; the rest is logged and left out.

    Without a report the copy seems to be less far than it is. That delays, it does not mislead.
    """
    assignments: list[Assignment] = []
    reports: list[SlotReport] = []
    statuses: list[PartitionStatus] = []
    notes: list[PartitionNotes] = []
    for key, value in table.items():
        try:
            if key.startswith(b"assignment:"):
                assignments.append(Assignment.decode(value))
            elif key.startswith(b"slot:"):
                reports.append(SlotReport.decode(key, value))
            elif key.startswith(b"status:"):
                statuses.append(PartitionStatus.decode(value))
            elif key.startswith(KEY_PREFIX):
                notes.append(PartitionNotes.decode(value))
        except IntegrityError as error:
            _logger.warning("replication state record %r cannot be read: %s", key, error)
    return ReplicationState(tuple(assignments), tuple(reports), tuple(statuses), tuple(notes))


def newest_topic_ids(
    topics: Collection[str],
    state: ReplicationState,
    blocks: Mapping[bytes, bytes],
    target_ids: Collection[str],
) -> dict[str, str]:
    """Return the id under which each source topic was last copied.

    For when the source does not answer. The newest assignment knows; else, of the ids that were
    copied into a current target topic, the one with the highest target offset is the newest,
    because that log only grows.
    """
    ids: dict[str, str] = {}
    highest: dict[str, int] = {}
    for key, value in blocks.items():
        try:
            block = decode_block(key, value)
        except IntegrityError:
            continue
        if block.topic not in topics or block.target_topic_id not in target_ids or not block.runs:
            continue
        reached = block.runs[-1].target_end
        if reached > highest.get(block.topic, -1):
            ids[block.topic], highest[block.topic] = block.topic_id, reached
    newest = sorted(state.assigned().values(), key=lambda found: found[0])
    ids.update({entry.topic: entry.topic_id for _, entry in newest if entry.topic in topics})
    return ids


def assemble(
    topic_ids: Mapping[str, str],
    target_ids: Collection[str],
    state: ReplicationState,
    blocks: Mapping[bytes, bytes],
) -> FlowMaps:
    """Build the maps of the given source topics.

    Args:
        topic_ids: id of each source topic by its name.
        target_ids: ids of all topics that exist on the target.
        state: what the slots and the driver reported, read before the blocks.
        blocks: records of the offset map topic.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    collected = _Blocks.collect(names, target_ids, blocks)
    positions = _positions(names, target_ids, state)
    maps: dict[TopicPartition, OffsetMap] = {}
    errors = dict(collected.errors)
    for partition_id in collected.runs.keys() | positions.keys():
        partition = TopicPartition(names[partition_id[0]], partition_id[1])
        if partition in errors:
            continue
        try:
            maps[partition] = OffsetMap.of(
                collected.runs.get(partition_id, ()),
                positions.get(partition_id),
                open_end=partition_id not in collected.closed,
            )
        except IntegrityError as error:
            errors[partition] = str(error)
    for partition, reason in sorted(errors.items()):
        _logger.warning("the offset map of %s is not usable: %s", partition, reason)
    told, noted = state.told(topic_ids), state.noted(topic_ids)
    return FlowMaps(maps, state.reports, told, errors, noted)


@dataclass(frozen=True)
class _Blocks:
    """Runs into the current target topics."""

    runs: Mapping[PartitionId, list[Run]]
    closed: frozenset[PartitionId]
    errors: Mapping[TopicPartition, str]

    @classmethod
    def collect(
        cls, names: Mapping[str, str], target_ids: Collection[str], blocks: Mapping[bytes, bytes]
    ) -> _Blocks:
        found: dict[PartitionId, list[MapBlock]] = defaultdict(list)
        errors: dict[TopicPartition, str] = {}
        for key, value in blocks.items():
            partition_id = _owner(key)
            if partition_id is None or partition_id[0] not in names:
                continue
            block = _decoded(key, value)
            if isinstance(block, IntegrityError):
                errors[TopicPartition(names[partition_id[0]], partition_id[1])] = str(block)
            elif block.target_topic_id in target_ids:
                found[partition_id].append(block)
        closed: set[PartitionId] = set()
        for partition_id, known in found.items():
            last = last_block(known)
            if not last.open_end:
                closed.add(partition_id)
            missing = missing_before(last, known)
            if missing is not None:
                errors[TopicPartition(names[partition_id[0]], partition_id[1])] = (
                    f"the block from target offset {missing.target_start} on is missing; it is "
                    "found again in the logs when the partition is claimed: restart the replicator"
                )
        runs = {
            place: [run for block in known for run in block.runs] for place, known in found.items()
        }
        return cls(runs, frozenset(closed), errors)


def last_block(blocks: Iterable[MapBlock]) -> MapBlock:
    """Return the block that reaches furthest along the target, of the latest claim among equals."""
    return max(blocks, key=lambda block: (block.runs[-1].target_end, block.owner))


def _positions(
    names: Mapping[str, str],
    target_ids: Collection[str],
    state: ReplicationState,
) -> dict[PartitionId, Position]:
    candidates: dict[PartitionId, list[PartitionPosition]] = defaultdict(list)
    for (topic_id, number, target_id), entries in positions_by_copy(state.reports).items():
        if topic_id in names and target_id in target_ids:
            candidates[topic_id, number] += entries
    chosen = {place: newest_position(entries) for place, entries in candidates.items()}
    return {place: entry.position for place, entry in chosen.items() if entry is not None}


def _owner(key: bytes) -> PartitionId | None:
    try:
        found = decode_block_key(key)
    except IntegrityError as error:
        # A record that srm did not write says nothing about any partition.
        _logger.warning("record in the offset map topic is not srm's: %s", error)
        return None
    return found.topic_id, found.partition


def _decoded(key: bytes, value: bytes) -> MapBlock | IntegrityError:
    try:
        return decode_block(key, value)
    except IntegrityError as error:
        return error
