"""Reader of a flow's offset maps on its target.

Records that would silently make a map wrong, and their treatment:

- blocks and positions of a topic that was re-created on either side: they carry both topic ids, and
  only those of the current topics count;
- a missing or damaged block: a hole would translate to a later record, so the whole partition is
  omitted and reported;
- blocks that were truncated, or left by a stopped owner: no block of the map leads to them.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.flow_state.replication_state import (
    PartitionId,
    ReplicationState,
    decode_state,
    newest_position,
    positions_by_copy,
)
from srm.domain.groups.translation import Losses
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map import map_records
from srm.domain.offset_map.map_loader import (
    ALL_RUNS,
    LoadedMap,
    StaleIndexError,
    Steps,
    Wanted,
    WantedOffsets,
    load,
    unread,
)
from srm.domain.offset_map.map_tree import MapTable, Need, Placed, blocks_of, rebuild
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.cluster_ports import Cluster, CompactedTopic, Topics, tolerate
from srm.engine.flows.target_topics import StateTopic
from srm.engine.ports import FlowMaps
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)


Ids = Mapping[str, str]
"""Topic ids by source topic."""
Copies = Mapping[TopicPartition, PartitionPosition]
"""Newest positions by source partition."""
Blocks = Mapping[bytes, bytes]
Targets = Mapping[str, Collection[str]]
"""Ids of the target topics that may hold the copy, by topic id."""


def newest_topic_ids(
    topics: Collection[str], state: ReplicationState, blocks: Blocks, target_ids: Collection[str]
) -> dict[str, str]:
    """Return the topic id of each source topic in its last copy, for an unavailable source.

    The newest assignment has it. Else (a paused flow) the id with the highest offset in a current
    target topic is the newest, because that log only grows.
    """
    known = [*_topics_of_blocks(blocks, target_ids), *_copied_topics(state, target_ids)]
    in_order = sorted(known, key=lambda one: one[2])
    ids = {topic: topic_id for topic, topic_id, _ in in_order if topic in topics}
    newest = sorted(state.newest_assignments().values(), key=lambda found: found[0])
    ids.update({entry.topic: entry.topic_id for _, entry in newest if entry.topic in topics})
    return ids


_Known = Iterator[tuple[str, str, int]]
"""Names and ids of topics, and target offsets."""


def _topics_of_blocks(blocks: Blocks, target_ids: Collection[str]) -> _Known:
    """Yield name, id and target offset after the last record of the topics of blocks."""
    for key, value in blocks.items():
        with suppress(IntegrityError):
            block = None if map_records.is_index_key(key) else map_records.decode_block(key, value)
            if block is not None and len(block.runs) and block.target_topic_id in target_ids:
                yield block.topic, block.topic_id, int(block.runs.target_ends.max())


def _copied_topics(state: ReplicationState, target_ids: Collection[str]) -> _Known:
    """Yield name, id and copied target offset of each topic that the driver has noted."""
    reached: dict[tuple[str, str], int] = {}
    for (topic_id, _, target_id), entries in positions_by_copy(state.reports).items():
        ends = [entry.position.target_next for entry in entries]
        reached[topic_id, target_id] = max(*ends, reached.get((topic_id, target_id), 0), 0)
    for topic in state.copied:
        if topic.target_topic_id in target_ids:
            ids = topic.topic_id, topic.target_topic_id
            yield topic.topic, topic.topic_id, reached.get(ids, -1)


def present_targets(ids: Ids, target_ids: Collection[str], state: ReplicationState) -> Targets:
    """Return where the present copy of each topic may be: a former one may remain, renamed."""
    active = {
        pair.topic_id: (pair.target_topic_id,)
        for pair in state.copied
        if pair.active and pair.target_topic_id in target_ids
    }
    return {topic_id: active.get(topic_id, target_ids) for topic_id in ids.values()}


def newest_copies(ids: Ids, target_ids: Collection[str], state: ReplicationState) -> Copies:
    targets = present_targets(ids, target_ids, state)
    names = {topic_id: name for name, topic_id in ids.items()}
    candidates: dict[TopicPartition, list[PartitionPosition]] = defaultdict(list)
    for (topic_id, number, target_id), entries in positions_by_copy(state.reports).items():
        if topic_id in names and target_id in targets[topic_id]:
            candidates[TopicPartition(names[topic_id], number)] += entries
    chosen = {place: newest_position(entries) for place, entries in candidates.items()}
    return {place: entry for place, entry in chosen.items() if entry is not None}


def maps_of_records(
    topic_ids: Ids, targets: Targets, copies: Copies, records: Mapping[bytes, Placed]
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
        topic_id = topic_ids[partition.topic]
        target_id = entry.target_topic_id if entry else _newest_target(own, targets[topic_id])
        copy_id = topic_id, partition.partition, target_id
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
    entries = map_records.Entries.of(map_records.IndexEntry.of_block(block, -1) for block in blocks)
    return OffsetMap.window(entries, loaded, position, open_end=open_end)


def _newest_target(records: Mapping[bytes, Placed], target_ids: Collection[str]) -> str:
    """Return the target topic id of the newest block, for a copy without a report."""
    found = ""
    for key, record in sorted(records.items(), key=lambda item: item[1].place):
        if map_records.is_index_key(key):
            continue
        with suppress(IntegrityError):
            known = map_records.decode_block(key, record.value).target_topic_id
            found = known if known in target_ids else found
    return found


def owner_of(key: bytes) -> PartitionId | None:
    """Return the partition of a record by its key; None for records of other writers."""
    try:
        found = map_records.decode_key(key)
    except IntegrityError as error:
        # A record that srm did not write does not belong to a partition.
        _logger.warning("skipped a record of another writer in the offset map topic: %s", error)
        return None
    return found.topic_id, found.partition


_KEPT_MAPS: Final = 4096
_KEPT_BYTES: Final = 32 << 20
_ROW_BYTES: Final = 300  # overhead of Python per row
_Row = tuple[bytes, bytes]
_Waiting = dict[TopicPartition, tuple[Steps, list[Need]]]
"""Loads under way, and the records that each needs next."""


class KafkaMapReader:
    """Loads offset maps over any Cluster, with a cache: keep one instance, for one thread."""

    def __init__(self, cluster_with_records: Cluster, source_cluster: Cluster, flow: Flow) -> None:
        self._target = cluster_with_records
        self._source = source_cluster
        self._flow = flow
        self._source_retry_at = 0.0
        self._topic = internal_topics.offset_map(flow.source)
        self._topic_id = ""
        self._reset()

    def load(self, topics: Collection[str], wanted: WantedOffsets | None = None) -> FlowMaps:
        """Load the maps of the given source topics, by the current topics on both sides."""
        names = frozenset(topics)
        source = self._source_topics()
        on_target = self._target.topics()
        target_ids = {found.topic_id for found in on_target.values()}
        map_topic = on_target.get(self._topic)
        if map_topic is None or map_topic.topic_id != self._topic_id:
            self._topic_id = map_topic.topic_id if map_topic else ""
            self._reset()
        # The state is read first, so a position never names runs that the blocks do not have yet.
        state = self._state()
        if source is None:
            ids = self._last_ids(names, state, target_ids)
        else:
            ids = {name: source[name].topic_id for name in names if name in source}
        look = _Look(source, names, wanted, _bounds_of_losses(ids, state))
        copies = newest_copies(ids, target_ids, state)
        look.choose_unreported(copies)
        stale = self._look(look, copies, search=False)
        if stale:
            # Probably rewritten since that report, and the log was cleaned: read again.
            state = self._state()
            copies = newest_copies(ids, target_ids, state)
            look.whole |= stale - copies.keys()
            self._look(look, {p: copies[p] for p in stale if p in copies}, search=True)
        maps, errors = maps_of_records(
            ids,
            present_targets(ids, target_ids, state),
            {p: copies[p] for p in look.whole if p in copies},
            self._records(look, ids),
        )
        unusable = look.errors | errors
        for partition, reason in sorted({**unusable, **look.gaps}.items()):
            _logger.warning("offset map of %s is not usable: %s", partition, reason)
        statuses, noted = state.statuses_of(ids), state.notes_of(ids)
        return FlowMaps(look.maps | maps, state.reports, statuses, unusable, noted, look.gaps)

    def _state(self) -> ReplicationState:
        return decode_state(StateTopic(self._target, self._flow.source).read())

    def _source_topics(self) -> Topics | None:
        """Describe the source's topics, None while it is down; retries take long and are rare."""
        if time.monotonic() < self._source_retry_at:
            return None
        found = tolerate(self._source.topics, f"reading maps of {self._flow} without the source")
        if found is None:
            self._source_retry_at = time.monotonic() + 30.0
        return found

    def _last_ids(
        self, names: frozenset[str], state: ReplicationState, target_ids: Collection[str]
    ) -> dict[str, str]:
        blocks: dict[bytes, bytes] = {}
        known = {entry.topic for _, entry in state.newest_assignments().values()}
        if names - known - {topic.topic for topic in state.copied}:
            # Only blocks name a topic without an assignment.
            for number in range(map_records.MAP_PARTITIONS):
                found = self._places.records(number, lambda key: owner_of(key) is not None)
                blocks |= {key: record.value for key, record in found.items()}
        return newest_topic_ids(names, state, blocks, target_ids)

    def _reset(self) -> None:
        self._places = MapPlaces(lambda number: self._target.compacted_topic(self._topic, number))
        self._kept: dict[TopicPartition, _Kept] = {}

    # ----- by places

    def _look(self, look: _Look, copies: Copies, *, search: bool) -> set[TopicPartition]:
        """Load maps by the newest reports; return those with stale places, or search them."""
        waiting: _Waiting = {}
        for partition, entry in look.choose(copies):
            kept = self._kept.get(partition)
            wanted = look.wanted_of(partition)
            if kept is not None and kept.answers(entry, wanted):
                look.take(partition, kept.found)
            elif entry.map_end is not None:
                steps = load(entry.copy_id, entry.map_end, entry.position, wanted)
                waiting[partition] = steps, next(steps)
        stale: set[TopicPartition] = set()
        while waiting:
            answers = self._answers(waiting, search=search)
            going, waiting = waiting, {}
            for partition, (steps, needs) in going.items():
                if not search and not answers.keys() >= set(needs):
                    stale.add(partition)
                    continue
                try:
                    waiting[partition] = steps, steps.send({n: answers.get(n) for n in needs})
                except StopIteration as end:
                    look.take(partition, end.value)
                    wanted = look.wanted_of(partition)
                    self._keep(partition, _Kept(copies[partition], wanted, end.value))
                except StaleIndexError:
                    look.whole.add(partition)
                except IntegrityError as error:
                    look.errors[partition] = str(error)
        return stale

    def _answers(self, waiting: _Waiting, *, search: bool) -> dict[Need, _Row]:
        """Read the next records of all maps, with one read per partition of the map topic."""
        needs: dict[int, list[Need]] = defaultdict(list)
        for partition, (_, wanted) in waiting.items():
            needs[map_records.map_partition(*partition)] += wanted
        found: dict[Need, _Row] = {}
        for number, wanted in needs.items():
            found |= self._places.read(number, wanted)
            missing = [need for need in wanted if need not in found]
            if missing and search:
                found |= self._places.search(number, missing)
        return found

    def _keep(self, partition: TopicPartition, kept: _Kept) -> None:
        if kept.found.gap or kept.wanted.source_ranges:
            return
        self._kept.pop(partition, None)
        self._kept[partition] = kept
        if len(self._kept) > _KEPT_MAPS:
            del self._kept[next(iter(self._kept))]

    # ----- by reading everything

    def _records(self, look: _Look, ids: Ids) -> dict[bytes, Placed]:
        """Read all records of partitions whose reports do not lead to the wanted blocks."""
        names = {topic_id: name for name, topic_id in ids.items()}

        def chosen(key: bytes) -> bool:
            owner = owner_of(key)
            if owner is None or owner[0] not in names:
                return False
            return look.is_whole(TopicPartition(names[owner[0]], owner[1]))

        records: dict[bytes, Placed] = {}
        for number in sorted(look.map_partitions()):
            records |= self._places.records(number, chosen)
        return records


