"""Two logs as a walk meets them: batches by offset, and what is known of where they come from."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.batches import Record, marker, stored

from srm.domain.names.topics import TopicPartition
from srm.replication import codes
from srm.replication.batches.batch import batches, seal
from srm.replication.batches.records import decode
from srm.replication.claim import Claim
from srm.replication.log_reader import LogReader
from srm.replication.mapping.starts import Start
from srm.replication.ports import (
    EpochEnd,
    Fetched,
    FetchedPartition,
    FetchFrom,
    Leader,
    ProducerId,
)
from srm.replication.resume.resume import Resumed, Walked, resume
from srm.replication.resume.source_lookahead import Comparison

OURS, FOREIGN = 7, 8
CLAIM = Claim(ProducerId(OURS, 3), float("inf"))


def of_epoch(epoch: int, raw: bytes) -> bytes:
    """Return a batch as one under a claim of that epoch."""
    changed = bytearray(raw)
    struct.pack_into(">h", changed, 51, epoch)
    seal(memoryview(changed))
    return bytes(changed)


def _end(raw: bytes) -> int:
    return next(batches(memoryview(raw))).last_offset + 1


class Log:
    """One partition of one cluster, as batches."""

    def __init__(self, stored_batches: Sequence[bytes], log_start: int = 0) -> None:
        self._batches = list(stored_batches)
        self._ends = [_end(raw) for raw in self._batches]
        self.start = log_start
        self.end = max([log_start, *self._ends])
        self.fetches = 0
        self.leader_epoch = 0

    def append(self, raw: bytes) -> None:
        self._batches.append(raw)
        self._ends.append(_end(raw))
        self.end = self._ends[-1]

    async def leader(self, partition: TopicPartition) -> Leader:
        del partition
        return Leader(1, self.leader_epoch)

    async def log_end(self, partition: TopicPartition) -> EpochEnd:
        _, end = await self.log_range(partition)
        return EpochEnd(self.leader_epoch, end)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        del partition
        return self.start, self.end

    async def local_start(self, partition: TopicPartition) -> int:
        del partition
        return self.start

    async def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        del partition
        found = [
            record.offset
            for raw in self._batches
            for record in decode(next(batches(memoryview(raw))), self.start)
            if record.timestamp >= time_ms
        ]
        return min(found, default=self.end)

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **options: Any) -> Fetched:
        del node, options
        self.fetches += 1
        [wanted] = partitions
        error, raw = 0, b""
        if not self.start <= wanted.offset <= self.end:
            error = codes.OFFSET_OUT_OF_RANGE
        else:
            found = [
                b for b, end in zip(self._batches, self._ends, strict=True) if end > wanted.offset
            ]
            raw = b"".join(found[:3])
        records = memoryview(bytearray(raw))
        part = FetchedPartition(b"", 0, error, self.end, self.end, self.start, (), records)
        return Fetched([part], None)


def walked(
    source: Log,
    target: Log,
    start: Start,
    comparison: Comparison,
    claim: Claim | None = CLAIM,
    progress: Callable[[Walked], None] | None = None,
) -> Resumed:
    read, written = [LogReader(log, TopicPartition("T", 0), b"", True) for log in (source, target)]  # type: ignore[arg-type]
    return asyncio.run(resume(read, written, start, claim, comparison, progress))


def in_epoch(epoch: int, raw: bytes) -> bytes:
    """Return a batch as the leader of an epoch stores it."""
    return raw[:12] + epoch.to_bytes(4, "big") + raw[16:]


def log_of(
    records: Sequence[Record], sizes: Sequence[int], end: int, producer_id: int, start: int = 0
) -> Log:
    """Cut records into batches of one leader; a marker of the claim ends the target's log."""
    found, at = [], 0
    for index in range(len(records)):
        size = sizes[index % len(sizes)]
        if records[at : at + size]:
            found.append(in_epoch(0, stored(records[at : at + size], producer_id=producer_id)))
        at += size
    if producer_id == OURS:
        return Log([*found, in_epoch(0, marker(end, OURS, 3))], start)
    return Log([*found, in_epoch(0, marker(end, 99))], start)


def pairs(resumed: Resumed) -> dict[int, int]:
    return {
        run.target_start + i: run.source_start + i for run in resumed.runs for i in range(run.count)
    }


def compacted(records: Sequence[Record], upto: int) -> list[Record]:
    """Return what the cleaner leaves of a log: before an offset, the newest record of each key."""
    newest = {record.key: record.offset for record in records}
    return [r for r in records if r.offset >= upto or newest[r.key] == r.offset]


def source_and_copy(
    key_numbers: Sequence[int], gaps: Mapping[int, int], copied: int, shift: int
) -> tuple[list[Record], list[Record], dict[int, int]]:
    """Make a source with holes, and a dense copy of its first records."""
    source, offset = [], 0
    for index, key in enumerate(key_numbers):
        offset += gaps.get(index, 0)
        source.append(Record(offset, 1000 + offset, str(key).encode(), str(offset).encode()))
        offset += 1
    where = {shift + i: record.offset for i, record in enumerate(source[:copied])}
    target = [Record(shift + i, r.timestamp, r.key, r.value) for i, r in enumerate(source[:copied])]
    return source, target, where
