"""Proof that two ranges hold the same records, by the bytes of their batches.

``frames.c`` splits batches, however they were cut, merged or compressed, and compares each pair of
records that the offset map names, without Python. This finds equality only: on anything else an
ordinary consumer compares (:mod:`srm.domain.verification.comparison`), so the code that copies
batches never reports a difference.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from bisect import bisect_right
from collections.abc import Sequence
from ctypes import Structure, c_int32, c_int64, c_void_p
from enum import IntEnum
from typing import Final

import numpy as np

from srm.domain.offset_map.runs import OffsetSet, Runs
from srm.domain.verification.verification import RangeResult, SideResult, new_hash
from srm.domain.verification.verification_plan import RangePlan
from srm.errors import IntegrityError, SrmError
from srm.replication.batches.batch import INT32, LENGTH_AT, PREFIX, batches
from srm.replication.batches.codecs import open_batch
from srm.replication.log_reader import LogReader, fetches
from srm.replication.native.library import NativeLibrary, address, layout
from srm.replication.ports import FetchedPartition

_PIECE_BYTES: Final = 1 << 20
_MOST_OPEN: Final = 64
_COMPRESSED: Final = 1
_MALFORMED: Final = -1
_LEAST_RECORD: Final = 7
_FRAME_GROWTH: Final = 4


class Found(IntEnum):
    """Reason for the end of a search for pairs (``frames.c``)."""

    AGAIN = 0
    ENDED = 1
    UNEQUAL = 2


class _Framing(Structure):
    _fields_ = layout(
        (c_void_p, "in"),
        (c_int64, "size at next from to"),
        (c_void_p, "aborted"),
        (c_int64, "n_aborted i_aborted"),
        (c_int64 * _MOST_OPEN, "open"),
        (c_int64, "n_open"),
        (c_void_p, "room offsets ends"),
        (c_int64, "n least"),
        (c_int32, "epoch with_time opened"),
    )


class _Side(Structure):
    _fields_ = layout((c_void_p, "frames offsets ends"), (c_int64, "at n run"), (c_int32, "done"))


class _Pairs(Structure):
    _fields_ = layout(
        (_Side, "source target"),
        (c_void_p, "sources targets counts"),
        (c_int64, "n_runs first one_sided"),
        (c_int32, "compacted"),
    )


class _LogSide:
    """The committed records of a range of one log as frames, a piece at a time.

    It is one fetch answer ahead of what is looked at.
    """

    def __init__(
        self, reader: LogReader, native: NativeLibrary, start: int, end: int, *, with_time: bool
    ) -> None:
        self._reader = reader
        self._native = native
        self._job = job = _Framing(next=start, to=end, least=_PIECE_BYTES, epoch=-1)
        setattr(job, "from", start)
        job.with_time = with_time
        self._records = memoryview(b"")
        self._aborted = np.empty(0, np.int64)
        self._ahead: asyncio.Task[FetchedPartition] | None = None
        self.room = np.empty(0, np.uint8)
        self._offsets = np.empty(0, np.int64)
        self.ends = np.empty(0, np.int64)
        self._count = 0
        self._fetch_ahead(start)

    def result(self, content: str) -> SideResult:
        return SideResult(self._count, content, int(self._job.epoch), int(self._job.next))

    def _fetch_ahead(self, offset: int) -> None:
        if offset < self._job.to:
            self._ahead = asyncio.ensure_future(self._fetch(offset))

    async def _fetch(self, offset: int) -> FetchedPartition:
        deadline = time.monotonic() + _SILENCE_S
        while True:
            answer = await self._reader.fetch(offset, _FETCH_BYTES, _WAIT_MS)
            if len(answer.records):
                return answer
            if time.monotonic() > deadline:
                raise IntegrityError(f"{self._reader.partition}: no records after offset {offset}")

    async def feed(self, side: _Side) -> None:
        """Continue a side of the search for pairs with the next piece."""
        while not self._frame_more():
            if self._job.next >= self._job.to:
                side.done = 1
                return
            if self._ahead is None:
                raise IntegrityError(f"{self._reader.partition}: no longer in the log")
            answer = await self._ahead
            self._ahead = None
            records = answer.records
            self._fetch_ahead(int(self._native.behind(address(records), len(records))))
            self._frame(records, answer.aborted)
        side.frames = self.room.ctypes.data
        side.offsets, side.ends = self._offsets.ctypes.data, self.ends.ctypes.data
        side.at, side.n = 0, self._job.n
        self._count += self._job.n

    async def close(self) -> None:
        """Wait for abandoned requests: answers arrive in order."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead])
            if not self._ahead.cancelled():
                self._ahead.exception()

    def _frame(self, records: memoryview, aborted: Sequence[tuple[int, int]]) -> None:
        job = self._job
        self._records = records
        ordered = sorted(aborted, key=lambda transaction: transaction[1])
        self._aborted = np.array(ordered, np.int64)
        job.aborted, job.n_aborted = self._aborted.ctypes.data, len(ordered)
        job.i_aborted = job.n_open = 0
        setattr(job, "in", address(records))
        job.size, job.at = len(records), 0

    def _frame_more(self) -> bool:
        """Frame more of the answer; False where it holds no more whole batch."""
        job = self._job
        while job.next < job.to:
            at = job.at
            self._make_room(job.size - at)
            outcome = self._frames()
            if job.n:  # a compressed batch follows these
                return True
            if outcome == _COMPRESSED:
                self._open()
                if job.n:
                    return True
            elif job.at == at:
                return False
        return False

    def _frames(self) -> int:
        outcome = int(self._native.frames(ctypes.byref(self._job)))
        if outcome == _MALFORMED:
            raise IntegrityError(f"the batch at or after offset {self._job.next} is malformed")
        return outcome

    def _open(self) -> None:
        job, at = self._job, self._job.at
        (length,) = INT32.unpack_from(self._records, at + LENGTH_AT)
        batch = self._records[at : at + PREFIX + length]
        records = memoryview(open_batch(batch))
        outer = getattr(job, "in"), job.size
        self._make_room(len(records))
        setattr(job, "in", address(records))
        job.size, job.at, job.opened = len(records), 0, 1
        self._frames()
        if job.at != len(records):
            raise IntegrityError(f"the batch at or after offset {job.next} is malformed")
        setattr(job, "in", outer[0])
        job.size, job.at, job.opened = outer[1], at + len(batch), 0

    def _make_room(self, size: int) -> None:
        job = self._job
        if len(self.room) < size * _FRAME_GROWTH:
            self.room = np.empty(size * _FRAME_GROWTH, np.uint8)
            job.room = self.room.ctypes.data
        if len(self._offsets) <= size // _LEAST_RECORD:
            self._offsets = np.empty(size // _LEAST_RECORD + 1, np.int64)
            self.ends = np.empty(size // _LEAST_RECORD + 1, np.int64)
            job.offsets, job.ends = self._offsets.ctypes.data, self.ends.ctypes.data


_FETCH_BYTES: Final = 4 << 20
_WAIT_MS: Final = 500
_SILENCE_S: Final = 5.0


async def prove_equal(
    plan: RangePlan, source: LogReader, target: LogReader, native: NativeLibrary
) -> RangeResult | None:
    """Compare a range as :func:`srm.domain.verification.comparison.compare`; None: not proven."""
    if plan.decided:
        return None
    source_end = min(plan.source_end, plan.source_log_end)
    target_end = min(plan.target_end, plan.target_log_end)
    sides = tuple(
        _LogSide(reader, native, start, end, with_time=plan.timestamps)
        for reader, start, end in (
            (source, plan.source_start, source_end),
            (target, plan.target_start, target_end),
        )
    )
    try:
        return await _prove(plan, native, sides)
    except SrmError:
        return None
    finally:
        for side in sides:
            await side.close()


async def unmapped_copies(plan: RangePlan, target: LogReader) -> list[tuple[int, int]]:
    """Return target offsets outside the map by writers of copies, where the source lacks as many.

    A walk that finds a copy without its original cannot know which offset that had.
    """
    runs, end = plan.runs, min(plan.target_end, plan.target_log_end)
    mapped = OffsetSet((run.target_start, run.target_end) for run in runs)
    written = [
        (batch.producer_id, max(plan.target_start, batch.base_offset), batch.last_offset + 1)
        async for _, fetched in fetches(target, plan.target_start, end)
        for batch in batches(fetched.records)
        if batch.last_offset >= plan.target_start and not batch.is_control
    ]
    writers = {one for one, a, b in written if (at := mapped.next(a)) is not None and at < b}

    def room(at: int) -> int:
        index = bisect_right(runs, at, key=lambda run: run.target_start)
        start = runs[index - 1].source_end if index else plan.source_start
        return (runs[index].source_start if index < len(runs) else plan.source_end) - start

    found = [part for one, a, b in written if one in writers for part in mapped.add(a, b)]
    return [(a, b) for a, b in found if b - a <= room(a)]


async def _prove(
    plan: RangePlan, native: NativeLibrary, sides: tuple[_LogSide, ...]
) -> RangeResult | None:
    runs, content, originals = Runs.of(plan.runs), new_hash(), sides[0]
    pairs = _Pairs(
        sources=runs.sources.ctypes.data,
        targets=runs.targets.ctypes.data,
        counts=runs.counts.ctypes.data,
        n_runs=len(runs),
        compacted=plan.compacted,
    )
    while True:
        for side, log in zip((pairs.source, pairs.target), sides, strict=True):
            if side.at == side.n and not side.done:
                await log.feed(side)
        found = Found(native.pairs(ctypes.byref(pairs)))
        first, last = int(pairs.first), int(pairs.source.at)
        if last > first:
            start = int(originals.ends[first - 1]) if first else 0
            content.update(originals.room.data[start : int(originals.ends[last - 1])])
        if found is Found.UNEQUAL:
            return None
        if found is Found.ENDED:
            source, target = (side.result(content.hexdigest()) for side in sides)
            return RangeResult(source, target, 0, int(pairs.one_sided), None, by_bytes=True)
