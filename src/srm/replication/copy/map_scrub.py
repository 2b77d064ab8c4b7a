"""Looks after the offset maps of a slot's partitions in the background, at a bounded rate.

A start reads the end of a map only. Whether all blocks before it are there is found out later,
chunk by chunk; where one is lost, the partition begins again before it, and finds in the logs what
it held. A chunk whose blocks lie below the starts of both logs is deleted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from srm.domain.offset_map.map_index import IndexRecord
from srm.errors import SrmError
from srm.replication.mapping.start_reader import StartReader
from srm.replication.partition.partition import PartitionCopy

logger = logging.getLogger(__name__)

_CHUNK_S: Final = 0.2
"""Between two chunks, half a million runs: so a slot reads at most some 5 MB a second for this."""
_ROUND_S: Final = 600.0
_FIRST_ROUNDS_S: Final = 1.0
_T = TypeVar("_T")


@dataclass(eq=False)
class MapScrub:
    """Goes through the maps of the partitions that a slot has at that moment, again and again.

    ``run`` runs what blocks in another thread; ``begin_again`` restarts before a lost block.
    """

    copies: Callable[[], Sequence[PartitionCopy]]
    checker: StartReader
    run: Callable[[Callable[[], object]], Awaitable[object]]
    begin_again: Callable[[PartitionCopy], Awaitable[None]]
    _seen: set[PartitionCopy] = field(default_factory=set)

    async def work(self) -> None:
        """Look at new partitions soon, at all of them from time to time."""
        rounds = 0
        while True:
            await asyncio.sleep(_FIRST_ROUNDS_S)  # the rhythm of looks, not a wait
            rounds += 1
            copies = self.copies()
            if rounds * _FIRST_ROUNDS_S >= _ROUND_S:
                rounds = 0
                self._seen.clear()
            self._seen &= set(copies)
            await self.look([copy for copy in copies if copy not in self._seen])

    async def look(self, copies: Sequence[PartitionCopy]) -> None:
        """Look at the maps of some partitions; what cannot be read now is looked at again."""
        try:
            await self._note_starts(copies)
            for copy in copies:
                await self._look_at(copy)
                self._seen.add(copy)
        except SrmError as error:
            logger.warning("the check of the offset maps is interrupted and is repeated: %s", error)

    async def _note_starts(self, copies: Sequence[PartitionCopy]) -> None:
        if copies:
            assigned = [copy.assigned for copy in copies]
            starts = await self._call(lambda: self.checker.target_log_starts(assigned))
            for copy in copies:
                copy.map.target_log_start = starts.get(copy.assigned, 0)

    async def _look_at(self, copy: PartitionCopy) -> None:
        root, newest = copy.map.index.records
        for number in range(root.deleted, len(root.entries)):
            chunk = await self._read_chunk(copy, root, number)
            if chunk is not None and number == 0 and self._is_below(copy, root):
                copy.map.index.drop_chunk(chunk)
            elif chunk is None or not await self._is_whole(copy, chunk):
                await self.begin_again(copy)
                return
            await asyncio.sleep(_CHUNK_S)  # the rate
        if not await self._is_whole(copy, newest):
            await self.begin_again(copy)

    def _is_below(self, copy: PartitionCopy, root: IndexRecord) -> bool:
        first = root.entries[0]
        maps = copy.map
        return (
            first.source_end <= maps.source_log_start and first.target_end <= maps.target_log_start
        )

    async def _read_chunk(
        self, copy: PartitionCopy, root: IndexRecord, number: int
    ) -> IndexRecord | None:
        return await self._call(lambda: self.checker.read_chunk(copy.assigned, root, number))

    async def _is_whole(self, copy: PartitionCopy, chunk: IndexRecord) -> bool:
        if len(chunk.entries) == chunk.deleted:
            return True
        return await self._call(lambda: self.checker.is_whole(copy.assigned, chunk))

    async def _call(self, ask: Callable[[], _T]) -> _T:
        found: list[_T] = []
        await self.run(lambda: found.append(ask()))
        return found[0]
