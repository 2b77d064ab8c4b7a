"""Reading partitions on their own: for the resume walk, or many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from srm.clock import now_s
from srm.domain.flow_state.replication_records import AssignedPartition, PartitionNotes
from srm.domain.names.topics import TopicPartition, topic_id_bytes
from srm.domain.offset_map.runs import EpochRange, Lineage, Run
from srm.errors import DataLossError, UnavailableError
from srm.replication import codes
from srm.replication.batches.batch import BatchHeader, batches
from srm.replication.ports import EpochEnd, FetchedPartition, FetchFrom, Wire

FETCH_BYTES: Final = 4 << 20
ONE_BATCH: Final = 1
"""Smallest size of a fetch: a broker still returns the first batch whole."""
WAIT_MS: Final = 50
_ELECTED_S: Final = 3.0
_PAUSE_S: Final = 0.2
_SILENT_S: Final = 30.0
_AT_ONCE: Final = 64
_T = TypeVar("_T")
_R = TypeVar("_R")

Connect = Callable[[str], AbstractAsyncContextManager[Wire]]


class OutOfRangeError(DataLossError):
    """The log does not hold an offset."""

    def __init__(self, partition: TopicPartition, offset: int, log_start: int, end: int) -> None:
        super().__init__(
            f"{partition}: offset {offset} is not in the log, which holds {log_start} to {end}"
        )
        self.log_start = log_start


class SharedEnd(NamedTuple):
    """Offset up to which two logs are equal; not ``is_exact``: no shared epoch, perhaps less."""

    end: int
    is_exact: bool = True

    def holds(self, lineage: Lineage, last_run: Run | None) -> bool:
        """Return whether a log of a lineage has lost no copied record, but markers after them."""
        copied_to = last_run.source_end if last_run is not None else 0
        return bool(lineage) and self.is_exact and copied_to <= self.end


class Meter:
    """Counts what a walk reads of both logs."""

    def __init__(self, limit: float) -> None:
        self._left = limit

    def read(self, count: int) -> None:
        """Count bytes; LongWalkError: there are more than the limit."""
        self._left -= count
        if self._left < 0:
            raise LongWalkError("a walk turned out to be long")


class LongWalkError(UnavailableError):
    """More is to be read than short walks may."""


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads one partition of one cluster, by topic id."""

    wire: Wire
    partition: TopicPartition
    topic_id: bytes
    read_committed: bool
    meter: Meter | None = None

    @classmethod
    def of_source(
        cls,
        wire: Wire,
        assigned: AssignedPartition,
        meter: Meter | None = None,
        *,
        read_committed: bool = False,
    ) -> LogReader:
        place = TopicPartition(assigned.topic, assigned.partition)
        return LogReader(wire, place, topic_id_bytes(assigned.topic_id), read_committed, meter)

    @classmethod
    def of_target(
        cls, wire: Wire, assigned: AssignedPartition, meter: Meter | None = None
    ) -> LogReader:
        place = TopicPartition(assigned.target_topic, assigned.partition)
        topic_id = topic_id_bytes(assigned.target_topic_id)
        return LogReader(wire, place, topic_id, read_committed=False, meter=meter)

    async def fetch(
        self, offset: int, max_bytes: int = FETCH_BYTES, wait_ms: int = WAIT_MS
    ) -> FetchedPartition:
        """Fetch from an offset; the first batch comes whole. OutOfRangeError: it is not in the log.

        At the end of the log the broker waits ``wait_ms``, and delays later requests on the
        connection.
        """
        node, epoch = await self.wire.leader(self.partition)
        number, committed = self.partition.partition, self.read_committed
        wanted = FetchFrom(self.topic_id, number, offset, max_bytes, leader_epoch=epoch)
        fetched = await self.wire.fetch(
            node, [wanted], max_wait_ms=wait_ms, max_bytes=max_bytes, read_committed=committed
        )
        error = fetched.partitions[0].error
        if error == codes.OFFSET_OUT_OF_RANGE:
            start, end = await self.wire.log_range(self.partition)
            raise OutOfRangeError(self.partition, offset, start, end)
        if error == codes.TOPIC_RIGHT_MISSING:
            topic, cluster = self.partition.topic, self.wire.alias
            raise codes.missing_right("Read", topic, cluster)
        if error:
            self.wire.leaders_changed()
            raise UnavailableError(f"{self.partition}: fetch failed with error {error}")
        if self.meter is not None:
            self.meter.read(len(fetched.partitions[0].records))
        return fetched.partitions[0]

    async def batch_at(self, offset: int) -> BatchHeader | None:
        """Return the batch that holds an offset, None where compaction has removed it."""
        found = await self._first_from(offset, await self.fetch(offset, max_bytes=ONE_BATCH))
        return found if found is not None and found.base_offset <= offset else None

    async def batch_from(self, offset: int) -> BatchHeader | None:
        """Return the batch that holds an offset, or the next one; None where none follows."""
        try:
            fetched = await self.fetch(offset, max_bytes=ONE_BATCH, wait_ms=0)
        except OutOfRangeError as error:
            return None if error.log_start <= offset else await self.batch_from(error.log_start)
        return await self._first_from(offset, fetched)

    async def _first_from(self, offset: int, fetched: FetchedPartition) -> BatchHeader | None:
        found = (b for b in batches(fetched.records) if b.last_offset >= offset)
        first = next(found, None)
        if first is None:
            await self.check_end(offset, fetched)
        return first

    async def check_end(self, offset: int, fetched: FetchedPartition) -> None:
        """Refuse an answer without a record before the log's end if records may follow.

        On the leader's own disk none follow: compaction has removed the last ones.
        """
        if await self.is_late(offset, fetched):
            raise UnavailableError(
                f"{self.partition}: the leader sent nothing from offset {offset}, though its log "
                f"ends at {self.end_in(fetched)}: retrying"
            )

    async def is_late(self, offset: int, fetched: FetchedPartition) -> bool:
        """Return whether tiered storage may hold more records than an answer without any."""
        end = self.end_in(fetched)
        return offset < end and offset < await self.wire.local_start(self.partition)

    def end_in(self, fetched: FetchedPartition) -> int:
        return fetched.last_stable_offset if self.read_committed else fetched.high_watermark

    async def epoch_end(self, epoch: int) -> EpochEnd:
        """Query where the log continues after a leader epoch; wait while a new leader learns it."""
        deadline = now_s() + _ELECTED_S
        while (found := await self._epoch_end(epoch)).end < 0:
            if now_s() > deadline:
                break
            self.wire.leaders_changed()
            await asyncio.sleep(_PAUSE_S)  # between two questions
        return found

    async def held_to(self, decided: PartitionNotes) -> int:
        """Return up to where the log holds what a decision left on it, 0 where it holds nothing."""
        _, end = decided.left_out or (0, 0)
        if decided.epoch < 0:
            _, log_end = await self.wire.log_range(self.partition)
            return min(end, log_end)
        found = await self.epoch_end(decided.epoch)
        return min(end, found.end) if found.epoch == decided.epoch else 0

    async def shared_end(self, lineage: Lineage, at: int, *, is_patient: bool = True) -> SharedEnd:
        """Return the offset at which the log diverges from one with a lineage, as followers do.

        That is the lower end of the last epoch in both (KIP-101, KIP-279), ``at`` if they agree. A
        restored cluster uses epochs again: with another start one is not in both.
        """
        found = None
        for read in lineage.latest_first(at):
            query = self.epoch_end if found is None and is_patient else self._epoch_end
            found = await query(read.epoch)
            if found.epoch == read.epoch and await self._begins_like(read):
                end = min(read.end, found.end)
                # An epoch without a shared record proves nothing of the epochs before it.
                if end > read.start or read.start == lineage.begin:
                    return SharedEnd(end)
        _, log_end = await self.wire.log_range(self.partition)
        if not lineage:
            return SharedEnd(min(at, log_end))
        end = found.end if found and found.end >= 0 else log_end
        return SharedEnd(min(at, lineage.begin, end), is_exact=False)

    async def holds_to(self, lineage: Lineage, at: int, *, is_patient: bool = True) -> SharedEnd:
        """Return :meth:`shared_end`, but ``at`` where compaction may have removed what was read."""
        shared = await self.shared_end(lineage, at, is_patient=is_patient)
        if shared.end == at or not lineage:
            return shared
        before = lineage.before(shared.end)
        epoch = before.epoch if before else lineage.starts[0][0]
        if (await self._epoch_end(epoch)).end < at or await self._holds_some(shared.end, at):
            return shared
        return SharedEnd(at)

    async def _epoch_end(self, epoch: int) -> EpochEnd:
        return await self.wire.epoch_end(self.partition, epoch)

    async def _begins_like(self, read: EpochRange) -> bool:
        """Return whether an epoch of the log can begin where it was read to begin."""
        if read.epoch == 0:
            return True
        found, start = (await self._epoch_end(read.epoch - 1)).end, read.start
        if read.is_exact and found < start:
            return False
        return not (found > start and await self._holds_some(start, found))

    async def _holds_some(self, first: int, end: int) -> bool:
        """Return whether the log has a batch in a range of offsets; deleted ones do not count."""
        try:
            batch = await self._first_from(first, await self.fetch(first, ONE_BATCH, wait_ms=0))
        except OutOfRangeError as error:
            return first < error.log_start < end and await self._holds_some(error.log_start, end)
        return batch is not None and batch.base_offset < end


