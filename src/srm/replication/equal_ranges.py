"""Proof that two ranges hold the same records, by the bytes of their batches.

Both sides are fetched as stored. ``frames.c`` splits batches, however they were cut, merged or
compressed, and compares each pair of records that the offset map names, without Python.

This finds equality only. On anything else an ordinary consumer has to compare
(:mod:`srm.domain.verification.comparison`): so the code that copies batches never reports a
difference.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

from srm.domain.offset_map.runs import Runs
from srm.domain.verification.verification import RangeResult, SideResult, new_hash
from srm.domain.verification.verification_plan import RangePlan
from srm.errors import IntegrityError, SrmError
from srm.replication.log_reader import LogReader
from srm.replication.native.frames import Found, Framing, PairSearch, behind
from srm.replication.native.library import NativeLibrary
from srm.replication.ports import FetchedPartition

_FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 500
_SILENCE_S: Final = 5.0


async def prove_equal(
    plan: RangePlan, source: LogReader, target: LogReader, native: NativeLibrary
) -> RangeResult | None:
    """Compare a range as :func:`srm.domain.verification.comparison.compare`; None: not proven."""
    if plan.decided:
        return None
    sides = (
        _Reading(source, plan.source_start, min(plan.source_end, plan.source_log_end)),
        _Reading(target, plan.target_start, min(plan.target_end, plan.target_log_end)),
    )
    framings = tuple(
        Framing(native, side.start, side.end, with_time=plan.timestamps) for side in sides
    )
    try:
        return await _prove(plan, native, sides, framings)
    except SrmError:
        return None
    finally:
        for side in sides:
            await side.close()


@dataclass
class _Reading:
    """Fetch answers of one side, one ahead of what is looked at."""

    reader: LogReader
    start: int
    end: int
    _ahead: asyncio.Task[FetchedPartition] | None = None

    def begin(self, offset: int) -> None:
        """Fetch from an offset, unless the end is reached."""
        if offset < self.end:
            self._ahead = asyncio.ensure_future(self._fetch(offset))

    async def _fetch(self, offset: int) -> FetchedPartition:
        deadline = time.monotonic() + _SILENCE_S
        while True:
            answer = await self.reader.fetch(offset, _FETCH_BYTES, _WAIT_MS)
            if len(answer.records):
                return answer
            if time.monotonic() > deadline:
                raise IntegrityError(f"{self.reader.partition}: nothing comes behind {offset}")

    async def answer(self, native: NativeLibrary) -> FetchedPartition:
        """Return the next answer; request the one after it."""
        if self._ahead is None:
            raise IntegrityError(f"{self.reader.partition}: no longer in the log")
        answer = await self._ahead
        self._ahead = None
        self.begin(behind(native, answer.records))
        return answer

    async def close(self) -> None:
        """Wait for abandoned requests: answers arrive in order."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead])
            if not self._ahead.cancelled():
                self._ahead.exception()


async def _prove(
    plan: RangePlan,
    native: NativeLibrary,
    sides: tuple[_Reading, ...],
    framings: tuple[Framing, ...],
) -> RangeResult | None:
    search = PairSearch(native, Runs.of(plan.runs), compacted=plan.compacted)
    for side in sides:
        side.begin(side.start)
    content, counts = new_hash(), [0, 0]
    while True:
        for which, waits in enumerate(search.waits_for):
            if waits:
                framing = framings[which]
                has_more = await _advance(framing, sides[which], native)
                counts[which] += framing.count if has_more else 0
                search.give(which, framing if has_more else None)
        outcome, first, last = search.find()
        if last > first:
            framing = framings[0]
            start = int(framing.ends[first - 1]) if first else 0
            content.update(framing.room.data[start : int(framing.ends[last - 1])])
        if outcome is Found.UNEQUAL:
            return None
        if outcome is Found.ENDED:
            source, target = (
                SideResult(count, content.hexdigest(), *framing.end)
                for count, framing in zip(counts, framings, strict=True)
            )
            return RangeResult(source, target, 0, search.one_sided, None, by_bytes=True)


async def _advance(framing: Framing, side: _Reading, native: NativeLibrary) -> bool:
    """Frame the next piece of a side; False at the end of the range."""
    while not framing.next_piece():
        if framing.is_complete:
            return False
        answer = await side.answer(native)
        framing.feed(answer.records, answer.aborted)
    return True
