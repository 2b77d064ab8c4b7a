"""End of a copy without a writer, and the records of the source after it.

Both logs are walked from the last position as the next owner would, but without claim or write.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.record_headers import ClusterIds, Transform
from srm.domain.offset_map.runs import OffsetRange
from srm.domain.recovery.source_return import CopyEnd, Wanted
from srm.errors import IntegrityError, SrmError
from srm.replication.batches.batch import AbortedTransactions, BatchHeader, batches, verify
from srm.replication.batches.records import LoopShare, records_of
from srm.replication.claim import held_log
from srm.replication.log_reader import ONE_BATCH, Connect, LogReader, fetches, some_at_once
from srm.replication.mapping.starts import NOWHERE, Start, StartReader
from srm.replication.ports import DecodedRecord, FetchedPartition, Wire
from srm.replication.resume.resume import resume
from srm.replication.resume.source_lookahead import Comparison

_AT_ONCE: Final = 16


async def find_copy_end(
    source: LogReader, target: LogReader | None, start: Start | None, comparison: Comparison
) -> CopyEnd:
    """Find the first record of the source that the target does not hold.

    ``target``: None if the partition does not exist. IntegrityError: the logs are ambiguous.
    """
    log_start, high = await source.wire.log_range(source.partition)
    fetched = await source.fetch(max(log_start, high - 1), max_bytes=ONE_BATCH, wait_ms=0)
    log_end = fetched.last_stable_offset if source.read_committed else high
    log_end = min(log_end, high)
    last = [batch.leader_epoch for batch in batches(fetched.records)]
    epoch = last[-1] if last else -1
    nothing = CopyEnd(log_start, 0, log_start, log_end, high, epoch=epoch)
    if target is None:
        return nothing
    start = start or NOWHERE
    known_next, cut_from = start.source_next, None
    if start.has_position:
        cut_from = start.source_next if start.truncated else None
        lineage = start.source_lineage
        at, is_exact = shared = await source.holds_to(lineage, start.source_next)
        if log_start < at < start.source_next and not is_exact:
            raise IntegrityError(
                f"{source.partition} has gone back to an older log (it holds no leader epoch that "
                f"was copied from offset {lineage.begin} on) and has grown to {high} "
                "since: the offset at which they diverge is unknown",
                "restore it (srm restore), or set data.loss.policy=continue, which copies from "
                f"offset {at}",
            )
        if shared.holds(lineage, start.last_run):
            start = start.back_at(at)
        elif at < start.source_next:
            cut_from = at
            start = start.cut_at(at)
    else:
        target_start, _ = await target.wire.log_range(target.partition)
        start = replace(
            start,
            source_next=max(start.source_next, log_start),
            target_next=max(start.target_next, target_start),
        )
    comparison = replace(comparison, accepts_loss=comparison.accepts_loss or start.truncated)
    found = await resume(source, target, start, None, comparison)
    return replace(
        nothing,
        copied_to=found.source_next,
        target_next=start.target_next,
        cut_from=cut_from,
        cut_to=None if cut_from is None else known_next,
        left_out=tuple(comparison.left_out),
        notes=found.notes,
    )


async def read_range(
    source: LogReader, wanted: OffsetRange, transform: Transform | None = None
) -> AsyncGenerator[list[DecodedRecord]]:
    """Yield the records of a range that the flow would copy, piece by piece; none is a marker."""
    turns = LoopShare()
    async for before, fetched in fetches(source, wanted.start, wanted.end):
        for batch in data_batches(fetched, read_committed=source.read_committed):
            if batch.record_count and batch.last_offset >= before:
                verify(batch)
                async for piece in records_of(batch, turns, before):
                    kept = [record for record in piece if record.offset < wanted.end]
                    if kept := list(kept if transform is None else transform.select(kept)):
                        yield kept


async def whole_log(log: LogReader) -> AsyncGenerator[list[DecodedRecord] | None]:
    """Yield each record of a log, piece by piece, aborted ones too; None if it has lost some."""
    _, end = await log.wire.log_range(log.partition)
    at, turns = 0, LoopShare()
    async for wanted, fetched in fetches(log, 0):
        for batch in batches(fetched.records):
            if batch.last_offset < wanted:
                continue
            if batch.base_offset != at or batch.record_count != batch.last_offset + 1 - at:
                yield None
                return
            at = batch.last_offset + 1
            if not batch.is_control:
                verify(batch)
                async for piece in records_of(batch, turns):
                    yield piece
    if at < end:
        yield None


def data_batches(fetched: FetchedPartition, *, read_committed: bool) -> Iterator[BatchHeader]:
    """Yield the batches that hold what the flow copies."""
    aborted = AbortedTransactions(fetched.aborted if read_committed else ())
    for batch in batches(fetched.records):
        if not (aborted.drops(batch) or batch.is_control):
            yield batch


@dataclass(eq=False)
class WalkedLogs:
    """Both logs of a flow (implements ReturnedLogs of the engine); each call connects again."""

    config: FlowConfig
    connect: Connect
    starts: StartReader
    cluster_ids: Callable[[], ClusterIds]
    _ids: ClusterIds | None = None

    def copy_ends(
        self, partitions: Sequence[AssignedPartition], show: Callable[[int], None]
    ) -> dict[AssignedPartition, CopyEnd | SrmError]:
        if not partitions:
            return {}
        done, flow = 0, self.config.flow
        starts = self.starts.load([one for one in partitions if one.target_topic_id])

        async def find_all() -> list[CopyEnd | SrmError]:
            async with self.connect(flow.source) as source, self.connect(flow.target) as target:

                async def find(assigned: AssignedPartition) -> CopyEnd | SrmError:
                    nonlocal done
                    try:
                        return await self._copy_end(assigned, starts.get(assigned), source, target)
                    except SrmError as error:
                        return error
                    finally:
                        done += 1
                        show(done)

                return await some_at_once(find, partitions, _AT_ONCE)

        return dict(zip(partitions, asyncio.run(find_all()), strict=True))

    def read(
        self,
        wanted: Sequence[Wanted],
        visit: Callable[[int, Sequence[DecodedRecord]], bool],
        at_once: int,
    ) -> None:
        async def read_all() -> None:
            async with self.connect(self.config.flow.source) as source:

                async def read(index: int) -> None:
                    assigned, one = wanted[index]
                    log, transform = self._reader(source, assigned), self._transform(assigned)
                    async with aclosing(read_range(log, one, transform)) as pieces:
                        async for piece in pieces:
                            if not visit(index, piece):
                                break

                await some_at_once(read, range(len(wanted)), at_once)

        if wanted:
            asyncio.run(read_all())

    async def _copy_end(
        self, copied: AssignedPartition, start: Start | SrmError | None, source: Wire, target: Wire
    ) -> CopyEnd:
        if isinstance(start, SrmError):
            raise start
        target_reader = None
        if copied.target_topic_id:
            target_reader = LogReader.of_target(target, copied)
        if start is not None and target_reader is not None:
            held = await held_log(target_reader, start, is_shared=self.config.shares(copied.topic))
            if held.end < start.target_next:  # what it lost is copied again, and so is residue
                start = await asyncio.to_thread(self.starts.cut, copied, held.end)
        reader = self._reader(source, copied)
        left = start.left_out if start is not None else ()
        decided = [note.up_to(await reader.held_to(note)) for note in left]
        left_out = [note.left_out for note in decided if note and note.left_out]
        comparison = Comparison.of(self.config, copied.topic, self._transform(copied), left_out)
        return await find_copy_end(reader, target_reader, start, comparison)

    def _reader(self, source: Wire, assigned: AssignedPartition) -> LogReader:
        committed = self.config.isolation_level == "read_committed"
        return LogReader.of_source(source, assigned, read_committed=committed)

    def _transform(self, assigned: AssignedPartition) -> Transform | None:
        if self.config.records.does_nothing:
            return None
        self._ids = self._ids or self.cluster_ids()
        return self.config.transform(self._ids, assigned.topic, assigned.target_topic)
