"""The growing end of the offset maps of a slot: their blocks, and the index that leads to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.map_records import (
    ENTRIES_PER_CHUNK,
    RUNS_PER_BLOCK,
    BlockKey,
    CopyId,
    Entries,
    IndexEntry,
    IndexKey,
    IndexKind,
    IndexRecord,
    MapBlock,
    MapEnd,
    map_partition,
)
from srm.domain.offset_map.map_tree import NO_ENTRIES, MapTree
from srm.domain.offset_map.offset_map import Position, Run, Runs
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage, solid_runs
from srm.replication.mapping.starts import NOWHERE, Start
from srm.replication.ports import ProducerId

Record = tuple[bytes, bytes | None]
"""Key and value of a record of the map topic; None is a tombstone."""


class IndexWriter:
    """Yields the records to write for one map, in an order that survives a crash at any step.

    A report is written once nothing is :meth:`due`: it reaches the last block, the newest chunk,
    the root, and through them the rest. What it does not reach is deleted after that. Entries of
    blocks below the starts of both logs are marked, then reported, then their blocks and the
    entries go.

    A block is in the index once another one follows it, and is not written after that.
    """

    def __init__(self, copy: AssignedPartition, tree: MapTree, *, rewrite: bool = False) -> None:
        """Continue the index of a map; ``rewrite``: its records are not on the log like this."""
        self.copy_id = copy.copy_id
        self.partition = map_partition(copy.topic, copy.partition)
        chunk, root = tree.chunk, tree.root
        self._later = NO_ENTRIES
        if chunk and chunk.key.number < 0:
            self._later, chunk, root = chunk.entries, None, None
        self._owner = chunk.key.owner if chunk else (-1, -1)
        self._number = chunk.key.number if chunk else -1
        self._chunk = chunk.entries if chunk else NO_ENTRIES
        self._chunk_deleted = chunk.deleted if chunk else 0
        self._chunk_place = tree.chunk_place if chunk else -1
        self._root = root.entries if root else NO_ENTRIES
        self._root_deleted = root.deleted if root else 0
        self._root_place = tree.root_place if root else -1
        self._chunk_due = self._root_due = False
        self._blocks: dict[bytes, tuple[MapBlock, int]] = {}
        self._newest = (-1, tree.last_place) if rewrite else self._owner
        self.end = tree.end
        self._rewrite = rewrite
        self._former: set[bytes] = set()
        self._superseded: set[bytes] = set()
        self._leaving: set[bytes] = set()
        self._dying: set[bytes] | None = None
        self._droppable: IndexRecord | None = None
        self._dying_chunk: set[bytes] | None = None

    @property
    def has_news(self) -> bool:
        """True if something is to be written, or would be after a report."""
        return bool(
            self._leaving
            or self._superseded
            or self._chunk_due
            or self._root_due
            or len(self._later)
            or len(self._blocks) > 1
            or self.waiting
            or (self._droppable is not None and self._has_claim)
            or (self._rewrite and self._newest != self._owner)
        )

    @property
    def waiting(self) -> int:
        return sum(place < 0 for _, place in self._blocks.values())

    @property
    def records(self) -> tuple[IndexRecord, IndexRecord]:
        """Root and newest chunk as they are now, perhaps not on the log yet."""
        root = IndexRecord(self._key(IndexKind.ROOT), self._root, self._root_deleted)
        key = self._key(IndexKind.CHUNK)
        return root, IndexRecord(key, self._chunk, self._chunk_deleted, self._root_place)

    @property
    def _has_claim(self) -> bool:
        return self._newest[0] >= 0

    # ----- what is new

    def take(self, blocks: Iterable[MapBlock], replaced: Iterable[BlockKey] = ()) -> None:
        """Take over what changed, in the order of the map, and what does not count any more."""
        gone = {key.encode() for key in replaced}
        for block in blocks:
            key = block.key()
            self._blocks[key] = block, -1
            self._newest = block.owner
            for keys in (gone, self._leaving, self._superseded):
                keys.discard(key)
        self._superseded |= gone
        for key in gone & self._blocks.keys():
            del self._blocks[key]

    def forget_below(self, source_start: int, target_start: int) -> None:
        """Mark the entries of blocks that lie below the starts of both logs."""
        if not self._has_claim:
            return
        # The last entry stays: the last block names its block, and by that its chunk is known.
        chunk = self._chunk
        is_below = (chunk.source_end <= source_start) & (chunk.target_end <= target_start)
        below = len(chunk) - 1 if is_below.all() else int(is_below.argmin())
        if below > self._chunk_deleted and self._dying is None:
            self._chunk_deleted, self._chunk_due = below, True

    def drop_chunk(self, chunk: IndexRecord) -> None:
        """Delete the oldest full chunk, below the starts of both logs; from another thread."""
        self._droppable = chunk

    # ----- step by step

    def due(self) -> list[Record]:
        """Return what has to be written, and acknowledged, before anything else is."""
        records: list[Record] = [
            (key, block.value()) for key, (block, place) in self._blocks.items() if place < 0
        ]
        records += [(key, None) for key in sorted(self._leaving)]
        if records:
            return records
        self._collect()
        self._mark_chunk()
        if self._newest != self._owner and (self._has_claim or len(self._later) or self._rewrite):
            self._own_index()
        if len(self._later) and not (self._root_due or self._chunk_due):
            self._grow()
        if self._root_due:
            root, _ = self.records
            return [(root.key.encode(), root.value())]
        if self._chunk_due:
            _, chunk = self.records
            return [(chunk.key.encode(), chunk.value())]
        self.end = self._written_end()
        return []

    def written(self, places: Mapping[bytes, int]) -> None:
        root, chunk = (self._key(kind).encode() for kind in (IndexKind.ROOT, IndexKind.CHUNK))
        for key, place in places.items():
            if key in self._leaving:
                self._leaving.discard(key)
            elif key in self._blocks:
                self._blocks[key] = self._blocks[key][0], place
            elif key == root:
                self._root_place, self._root_due, self._chunk_due = place, False, True
            elif key == chunk:
                self._chunk_place, self._chunk_due = place, False
        if self._dying is not None and not self._dying & self._leaving:
            self._chunk = self._chunk.slice(self._chunk_deleted)
            self._chunk_deleted, self._dying = 0, None
            self._chunk_due = len(self._chunk) > 0
        if self._dying_chunk is not None and not self._dying_chunk & self._leaving:
            self._root = self._root.slice(1)
            self._root_deleted, self._dying_chunk = 0, None
            self._root_due = True

    def on_report(self) -> None:
        """A report that names :attr:`end` is acknowledged: what it does not reach can go."""
        self._leaving |= self._superseded
        self._superseded = set()
        if self._chunk_deleted and self._has_claim and self._dying is None:
            self._dying = self._keys(self._chunk.slice(0, self._chunk_deleted))
            self._leaving |= self._dying
        if self._root_deleted and self._droppable is not None and self._dying_chunk is None:
            keys = self._keys(self._droppable.entries)
            self._dying_chunk = keys | {self._droppable.key.encode()}
            self._leaving |= self._dying_chunk
            self._droppable = None

    # ----- inside

    def _own_index(self) -> None:
        if self._chunk_place >= 0:
            self._former.add(self._key(IndexKind.CHUNK).encode())
        if self._root_place >= 0:
            self._former.add(self._key(IndexKind.ROOT).encode())
        self._owner = self._newest
        # Empty ones too: the former ones go, and nothing may lead to them any more.
        self._chunk_due = len(self._chunk) > 0 or self._chunk_place >= 0
        self._root_due = len(self._root) > 0 or self._root_place >= 0
        if self._has_claim:  # until then a former owner may still be at work
            self._superseded |= self._former
            self._former = set()

    def _collect(self) -> None:
        final = [self._blocks.pop(key) for key in list(self._blocks)[:-1]]
        if final:
            entries = Entries.of(IndexEntry.of_block(block, place) for block, place in final)
            self._later = self._later + entries

    def _grow(self) -> None:
        """Move entries to the chunk; one that is full, or cut by what follows, is not changed.

        So a cut is always seen between two entries of the root, or within the newest chunk's end.
        """
        chunk, first = self._chunk, self._later[0]
        if len(chunk):
            last = chunk[len(chunk) - 1]
            is_cut = first.source_start < last.source_end or first.target_start < last.target_end
            if is_cut or len(chunk) >= ENTRIES_PER_CHUNK:
                self._root = self._root + Entries.of([self._chunk_entry()])
                self._root_due = True
                chunk = NO_ENTRIES
        elif self._chunk_place >= 0:
            self._superseded.add(self._key(IndexKind.CHUNK).encode())
        if not len(chunk):
            # Two chunks may begin at one offset, where what was copied from there on was cut off.
            self._number, self._chunk_place = max(first.key_start, self._number + 1), -1
            self._chunk_deleted, self._dying = 0, None
        count = _count_uncut(self._later, ENTRIES_PER_CHUNK - len(chunk))
        self._chunk = chunk + self._later.slice(0, count)
        self._later = self._later.slice(count)
        self._chunk_due = True

    def _written_end(self) -> MapEnd:
        if self._blocks:
            block, place = next(reversed(self._blocks.values()))
            key = block.block_key
            return MapEnd(key.target_start, key.owner, place, self._chunk_place)
        return replace(self.end, index_place=self._chunk_place)

    def _mark_chunk(self) -> None:
        chunk = self._droppable
        if chunk is None or self._root_deleted or not self._has_claim or self._root_due:
            return
        first = self._root[0] if len(self._root) else None
        if first is None or (first.key_start, first.owner) != (chunk.key.number, chunk.key.owner):
            self._droppable = None
            return
        self._root_deleted, self._root_due = 1, True

    def _keys(self, entries: Entries) -> set[bytes]:
        topic_id, partition, _ = self.copy_id
        return {
            BlockKey(topic_id, partition, entry.key_start, entry.owner).encode()
            for entry in (entries[number] for number in range(len(entries)))
        }

    def _key(self, kind: IndexKind) -> IndexKey:
        number = self._number if kind is IndexKind.CHUNK else 0
        return IndexKey(kind, *self.copy_id, self._owner, number)

    def _chunk_entry(self) -> IndexEntry:
        """Return what a root says of the chunk, whose entries do not cut each other."""
        chunk = self._chunk
        whole = IndexEntry.spanning(chunk[0], chunk[len(chunk) - 1], int(chunk.records.sum()))
        return whole.with_place(self._chunk_place, self._number, self._owner)


def _count_uncut(entries: Entries, most: int) -> int:
    grows = (entries.source_start[1:] >= entries.source_end[:-1]) & (
        entries.target_start[1:] >= entries.target_end[:-1]
    )
    return min(most, len(entries) if grows.all() else int(grows.argmin()) + 1)


class MapWriter:
    """Collects runs of one partition and returns the blocks that changed.

    A growing run changes no block while the position is at its end: readers take its length from
    the report. Once the position is elsewhere (markers followed the run), the block is written
    again, closed.

    A claim takes over the last block: its runs are written again under the key of the claim, and
    the former block is deleted once the new one is reported. So no other process may write a valid
    block.

    Garbage of the start is deleted once a report has our blocks. ``last_run``: the last run or cut,
    None without any.
    """

    def __init__(self, assigned: AssignedPartition, start: Start = NOWHERE) -> None:
        tree, found = start.tree, start.found
        self.index = IndexWriter(assigned, tree, rewrite=start.rewrite_index)
        self.source_log_start = self.target_log_start = 0
        self.changes = 0
        self._assigned = assigned
        self._producer_ids = set(start.producer_ids)
        self._replaced = list(start.garbage)
        self._inherited = tree.last
        self._previous: BlockKey | None = None
        self._owner = (-1, found.target_end if found else -1)
        self._runs: list[Run] = []
        self.last_run = tree.last_run
        self._written: BlockKey | None = None
        self._full: list[MapBlock] = []
        self._changed = False
        self._closed = False
        self._lineage = UNKNOWN_LINEAGE
        if found is not None:
            self._take_over()
            self.add([found], start.source_lineage)
            self._changed = True
        if start.cut:
            self.cut(start.source_next, start.target_next)

    @property
    def producer_ids(self) -> frozenset[int]:
        return frozenset(self._producer_ids)

    @property
    def has_claim(self) -> bool:
        """True if records are added under a claim, so no other owner's records follow them."""
        return self._owner[0] >= 0

    def begin_claim(self, producer: ProducerId) -> None:
        """Take the last block over, once, and begin one of our own after it, or in its place."""
        if self._owner == (producer.id, producer.epoch):
            return
        self.changes += 1
        self._producer_ids.add(producer.id)
        self._take_over()
        if self._written is not None:
            self._replaced.append(self._written)
            self._written = None
        self._owner = producer.id, producer.epoch
        self._changed = bool(self._runs)
        self._closed = False

    def _take_over(self) -> None:
        last, self._inherited = self._inherited, None
        if last is not None:
            self._replaced.append(last.block_key)
            self._previous, self._lineage = last.previous, last.source_lineage
            self._runs = list(last.runs)

    def cut(self, source_offset: int, target_offset: int) -> None:
        """Remove the runs from an offset on, on either side."""
        self.changes += 1
        self._take_over()
        left = list(solid_runs(Runs.of(self._runs)).before(source_offset, target_offset))
        # What was cut from the blocks before stays cut, though nothing may be left of what cut it.
        source = min((source_offset, *(run.source_start for run in self._runs)))
        if not left:
            left = [Run(source, target_offset, 0)]
        elif left[0].source_start > source:
            left.insert(0, Run(source, self._runs[0].target_start, 0))
        self._runs, self.last_run = left, left[-1]
        if self._written is not None and self._written.target_start != left[0].target_start:
            self._replaced.append(self._written)
            self._written = None
        if not self.has_claim:
            self._owner = (-1, target_offset)
        self._changed = True

    def add(self, runs: Sequence[Run], source_lineage: Lineage = UNKNOWN_LINEAGE) -> None:
        """Add acknowledged records, in target order, with the source's lineage up to their end.

        Only the first run may continue where the last one ends: the others begin behind holes.
        """
        self.changes += 1
        self._lineage = source_lineage
        last = self._runs[-1] if self._runs else None
        first = runs[0]
        if (
            last is not None
            and last.count > 0
            and last.target_end == first.target_start
            and last.shift == first.shift
        ):
            self._runs[-1] = Run(last.source_start, last.target_start, last.count + first.count)
            runs = runs[1:]
        while runs:
            if len(self._runs) >= RUNS_PER_BLOCK:
                self.close_block()
            room = RUNS_PER_BLOCK - len(self._runs)
            self._runs += runs[:room]
            runs = runs[room:]
            self._changed = True
        self.last_run = self._runs[-1]

    def changed_blocks(self, position: Position) -> list[MapBlock]:
        """Return the blocks to write before the position; resume finds what a crash loses."""
        blocks, self._full = self._full, []
        if self._runs:
            last, at = self._runs[-1], (position.source_next, position.target_next)
            ended = (last.source_end, last.target_end) != at
            if self._changed or ended != self._closed:
                self._changed, self._closed = False, ended
                blocks.append(self._block(open_end=not ended))
                self._written = blocks[-1].block_key
        return blocks

    def replaced_blocks(self) -> list[BlockKey]:
        """Return the blocks to delete once a position is reported that rests on ours."""
        if not self.has_claim:
            return []
        replaced, self._replaced = self._replaced, []
        return replaced

    def close_block(self) -> None:
        """End the open block with the final lengths of its runs."""
        self.changes += 1
        if self._runs:
            self._full.append(self._block(open_end=False))
            self._previous = self._full[-1].block_key
        self._runs = []
        self._written = None
        self._changed = False
        self._closed = False

    def _block(self, *, open_end: bool) -> MapBlock:
        assigned = self._assigned
        return MapBlock(
            topic=assigned.topic,
            topic_id=assigned.topic_id,
            partition=assigned.partition,
            target_topic_id=assigned.target_topic_id,
            producer_ids=tuple(sorted(self._producer_ids)),
            runs=Runs.of(self._runs),
            open_end=open_end,
            owner=self._owner,
            previous=self._previous,
            source_lineage=self._lineage.before(self._runs[-1].source_end),
        )


