"""The growing end of one partition's offset map, as blocks to write."""

from __future__ import annotations

from collections.abc import Iterable

from srm.domain.map_records import RUNS_PER_BLOCK, BlockKey, MapBlock
from srm.domain.offset_map import Position, Run
from srm.domain.replication_records import AssignedPartition
from srm.replication.ports import ProducerId


class MapLog:
    """Collects runs and hands out the blocks that changed.

    A run that only grows changes nothing while the position stands at its end: readers take its
    length from the slot's report. So a topic that is copied in one stretch costs one small record,
    however long it runs. Once the position stands elsewhere (markers or aborted records came after
    the run), the run can grow no more, and the block is written again, closed.

    ``found`` is the end of a former owner's open run that only its report tells of: written down at
    once, because our own report replaces that one. ``damaged`` are blocks that cannot be read: once
    the run that one began with is found again, a block of its first record takes its place.
    """

    def __init__(
        self,
        assigned: AssignedPartition,
        producer_ids: Iterable[int],
        found: Run | None = None,
        damaged: Iterable[BlockKey] = (),
    ) -> None:
        self._assigned = assigned
        self._producer_ids = set(producer_ids)
        self._damaged = list(damaged)
        self._owner = (-1, found.target_end if found else -1)
        self._runs: list[Run] = []
        self._full: list[MapBlock] = []
        self._mended: list[MapBlock] = []
        self._changed = False
        self._closed = False
        if found is not None:
            self.add(found)

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids under which records of this partition were written."""
        return frozenset(self._producer_ids)

    def begin_claim(self, producer: ProducerId) -> None:
        """Start a block of our own: blocks of former owners are left as they are."""
        self._producer_ids.add(producer.id)
        self.close_block()
        self._owner = producer.id, producer.epoch

    def add(self, run: Run) -> None:
        """Add acknowledged records, in target order."""
        if self._damaged:
            self._mend(run)
        last = self._runs[-1] if self._runs else None
        if last and last.target_end == run.target_start and last.shift == run.shift:
            self._runs[-1] = Run(last.source_start, last.target_start, last.count + run.count)
            return
        if len(self._runs) >= RUNS_PER_BLOCK:
            self.close_block()
        self._runs.append(run)
        self._changed = True

    def changed_blocks(self, position: Position) -> list[MapBlock]:
        """Return the blocks to write before the position is reported.

        What a crash loses of them is found again by resume.
        """
        blocks, self._full = self._full, []
        mended, self._mended = self._mended, []
        return [*blocks, *self._open_block(position), *mended]

    def _open_block(self, position: Position) -> list[MapBlock]:
        if not self._runs:
            return []
        last = self._runs[-1]
        ended = (last.source_end, last.target_end) != (position.source_next, position.target_next)
        if not self._changed and ended == self._closed:
            return []
        self._changed = False
        self._closed = ended
        return [self._block(self._runs, self._owner, open_end=not ended)]

    def _mend(self, run: Run) -> None:
        for key in list(self._damaged):
            if run.target_start <= key.target_start < run.target_end:
                self._damaged.remove(key)
                first = Run(key.target_start - run.shift, key.target_start, 1)
                self._mended.append(self._block((first,), key.owner, open_end=False))

    def close_block(self) -> None:
        """End the open block with the final lengths of its runs."""
        if self._runs:
            self._full.append(self._block(self._runs, self._owner, open_end=False))
        self._runs = []
        self._changed = False
        self._closed = False

    def _block(self, runs: Iterable[Run], owner: tuple[int, int], *, open_end: bool) -> MapBlock:
        assigned = self._assigned
        return MapBlock(
            assigned.topic,
            assigned.topic_id,
            assigned.partition,
            assigned.target_topic_id,
            tuple(sorted(self._producer_ids)),
            tuple(runs),
            open_end,
            owner,
        )
