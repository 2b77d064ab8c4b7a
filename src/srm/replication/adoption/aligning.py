"""Walk of both logs of a copy that others made, record by record, for its alignment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from srm.domain.offset_map.alignment import AlignedCopy, Alignment
from srm.domain.offset_map.log_columns import OPTIONAL, Columns
from srm.errors import UnavailableError
from srm.replication.batches import legacy
from srm.replication.batches.aborted import AbortedTransactions
from srm.replication.batches.batch import batches, verify
from srm.replication.batches.content_hash import content_hash
from srm.replication.log_reader import ONE_BATCH, LogReader, OutOfRangeError, fetches
from srm.replication.ports import DecodedRecord
from srm.replication.resume.batch_decoding import LoopShare, records_of
from srm.replication.resume.source_lookahead import Comparison

_RECORDS: Final = 1 << 14
"""Records of a part: some are compared at once."""
_TIMES: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class LogColumns:
    """Reads a log as columns; with equal settings on both sides.

    ``with_time``: compare times, too. ``with_keys``: for a side that is compacted.
    """

    comparison: Comparison
    with_time: bool
    with_keys: bool

    async def read(self, log: LogReader, start: int, end: int) -> AsyncGenerator[Columns]:
        """Yield the records up to the end, aborted ones as optional unless read as committed."""
        records, optional = list[DecodedRecord](), list[int]()
        turns = LoopShare()
        async with aclosing(_batches(log, start, end, turns)) as pieces:
            async for piece, kind in pieces:
                records += piece
                optional += [kind] * len(piece)
                if len(records) >= _RECORDS:
                    yield self._columns(records, optional)
                    records, optional = [], []
        if records:
            yield self._columns(records, optional)

    def _columns(self, records: list[DecodedRecord], optional: list[int]) -> Columns:
        content = self.comparison.content
        contents = np.array([content(record) for record in records], np.int64)
        if self.with_time:
            times = np.array([record.timestamp for record in records], np.int64)
            contents ^= (times.astype(np.uint64) * _TIMES).astype(np.int64)
        if self.with_keys:
            hashes = (0 if r.key is None else content_hash(r.key) for r in records)
            keys = np.fromiter(hashes, np.int64, len(records))
        else:
            keys = np.zeros(len(records), np.int64)
        kinds = [
            (r.key is not None) | (r.value is None) << 1 | kind
            for r, kind in zip(records, optional, strict=True)
        ]
        offsets = np.array([record.offset for record in records], np.int64)
        return Columns(offsets, contents, keys, np.array(kinds, np.uint8))


async def _batches(
    log: LogReader, start: int, end: int, turns: LoopShare
) -> AsyncGenerator[tuple[list[DecodedRecord], int]]:
    """Yield decoded records with a bit of their kind: committed ones, then, if read, the others."""
    at = start
    for committed in (True,) if log.read_committed else (True, False):
        reader = LogReader(log.wire, log.partition, log.topic_id, read_committed=committed)
        async for wanted, fetched in fetches(reader, at):
            aborted = AbortedTransactions(fetched.aborted if committed else ())
            for batch in batches(fetched.records, legacy.convert):
                dropped = aborted.drops(batch)
                at = max(at, batch.last_offset + 1)
                if batch.is_control or not batch.record_count or batch.last_offset < wanted:
                    continue
                if dropped and log.read_committed:
                    continue
                verify(batch)
                async for piece in records_of(batch, turns, wanted):
                    yield [r for r in piece if r.offset < end], OPTIONAL * dropped
            if at >= end:
                return
    if at < end:
        raise _change_of(log, end)


def _change_of(log: LogReader, end: int) -> UnavailableError:
    return UnavailableError(
        f"{log.partition} on {log.wire.alias}: the log was deleted up to its end {end}, or lost it",
        "run this again",
    )


async def check_decided(log: LogReader, end: int) -> None:
    """Refuse a log with a transaction that is open before an offset: it may still be aborted."""
    committed = replace(log, read_committed=True)
    try:
        fetched = await committed.fetch(end, max_bytes=ONE_BATCH, wait_ms=0)
    except OutOfRangeError as error:
        raise _change_of(log, end) from error
    if fetched.last_stable_offset < end:
        raise UnavailableError(
            f"{log.partition} on {log.wire.alias}: a transaction is open from offset "
            f"{fetched.last_stable_offset} on",
            "stop its producer, wait for its timeout or abort it (kafka-transactions.sh), and run "
            "this again",
        )


async def align(
    source: LogReader,
    target: LogReader,
    begin: tuple[int, int],
    ends: tuple[int, int],
    columns: LogColumns,
    compacts: tuple[bool, bool],
    show: Callable[[int], None],
) -> AlignedCopy:
    """Align what the target holds from an offset on with the source.

    Aborted records may have been copied, but an aborted copy is none.

    Args:
        target: its log; all its transactions have to be decided.
        begin: source and target offset of a known position, or zeros.
        compacts: whether source and target are compacted.
    """
    await check_decided(target, ends[1])
    target = replace(target, read_committed=True)
    log_start, _ = await source.wire.log_range(source.partition)
    target_start, _ = await target.wire.log_range(target.partition)
    alignment = Alignment(
        begin[0],
        trimmed=log_start > 0,
        target_trimmed=target_start > begin[1],
        source_compacts=compacts[0],
        target_compacts=compacts[1],
    )
    target_end = ends[1]
    async with (
        aclosing(columns.read(source, log_start, ends[0])) as originals,
        aclosing(columns.read(target, begin[1], target_end)) as copies,
    ):
        part, left = await anext(copies, None), None
        while part is not None:
            following = await anext(copies, None)
            left = Columns.concatenate([left, part]) if left is not None else part
            while True:
                left = left.after(alignment.match(left, is_last=following is None))
                if not (len(left) and alignment.wants_source):
                    break
                more = await anext(originals, None)
                if more is None:
                    alignment.ended = True
                else:
                    alignment.feed(more)
            show(int(part.offsets[-1]) + 1)
            part = following
    return alignment.result()
