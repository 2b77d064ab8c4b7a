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
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from srm.domain.map_records import (
    MapBlock,
    decode_block,
    decode_block_key,
    last_block,
    missing_before,
)
from srm.domain.offset_map import OffsetMap, Position, Run
from srm.domain.replication_records import PartitionPosition
from srm.domain.replication_state import PartitionId, ReplicationState
from srm.domain.reported_positions import newest_position, positions_by_copy
from srm.domain.topics import TopicPartition
from srm.engine.ports import FlowMaps
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)


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
