"""The growing end of one partition's offset map, as blocks to write."""

from __future__ import annotations

from collections.abc import Iterable

from srm.domain.map_records import RUNS_PER_BLOCK, MapBlock
from srm.domain.offset_map import Run
from srm.domain.replication_records import AssignedPartition


class MapLog:
    """Collects runs and hands out the blocks that changed.

    A run that only grows changes nothing: its end follows from the slot's position report. So a
    topic that is copied in one stretch costs one small record, however long it runs.
    """

    def __init__(self, assigned: AssignedPartition, producer_ids: Iterable[int]) -> None:
        self._assigned = assigned
        self._producer_ids = set(producer_ids)
        self._runs: list[Run] = []
        self._full: list[MapBlock] = []
        self._changed = False

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids under which records of this partition were written."""
        return frozenset(self._producer_ids)

    def begin_claim(self, producer_id: int) -> None:
        """Start a block of our own: blocks of former owners are left as they are."""
        self._producer_ids.add(producer_id)
        self._close()

    def add(self, run: Run) -> None:
        """Add acknowledged records, in target order."""
        last = self._runs[-1] if self._runs else None
        if last and last.target_end == run.target_start and last.shift == run.shift:
            self._runs[-1] = Run(last.source_start, last.target_start, last.count + run.count)
            return
        if len(self._runs) >= RUNS_PER_BLOCK:
            self._close()
        self._runs.append(run)
        self._changed = True

    def changed_blocks(self) -> list[MapBlock]:
        """Return the blocks to write now; what a crash loses of them is found again by resume."""
        blocks, self._full = self._full, []
        if self._changed:
            blocks.append(self._block())
            self._changed = False
        return blocks

    def _close(self) -> None:
        if self._runs:
            self._full.append(self._block())
        self._runs = []
        self._changed = False

    def _block(self) -> MapBlock:
        assigned = self._assigned
        return MapBlock(
            assigned.topic,
            assigned.topic_id,
            assigned.partition,
            assigned.target_topic_id,
            tuple(sorted(self._producer_ids)),
            tuple(self._runs),
        )
