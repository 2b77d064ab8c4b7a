"""Start position of each partition, from the offset map topic and the state topics."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    Incarnation,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
    in_force,
)
from srm.domain.flow_state.replication_state import newest_position
from srm.domain.offset_map import map_tree
from srm.domain.offset_map.map_loader import Wanted, carry_out, load_from, reach
from srm.domain.offset_map.map_records import BlockKey, IndexRecord, MapEnd, decode_key
from srm.domain.offset_map.offset_map import (
    NoMap,
    OffsetMap,
    Position,
    Run,
    Translated,
    Translation,
)
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.errors import IntegrityError, SrmError
from srm.replication.ports import ProducerId

logger = logging.getLogger(__name__)

_NAME_AT = 20  # in the value of a block of any format


class MapTopic(Protocol):
    """One partition of the map topic. Calls block, and raise SrmError where it cannot be read."""

    def at(self, offsets: Collection[int]) -> Mapping[int, tuple[bytes, bytes | None]]:
        """Return the records at these offsets; offsets without a record are omitted."""

    def scan(self, visit: Callable[[int, bytes, bytes | None], None]) -> None:
        """Show all records: offset, key, and value (None: tombstone), some perhaps twice."""


@dataclass(frozen=True, slots=True)
class KnownMap:
    """A partition's map as found in the topic, or the reason it is unknown.

    ``former_end``: target offset after the last record, by its blocks, of an earlier topic of this
    name; ``producer_ids``: those of all blocks, if all were read.
    """

    found: map_tree.RebuiltMap | IntegrityError
    former_end: int | None = None
    producer_ids: frozenset[int] = frozenset()


def known_maps(
    wanted: Mapping[AssignedPartition, MapEnd | None],
    topic: MapTopic,
    thorough: Collection[AssignedPartition] = (),
) -> dict[AssignedPartition, KnownMap]:
    ends = {p: end for p, end in wanted.items() if end is not None and p not in thorough}
    readings = {partition: reach(partition.copy_id, end) for partition, end in ends.items()}
    known: dict[AssignedPartition, KnownMap] = {}
    for partition, tree in carry_out(readings, topic.at).items():
        if isinstance(tree, IntegrityError):
            logger.info("the map of %s is looked for: %s", partition.topic, tree)
        else:
            known[partition] = KnownMap(map_tree.RebuiltMap(tree))
    rest = {p: end for p, end in wanted.items() if p not in known}
    return known | _scan(rest, topic) if rest else known


def _scan(
    wanted: Mapping[AssignedPartition, MapEnd | None], topic: MapTopic
) -> dict[AssignedPartition, KnownMap]:
    tables = _tables(wanted, topic)
    found: dict[AssignedPartition, KnownMap] = {}
    for partition, end in wanted.items():
        records = tables[partition.topic_id, partition.partition]
        table = map_tree.MapTable.of(partition.copy_id, records)
        for reason in table.reasons:
            logger.warning(
                "a part of the offset map is missing and is rebuilt from both logs: %s", reason
            )
        former_end, ids = _former(partition, tables)
        ids |= map_tree.producer_ids_of(table.blocks.values())
        try:
            found[partition] = KnownMap(map_tree.rebuild(table, end), former_end, ids)
        except IntegrityError as error:
            found[partition] = KnownMap(error, former_end, ids)
    return found


_Tables = Mapping[tuple[str, int], dict[bytes, map_tree.Placed]]


def _tables(wanted: Iterable[AssignedPartition], topic: MapTopic) -> _Tables:
    """Read everything, and keep the newest records of the wanted maps, and of their former ones."""
    names = defaultdict[int, list[bytes]](list)
    ids: set[tuple[str, int]] = set()
    for partition in wanted:
        names[partition.partition].append(partition.topic.encode())
        ids.add((partition.topic_id, partition.partition))
    tables = defaultdict[tuple[str, int], dict[bytes, map_tree.Placed]](dict)

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
            tables[of][key] = map_tree.Placed(place, value)

    topic.scan(visit)
    return tables


def _is_named(value: bytes, names: Sequence[bytes]) -> bool:
    size = int.from_bytes(value[_NAME_AT - 2 : _NAME_AT], "big")
    return value[_NAME_AT : _NAME_AT + size] in names


def _former(partition: AssignedPartition, tables: _Tables) -> tuple[int | None, frozenset[int]]:
    """Return where the blocks of topics end that had the name before, and their producer ids."""
    ends: list[int] = []
    ids = frozenset[int]()
    for (topic_id, number), records in tables.items():
        if number != partition.partition or topic_id == partition.topic_id:
            continue
        table = map_tree.MapTable.of((topic_id, number, partition.target_topic_id), records)
        blocks = [known for known in table.blocks.values() if known[0].topic == partition.topic]
        head = map_tree.newest_head(blocks)
        if head is not None:
            ends.append(int(head[0].runs.target_ends.max()))
            ids |= map_tree.producer_ids_of(blocks)
    return max(ends, default=None), ids


def is_whole(chunk: IndexRecord, topic: MapTopic) -> bool:
    """Return whether every block a chunk uses exists at its offset and can be read."""
    rows = topic.at(set(chunk.entries.place[chunk.deleted :].tolist()))
    try:
        for number in range(chunk.deleted, len(chunk.entries)):
            map_tree.entry_block(chunk, number, rows)
    except IntegrityError as error:
        logger.warning("the map of %s-%s: %s", chunk.key.topic_id, chunk.key.partition, error)
        return False
    return True


def read_chunk(root: IndexRecord, number: int, topic: MapTopic) -> IndexRecord | None:
    """Return a full chunk by the number of its entry in the root, None if it is lost."""
    try:
        return map_tree.chunk_at(root, number, topic.at([root.entries[number].place]))
    except IntegrityError as error:
        logger.warning("the map of %s-%s: %s", root.key.topic_id, root.key.partition, error)
        return None


def translate_back(
    tree: map_tree.MapTree, position: Position | None, target_offset: int, topic: MapTopic
) -> Translation:
    """Translate one target offset to the source, by what of the map is needed for it."""
    if tree.last is None:
        return NoMap()
    reading = load_from(tree, position, Wanted.of((), [target_offset]))
    loaded = carry_out({None: reading}, topic.at)[None]
    if isinstance(loaded, IntegrityError):
        raise loaded
    if loaded.gap:
        raise IntegrityError(f"the offset map of {tree.last.topic} is damaged: {loaded.gap}")
    return loaded.offset_map.backward(target_offset)


@dataclass(frozen=True, slots=True)
class Start:
    """Knowledge before the walk: the position of the copy, and our producer ids.

    - ``found``: the part of the last run that only its former owner's report has.
    - ``fresh``: nothing is known of this topic id; ``has_former``: of a former topic of the name.
    - ``has_position``: without it both logs are walked from their starts.
    - ``tree``: the stored end of the map; with ``rewrite_index`` its index is missing.
    - ``cut``: the map has to end at this position, whatever it holds.
    - ``truncated``: the source was truncated here: our records that it lacks say nothing.
    - ``written_by``: claim of the target's batch before the position.
    - ``left_out``: decisions about ranges of source offsets that are not copied.
    - ``at_rest``: last reported state of a partition that was stopped.
    - ``last_run``: the last run of the map; without a record it is a cut.
    - ``copy_is_gone``: records were copied to another remote topic, and none to this one.
    """

    source_next: int
    target_next: int
    producer_ids: frozenset[int] = frozenset()
    found: Run | None = None
    source_lineage: Lineage = UNKNOWN_LINEAGE
    fresh: bool = False
    has_position: bool = True
    tree: map_tree.MapTree = field(default_factory=map_tree.MapTree)
    garbage: tuple[BlockKey, ...] = ()
    rewrite_index: bool = False
    cut: bool = False
    truncated: bool = False
    target_lineage: Lineage = UNKNOWN_LINEAGE
    written_by: ProducerId | None = None
    has_former: bool = False
    left_out: tuple[PartitionNotes, ...] = ()
    at_rest: PartitionStatus | None = None
    last_run: Run | None = None
    copy_is_gone: bool = False

    @property
    def ends_with_record(self) -> bool:
        """True if the target's record before the position is the last one of the map."""
        run = self.last_run
        return run is not None and run.count > 0 and run.target_end == self.target_next

    def back_at(self, source_next: int) -> Start:
        """Return the start at an earlier source offset, after which nothing was copied."""
        lineage = self.source_lineage.before(source_next)
        return replace(self, source_next=source_next, source_lineage=lineage)

    def cut_at(self, source_next: int) -> Start:
        """Return the start after the source was truncated at an offset before it."""
        return replace(self.back_at(source_next), cut=True, truncated=True)


