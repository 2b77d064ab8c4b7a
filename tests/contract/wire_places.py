"""Partitions on the wire, and what the tests of its contract do with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.batches import Record, encode
from tests.waiting import DEADLINE_S
from tests.wires import produced

from srm.domain.names.topics import TopicPartition
from srm.replication.batches.batch import BatchHeader, batches, rewrite
from srm.replication.ports import (
    Fetched,
    FetchedPartition,
    FetchFrom,
    Produced,
    ProducerId,
    Wire,
)

T = TypeVar("T")

NOW_MS = time.time_ns() // 1_000_000
STRANGER = ProducerId(-1, -1)


class Place:
    """A partition of a topic, and what is done with it in most of the tests."""

    def __init__(self, topic: str, topic_id: bytes, partition: int = 0) -> None:
        self.at = TopicPartition(topic, partition)
        self.topic_id = topic_id

    def wanted(
        self, offset: int, max_bytes: int = 1 << 20, epoch: int = -1, leader_epoch: int = -1
    ) -> FetchFrom:
        return FetchFrom(self.topic_id, self.at.partition, offset, max_bytes, epoch, leader_epoch)

    async def fetch(
        self,
        wire: Wire,
        offset: int,
        *,
        epoch: int = -1,
        leader_epoch: int = -1,
        read_committed: bool = False,
    ) -> FetchedPartition:
        """Fetch once."""
        fetched = await wire.fetch(
            (await wire.leader(self.at)).node,
            [self.wanted(offset, epoch=epoch, leader_epoch=leader_epoch)],
            max_wait_ms=10,
            max_bytes=1 << 20,
            read_committed=read_committed,
        )
        [part] = fetched.partitions
        assert (part.topic_id, part.partition) == (self.topic_id, self.at.partition)
        return part

    async def produce(
        self,
        wire: Wire,
        *counts: int,
        producer: ProducerId = STRANGER,
        sequence: int = 0,
    ) -> list[Produced]:
        """Send a batch of each count, one behind the other without waiting for answers."""
        node = (await wire.leader(self.at)).node
        await wire.connect(node)
        answers = []
        for count in counts:
            view = batch(count, producer, sequence)
            answers += produced(wire, node, [(self.at, view)])
            sequence += count
        return [(await answer).partitions[self.at] for answer in answers]

    async def claim(self, wire: Wire, name: str) -> tuple[ProducerId, BatchHeader]:
        """Take over a transactional id and write a marker; return it as it stands in the log."""
        _, end = await wire.log_range(self.at)
        producer = await wire.init_producer_id(name)
        await wire.abort_empty_transaction(name, producer, self.at)

        async def marker() -> BatchHeader | None:
            part = await self.fetch(wire, end)
            found = [b for b in batches(part.records) if b.is_control and b.base_offset >= end]
            return found[-1] if found else None

        return producer, await until(marker)


def batch(count: int, producer: ProducerId = STRANGER, sequence: int = 0) -> memoryview:
    """Make a batch of today: one of long ago would be in another segment than those of others."""
    records = [Record(n, NOW_MS + n, b"key", b"value %d" % (sequence + n)) for n in range(count)]
    view = encode(records)
    rewrite(view, producer.id, producer.epoch, -1 if producer is STRANGER else sequence)
    return view


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look until there is something."""
    async with asyncio.timeout(DEADLINE_S):
        while (found := await look()) is None:  # noqa: ASYNC110 - nothing would set an event
            await asyncio.sleep(0.01)
        return found


def offsets(part: FetchedPartition) -> list[tuple[int, int]]:
    return [(b.base_offset, b.record_count) for b in batches(part.records)]


def places(fetched: Fetched) -> dict[int, list[tuple[int, int]]]:
    """Return what a poll brought by partition number."""
    assert not any(part.error for part in fetched.partitions)
    return {part.partition: offsets(part) for part in fetched.partitions}
