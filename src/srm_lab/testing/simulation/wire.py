"""The data plane's port to a simulated cluster."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from srm.domain.names.topics import TopicPartition
from srm.errors import FencedError, SrmError, UnavailableError
from srm.replication import codes
from srm.replication.ports import (
    EpochEnd,
    Fetched,
    FetchFrom,
    FetchSession,
    Leader,
    ProduceAnswer,
    ProduceRequest,
    ProducerId,
)
from srm_lab.testing.simulation.cluster import Partition, SimulatedCluster
from srm_lab.testing.simulation.connection import Network, Serve, SimulatedConnection
from srm_lab.testing.simulation.transactions import Coordinator

T = TypeVar("T")

_REQUEST_S: Final = 30.0
_PERSIST_S: Final = 20.0
_TRANSIENT: Final = codes.LEADERSHIP | {3, 7, 8, 13, 14, 15, 16, 19, 20, 51, 78, 89}
"""Trying again soon may help (51: CONCURRENT_TRANSACTIONS while a marker is being written)."""


class SimulatedWire:
    """Implements :class:`srm.replication.ports.Wire`; one for each client process."""

    def __init__(
        self, cluster: SimulatedCluster, coordinator: Coordinator, network: Network
    ) -> None:
        self._cluster = cluster
        self._coordinator = coordinator
        self._loop = cluster.loop
        self.network = network
        self._connections: dict[tuple[str, int], SimulatedConnection] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._refreshing = False

    @property
    def alias(self) -> str:
        """See the port."""
        return self._cluster.alias

    # ----- metadata

    async def leader(self, partition: TopicPartition) -> Leader:
        """See the port."""
        leader = self._leaders.get(partition)
        if leader is None:
            await self._refresh(partition)
            leader = self._leaders.get(partition)
        if leader is None:
            raise UnavailableError(f"{partition} on {self.alias} has no leader at the moment")
        return leader

    def leaders_changed(self) -> None:
        """See the port."""
        if not self._refreshing:
            self._refreshing = True
            delay = self._network_round()
            self._loop.world_later(delay, self._take_leaders)

    def _take_leaders(self) -> None:
        self._refreshing = False
        for place in list(self._leaders):
            self._take_leader(place)

    def _take_leader(self, place: TopicPartition) -> None:
        partition = self._cluster.partition(place)
        if partition is None or partition.leader is None:
            self._leaders.pop(place, None)
        else:
            self._leaders[place] = Leader(partition.leader, partition.log.epoch)

    async def _refresh(self, place: TopicPartition) -> None:
        node = self._any_node()
        await self._request(node, "control", self._look(place))

    def _look(self, place: TopicPartition) -> Serve:
        async def look() -> None:
            self._take_leader(place)

        return look

    def _any_node(self) -> int:
        able = [node for node, broker in self._cluster.brokers.items() if broker.works]
        return self._loop.rng.choice(able or list(self._cluster.brokers))

    def _network_round(self) -> float:
        return self.network.delay_s(self._loop) + self.network.delay_s(self._loop)

    # ----- connections

    def cut(self) -> None:
        """Break all connections."""
        for connection in self._connections.values():
            connection.close("connection reset")

    async def _connect(self, purpose: str, node: int) -> SimulatedConnection:
        found = self._connections.get((purpose, node))
        if found is not None and not found.closed:
            return found
        await asyncio.sleep(self._network_round())
        if self.network.cut_off or not self._cluster.brokers[node].up:
            self.leaders_changed()
            raise UnavailableError(f"{self.alias} node {node} does not answer")
        if self._cluster.brokers[node].frozen:
            await asyncio.sleep(0)  # the kernel accepts; the broker does not answer
        found = self._connections.get((purpose, node))
        if found is None or found.closed:
            found = SimulatedConnection(self._cluster, node, self.network)
            self._connections[purpose, node] = found
        return found

    async def _request(self, node: int, purpose: str, serve: Serve, wait_s: float = 0.0) -> Any:
        connection = await self._connect(purpose, node)
        answer = connection.request(serve)
        try:
            async with asyncio.timeout(_REQUEST_S + wait_s):
                return await answer
        except TimeoutError as error:
            connection.close("no answer in time")
            raise UnavailableError(f"{self.alias}: no answer in {_REQUEST_S:.0f} s") from error

    async def _persistently(self, once: Callable[[], Awaitable[T]]) -> T:
        deadline = self._loop.time() + _PERSIST_S
        pause = 0.01
        while True:
            try:
                return await once()
            except SrmError as error:
                if not error.retriable or self._loop.time() + pause > deadline:
                    raise
            await asyncio.sleep(pause)
            pause = min(0.5, pause * 2)

    # ----- records

    def fetch_session(self, node: int, *, read_committed: bool) -> FetchSession:
        """See the port."""
        return _Session(self, node, read_committed=read_committed)

    async def fetch(
        self,
        node: int,
        partitions: Sequence[FetchFrom],
        *,
        max_wait_ms: int,
        max_bytes: int,
        read_committed: bool,
    ) -> Fetched:
        """See the port."""
        del max_bytes
        return await self.poll(
            node,
            "fetch",
            partitions,
            max_wait_ms,
            read_committed=read_committed,
            whole=True,
        )

    async def poll(
        self,
        node: int,
        purpose: str,
        partitions: Sequence[FetchFrom],
        max_wait_ms: int,
        *,
        read_committed: bool,
        whole: bool,
        known: dict[tuple[bytes, int], tuple[int, int, int]] | None = None,
    ) -> Fetched:
        """Fetch; unless the ``whole`` answer is wanted, without partitions that have no news."""
        cluster, loop = self._cluster, self._loop

        async def serve() -> Fetched:
            deadline = loop.time() + max_wait_ms / 1000
            while True:
                parts = [
                    cluster.fetch(
                        node,
                        p.topic_id,
                        p.partition,
                        p.offset,
                        p.max_bytes,
                        p.epoch,
                        p.leader_epoch,
                        committed=read_committed,
                    )
                    for p in partitions
                ]
                news = [p for p in parts if p.error or len(p.records)]
                left = deadline - loop.time()
                if news or left <= 0 or not cluster.brokers[node].up:
                    break
                found = [cluster.by_id(p.topic_id, p.partition) for p in partitions]
                await cluster.wait_for_news([p for p in found if p is not None], left)
                await cluster.until_it_works(node)
            if not whole and known is not None:
                moved = [_has_moved(known, p) for p in parts]
                parts = [p for p, m in zip(parts, moved, strict=True) if m or p in news]
            return Fetched(parts, None)

        fetched: Fetched = await self._request(node, purpose, serve, max_wait_ms / 1000)
        return fetched

    async def connect(self, node: int) -> None:
        """See the port."""
        await self._connect("produce", node)

    def produce(self, node: int, requests: Sequence[ProduceRequest]) -> None:
        """See the port."""
        for batches, answered in requests:
            self._produce(node, batches).add_done_callback(partial(_pass_answer, answered))

    def _produce(
        self, node: int, batches: Sequence[tuple[TopicPartition, memoryview]]
    ) -> Future[ProduceAnswer]:
        connection = self._connections.get(("produce", node))
        if connection is None or connection.closed:
            failed: Future[ProduceAnswer] = self._loop.create_future()
            failed.set_exception(UnavailableError(f"no connection to {self.alias} node {node}"))
            return failed
        sent = [(place, bytes(view)) for place, view in batches]
        cluster = self._cluster

        async def serve() -> ProduceAnswer:
            if len(sent) == 1:
                [(place, data)] = sent
                return ProduceAnswer({place: await cluster.produce(node, place, data)})
            answers = await asyncio.gather(
                *(cluster.produce(node, place, data) for place, data in sent)
            )
            return ProduceAnswer(dict(zip((place for place, _ in sent), answers, strict=True)))

        answer: Future[ProduceAnswer] = connection.request(serve)
        timer = self._loop.call_later(_REQUEST_S, _give_up, connection, answer)
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    # ----- offsets

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """See the port."""
        return await self._of_leader(partition, lambda p: (p.log.start, p.log.high_watermark))

    async def local_start(self, partition: TopicPartition) -> int:
        """See the port; no storage is tiered."""
        return await self._of_leader(partition, lambda p: p.log.start)

    async def log_end(self, partition: TopicPartition) -> EpochEnd:
        """See the port."""
        return await self._of_leader(
            partition, lambda p: EpochEnd(p.log.epoch, p.log.high_watermark)
        )

    async def topic_id(self, topic: str) -> bytes | None:
        """See the port."""

        async def serve() -> bytes | None:
            found = self._cluster.topics.get(topic)
            return found.topic_id if found else None

        async def once() -> bytes | None:
            found: bytes | None = await self._request(self._any_node(), "control", serve)
            return found

        return await self._persistently(once)

    async def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        """See the port."""
        return await self._of_leader(partition, lambda p: p.log.offset_at(time_ms))

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        """See the port."""
        return await self._of_leader(partition, lambda p: p.log.epoch_end(epoch))

    async def _of_leader(self, place: TopicPartition, look: Callable[[Partition], T]) -> T:
        async def once() -> T:
            node, epoch = await self.leader(place)

            async def serve() -> tuple[int, T | None]:
                partition = self._cluster.partition(place)
                if partition is None:
                    return 3, None
                if error := partition.leader_error(node, epoch):
                    return error, None
                return 0, look(partition)

            error, found = await self._request(node, "control", serve)
            if error:
                self.leaders_changed()
                raise UnavailableError(f"{place} on {self.alias}: error {error}")
            return found  # type: ignore[no-any-return]

        return await self._persistently(once)

    # ----- claims

    async def init_producer_id(self, transactional_id: str) -> ProducerId:
        """See the port."""

        async def serve() -> tuple[int, ProducerId]:
            return self._coordinator.init_producer_id(transactional_id)

        async def once() -> ProducerId:
            error, producer = await self._request(self._any_node(), "transactions", serve)
            self._check(error, f"taking over {transactional_id}")
            taken: ProducerId = producer
            return taken

        return await self._persistently(once)

    async def abort_empty_transaction(
        self, transactional_id: str, producer: ProducerId, partition: TopicPartition
    ) -> None:
        """See the port."""

        async def serve_add() -> int:
            return self._coordinator.add_partition(transactional_id, producer, partition)

        async def serve_end() -> int:
            return self._coordinator.end(transactional_id, producer)

        for serve in (serve_add, serve_end):

            async def once(serve: Serve = serve) -> None:
                error = await self._request(self._any_node(), "transactions", serve)
                self._check(error, f"claiming {partition}")

            await self._persistently(once)

    def _check(self, error: int, doing: str) -> None:
        text = f"{doing} on {self.alias}: error {error}"
        if error in codes.FENCED:
            raise FencedError(text)
        if error in _TRANSIENT:
            raise UnavailableError(text)
        if error:
            raise SrmError(text)


def _pass_answer(
    answered: Callable[[ProduceAnswer | UnavailableError], None], answer: Future[ProduceAnswer]
) -> None:
    try:
        answered(answer.result())
    except UnavailableError as error:
        answered(error)


def _give_up(connection: SimulatedConnection, answer: Future[Any]) -> None:
    if not answer.done():
        connection.close("no answer in time")


def _has_moved(known: dict[tuple[bytes, int], tuple[int, int, int]], part: Any) -> bool:
    key = part.topic_id, part.partition
    now = part.high_watermark, part.last_stable_offset, part.log_start
    moved = known.get(key) != now
    known[key] = now
    return moved


class _Session:
    """Implements :class:`srm.replication.ports.FetchSession`."""

    def __init__(self, wire: SimulatedWire, node: int, *, read_committed: bool) -> None:
        self._wire = wire
        self._node = node
        self._read_committed = read_committed
        self._wanted: dict[tuple[bytes, int], FetchFrom] = {}
        self._known: dict[tuple[bytes, int], tuple[int, int, int]] = {}

    def want(self, partition: FetchFrom) -> None:
        """See the port."""
        self._wanted[partition.topic_id, partition.partition] = partition

    def forget(self, topic_id: bytes, partition: int) -> None:
        """See the port."""
        self._wanted.pop((topic_id, partition), None)
        self._known.pop((topic_id, partition), None)

    async def poll(self, *, max_wait_ms: int, max_bytes: int) -> Fetched:
        """See the port."""
        del max_bytes
        try:
            return await self._wire.poll(
                self._node,
                "poll",
                tuple(self._wanted.values()),
                max_wait_ms,
                read_committed=self._read_committed,
                whole=False,
                known=self._known,
            )
        except SrmError:
            self._known.clear()
            raise
