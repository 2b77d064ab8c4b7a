"""Where a copy ends that nobody writes to any more, and the records of the source behind it.

The position that a slot reported last can be a second old, so both logs are walked from there as
the next owner would walk them, but without a claim and without writing anything down. What is
asked of the source before that is what a slot asks when its log does not look as it did
(:mod:`srm.replication.copy.write_answers`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from typing import Final

from srm.domain.recovery.source_return import CopyEnd
from srm.domain.verification.offset_ranges import OffsetRange
from srm.errors import IntegrityError, UnavailableError
from srm.replication.batches import legacy
from srm.replication.batches.aborted import AbortedTransactions
from srm.replication.batches.batch import BatchHeader, batches, verify
from srm.replication.batches.rebuild import Record
from srm.replication.batches.transform import Transform
from srm.replication.clock import now_s
from srm.replication.ports import FetchedPartition
from srm.replication.resume.batch_decoding import Turns, records_of
from srm.replication.resume.log_reader import ONE_BATCH, WAIT_MS, LogReader, OutOfRangeError
from srm.replication.resume.resume import Start, resume
from srm.replication.resume.source_lookahead import Comparison

_SILENT_S: Final = 30.0


async def find_copy_end(
    source: LogReader, target: LogReader | None, start: Start | None, comparison: Comparison
) -> CopyEnd:
    """Find the first record of the source that the target does not hold.

    Args:
        source: reads the source.
        target: reads the target, uncommitted records too; None where there is no such partition.
        start: what is known of the copy, as far as the target holds it; None if nothing is.
        comparison: how records are compared.

    Raises:
        IntegrityError: the logs do not tell; the message says what to do.
        SrmError: a broker does not answer, or does not let srm in.
    """
    log_start, high = await source.wire.log_range(source.partition)
    fetched = await source.fetch(max(log_start, high - 1), max_bytes=ONE_BATCH, wait_ms=0)
    log_end = fetched.last_stable_offset if source.read_committed else high
    log_end = min(log_end, high)
    last = [batch.leader_epoch for batch in batches(fetched.records, legacy.convert)]
    epoch = last[-1] if last else -1
    if target is None:
        return CopyEnd(log_start, log_start, 0, log_start, log_end, high, epoch=epoch)
    start = start or Start(0, 0, fresh=True, has_position=False)
    known_next, cut_from = start.source_next, None
    if start.has_position:
        cut_from = start.source_next if start.truncated else None
        at = await _parts_at(source, start, high)
        if at < start.source_next:
            cut_from = at
            start = replace(start, source_next=at, source_epoch=-1, cut=True, truncated=True)
    else:
        target_start, _ = await target.wire.log_range(target.partition)
        start = replace(
            start,
            source_next=max(start.source_next, log_start),
            target_next=max(start.target_next, target_start),
        )
    accepts_loss = comparison.accepts_loss or start.truncated
    found = await resume(
        source, target, start, None, replace(comparison, accepts_loss=accepts_loss)
    )
    return CopyEnd(
        found.source_next,
        known_next,
        start.target_next,
        log_start,
        log_end,
        high,
        cut_from,
        tuple(comparison.left_out),
        found.notes,
        epoch,
    )


async def _parts_at(source: LogReader, start: Start, log_end: int) -> int:
    """Return where the source's log ends, or parts from what was copied; else the position.

    Raises:
        IntegrityError: it parts somewhere, but nobody knows where.
    """
    at, epoch = start.source_next, start.source_epoch
    if epoch < 0:
        return min(at, log_end)
    found = await source.epoch_end(epoch)
    end = log_end if found.end < 0 else found.end
    if end < at:
        return end
    if found.end >= 0 and (start.cut or not await source.holds_another(at, epoch, found)):
        return at  # the epoch of a cut start is that of a place further on
    raise IntegrityError(
        f"{source.partition} has gone back to an older log (its leader holds nothing of leader "
        f"epoch {epoch}) and has grown to {log_end} since, past the {at} that were copied: where "
        "they part cannot be told",
        f"restore it (srm restore), or set data.loss.policy=continue, which copies on from {at}",
    )


async def read_range(
    source: LogReader, wanted: OffsetRange, transform: Transform | None
) -> AsyncGenerator[list[Record]]:
    """Yield the records of a range that the flow would copy, piece by piece; none is a marker.

    Records of aborted transactions come only where the flow copies them, too.

    Raises:
        IntegrityError: a batch is damaged.
        SrmError: a broker does not answer, or does not let srm in.
    """
    offset, turns, heard = wanted.start, Turns(), now_s()
    while offset < wanted.end:
        try:
            fetched = await source.fetch(offset, wait_ms=WAIT_MS)
        except OutOfRangeError as error:
            if error.log_start <= offset:
                return  # it has lost its end since
            offset = error.log_start
            continue
        before = offset
        for batch in data_batches(fetched, read_committed=source.read_committed):
            if batch.record_count and batch.last_offset >= before:
                verify(batch)
                async for piece in records_of(batch, turns, before):
                    kept = [record for record in piece if record.offset < wanted.end]
                    if kept := list(kept if transform is None else transform.kept(kept)):
                        yield kept
        found = batches(fetched.records, legacy.convert)
        offset = max((batch.last_offset + 1 for batch in found), default=offset)
        if offset > before:
            heard = now_s()
        elif now_s() - heard > _SILENT_S:
            raise UnavailableError(f"{source.partition}: nothing arrives from offset {offset} on")


def data_batches(fetched: FetchedPartition, *, read_committed: bool) -> Iterator[BatchHeader]:
    """Yield the batches that hold what the flow copies."""
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    for batch in batches(fetched.records, legacy.convert):
        if not (aborted.drops(batch) or batch.is_control):
            yield batch
