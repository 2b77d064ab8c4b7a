"""A slot's writes of the offset maps of its partitions, until reports may refer to them.

Blocks first, then the chunks that lead to them, then roots: each step waits for the one before, as
it contains the offsets of its records. Unacknowledged records are written again, only the newest
version of each. A partition of the map topic that cannot be written delays no other one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from srm.domain.offset_map.map_records import CopyId, MapEnd
from srm.domain.offset_map.offset_map import Position
from srm.replication.mapping.index_writer import IndexWriter, Record
from srm.replication.mapping.map_writer import MapWriter

Send = Callable[[Mapping[int, Sequence[Record]]], Mapping[int, Mapping[bytes, int]]]
"""Writes records by partition of the map topic; returns the places of those acknowledged, by key.

All records of a partition that is not in the answer may be lost, or late.
"""

MOST_BLOCKS: Final = 1000
"""Blocks of one partition of the map topic that may wait; more, and copying has to."""


class MapLog:
    """The maps of a slot's partitions, for one writer at a time."""

    def __init__(self) -> None:
        self._current: dict[CopyId, IndexWriter] = {}
        self._writers: dict[CopyId, IndexWriter] = {}
        self._untold: dict[CopyId, IndexWriter] = {}
        self._ends: dict[CopyId, MapEnd] = {}
        self._moved: set[CopyId] = set()
        self._late: frozenset[int] = frozenset()

    @property
    def size(self) -> int:
        """Of how many partitions something is kept."""
        return len({*self._current, *self._writers, *self._untold, *self._ends})

    def take(self, maps: MapWriter, position: Position) -> None:
        """Take over what has changed, between two steps of the event loop."""
        blocks, replaced = maps.changed_blocks(position), maps.replaced_blocks()
        index = maps.index
        index.take(blocks, replaced)
        index.forget_below(maps.source_log_start, maps.target_log_start)
        is_new = self._current.get(index.copy_id) is not index
        if is_new:  # a former life of the partition here has said all that counts
            self._current[index.copy_id] = index
            self._untold.pop(index.copy_id, None)
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
            self._untold[index.copy_id] = index
            del self._writers[index.copy_id]
        self._late = frozenset(late)
        return self._late

    def end(self, copy_id: CopyId) -> MapEnd | None:
        """Return the end of the map for a position, None if it is not known here."""
        return self._ends.get(copy_id)

    def moved_ends(self) -> set[CopyId]:
        """Return whose :meth:`end` has changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def on_report(self) -> None:
        """All positions that rest on what was written are acknowledged."""
        untold, self._untold = self._untold, {}
        for copy_id, index in untold.items():
            if self._writers.get(copy_id) is index:  # changed since, and not yet reported
                continue
            index.on_report()
            if index.has_news:
                self._writers[copy_id] = index

    def forget_others(self, copy_ids: Collection[CopyId]) -> None:
        """Keep nothing of copies but these, once all that is to be written of the others is."""
        kept = {*copy_ids, *self._writers, *self._untold}
        for known in (self._current, self._ends):
            for copy_id in known.keys() - kept:
                del known[copy_id]

    @property
    def is_late(self) -> bool:
        """True if something was late in the last :meth:`write`."""
        return bool(self._late)

    def is_full(self, partition: int) -> bool:
        """Return whether too many blocks wait to add more to this partition's maps."""
        if partition not in self._late:
            return False
        writers = (index for index in self._writers.values() if index.partition == partition)
        return sum(index.waiting for index in writers) > MOST_BLOCKS
