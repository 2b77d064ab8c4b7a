"""Reads the ends of offset maps from one partition of the map topic, by the newest reports."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.map_index import IndexRecord, decode_key
from srm.domain.offset_map.map_loader import Wanted, carry_out, load_from
from srm.domain.offset_map.map_reach import (
    MapTree,
    chunk_at,
    entry_block,
    first_places,
    reach,
    with_root,
)
from srm.domain.offset_map.map_rebuild import MapTable, Placed, RebuiltMap, newest_head, rebuild
from srm.domain.offset_map.map_records import CopyId, MapEnd
from srm.domain.offset_map.offset_map import NoMap, Position, Translation
from srm.errors import IntegrityError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_NAME_AT = 20  # in the value of a block of any format


class MapTopic(Protocol):
    """One partition of the map topic. Calls block, and raise SrmError where it cannot be read."""

    def at(self, offsets: Collection[int]) -> Mapping[int, tuple[bytes, bytes | None]]:
        """Return the records at these offsets; offsets without a record are omitted."""
        ...

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records: offset, key, and value (None: tombstone), some perhaps twice."""
        ...


@dataclass(frozen=True, slots=True)
class KnownMap:
    """A partition's map as found in the topic, or the reason it is unknown.

    ``former_end``: target offset after the last record, by its blocks, of an earlier topic of this
    name; ``former_ids``: the producer ids of those blocks.
    """

    found: RebuiltMap | IntegrityError
    former_end: int | None = None
    former_ids: frozenset[int] = frozenset()


def known_maps(
    wanted: Mapping[AssignedPartition, MapEnd | None],
    topic: MapTopic,
    thorough: Collection[AssignedPartition] = (),
) -> dict[AssignedPartition, KnownMap]:
    """Return what is known of maps in one partition of the map topic.

    ``wanted`` has what the newest report says of the ends; ``thorough``: look at every block.
    """
    ends = {p: end for p, end in wanted.items() if end is not None and p not in thorough}
    trees = _map_ends(ends, topic)
    rest = {p: end for p, end in wanted.items() if p not in trees}
    known = {p: KnownMap(RebuiltMap(tree)) for p, tree in trees.items()}
    return {**known, **_scan(rest, topic)} if rest else known


def _map_ends(
    ends: Mapping[AssignedPartition, MapEnd], topic: MapTopic
) -> dict[AssignedPartition, MapTree]:
    """Follow offsets; omit those with an unexpected or damaged record."""
    rows = topic.at(first_places(ends.values()))
    trees = _readable(ends, lambda copy_id, end: reach(copy_id, end, rows))
    roots = topic.at({tree.root_place for tree in trees.values()} - {-1})
    return _readable(trees, lambda copy_id, tree: with_root(copy_id, tree, roots))


def _readable(
    known: Mapping[AssignedPartition, _T], follow: Callable[[CopyId, _T], MapTree]
) -> dict[AssignedPartition, MapTree]:
    found: dict[AssignedPartition, MapTree] = {}
    for partition, one in known.items():
        try:
            found[partition] = follow(partition.copy_id, one)
        except IntegrityError as error:
            logger.info("the map of %s is looked for: %s", partition.topic, error)
    return found


def _scan(
    wanted: Mapping[AssignedPartition, MapEnd | None], topic: MapTopic
) -> dict[AssignedPartition, KnownMap]:
    tables = _tables(wanted, topic)
    found: dict[AssignedPartition, KnownMap] = {}
    for partition, end in wanted.items():
        table = MapTable.of(partition.copy_id, tables[partition.topic_id, partition.partition])
        for reason in table.reasons:
            logger.warning(
                "a part of the offset map is missing and is rebuilt from both logs: %s", reason
            )
        former_end, ids = _former(partition, tables)
        try:
            found[partition] = KnownMap(rebuild(table, end), former_end, ids)
        except IntegrityError as error:
            found[partition] = KnownMap(error, former_end, ids)
    return found


_Tables = Mapping[tuple[str, int], dict[bytes, Placed]]


def _tables(wanted: Iterable[AssignedPartition], topic: MapTopic) -> _Tables:
    """Read everything, and keep the newest records of the wanted maps, and of their former ones."""
    names = defaultdict[int, list[bytes]](list)
    ids: set[tuple[str, int]] = set()
    for partition in wanted:
        names[partition.partition].append(partition.topic.encode())
        ids.add((partition.topic_id, partition.partition))
    tables = defaultdict[tuple[str, int], dict[bytes, Placed]](dict)

    def visit(place: int, key: bytes, value: bytes | None) -> None:
        try:
            known = decode_key(key)
        except IntegrityError as error:
            logger.warning("record in the offset map topic is not srm's: %s", error)
            return
        of = known.topic_id, known.partition
        if value is None:
            tables[of].pop(key, None)
        elif of in ids or _is_named(value, names[known.partition]):
            tables[of][key] = Placed(place, value)

    topic.scan(visit)
    return tables


def _is_named(value: bytes, names: Sequence[bytes]) -> bool:
    """Return whether a block is of a topic with one of these names."""
    size = int.from_bytes(value[_NAME_AT - 2 : _NAME_AT], "big")
    return value[_NAME_AT : _NAME_AT + size] in names


def _former(partition: AssignedPartition, tables: _Tables) -> tuple[int | None, frozenset[int]]:
    """Return where the blocks of topics end that had the name before, and their producer ids."""
    ends: list[int] = []
    ids: set[int] = set()
    for (topic_id, number), records in tables.items():
        if number != partition.partition or topic_id == partition.topic_id:
            continue
        table = MapTable.of((topic_id, number, partition.target_topic_id), records)
        blocks = [known for known in table.blocks.values() if known[0].topic == partition.topic]
        head = newest_head(blocks)
        if head is not None:
            ends.append(int(head[0].runs.target_ends.max()))
            ids.update(pid for block, _ in blocks for pid in block.producer_ids)
    return max(ends, default=None), frozenset(ids)


def is_whole(chunk: IndexRecord, topic: MapTopic) -> bool:
    """Return whether every block a chunk uses exists at its offset and can be read."""
    rows = topic.at(set(chunk.entries.place[chunk.deleted :].tolist()))
    try:
        for number in range(chunk.deleted, len(chunk.entries)):
            entry_block(chunk, number, rows)
    except IntegrityError as error:
        logger.warning("the map of %s-%s: %s", chunk.key.topic_id, chunk.key.partition, error)
        return False
    return True


def read_chunk(root: IndexRecord, number: int, topic: MapTopic) -> IndexRecord | None:
    """Return a full chunk by the number of its entry in the root, None if it is lost."""
    try:
        return chunk_at(root, number, topic.at([root.entries[number].place]))
    except IntegrityError as error:
        logger.warning("the map of %s-%s: %s", root.key.topic_id, root.key.partition, error)
        return None


def translate_back(
    tree: MapTree, position: Position | None, target_offset: int, topic: MapTopic
) -> Translation:
    """Translate one target offset to the source, by what of the map is needed for it."""
    if tree.last is None:
        return NoMap()
    loaded = carry_out(load_from(tree, position, Wanted.of((), [target_offset])), topic.at)
    if loaded.gap:
        raise IntegrityError(f"the offset map of {tree.last.topic} is damaged: {loaded.gap}")
    return loaded.offset_map.backward(target_offset)
