"""The growing end of one partition's offset map, as blocks to write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from srm.domain.map_records import RUNS_PER_BLOCK, BlockKey, MapBlock
from srm.domain.offset_map import Position, Run
from srm.domain.replication_records import AssignedPartition
from srm.replication.ports import ProducerId


class MapWriter:
    """Collects runs and hands out the blocks that changed.

    A run that only grows changes nothing while the position stands at its end: readers take its
    length from the slot's report. So a topic that is copied in one stretch costs one small record,
    however long it runs. Once the position stands elsewhere (markers or aborted records came after
    the run), the run can grow no more, and the block is written again, closed.

    ``found`` is the end of a former owner's open run that only its report tells of: written down at
    once, because our own report replaces that one. ``damaged`` are blocks that cannot be read:
    resume walks over what they held, so they can go once our own are written. Each block names the
    one before it; ``previous`` is the last one of former owners. ``source_epoch`` is the source's
    leader epoch at the end of ``found``.
    """

    def __init__(
        self,
        assigned: AssignedPartition,
        producer_ids: Iterable[int],
        found: Run | None = None,
        damaged: Iterable[BlockKey] = (),
        previous: BlockKey | None = None,
        source_epoch: int = -1,
    ) -> None:
        self._assigned = assigned
        self._producer_ids = set(producer_ids)
        self._damaged = list(damaged)
        self._previous = previous
        self._owner = (-1, found.target_end if found else -1)
        self._runs: list[Run] = []
        self._full: list[MapBlock] = []
        self._changed = False
        self._closed = False
        self._epoch = -1
        if found is not None:
            self.add([found], source_epoch)

    @property
    def producer_ids(self) -> frozenset[int]:
        """Producer ids under which records of this partition were written."""
        return frozenset(self._producer_ids)

    @property
    def has_claim(self) -> bool:
        """Whether records are added under a claim, so that nobody else's follow them."""
        return self._owner[0] >= 0

    def begin_claim(self, producer: ProducerId) -> None:
        """Start a block of our own, once: blocks of former owners are left as they are."""
        if self._owner == (producer.id, producer.epoch):
            return
        self._producer_ids.add(producer.id)
        self.close_block()
        self._owner = producer.id, producer.epoch

    def add(self, runs: Sequence[Run], source_epoch: int = -1) -> None:
        """Add acknowledged records, in target order, and the source's leader epoch at their end.

        Only the first run may go on where the last one ends: the others begin behind holes.
        """
        last = self._runs[-1] if self._runs else None
        first = runs[0]
        if last and last.target_end == first.target_start and last.shift == first.shift:
            self._runs[-1] = Run(last.source_start, last.target_start, last.count + first.count)
            runs = runs[1:]
            self._epoch = source_epoch
        while runs:
            if len(self._runs) >= RUNS_PER_BLOCK:
                self.close_block()
            room = RUNS_PER_BLOCK - len(self._runs)
            self._runs += runs[:room]
            runs = runs[room:]
            self._changed = True
            self._epoch = source_epoch

    def changed_blocks(self, position: Position) -> list[MapBlock]:
        """Return the blocks to write before the position is reported.

        What a crash loses of them is found again by resume.
        """
        blocks, self._full = self._full, []
        return [*blocks, *self._open_block(position)]

    def replaced_blocks(self) -> list[BlockKey]:
        """Return the blocks to delete once :meth:`changed_blocks` are acknowledged."""
        if not self.has_claim:
            return []
        replaced, self._damaged = self._damaged, []
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
        return [self._block(self._runs, self._owner, open_end=not ended)]

    def close_block(self) -> None:
        """End the open block with the final lengths of its runs."""
        if self._runs:
            block = self._block(self._runs, self._owner, open_end=False)
            self._full.append(block)
            self._previous = block.block_key
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
            self._previous,
            self._epoch,
        )