def _bounds_of_losses(ids: Ids, state: ReplicationState) -> WantedOffsets:
    noted = state.notes_of(ids)
    losses = {p: Losses.of(noted.get(p, ()), last) for p, last in state.statuses_of(ids).items()}
    return {
        place: Wanted.of(offset for bounds in (*lost.ranges, *lost.discarded) for offset in bounds)
        for place, lost in losses.items()
    }


@dataclass(frozen=True)
class _Kept:
    """A loaded map, and its input."""

    entry: PartitionPosition
    wanted: Wanted
    found: LoadedMap

    def answers(self, entry: PartitionPosition, wanted: Wanted) -> bool:
        """Return whether another load would return the same map."""
        known = self.entry
        is_same = (entry.copy_id, entry.map_end) == (known.copy_id, known.map_end)
        return is_same and entry.position == known.position and self.wanted.covers(wanted)


@dataclass
class _Look:
    """State of one call; ``whole`` maps are read with all blocks, ``losses`` bound noted losses."""

    source: Topics | None
    names: Collection[str]
    wanted: WantedOffsets | None
    losses: WantedOffsets
    maps: dict[TopicPartition, OffsetMap] = field(default_factory=dict)
    errors: dict[TopicPartition, str] = field(default_factory=dict)
    gaps: dict[TopicPartition, str] = field(default_factory=dict)
    whole: set[TopicPartition] = field(default_factory=set)

    def wanted_of(self, partition: TopicPartition) -> Wanted:
        if self.wanted is None:
            return ALL_RUNS
        return self.wanted[partition] | self.losses.get(partition, Wanted())

    def choose(self, copies: Copies) -> Iterator[tuple[TopicPartition, PartitionPosition]]:
        """Yield the partitions whose reports lead to their maps; settle the others."""
        for partition, entry in copies.items():
            if self.wanted is not None and partition not in self.wanted:
                self.maps[partition] = unread(entry.position)
            elif entry.position.target_next == 0:
                self.maps[partition] = OffsetMap((), entry.position)  # nothing was ever copied
            elif entry.map_end is None or entry.map_end.place < 0:
                self.whole.add(partition)
            else:
                yield partition, entry

    def choose_unreported(self, copies: Collection[TopicPartition]) -> None:
        if self.source is None:
            places = {p for p in self.wanted or () if p.topic in self.names}
        else:
            places = {
                TopicPartition(name, number)
                for name in self.names
                if name in self.source
                for number in range(self.source[name].partitions)
            }
        unreported = places - set(copies)
        self.whole |= unreported if self.wanted is None else unreported & self.wanted.keys()

    def take(self, partition: TopicPartition, found: LoadedMap) -> None:
        self.maps[partition] = found.offset_map
        if found.gap:
            self.gaps[partition] = found.gap

    def is_whole(self, partition: TopicPartition) -> bool:
        """Return whether to read all blocks of a partition, as without the source."""
        known = self.maps.keys() | self.errors.keys()
        named = self.wanted is None or partition in self.wanted
        return partition in self.whole or (self.source is None and named and partition not in known)

    def map_partitions(self) -> set[int]:
        if self.source is None and self.wanted is None:
            return set(range(map_records.MAP_PARTITIONS))
        return {map_records.map_partition(*partition) for partition in self.whole}


