"""Both logs of a partition in memory, and a slot that claims it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

from tests.batches import Record, marker, stored
from tests.unit.replication.resume.two_logs import OURS, Log
from tests.waiting import until

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.record_headers import ClusterIds
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import Lineage
from srm.replication.claim import ClaimLifetime
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import Quota
from srm.replication.copy.lifecycle import Lifecycle
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy, Phase
from srm.replication.ports import (
    EpochEnd,
    Fetched,
    ProducerId,
)
from srm_lab.testing.flows import flow_config

ASSIGNED = AssignedPartition("T", 0, "A" * 21 + "g", "P.T", "B" * 21 + "g")
LIFETIME_S = 6 * 3600.0
LEADER_EPOCH = 4
INVALID_TIMESTAMP = 32
LINEAGE = Lineage(((0, 0),))


class Silent:
    """A fetch session without news."""

    def want(self, partition: object) -> None: ...

    def forget(self, topic_id: bytes, partition: int) -> None: ...

    async def poll(self, *, max_wait_ms: int, max_bytes: int) -> Fetched:
        del max_wait_ms, max_bytes
        await asyncio.Event().wait()
        raise AssertionError


class Cluster(Log):
    """A cluster of one partition, whose coordinator gives out one claim after the other."""

    alias = "B"

    def __init__(self, stored_batches: Sequence[bytes], claims: Sequence[ProducerId] = ()) -> None:
        super().__init__(stored_batches)
        self._next = list(claims)
        self.claimed = 0
        self._claimed_at: int | None = None
        self.on_claim: Callable[[], None] = lambda: None

    def leaders_changed(self) -> None:
        """Nothing to ask again."""

    async def connect(self, node: int) -> None:
        """It is connected."""

    def fetch_session(self, node: int, *, read_committed: bool) -> Silent:
        del node, read_committed
        return Silent()

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        del partition
        is_before = epoch < LEADER_EPOCH and self._claimed_at is not None
        return EpochEnd(epoch, self._claimed_at if is_before else self.end)

    async def init_producer_id(self, transactional_id: str) -> ProducerId:
        del transactional_id
        self.claimed += 1
        self.on_claim()
        return self._next.pop(0)

    async def abort_empty_transaction(
        self, transactional_id: str, producer: ProducerId, partition: TopicPartition
    ) -> None:
        del transactional_id, partition
        raw = bytearray(marker(self.end, producer.id, producer.epoch))
        self._claimed_at = self.end if self._claimed_at is None else self._claimed_at
        raw[12:16] = LEADER_EPOCH.to_bytes(4, "big")
        self.append(bytes(raw))


class Told:
    """Notes what is told, as the reporter would."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.losses: list[tuple[int, int]] = []
        self.cuts: list[tuple[int, int]] = []
        self.ended: dict[str, int] = {}

    def over(self, copy: PartitionCopy) -> None:
        self.ended = dict(copy.over)

    def note_anomaly(self, copy: PartitionCopy, what: str) -> None:
        del copy
        self.notes.append(what)

    def lost(
        self, copy: PartitionCopy, first: int, end: int, what: str, *, is_cut: bool = False
    ) -> None:
        del what
        self.losses.append((first, end))
        self.cuts += [(first, copy.target_next)] if is_cut else []


class Site:
    """Lifecycle of one slot between two logs."""

    def __init__(
        self,
        source: Cluster,
        target: Cluster,
        cut: Start | None = None,
        assigned: AssignedPartition = ASSIGNED,
        **changes: Any,
    ) -> None:
        self.target = target
        self._assigned = assigned
        self.told = Told()
        self.cuts: list[int] = []
        self._cut = cut
        self._tasks: set[asyncio.Task[None]] = set()

        async def configs() -> dict[str, str]:
            return {}

        async def read() -> None:
            """The assignment is read."""

        context = SlotContext(
            flow_config(**changes),
            cast("Any", source),
            cast("Any", target),
            cast("Any", self.told),
            lambda: 0,
            ClaimLifetime(configs),
            Quota(None),
            ClusterIds("p-id", "b-id"),
        )
        self.lifecycle = Lifecycle(
            context,
            read_assignment=read,
            load_again=lambda assigned: None,
            cut_map=self._cut_map,
            report_now=lambda: None,
            spawn=self._spawn,
        )

    async def _cut_map(self, assigned: AssignedPartition, target_end: int) -> Start:
        assert assigned == ASSIGNED
        assert self._cut is not None
        self.cuts.append(target_end)
        return self._cut

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def copy(self) -> PartitionCopy:
        return self.lifecycle.copies[self._assigned]

    async def until(self, condition: Callable[[], object]) -> None:
        await until(condition)

    async def claim(self) -> None:
        """Claim once, as if there were a batch to write."""
        await self.until(lambda: self.copy.phase is Phase.IDLE)
        attempt = self.copy.attempt
        self.lifecycle.claim(self.copy)
        await self.until(
            lambda: self.copy.attempt > attempt and self.copy.phase is not Phase.CLAIMING
        )

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def run(site: Callable[[], Site], scenario: Callable[[Site], Awaitable[None]]) -> Site:
    async def all_of_it() -> Site:
        place = site()
        try:
            await scenario(place)
        finally:
            place.close()
        return place

    return asyncio.run(all_of_it())


def source_of(count: int) -> Cluster:
    return Cluster([stored([Record(i, 1, b"k", b"%d" % i)]) for i in range(count)])


def copies(count: int, epoch: int = 0) -> list[bytes]:
    """Return a claim's marker, and so many copies."""
    found = [marker(0, OURS, epoch)]
    for i in range(count):
        raw = bytearray(stored([Record(1 + i, 1, b"k", b"%d" % i)], producer_id=OURS))
        raw[51:57] = epoch.to_bytes(2, "big") + i.to_bytes(4, "big")
        found.append(bytes(raw))
    return found


def equal_copy(at: int, epoch: int, sequence: int) -> bytes:
    """Return a copy of one of many equal records, written under a claim of some epoch."""
    raw = bytearray(stored([Record(at, 1, b"k", b"same")], producer_id=OURS))
    raw[51:57] = epoch.to_bytes(2, "big") + sequence.to_bytes(4, "big")
    return bytes(raw)
