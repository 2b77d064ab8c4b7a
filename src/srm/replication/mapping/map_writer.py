"""The growing end of one partition's offset map, as blocks to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.lineage import UNKNOWN, Lineage
from srm.domain.offset_map.map_reach import MapTree
from srm.domain.offset_map.map_records import RUNS_PER_BLOCK, BlockKey, MapBlock
from srm.domain.offset_map.offset_map import Position, Run, Runs
from srm.domain.offset_map.runs import solid_runs
from srm.replication.mapping.index_writer import IndexWriter
from srm.replication.ports import ProducerId


class MapWriter:
    """Collects runs and returns the blocks that changed.

    A growing run changes no block while the position is at its end: readers take its length from
    the slot's report. So a topic that is copied in one stretch costs one small record. Once the
    position is elsewhere (markers or aborted records followed the run), the run is complete, and
    the block is written again, closed.

    A claim takes over the last block: its runs are written again under the key of the claim, with
    the following ones. The former block is deleted once the new one is reported. So the number of
    blocks depends on runs only, not on claims, and no other process may write a valid block.

    ``found``: end of a former owner's open run, known only from its report. It is written at once,
        because our own report replaces that one.
    ``garbage``: invalid blocks: unreadable ones, those after a missing one, and those cut off. They
        are deleted once a report has ours; resume walks over their ranges.
    ``source_lineage``: of the source to the end of the map, or further. Starts: as far as known.
    """

    def __init__(
        self,
        assigned: AssignedPartition,
        producer_ids: Iterable[int],
        tree: MapTree | None = None,
        found: Run | None = None,
        garbage: Iterable[BlockKey] = (),
        source_lineage: Lineage = UNKNOWN,
        *,
        rewrite_index: bool = False,
    ) -> None:
        tree = tree or MapTree()
        self.index = IndexWriter(assigned, tree, rewrite=rewrite_index)
        self.source_log_start = self.target_log_start = 0
        self.changes = 0
        """Number of changes of the map."""
        self._assigned = assigned
        self._producer_ids = set(producer_ids)
        self._replaced = list(garbage)
        self._inherited = tree.last
        self._previous: BlockKey | None = None
        self._owner = (-1, found.target_end if found else -1)
        self._runs: list[Run] = []
        self._written: BlockKey | None = None
        self._full: list[MapBlock] = []
        self._changed = False
        self._closed = False
        self._lineage = UNKNOWN
        if found is not None:
            self._take_over()
            self.add([found], source_lineage)
            self._changed = True

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids under which records of this partition were written."""
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
        self._runs = left
        if self._written is not None and self._written.target_start != left[0].target_start:
            self._replaced.append(self._written)
            self._written = None
        if not self.has_claim:
            self._owner = (-1, target_offset)
        self._changed = True

    def add(self, runs: Sequence[Run], source_lineage: Lineage = UNKNOWN) -> None:
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

    def changed_blocks(self, position: Position) -> list[MapBlock]:
        """Return the blocks to write before the position; resume finds what a crash loses."""
        blocks, self._full = self._full, []
        return [*blocks, *self._open_block(position)]

    def replaced_blocks(self) -> list[BlockKey]:
        """Return the blocks to delete once a position is reported that rests on ours."""
        if not self.has_claim:
            return []
        replaced, self._replaced = self._replaced, []
        return replaced

    def _open_block(self, position: Position) -> list[MapBlock]:
        if not self._runs:
            return []
        last = self._runs[-1]
        ended = (last.source_end, last.target_end) != (position.source_next, position.target_next)
        if not self._changed and ended == self._closed:
            return []
        self._changed = False
        self._closed = ended
        block = self._block(self._runs, self._owner, open_end=not ended)
        self._written = block.block_key
        return [block]

    def close_block(self) -> None:
        """End the open block with the final lengths of its runs."""
        self.changes += 1
        if self._runs:
            block = self._block(self._runs, self._owner, open_end=False)
            self._full.append(block)
            self._previous = block.block_key
        self._runs = []
        self._written = None
        self._changed = False
        self._closed = False

    def _block(self, runs: Sequence[Run], owner: tuple[int, int], *, open_end: bool) -> MapBlock:
        assigned = self._assigned
        return MapBlock(
            assigned.topic,
            assigned.topic_id,
            assigned.partition,
            assigned.target_topic_id,
            tuple(sorted(self._producer_ids)),
            Runs.of(runs),
            open_end,
            owner,
            self._previous,
            self._lineage.before(runs[-1].source_end),
        )