class MapPlaces:
    """Reads and caches needed records of a map topic, which never change at a place."""

    def __init__(self, partition: Callable[[int], CompactedTopic]) -> None:
        self._partition = partition
        self._size = 0
        self._rows: OrderedDict[tuple[int, Need], _Row] = OrderedDict()

    def read(self, number: int, needs: Collection[Need]) -> dict[Need, _Row]:
        """Return the needed records of a partition; records that are not in place are omitted."""
        found: dict[Need, _Row] = {}
        for need in needs:
            row = self._rows.get((number, need))
            if row is not None:
                self._rows.move_to_end((number, need))
                found[need] = row
        places = {need.place for need in needs if need not in found}
        if not places:
            return found
        rows = self._partition(number).at(places)
        for need in needs:
            if need not in found and (row := need.answer(rows)) is not None:
                found[need] = row
                self._keep((number, need), row)
        return found

    def search(self, number: int, needs: Collection[Need]) -> dict[Need, _Row]:
        """Return records with stale places by their keys; the whole partition is read."""
        wanted = {need.prefix: need for need in needs}
        latest: dict[bytes, bytes | None] = {}

        def visit(_place: int, key: bytes, value: bytes | None) -> None:
            if key in wanted:
                latest[key] = value

        self._partition(number).scan(visit)
        return {wanted[key]: (key, value) for key, value in latest.items() if value is not None}

    def records(self, number: int, chosen: Callable[[bytes], bool]) -> dict[bytes, Placed]:
        newest: dict[bytes, Placed] = {}

        def visit(place: int, key: bytes, value: bytes | None) -> None:
            if value is None:
                newest.pop(key, None)
            elif chosen(key):
                newest[key] = Placed(place, value)

        self._partition(number).scan(visit)
        return newest

    def _keep(self, place: tuple[int, Need], row: _Row) -> None:
        self._rows[place] = row
        self._size += len(row[0]) + len(row[1]) + _ROW_BYTES
        while self._size > _KEPT_BYTES:
            _, (key, value) = self._rows.popitem(last=False)
            self._size -= len(key) + len(value) + _ROW_BYTES