Send = Callable[[Mapping[int, Sequence[Record]]], Mapping[int, Mapping[bytes, int]]]
"""Writes records by partition of the map topic; returns the places of those acknowledged, by key.

All records of a partition that is not in the answer may be lost, or late.
"""

MOST_BLOCKS: Final = 1000
"""Blocks of one partition of the map topic that may wait; more, and copying has to."""


class MapLog:
    """A slot's writes of its partitions' maps, until reports may refer to them; for one writer.

    Blocks first, then the chunks that lead to them, then roots: each step waits for the one before,
    as it contains the offsets of its records. Unacknowledged records are written again, the newest
    only.
    """

    def __init__(self) -> None:
        self._current: dict[CopyId, IndexWriter] = {}
        self._writers: dict[CopyId, IndexWriter] = {}
        self._unreported: dict[CopyId, IndexWriter] = {}
        self._ends: dict[CopyId, MapEnd] = {}
        self._moved: set[CopyId] = set()
        self.late: frozenset[int] = frozenset()
        """Partitions of the topic where something was late in the last :meth:`write`."""

    @property
    def size(self) -> int:
        """Of how many partitions something is kept."""
        return len({*self._current, *self._writers, *self._unreported, *self._ends})

    def take(self, maps: MapWriter, position: Position) -> None:
        """Take over what has changed, between two steps of the event loop."""
        blocks, replaced = maps.changed_blocks(position), maps.replaced_blocks()
        index = maps.index
        index.take(blocks, replaced)
        index.forget_below(maps.source_log_start, maps.target_log_start)
        is_new = self._current.get(index.copy_id) is not index
        if is_new:  # a former life of the partition here has said all that counts
            self._current[index.copy_id] = index
            self._unreported.pop(index.copy_id, None)
        if is_new or index.has_news:
            self._writers[index.copy_id] = index

    def write(self, send: Send) -> frozenset[int]:
        """Write what is due; return the late partitions, where no position may be reported."""
        late: set[int] = set()
        while True:
            due = {
                index: records
                for index in self._writers.values()
                if index.partition not in late and (records := index.due())
            }
            if not due:
                break
            together = defaultdict[int, list[Record]](list)
            for index, records in due.items():
                together[index.partition] += records
            places = send(together)
            late |= together.keys() - places.keys()
            for index, records in due.items():
                known = places.get(index.partition, {})
                index.written({key: known[key] for key, _ in records if key in known})
        done = [index for index in self._writers.values() if index.partition not in late]
        for index in done:
            if self._ends.get(index.copy_id) != index.end:
                self._ends[index.copy_id] = index.end
                self._moved.add(index.copy_id)
            self._unreported[index.copy_id] = index
            del self._writers[index.copy_id]
        self.late = frozenset(late)
        return self.late

    def end(self, copy_id: CopyId) -> MapEnd | None:
        """Return the end of the map for a position, None if it is not known here."""
        return self._ends.get(copy_id)

    def moved_ends(self) -> set[CopyId]:
        """Return whose :meth:`end` has changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def on_report(self) -> None:
        """All positions that rest on what was written are acknowledged."""
        unreported, self._unreported = self._unreported, {}
        for copy_id, index in unreported.items():
            if self._writers.get(copy_id) is index:  # changed since, and not yet reported
                continue
            index.on_report()
            if index.has_news:
                self._writers[copy_id] = index

    def forget_others(self, copy_ids: Collection[CopyId]) -> None:
        """Keep nothing of copies but these, once all that is to be written of the others is."""
        kept = {*copy_ids, *self._writers, *self._unreported}
        for known in (self._current, self._ends):
            for copy_id in known.keys() - kept:
                del known[copy_id]

    def is_late(self, copy_id: CopyId) -> bool:
        """Return whether no position of a copy may be reported yet."""
        index = self._current.get(copy_id)
        return index is not None and index.partition in self.late

    def is_full(self, partition: int) -> bool:
        """Return whether too many blocks wait to add more to this partition's maps."""
        if partition not in self.late:
            return False
        writers = (index for index in self._writers.values() if index.partition == partition)
        return sum(index.waiting for index in writers) > MOST_BLOCKS
