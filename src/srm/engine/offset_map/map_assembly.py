"""Assembly of offset maps from the records of a flow's state topics: pure, no I/O.

Records that would silently make a map wrong, and their treatment:

- blocks of a topic that was re-created on either side: they carry both topic ids, and only those of
  the current topics count;
- a position from before either topic was re-created: it carries both topic ids, too;
- a missing or damaged block: a hole would translate to a later record, so the whole partition is
  omitted and reported;
- blocks that were truncated, or left by a stopped owner: no block of the map leads to them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType

from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.flow_state.replication_state import PartitionId, ReplicationState
from srm.domain.flow_state.reported_positions import newest_position, positions_by_copy
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_index import Entries, IndexEntry, decode_key, is_index_key
from srm.domain.offset_map.map_rebuild import MapTable, Placed, blocks_of, rebuild
from srm.domain.offset_map.map_records import decode_block
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.ports import FlowMaps
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)


def newest_topic_ids(
    topics: Collection[str],
    state: ReplicationState,
    blocks: Mapping[bytes, bytes],
    target_ids: Collection[str],
) -> dict[str, str]:
    """Return the topic id of each source topic in its last copy, for an unavailable source.

    The newest assignment has the id. A paused flow has no assignments; then the id with the highest
    offset in a current target topic is the newest, because that log only grows.
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
    for topic, topic_id, reached in _copied_topics(state, target_ids):
        if topic in topics and reached >= highest.get(topic, -1):
            ids[topic], highest[topic] = topic_id, reached
    newest = sorted(state.newest_assignments().values(), key=lambda found: found[0])
    ids.update({entry.topic: entry.topic_id for _, entry in newest if entry.topic in topics})
    return ids


def _copied_topics(
    state: ReplicationState, target_ids: Collection[str]
) -> Iterator[tuple[str, str, int]]:
    """Yield name, id and copied target offset of each topic that the driver has noted."""
    reached: dict[tuple[str, str], int] = {}
    for (topic_id, _, target_id), entries in positions_by_copy(state.reports).items():
        ends = [entry.position.target_next for entry in entries]
        reached[topic_id, target_id] = max(*ends, reached.get((topic_id, target_id), 0), 0)
    for topic in state.copied:
        if topic.target_topic_id in target_ids:
            ids = topic.topic_id, topic.target_topic_id
            yield topic.topic, topic.topic_id, reached.get(ids, -1)


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
    records: Mapping[bytes, Placed],
) -> FlowMaps:
    """Build complete maps from all records of the map topic; ``state`` is read before these."""
    copies = newest_copies(topic_ids, target_ids, state)
    maps, errors = maps_of_records(topic_ids, target_ids, copies, records)
    return flow_maps(topic_ids, state, maps, errors)


def flow_maps(
    topic_ids: Mapping[str, str],
    state: ReplicationState,
    maps: Mapping[TopicPartition, OffsetMap],
    errors: Mapping[TopicPartition, str],
    gaps: Mapping[TopicPartition, str] = MappingProxyType({}),
) -> FlowMaps:
    """Combine maps with the reports and notes of slots."""
    for partition, reason in sorted({**errors, **gaps}.items()):
        _logger.warning("offset map of %s is not usable: %s", partition, reason)
    told, noted = state.statuses_of(topic_ids), state.notes_of(topic_ids)
    return FlowMaps(maps, state.reports, told, errors, noted, gaps)


def maps_of_records(
    topic_ids: Mapping[str, str],
    target_ids: Collection[str],
    copies: Mapping[TopicPartition, PartitionPosition],
    records: Mapping[bytes, Placed],
) -> tuple[dict[TopicPartition, OffsetMap], dict[TopicPartition, str]]:
    """Build complete maps from all records, read after the positions; return errors of others."""
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    tables: dict[TopicPartition, dict[bytes, Placed]] = defaultdict(dict)
    for key, record in records.items():
        owner = owner_of(key)
        if owner is not None and owner[0] in names:
            tables[TopicPartition(names[owner[0]], owner[1])][key] = record
    maps: dict[TopicPartition, OffsetMap] = {}
    errors: dict[TopicPartition, str] = {}
    for partition in tables.keys() | copies.keys():
        own, entry = tables.get(partition, {}), copies.get(partition)
        target_id = entry.target_topic_id if entry else _newest_target(own, target_ids)
        copy_id = topic_ids[partition.topic], partition.partition, target_id
        try:
            found = _whole_map(MapTable.of(copy_id, own), entry)
        except IntegrityError as error:
            errors[partition] = str(error)
        else:
            if entry or found.records:
                maps[partition] = found
    return maps, errors


def _whole_map(table: MapTable, entry: PartitionPosition | None) -> OffsetMap:
    """Build a map as its next owner will, which excludes foreign blocks."""
    end = entry.map_end if entry else None
    found = rebuild(table, end)
    if table.reasons and (end is None or found.missing in table.damaged):
        raise IntegrityError(table.reasons[0])
    if found.missing is not None:
        raise IntegrityError(
            f"the block from target offset {found.missing.target_start} on is missing; the next "
            "claim finds it again in the logs: restart the replicator"
        )
    position = entry.position if entry else None
    blocks = blocks_of(table, found.tree)
    if not blocks:
        return OffsetMap((), position)
    loaded = {number: block.runs for number, block in enumerate(blocks)}
    open_end = blocks[-1].open_end
    entries = Entries.of(IndexEntry.of_block(block, -1) for block in blocks)
    return OffsetMap.window(entries, loaded, position, open_end=open_end)


def _newest_target(records: Mapping[bytes, Placed], target_ids: Collection[str]) -> str:
    """Return the target topic id of the newest block, for a copy without a report."""
    found = ""
    for key, record in sorted(records.items(), key=lambda item: item[1].place):
        if is_index_key(key):
            continue
        with suppress(IntegrityError):
            known = decode_block(key, record.value).target_topic_id
            found = known if known in target_ids else found
    return found


def owner_of(key: bytes) -> PartitionId | None:
    """Return the partition of a record by its key; None for records of other writers."""
    try:
        found = decode_key(key)
    except IntegrityError as error:
        # A record that srm did not write does not belong to a partition.
        _logger.warning("skipped a record of another writer in the offset map topic: %s", error)
        return None
    return found.topic_id, found.partition
