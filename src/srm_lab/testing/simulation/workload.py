"""Producers of the source: plain and transactional ones, with records that may be equal."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Literal

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from srm_lab.testing.simulation.cluster import Partition, SimulatedCluster

Payload = Literal["unique", "repeating", "constant"]
_RETRY_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Habit:
    """Write pattern of one partition.

    ``keys``: number of distinct keys, 0 for none. ``same_time``: all records have one event time,
    as in replays. ``transactional``: share of batches in transactions. ``aborts``: share of those
    that are aborted.
    """

    batches: int
    most_records: int
    pause_s: float
    payload: Payload = "unique"
    keys: int = 0
    same_time: bool = False
    transactional: float = 0.0
    aborts: float = 0.3
    codec: int = 0  # not gzip: it writes down the time of day


class TopicWriter:
    """Writes one source partition, as several producers do."""

    def __init__(self, cluster: SimulatedCluster, partition: Partition, habit: Habit) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._partition = partition
        self._habit = habit
        self._serial = 0
        self._pids = 500_000 + 1000 * partition.place.partition
        self._free = [1, 2, 3]
        self._transactions: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Write everything."""
        rng, habit = self._loop.rng, self._habit
        left = habit.batches
        while left > 0:
            await asyncio.sleep(rng.expovariate(1 / habit.pause_s))
            if rng.random() < habit.transactional:
                count = rng.randint(1, 3)
                left -= count
                work = self._transaction(count)
                if self._free and rng.random() < 0.6:
                    self._transactions.append(self._loop.world_task(work))
                else:
                    await work
            else:
                await self._append(0, transactional=False)
                left -= 1
        await asyncio.gather(*self._transactions)

    async def _transaction(self, batches: int) -> None:
        rng = self._loop.rng
        while not self._free:  # noqa: ASYNC110 - a moment of virtual time
            await asyncio.sleep(_RETRY_S)
        pid = self._free.pop(rng.randrange(len(self._free)))
        for _ in range(batches):
            await self._append(pid, transactional=True)
            await asyncio.sleep(rng.uniform(0.0, self._habit.pause_s))
        await self._until_led()
        if self._cluster.partition(self._partition.place) is self._partition:
            self._partition.log.append_marker(
                self._pids + pid,
                epoch=0,
                now_s=self._loop.time(),
                now_ms=self._loop.now_ms(),
                commit=rng.random() >= self._habit.aborts,
            )
            self._cluster.replicate(self._partition)
        self._free.append(pid)

    async def _until_led(self) -> None:
        while not self._is_led() and self._exists():  # noqa: ASYNC110 - as above
            await asyncio.sleep(_RETRY_S)

    def _exists(self) -> bool:
        return self._cluster.partition(self._partition.place) is self._partition

    def _is_led(self) -> bool:
        leader = self._partition.leader
        return leader is not None and self._cluster.brokers[leader].works

    async def _append(self, pid: int, *, transactional: bool) -> None:
        rng, habit = self._loop.rng, self._habit
        await self._until_led()
        if not self._exists():
            return
        count = rng.randint(1, habit.most_records)
        producer = self._pids + pid
        sequence = self._partition.log.next_sequence(producer)
        builder = DefaultRecordBatchBuilder(
            2, habit.codec, int(transactional), producer, 0, sequence, 2**31 - 1
        )
        for index in range(count):
            builder.append(index, self._time(), self._key(), self._value(), [])
        data = builder.build()
        produced = self._partition.log.append(bytes(data), self._loop.time(), self._loop.now_ms())
        if produced.error:
            raise RuntimeError(f"the workload's batch was refused: {produced}")
        self._cluster.replicate(self._partition)

    def _time(self) -> int:
        return 1_600_000_000_000 if self._habit.same_time else self._loop.now_ms()

    def _key(self) -> bytes | None:
        keys = self._habit.keys
        return b"k%d" % self._loop.rng.randrange(keys) if keys else None

    def _value(self) -> bytes:
        self._serial += 1
        match self._habit.payload:
            case "unique":
                return b"%d" % self._serial
            case "repeating":
                return b"v%d" % self._loop.rng.randrange(4)
            case "constant":
                return b"UP"