async def fetches(
    log: LogReader, start: int, end: int | None = None
) -> AsyncIterator[tuple[int, FetchedPartition]]:
    """Fetch a log to its end, or wait until an offset; yield the first wanted offset of answers."""
    offset, heard = start, now_s()
    while end is None or offset < end:
        try:
            fetched = await log.fetch(offset, wait_ms=0 if end is None else WAIT_MS)
        except OutOfRangeError as error:
            if error.log_start <= offset:
                return
            offset = error.log_start
            continue
        following = max((b.last_offset + 1 for b in batches(fetched.records)), default=offset)
        if following > offset:
            yield offset, fetched
            offset, heard = following, now_s()
        elif end is None:
            await log.check_end(offset, fetched)
            return
        elif log.end_in(fetched) >= end and not await log.is_late(offset, fetched):
            return
        elif now_s() - heard > _SILENT_S:
            raise UnavailableError(f"{log.partition}: no records arrive from offset {offset} on")


async def some_at_once(
    work: Callable[[_T], Awaitable[_R]], items: Iterable[_T], at_once: int = _AT_ONCE
) -> list[_R]:
    """Process all items with bounded concurrency; the first failure ends all."""
    permits = asyncio.Semaphore(at_once)

    async def one(item: _T) -> _R:
        async with permits:
            return await work(item)

    return await asyncio.gather(*(one(item) for item in items))


def of_each_log(
    wire: AbstractAsyncContextManager[Wire],
    topic_ids: Mapping[TopicPartition, str],
    query: Callable[[LogReader], Awaitable[_R]],
) -> dict[TopicPartition, _R]:
    """Return the answer of ``query``, which gets a reader, for each partition; blocks."""

    async def answers() -> list[_R]:
        async with wire as connected:

            async def one(place: TopicPartition) -> _R:
                topic_id = topic_id_bytes(topic_ids[place])
                return await query(LogReader(connected, place, topic_id, read_committed=False))

            return await some_at_once(one, topic_ids)

    return dict(zip(topic_ids, asyncio.run(answers()), strict=True))
