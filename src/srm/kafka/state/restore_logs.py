"""What a restore asks of the logs of both clusters, and the claims it takes there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import topic_id_bytes
from srm.kafka.wire.cluster import WireCluster
from srm.replication.resume.log_reader import LogReader
from srm.replication.takeover.sealing import Sealed, begins_with_records, first_record_in, seal

_AT_ONCE: Final = 64
_T = TypeVar("_T")


class KafkaLogs:
    """Asks one broker after the other (implements :class:`srm.replication.restore.context.Logs`).

    Args:
        producers: librdkafka properties of producers of both clusters, by alias. Who claims is a
            producer, in the eyes of brokers too, and what it reads it reads as such.
        rebuilt: alias of the cluster that holds the originals.
    """

    def __init__(self, producers: Mapping[str, Mapping[str, str]], rebuilt: str) -> None:
        self._producers = producers
        self._rebuilt = rebuilt

    def seal(
        self, flow: Flow, partitions: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Sealed]:
        """See the port."""
        return self._of_each(flow.target, partitions, lambda log: seal(log, flow))

    def begin_with_records(
        self, partitions: Mapping[TopicPartition, str]
    ) -> frozenset[TopicPartition]:
        """See the port."""
        found = self._of_each(self._rebuilt, partitions, begins_with_records)
        return frozenset(place for place, begins in found.items() if begins)

    def first_record_in(
        self, partition: TopicPartition, topic_id: str, ranges: Iterable[tuple[int, int]]
    ) -> int | None:
        """See the port."""
        found = self._of_each(
            self._rebuilt, {partition: topic_id}, lambda log: first_record_in(log, ranges)
        )
        return found[partition]

    def _of_each(
        self,
        alias: str,
        partitions: Mapping[TopicPartition, str],
        ask: Callable[[LogReader], Awaitable[_T]],
    ) -> dict[TopicPartition, _T]:
        async def run() -> dict[TopicPartition, _T]:
            permits = asyncio.Semaphore(_AT_ONCE)
            wire = WireCluster(alias, self._producers[alias])

            async def one(place: TopicPartition, topic_id: str) -> _T:
                async with permits:
                    id_bytes = topic_id_bytes(topic_id)
                    return await ask(LogReader(wire, place, id_bytes, read_committed=False))

            await wire.start()
            try:
                found = await asyncio.gather(*(one(*item) for item in partitions.items()))
            finally:
                await wire.close()
            return dict(zip(partitions, found, strict=True))

        return asyncio.run(run())
