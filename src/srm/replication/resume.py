"""Find, and prove, the exact position of a partition by walking both logs side by side.

The map is written once a second, so after a crash the target can hold records the map does not
know of. From the end of the last known run, each of our batches on the target must be the next
batch the source would give; the walk ends at the marker of the new claim, after which nobody else
can append. Batches are compared by their bytes, else by their records: the target may have
recompressed them, and a rebuilt batch need not align with one of the source.

A batch on the target that is not ours is foreign: a hole in the map, reported. A batch of ours that
does not match is undecidable: the partition stops and says where.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from srm.domain.offset_map import Run, coalesce
from srm.domain.topics import TopicPartition
from srm.errors import DataLossError, IntegrityError, UnavailableError
from srm.replication import codes
from srm.replication.batch import HEADER_SIZE, BatchHeader, batches
from srm.replication.claim import Claim
from srm.replication.ports import FetchedPartition, FetchFrom, Wire
from srm.replication.rebuild import Record, decode, same_content
from srm.replication.units import Unit, units

_FETCH_BYTES: Final = 4 << 20
_FETCH_WAIT_MS: Final = 50
_MARKER_DEADLINE_S: Final = 30.0
_TIMESTAMPS: Final = slice(27, 43)


@dataclass(frozen=True, slots=True)
class Start:
    """What is known before the walk: how far the copy was, and our producer ids.

    ``found`` is the part of the last run that only its former owner's report tells of.
    """

    source_next: int
    target_next: int
    producer_ids: frozenset[int] = frozenset()
    found: Run | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """The proven position, with the runs found on the way and foreign target ranges."""

    source_next: int
    target_next: int
    runs: tuple[Run, ...]
    foreign: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class LogReader:
    """Reads one partition of one cluster, by topic id."""

    wire: Wire
    partition: TopicPartition
    topic_id: bytes
    read_committed: bool

    async def fetch(self, offset: int) -> tuple[FetchedPartition, object]:
        """Fetch from an offset.

        Raises:
            DataLossError: the log does not hold the offset.
            UnavailableError: the leader does not answer, or has moved.
        """
        node = await self.wire.leader(self.partition)
        fetched = await self.wire.fetch(
            node,
            [FetchFrom(self.topic_id, self.partition.partition, offset, _FETCH_BYTES)],
            max_wait_ms=_FETCH_WAIT_MS,
            max_bytes=_FETCH_BYTES,
            read_committed=self.read_committed,
        )
        error = fetched.error or fetched.partitions[0].error
        if error == codes.OFFSET_OUT_OF_RANGE:
            start, end = await self.wire.log_range(self.partition)
            raise DataLossError(
                f"{self.partition}: offset {offset} is not in the log any more, which holds "
                f"{start} to {end}"
            )
        if error:
            self.wire.leaders_changed()
            raise UnavailableError(f"{self.partition}: fetch was answered with error {error}")
        return fetched.partitions[0], fetched.owner


@dataclass
class _SourceCursor:
    """The source's records from an offset on, as the copy path would send them."""

    reader: LogReader
    next_offset: int
    _units: deque[Unit] = field(default_factory=deque)
    _records: deque[tuple[int, Record]] = field(default_factory=deque)
    _fetch_offset: int = -1

    async def match(self, batch: BatchHeader) -> list[Run]:
        """Advance over the source records that a target batch holds.

        Raises:
            IntegrityError: the target batch holds something else.
        """
        if not self._records:
            unit = await self._next_unit(batch)
            if _same_bytes(unit.view, batch.view):
                self.next_offset = unit.source_next
                return list(unit.runs(batch.base_offset))
            self._units.appendleft(unit)
        return await self._match_records(batch)

    async def _match_records(self, batch: BatchHeader) -> list[Run]:
        runs = []
        for copied in decode(batch):
            while not self._records:
                unit = await self._next_unit(batch)
                [header] = batches(unit.view)
                decoded = decode(header)
                self._records.extend(zip(unit.offsets(), decoded, strict=True))
            offset, record = self._records.popleft()
            if not same_content(record, copied):
                raise IntegrityError(
                    f"{self.reader.partition}: target offset {copied.offset} does not hold source "
                    f"offset {offset}: position undecidable, compare with 'srm verify'"
                )
            runs.append(Run(offset, copied.offset, 1))
            self.next_offset = offset + 1
        return runs

    async def _next_unit(self, batch: BatchHeader) -> Unit:
        if self._fetch_offset < 0:
            self._fetch_offset = self.next_offset
        while not self._units:
            fetched, owner = await self.reader.fetch(self._fetch_offset)
            before = self._fetch_offset
            for unit in units(
                fetched, self._fetch_offset, owner, read_committed=self.reader.read_committed
            ):
                if isinstance(unit, Unit):
                    self._units.append(unit)
                    self._fetch_offset = unit.source_next
                else:
                    self._fetch_offset = unit
            if self._fetch_offset == before and before >= fetched.last_stable_offset:
                raise IntegrityError(
                    f"{self.reader.partition}: the target holds our batch at offset "
                    f"{batch.base_offset}, but the source ends at {before}: truncated source?"
                )
        return self._units.popleft()


def _same_bytes(ours: memoryview, theirs: memoryview) -> bool:
    return (
        len(ours) == len(theirs)
        and ours[_TIMESTAMPS] == theirs[_TIMESTAMPS]
        and bytes(ours[HEADER_SIZE:]) == bytes(theirs[HEADER_SIZE:])
    )


async def _until_marker(reader: LogReader, offset: int, claim: Claim) -> AsyncIterator[BatchHeader]:
    """Yield the target's batches up to, and as the last one, the marker of the claim."""
    deadline = time.monotonic() + _MARKER_DEADLINE_S
    while time.monotonic() < deadline:
        fetched, owner = await reader.fetch(offset)
        for batch in batches(fetched.records):
            if batch.last_offset < offset:
                continue
            yield batch
            if _is_marker(batch, claim):
                return
            offset = batch.last_offset + 1
            deadline = time.monotonic() + _MARKER_DEADLINE_S
        del owner
    raise UnavailableError(
        f"{reader.partition}: the marker of our claim did not reach the log in "
        f"{_MARKER_DEADLINE_S:.0f} s"
    )


def _is_marker(batch: BatchHeader, claim: Claim) -> bool:
    return (
        batch.is_control
        and batch.producer_id == claim.producer.id
        and batch.producer_epoch == claim.producer.epoch
    )


async def resume(source: LogReader, target: LogReader, start: Start, claim: Claim) -> Resumed:
    """Walk both logs from ``start`` to the marker of the claim.

    Raises:
        IntegrityError: the position cannot be decided.
        DataLossError: one of the logs no longer holds the range to be compared.
        UnavailableError: a broker does not answer.
    """
    cursor = _SourceCursor(source, start.source_next)
    ours = start.producer_ids | {claim.producer.id}
    runs: list[Run] = []
    foreign: list[tuple[int, int]] = []
    target_next = start.target_next
    async for batch in _until_marker(target, start.target_next, claim):
        target_next = batch.last_offset + 1
        if batch.is_control or batch.record_count == 0:
            continue
        if batch.producer_id in ours:
            runs.extend(await cursor.match(batch))
        else:
            foreign.append((batch.base_offset, batch.last_offset + 1))
    return Resumed(cursor.next_offset, target_next, coalesce(runs), tuple(foreign))