NOWHERE: Final = Start(0, 0, fresh=True, has_position=False)


def start_of(
    known: KnownMap,
    reports: Sequence[PartitionPosition],
    former_reports: Sequence[PartitionPosition] = (),
) -> Start | None:
    """Find the furthest known position of a partition, and the producer ids that wrote it.

    A position is only reported after the runs before it, so a run's end and a position are safe
    starts; the one further along the target wins. Where runs are lost, resume finds them again. A
    re-created topic continues after what its former self left on the target. None: nothing is
    known.
    """
    found = known.found
    if isinstance(found, IntegrityError):
        raise found
    former = newest_position(former_reports)
    behind = _former_end(known, former)
    newest = newest_position(reports)
    last = found.tree.last
    producer_ids = known.producer_ids.union(last.producer_ids if last else ())
    reported = (report.producer_id for report in (*reports, *former_reports))
    producer_ids |= {producer_id for producer_id in reported if producer_id >= 0}
    if newest is not None and not _rests_on_map(newest, found, behind or 0):
        newest = None
    places = []
    if newest is not None:
        at = newest.position
        places.append((at.target_next, at.source_next, newest.source_lineage))
    grown = end = None
    if last is not None:
        written = OffsetMap.of(last.runs).runs
        position = newest.position if newest else None
        runs = OffsetMap.of(last.runs, position, open_end=last.open_end).runs
        if len(runs):
            end = runs[-1]
            is_written = end == written[-1]
            lineage = last.source_lineage if is_written or newest is None else newest.source_lineage
            places.append((end.target_end, end.source_end, lineage.before(end.source_end)))
            grown = None if is_written else _beyond(written[-1], end)

    if places:
        target_next, source_next, lineage = max(places, key=lambda place: place[:2])
        claim = last.owner if last else (-1, -1)
        if newest and newest.position.target_next == target_next:
            claim = newest.producer_id, newest.producer_epoch
        return Start(
            source_next,
            target_next,
            producer_ids,
            found=grown,
            source_lineage=lineage,
            # Until a record of this topic id is known to be copied, those of a former one may
            # follow.
            fresh=last is None,
            tree=found.tree,
            garbage=found.garbage,
            rewrite_index=found.rewrite,
            target_lineage=newest.target_lineage if newest else UNKNOWN_LINEAGE,
            written_by=ProducerId(*claim) if claim[0] >= 0 else None,
            has_former=behind is not None,
            last_run=end or found.tree.last_run,
        )
    if behind is not None:
        return Start(0, behind, producer_ids, fresh=True, garbage=found.garbage, has_former=True)
    if producer_ids or found.garbage:
        return Start(0, 0, producer_ids, fresh=True, has_position=False, garbage=found.garbage)
    return None


