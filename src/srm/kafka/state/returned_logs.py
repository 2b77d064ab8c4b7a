"""Reads both logs of a flow whose source has returned: where copies end, what is behind them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeVar

from srm.config.model import ClusterClients, FlowConfig
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import topic_id_bytes
from srm.domain.recovery.residue import ResidueRecord
from srm.domain.recovery.source_return import CopyEnd
from srm.domain.verification.offset_ranges import OffsetRange
from srm.engine.ports import Cluster
from srm.errors import SrmError
from srm.kafka.state.map_starts import MapStarts
from srm.kafka.wire.cluster import WireCluster
from srm.replication.batches.rebuild import Record
from srm.replication.batches.transform import ClusterIds, Transform
from srm.replication.claim.target_log import held_log
from srm.replication.ports import Wire
from srm.replication.resume.log_reader import LogReader
from srm.replication.resume.resume import Start
from srm.replication.resume.source_lookahead import Comparison
from srm.replication.takeover.copy_end import find_copy_end, read_range

_AT_ONCE: Final = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


class KafkaReturnedLogs:
    """Implements :class:`srm.engine.recovery.ports.ReturnedLogs`; each call connects anew.

    Args:
        config: of the flow.
        source: how to reach its source.
        target: how to reach its target.
        target_cluster: the same, opened.
        cluster_ids: Kafka's ids of source and target.
    """

    def __init__(
        self,
        config: FlowConfig,
        source: ClusterClients,
        target: ClusterClients,
        target_cluster: Cluster,
        cluster_ids: Callable[[], tuple[str, str]],
    ) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._starts = MapStarts(config.flow, target_cluster)
        self._cluster_ids = cluster_ids
        self._ids: ClusterIds | None = None
        self._committed = config.isolation_level == "read_committed"

    def copy_ends(
        self, partitions: Sequence[AssignedPartition], show: Callable[[int], None]
    ) -> dict[AssignedPartition, CopyEnd | SrmError]:
        """See the port."""
        if not partitions:
            return {}
        starts = self._starts.load([one for one in partitions if one.target_topic_id])
        return asyncio.run(self._copy_ends(partitions, starts, show))

    def read(
        self,
        wanted: Sequence[tuple[AssignedPartition, OffsetRange]],
        visit: Callable[[int, Sequence[ResidueRecord]], bool],
    ) -> None:
        """See the port."""
        if wanted:
            asyncio.run(self._read(wanted, visit))

    def count(
        self,
        wanted: Sequence[tuple[AssignedPartition, OffsetRange]],
        visit: Callable[[int, Sequence[int], Sequence[int]], None],
    ) -> None:
        """See the port."""
        if wanted:
            asyncio.run(self._count(wanted, visit))

    # ----- where copies end

    async def _copy_ends(
        self,
        partitions: Sequence[AssignedPartition],
        starts: Mapping[AssignedPartition, Start | SrmError],
        show: Callable[[int], None],
    ) -> dict[AssignedPartition, CopyEnd | SrmError]:
        done = 0
        async with self._wires() as (source, target):

            async def find(assigned: AssignedPartition) -> CopyEnd | SrmError:
                nonlocal done
                try:
                    return await self._copy_end(assigned, starts.get(assigned), source, target)
                except SrmError as error:
                    return error
                finally:
                    done += 1
                    show(done)

            found = await _some_at_once(find, partitions)
        return dict(zip(partitions, found, strict=True))

    async def _copy_end(
        self,
        assigned: AssignedPartition,
        start: Start | SrmError | None,
        source: Wire,
        target: Wire,
    ) -> CopyEnd:
        if isinstance(start, SrmError):
            raise start
        target_reader = None
        if assigned.target_topic_id:
            target_reader = LogReader(
                target,
                TopicPartition(assigned.target_topic, assigned.partition),
                topic_id_bytes(assigned.target_topic_id),
                read_committed=False,
            )
        if start is not None and target_reader is not None:
            held = await held_log(target_reader, start)
            if held.end < start.target_next:  # what it lost is copied again, and so is residue
                start = await asyncio.to_thread(self._starts.cut, assigned, held.end)
        reader = self._reader(source, assigned)
        left = start.left_out if start is not None else ()
        decided = [note.up_to(await reader.held_to(note)) for note in left]
        comparison = Comparison(
            self._config.records.added,
            self._config.data_loss_policy == "continue",
            self._transform(assigned),
            [note.left_out for note in decided if note and note.left_out],
        )
        return await find_copy_end(reader, target_reader, start, comparison)

    # ----- what is behind them

    async def _read(
        self,
        wanted: Sequence[tuple[AssignedPartition, OffsetRange]],
        visit: Callable[[int, Sequence[ResidueRecord]], bool],
    ) -> None:
        async with self._wires() as (source, _):
            for index, (assigned, one) in enumerate(wanted):
                pieces = read_range(self._reader(source, assigned), one, self._transform(assigned))
                async with aclosing(pieces):
                    async for piece in pieces:
                        if not visit(index, [_record(assigned, record) for record in piece]):
                            break

    async def _count(
        self,
        wanted: Sequence[tuple[AssignedPartition, OffsetRange]],
        visit: Callable[[int, Sequence[int], Sequence[int]], None],
    ) -> None:
        async with self._wires() as (source, _):

            async def count(index: int) -> None:
                assigned, one = wanted[index]
                async for piece in read_range(
                    self._reader(source, assigned), one, self._transform(assigned)
                ):
                    offsets = [record.offset for record in piece]
                    visit(index, offsets, [record.timestamp for record in piece])

            await _some_at_once(count, range(len(wanted)))

    def _reader(self, source: Wire, assigned: AssignedPartition) -> LogReader:
        return LogReader(
            source,
            TopicPartition(assigned.topic, assigned.partition),
            topic_id_bytes(assigned.topic_id),
            read_committed=self._committed,
        )

    def _transform(self, assigned: AssignedPartition) -> Transform | None:
        settings = self._config.records
        if settings.does_nothing:
            return None
        self._ids = self._ids or ClusterIds(*self._cluster_ids())
        alias = self._config.flow.source
        return Transform(settings, self._ids, alias, assigned.topic, assigned.target_topic)

    @asynccontextmanager
    async def _wires(self) -> AsyncIterator[tuple[Wire, Wire]]:
        """Connect to both clusters, as the replicator does: with the same rights."""
        flow = self._config.flow
        source = WireCluster(flow.source, self._source.consumer)
        target = WireCluster(flow.target, self._target.producer)
        try:
            await source.start()
            await target.start()
            yield source, target
        finally:
            await source.close()
            await target.close()


async def _some_at_once(work: Callable[[_T], Awaitable[_R]], items: Iterable[_T]) -> list[_R]:
    """Do work for all items, so many at a time; the first failure ends all."""
    permits = asyncio.Semaphore(_AT_ONCE)

    async def one(item: _T) -> _R:
        async with permits:
            return await work(item)

    return await asyncio.gather(*(one(item) for item in items))


def _record(assigned: AssignedPartition, record: Record) -> ResidueRecord:
    return ResidueRecord(
        assigned.topic,
        assigned.partition,
        record.offset,
        record.timestamp,
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        tuple((name, value) for name, value in record.headers),
    )
