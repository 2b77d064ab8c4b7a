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
from types import MappingProxyType

from srm.domain.map_index import is_index_key
from srm.domain.map_records import (
    MapBlock,
    decode_block,
    decode_block_key,
    last_block,
    missing_before,
)
from srm.domain.offset_map import OffsetMap, Runs
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
        if is_index_key(key):
            continue
        try:
            block = decode_block(key, value)
        except IntegrityError:
            continue
        if (
            block.topic not in topics
            or block.target_topic_id not in target_ids
            or not len(block.runs)
        ):
            continue
        reached = int(block.runs.target_ends.max())
        if reached > highest.get(block.topic, -1):
            ids[block.topic], highest[block.topic] = block.topic_id, reached
    newest = sorted(state.assigned().values(), key=lambda found: found[0])
    ids.update({entry.topic: entry.topic_id for _, entry in newest if entry.topic in topics})
    return ids


def newest_copies(
    topic_ids: Mapping[str, str], target_ids: Collection[str], state: ReplicationState
) -> dict[TopicPartition, PartitionPosition]:
    """Return the newest position of each partition of the topics with these ids."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    candidates: dict[TopicPartition, list[PartitionPosition]] = defaultdict(list)
    for (topic_id, number, target_id), entries in positions_by_copy(state.reports).items():
        if topic_id in names and target_id in target_ids:
            candidates[TopicPartition(names[topic_id], number)] += entries
    chosen = {place: newest_position(entries) for place, entries in candidates.items()}
    return {place: entry for place, entry in chosen.items() if entry is not None}


def assemble(
    topic_ids: Mapping[str, str],
    target_ids: Collection[str],
    state: ReplicationState,
    blocks: Mapping[bytes, bytes],
) -> FlowMaps:
    """Build the whole maps of the given source topics from all blocks.

    Args:
        topic_ids: id of each source topic by its name.
        target_ids: ids of all topics that exist on the target.
        state: what the slots and the driver reported, read before the blocks.
        blocks: records of the offset map topic.
    """
    copies = newest_copies(topic_ids, target_ids, state)
    maps, errors = maps_of_blocks(topic_ids, target_ids, copies, blocks)
    return flow_maps(topic_ids, state, maps, errors)


def flow_maps(
    topic_ids: Mapping[str, str],
    state: ReplicationState,
    maps: Mapping[TopicPartition, OffsetMap],
    errors: Mapping[TopicPartition, str],
    gaps: Mapping[TopicPartition, str] = MappingProxyType({}),
) -> FlowMaps:
    """Put maps together with what the slots have reported and noted."""
    for partition, reason in sorted({**errors, **gaps}.items()):
        _logger.warning("the offset map of %s is not usable: %s", partition, reason)
    told, noted = state.told(topic_ids), state.noted(topic_ids)
    return FlowMaps(maps, state.reports, told, errors, noted, gaps)


def maps_of_blocks(
    topic_ids: Mapping[str, str],
    target_ids: Collection[str],
    copies: Mapping[TopicPartition, PartitionPosition],
    blocks: Mapping[bytes, bytes],
) -> tuple[dict[TopicPartition, OffsetMap], dict[TopicPartition, str]]:
    """Build whole maps from all their blocks; return them, and why others cannot be built.

    Args:
        topic_ids: id of each source topic by its name.
        target_ids: ids of all topics that exist on the target.
        copies: the newest positions, read before the blocks.
        blocks: records of the offset map topic.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    collected = _Blocks.collect(names, target_ids, blocks)
    maps: dict[TopicPartition, OffsetMap] = {}
    errors = dict(collected.errors)
    for partition in (collected.runs.keys() | copies.keys()) - errors.keys():
        entry = copies.get(partition)
        try:
            maps[partition] = OffsetMap.of(
                collected.runs.get(partition, Runs()),
                entry.position if entry else None,
                open_end=partition not in collected.closed,
            )
        except IntegrityError as error:
            errors[partition] = str(error)
    return maps, errors


@dataclass(frozen=True)
class _Blocks:
    """Runs into the current target topics."""

    runs: Mapping[TopicPartition, Runs]
    closed: frozenset[TopicPartition]
    errors: Mapping[TopicPartition, str]

    @classmethod
    def collect(
        cls, names: Mapping[str, str], target_ids: Collection[str], blocks: Mapping[bytes, bytes]
    ) -> _Blocks:
        found: dict[TopicPartition, list[MapBlock]] = defaultdict(list)
        errors: dict[TopicPartition, str] = {}
        for key, value in blocks.items():
            owner = owner_of(key)
            if owner is None or owner[0] not in names:
                continue
            partition = TopicPartition(names[owner[0]], owner[1])
            block = _decoded(key, value)
            if isinstance(block, IntegrityError):
                errors[partition] = str(block)
            elif block.target_topic_id in target_ids:
                found[partition].append(block)
        closed: set[TopicPartition] = set()
        for partition, known in found.items():
            last = last_block(known)
            if not last.open_end:
                closed.add(partition)
            missing = missing_before(last, known)
            if missing is not None:
                errors[partition] = (
                    f"the block from target offset {missing.target_start} on is missing; it is "
                    "found again in the logs when the partition is claimed: restart the replicator"
                )
        runs = {
            partition: Runs.concatenate([block.runs for block in known])
            for partition, known in found.items()
        }
        return cls(runs, frozenset(closed), errors)


def owner_of(key: bytes) -> PartitionId | None:
    """Return the partition that a block is of, from its key; None for other records."""
    if is_index_key(key):
        return None
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