def _former_end(known: KnownMap, former: PartitionPosition | None) -> int | None:
    end = known.former_end or None
    if former is not None and former.may_have_written:
        end = max(end or 0, former.position.target_next)
    return end


def cut_start(start: Start, source_next: Translation, target_end: int) -> Start:
    """Return the start at ``source_next``, if the target holds nothing from that offset on."""
    if start.target_next <= target_end:
        return start
    if not isinstance(source_next, Translated):
        last = start.tree.last
        garbage = (*start.garbage, *((last.block_key,) if last else ()))
        return Start(
            0, 0, start.producer_ids, has_position=False, garbage=garbage, left_out=start.left_out
        )
    held = source_next.offset
    held = min(held, start.source_next) if start.truncated else held
    found = start.found if start.found and start.found.target_start < target_end else None
    if found is not None:
        found = replace(found, count=min(found.count, target_end - found.target_start))
    return replace(
        start,
        source_next=held,
        target_next=target_end,
        source_lineage=start.source_lineage.before(held),
        found=found,
        target_lineage=start.target_lineage.before(target_end),
        written_by=None,
        cut=True,
    )


def decided_start(start: Start | None, notes: Iterable[PartitionNotes]) -> Start | None:
    """Return the start of a partition after decisions about it, None if nothing is known."""
    decided = in_force(notes)
    left_out = (note for note in decided if note.left_out is not None)
    if in_order := tuple(sorted(left_out, key=lambda note: note.left_out or (0, 0))):
        start = replace(start or NOWHERE, left_out=in_order)
    for note in decided:
        if start is None or note.decision != "cut" or note.lost_from is None:
            continue
        if start.has_position and (start.source_next, start.target_next) == (
            note.lost_to,
            note.target_next,
        ):
            start = start.cut_at(note.lost_from)
    return start


def _rests_on_map(newest: PartitionPosition, found: map_tree.RebuiltMap, behind: int) -> bool:
    """Return whether the found map contains every run before a position."""
    if found.missing is not None:
        return False
    if found.tree.last is not None or newest.map_end == map_tree.NO_BLOCKS:
        return True
    return newest.position.target_next <= behind


def _beyond(written: Run, extended: Run) -> Run:
    """Return what a report adds to the last written run."""
    return Run(written.source_end, written.target_end, extended.count - written.count)


class Predecessor(NamedTuple):
    """State left by earlier processes of this slot."""

    incarnations: tuple[Incarnation, ...]
    notes: tuple[PartitionNotes, ...]


class StartReader(Protocol):
    """Reads where partitions were left; blocks; UnavailableError: map or state cannot be read."""

    def load(
        self, partitions: Sequence[AssignedPartition], *, thorough: bool = False
    ) -> Mapping[AssignedPartition, Start | SrmError]:
        """Return where to start each partition copied before, or why that is not known.

        ``thorough``: look at every block; the start is before the first that is lost.
        """

    def cut(self, assigned: AssignedPartition, target_end: int) -> Start:
        """Cut the map at what the target's log still holds, and return where to copy again from."""

    def predecessor(self, slot: str) -> Predecessor:
        """Return who was a slot of that name, and what they have ever noted."""

    def log_starts(self, partitions: Collection[AssignedPartition]) -> dict[AssignedPartition, int]:
        """Return the first offsets that the targets' logs hold; unknown ones are left out."""

    def map_of(self, assigned: AssignedPartition) -> MapTopic:
        """Return the partition of the map topic with the map of a partition; does not block."""
