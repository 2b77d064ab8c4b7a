"""From the records of a flow's state topics to its offset maps: pure, no I/O.

What makes a map wrong without looking wrong, and what is done about it here:

- blocks of a topic that was deleted and created again, on either side: they carry both topic ids,
  only those of the current topics count;
- a position from before either topic was created again: it carries both topic ids, too;
- a block that cannot be read: a hole in the middle would translate to a later record, so the whole
  partition is left out and reported.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from srm.domain.map_records import MapBlock, decode_block, decode_block_key
from srm.domain.offset_map import OffsetMap, Position, Run
from srm.domain.replication_records import (
    AssignedPartition,
    Assignment,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
)
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
    for key, value in table.items():
        try:
            if key.startswith(b"assignment:"):
                assignments.append(Assignment.decode(value))
            elif key.startswith(b"slot:"):
                reports.append(SlotReport.decode(key, value))
            elif key.startswith(b"status:"):
                statuses.append(PartitionStatus.decode(value))
        except IntegrityError as error:
            _logger.warning("replication state record %r cannot be read: %s", key, error)
    return ReplicationState(tuple(assignments), tuple(reports), tuple(statuses))


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


def best_report(candidates: Iterable[PartitionPosition]) -> PartitionPosition | None:
    """Choose among the positions that several slots report for one partition.

    Under one producer id the highest epoch is the owner. Epochs of different producer ids (an id
    expires after a week without a claim, and an idle partition is not claimed at all) say nothing
    about each other: of those the one that is furthest counts, as both logs only grow.
    """
    owners: dict[int, PartitionPosition] = {}
    for candidate in candidates:
        known = owners.get(candidate.producer_id)
        if known is None or _claim_order(candidate) > _claim_order(known):
            owners[candidate.producer_id] = candidate
    if not owners:
        return None
    return max(owners.values(), key=_distance)


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
    statuses = {
        TopicPartition(status.topic, status.partition): status
        for status in state.statuses
        if status.topic in topic_ids
    }
    return FlowMaps(maps, state.reports, statuses, errors)


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
        runs: dict[PartitionId, list[Run]] = defaultdict(list)
        last: dict[PartitionId, MapBlock] = {}
        errors: dict[TopicPartition, str] = {}
        for key, value in blocks.items():
            partition_id = _owner(key)
            if partition_id is None or partition_id[0] not in names:
                continue
            block = _decoded(key, value)
            if isinstance(block, IntegrityError):
                errors[TopicPartition(names[partition_id[0]], partition_id[1])] = str(block)
            elif block.target_topic_id in target_ids:
                runs[partition_id].extend(block.runs)
                last[partition_id] = later(last.get(partition_id), block)
        closed = frozenset(found for found, block in last.items() if not block.open_end)
        return cls(runs, closed, errors)


def later(known: MapBlock | None, block: MapBlock) -> MapBlock:
    """Return the block whose last run ends further along the target: the end of the map."""
    if known is None or block.runs[-1:] > known.runs[-1:]:
        return block
    return known


def _positions(
    names: Mapping[str, str],
    target_ids: Collection[str],
    state: ReplicationState,
) -> dict[PartitionId, Position]:
    candidates: dict[PartitionId, list[PartitionPosition]] = defaultdict(list)
    for report in state.reports:
        for entry in report.positions:
            if entry.topic_id in names and entry.target_topic_id in target_ids:
                candidates[entry.topic_id, entry.partition].append(entry)
    chosen = {partition_id: best_report(found) for partition_id, found in candidates.items()}
    return {
        partition_id: entry.position for partition_id, entry in chosen.items() if entry is not None
    }


def _distance(entry: PartitionPosition) -> tuple[int, int, int]:
    position = entry.position
    return position.target_next, position.source_next, position.source_end


def _claim_order(entry: PartitionPosition) -> tuple[int, int, int]:
    return entry.producer_epoch, entry.position.target_next, entry.position.source_next


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
