"""Partitions that cannot be claimed, or take long to be walked, make no other one wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import pytest
from tests.batches import marker
from tests.unit.replication.copy.test_copying import batch

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.record_headers import ClusterIds
from srm.domain.names.topics import TopicPartition
from srm.replication import claim
from srm.replication.claim import ClaimLifetime, ClaimPermits, LongWalkError, Meter, WalkPermits
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import Quota
from srm.replication.copy.lifecycle import Lifecycle
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import EpochEnd, Fetched, FetchedPartition, FetchFrom, Leader, ProducerId
from srm_lab.testing.flows import flow_config

SICK = 300
ID = "A" * 21 + "g"
TARGET_ID = "B" * 21 + "g"
DEADLINE_S = 120


async def for_ever() -> Any:
    await asyncio.Event().wait()


class SourceWire:
    """A source broker with one batch in each partition."""

    alias = "P"

    async def leader(self, partition: TopicPartition) -> Leader:
        del partition
        return Leader(1, 0)

    def fetch_session(self, node: int, *, read_committed: bool) -> SourceWire:
        del node, read_committed
        self._wanted: dict[int, FetchFrom] = {}
        return self

    def want(self, partition: FetchFrom) -> None:
        self._wanted[partition.partition] = partition

    def forget(self, topic_id: bytes, partition: int) -> None:
        del topic_id
        self._wanted.pop(partition, None)

    async def poll(self, *, max_wait_ms: int, max_bytes: int) -> Fetched:
        del max_bytes
        news = [p for p in self._wanted.values() if p.offset == 0]
        if not news:
            await asyncio.sleep(max_wait_ms / 1000)  # as a broker that has no news
        records = memoryview(bytearray(batch(0)))
        return Fetched(
            [FetchedPartition(p.topic_id, p.partition, 0, 1, 1, 0, (), records) for p in news],
            None,
        )


class TargetWire:
    """A target broker on which all partitions but the first are ill in the given way."""

    alias = "B"

    def __init__(self, illness: str) -> None:
        self._illness = illness
        self._claimed: set[int] = set()
        self.asked: set[int] = set()
        self.all_asked = asyncio.Event()

    def _is_ill(self, number: int, illness: str) -> bool:
        return number > 0 and illness == self._illness

    async def leader(self, partition: TopicPartition) -> Leader:
        del partition
        return Leader(1, 0)

    async def connect(self, node: int) -> None:
        del node

    async def init_producer_id(self, transactional_id: str) -> ProducerId:
        number = int(transactional_id.rpartition("-")[2])
        self.asked.add(number)
        if len(self.asked) == SICK:
            self.all_asked.set()
        if self._is_ill(number, "no coordinator"):
            await for_ever()
        return ProducerId(number, 1)

    async def abort_empty_transaction(
        self, transactional_id: str, producer: ProducerId, partition: TopicPartition
    ) -> None:
        del transactional_id
        if not self._is_ill(partition.partition, "no marker"):
            self._claimed.add(producer.id)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        if partition.partition in self._claimed and self._is_ill(partition.partition, "no leader"):
            await for_ever()
        return 0, int(partition.partition in self._claimed)

    async def log_end(self, partition: TopicPartition) -> EpochEnd:
        _, end = await self.log_range(partition)
        return EpochEnd(0, end)

    async def fetch(self, node: int, partitions: Sequence[FetchFrom], **limits: object) -> Fetched:
        del node, limits
        [wanted] = partitions
        records = memoryview(bytearray(marker(0, wanted.partition, 1)))
        part = FetchedPartition(wanted.topic_id, wanted.partition, 0, 1, 1, 0, (), records)
        return Fetched([part], None)

    def produce(self, node: int, requests: object) -> None:
        """Never answer."""


class Reporter:
    def note_anomaly(self, copy: PartitionCopy, what: str) -> None:
        raise AssertionError(f"{copy.target}: {what}")


async def _read() -> None:
    return


async def _no_settings() -> dict[str, str]:
    return {}


async def _cut(assigned: AssignedPartition, target_end: int) -> Start:
    raise AssertionError(f"{assigned} was cut at {target_end}")


@pytest.mark.parametrize("illness", ["no coordinator", "no marker", "no leader"])
def test_a_healthy_partition_does_not_wait_behind_300_that_cannot_be_claimed(illness: str) -> None:
    """They are ill for as long as the test lasts."""

    async def scenario() -> None:
        tasks: set[asyncio.Task[None]] = set()

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            tasks.add(asyncio.get_running_loop().create_task(work))

        target = TargetWire(illness)
        context = SlotContext(
            flow_config(),
            SourceWire(),  # type: ignore[arg-type]
            target,  # type: ignore[arg-type]
            Reporter(),  # type: ignore[arg-type]
            lambda: 0,
            ClaimLifetime(_no_settings),
            Quota(None),
            ClusterIds("", ""),
        )
        lifecycle = Lifecycle(
            context,
            read_assignment=_read,
            load_again=lambda assigned: None,
            report_now=lambda: None,
            cut_map=_cut,
            spawn=spawn,
        )
        partitions = [
            AssignedPartition("T", number, ID, "P.T", TARGET_ID) for number in range(SICK + 1)
        ]
        async with asyncio.timeout(DEADLINE_S):
            for assigned in partitions[1:]:
                lifecycle.begin(assigned, Start(0, 0))
            await target.all_asked.wait()
            lifecycle.begin(partitions[0], Start(0, 0))
            while lifecycle.copies[partitions[0]].phase is not Phase.COPYING:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # nothing says so

        phases = [lifecycle.copies[assigned].phase for assigned in partitions[1:]]
        assert phases == [Phase.CLAIMING] * SICK
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


async def _run_beside(
    hold: Callable[[], Awaitable[None]], others: int, wanted: Callable[[], Awaitable[None]]
) -> None:
    tasks = [asyncio.ensure_future(hold()) for _ in range(others)]
    try:
        async with asyncio.timeout(DEADLINE_S):
            await wanted()
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_claims_that_get_on_are_so_many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_CLAIM_S", DEADLINE_S)  # busy machines are slow, claims are not

    async def scenario() -> None:
        claims, at_once, most = ClaimPermits(), 0, 0

        async def claim() -> None:
            nonlocal at_once, most
            async with claims.hold(1):
                at_once += 1
                most = max(most, at_once)
                for _ in range(5):
                    await asyncio.sleep(0)
                at_once -= 1

        await asyncio.gather(*[claim() for _ in range(50)])
        assert most == 16
        await asyncio.gather(*[claim() for _ in range(50)])
        assert most == 16, "each permit was given back once"

    asyncio.run(scenario())


def test_a_permit_that_was_overdue_is_given_back_once() -> None:
    async def scenario() -> None:
        claims = ClaimPermits()
        await asyncio.gather(*[_slow_claim(claims) for _ in range(16)])

        assert claims._free[1]._value == 16

    asyncio.run(scenario())


async def _slow_claim(claims: ClaimPermits) -> None:
    async with claims.hold(1):
        while claims._free[1]._value < 16:  # noqa: ASYNC110 - until all are overdue
            await asyncio.sleep(0.01)


def test_walks_that_are_long_leave_room_for_short_ones() -> None:
    async def scenario() -> None:
        walks, memory = WalkPermits(), 0
        most = 0

        async def long_walk(meter: Meter) -> None:
            nonlocal memory, most
            held = 0
            try:
                while held < 64:
                    meter.read(1 << 20)
                    held += 1
                    memory += 1
                    most = max(most, memory)
                    await asyncio.sleep(0)
                await for_ever()
            finally:
                memory -= held

        async def short_walk(meter: Meter) -> None:
            for _ in range(10):
                meter.read(1 << 20)
                await asyncio.sleep(0)

        async def wanted() -> None:
            while memory < 4 * 64:  # noqa: ASYNC110 - until as many as may have come to rest
                await asyncio.sleep(0)
            for _ in range(30):
                await walks.walk((1, 1), short_walk)

        await _run_beside(lambda: walks.walk((1, 1), long_walk), SICK, wanted)
        assert most <= 16 * 16 + 4 * 64

    asyncio.run(scenario())


def test_walks_that_wait_for_one_broker_are_not_in_the_way_of_other_brokers() -> None:
    async def scenario() -> None:
        walks = WalkPermits()

        async def stuck(meter: Meter) -> None:
            meter.read(1)
            await for_ever()

        async def walk(meter: Meter) -> None:
            meter.read(1)

        await _run_beside(lambda: walks.walk((1, 1), stuck), SICK, lambda: walks.walk((2, 1), walk))

    asyncio.run(scenario())


def test_a_walk_that_is_too_long_for_the_short_ones_begins_again_without_a_limit() -> None:
    async def scenario() -> None:
        begun: list[Meter] = []

        async def walk(meter: Meter) -> str:
            begun.append(meter)
            for _ in range(1000):
                meter.read(1 << 20)
            return "done"

        assert await WalkPermits().walk((1, 1), walk) == "done"
        assert len(begun) == 2
        with pytest.raises(LongWalkError):
            begun[0].read(0)

    asyncio.run(scenario())
