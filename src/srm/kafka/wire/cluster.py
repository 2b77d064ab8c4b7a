"""One cluster on the wire: Fetch and Produce on our own connections, all else through aiokafka.

Finding leaders and coordinators and asking for producer ids happens rarely, so it is left to
aiokafka's client, whose versions are negotiated with the broker.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType
from aiokafka.errors import KafkaError, NodeNotReadyError, for_code
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from aiokafka.structs import TopicPartition as LibraryTopicPartition
from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_exponential

from srm.domain.topics import TopicPartition
from srm.errors import AuthorizationError, FencedError, SrmError, UnavailableError
from srm.kafka.rights import (
    CLUSTER,
    NOTHING,
    TOPIC,
    TRANSACTIONAL_ID,
    Needs,
    missing,
    on_topic,
    on_transactional_id,
)
from srm.kafka.wire.buffers import BufferPool, PooledBuffer
from srm.kafka.wire.connection import Connection, as_it_is
from srm.kafka.wire.fetch_session import WireFetchSession
from srm.kafka.wire.frames import (
    FETCH,
    PRODUCE,
    fetch_request,
    fetch_response,
    produce_request,
    produce_response,
)
from srm.kafka.wire.leader_epochs import EpochEndRequest
from srm.kafka.wire.log_offsets import EARLIEST, LATEST, LogOffsets
from srm.kafka.wire.security import read_security
from srm.kafka.wire.security_access import Access
from srm.kafka.wire.security_probe import addresses, refusal
from srm.kafka.wire.topic_ids import TopicIdRequest, topic_id_of
from srm.replication import codes
from srm.replication.ports import (
    Fetched,
    FetchFrom,
    FetchSession,
    ProduceAnswer,
    ProducerId,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_TIMEOUT_S: Final = 10.0
_CLOSE_TIMEOUT_S: Final = 1.0
_REQUEST_TIMEOUT_S: Final = 30.0
_REFUSAL_S: Final = 5.0
_TRANSACTION_TIMEOUT_MS: Final = 60_000
_MISSING_RIGHTS: Final = frozenset({TOPIC, CLUSTER, TRANSACTIONAL_ID})


def _is_retriable(error: BaseException) -> bool:
    return isinstance(error, SrmError) and error.retriable


def _produced(body: PooledBuffer) -> ProduceAnswer:
    return produce_response(memoryview(body.data))


class WireCluster:
    """Implements :class:`srm.replication.ports.Wire` for one event loop."""

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self._alias = alias
        self._servers = addresses(properties)
        self._security = read_security(alias, properties)
        self._client: AIOKafkaClient | None = None
        self._pool = BufferPool()
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._refusals: dict[int, tuple[float, SrmError]] = {}
        self._coordinators: dict[str, int] = {}
        self._log_offsets = LogOffsets(self._send)

    @property
    def alias(self) -> str:
        """See the port."""
        return self._alias

    async def start(self) -> None:
        """Learn the cluster's brokers.

        Raises:
            UnavailableError: no bootstrap server answers.
            AuthorizationError: they refuse srm's credentials.
            ConfigError: they are not what the security settings expect.
        """
        self._access = Access(self._security)
        client = AIOKafkaClient(
            bootstrap_servers=[f"{host}:{port}" for host, port in self._servers],
            client_id=self._security.client_id,
            metadata_max_age_ms=60_000,
            request_timeout_ms=int(_REQUEST_TIMEOUT_S * 1000),
            **self._access.library_settings(),
        )
        try:
            await client.bootstrap()
        except KafkaError as error:
            logger.debug("cluster %s: %s", self._alias, error)
        if not client.cluster.brokers():
            await client.close()
            raise await refusal(self._servers, self._access) or UnavailableError(
                f"cluster {self._alias} did not answer; it does now"
            )
        self._client = client

    async def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        client, self._client = self._client, None
        if client is not None:
            # TLS waits for the broker to say goodbye too, half a minute if it hangs.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await client.close()

    async def leader(self, partition: TopicPartition) -> int:
        """See the port."""
        client = self._started()
        wanted = LibraryTopicPartition(partition.topic, partition.partition)
        node = client.cluster.leader_for_partition(wanted)
        if node is None or node == -1:
            await client.add_topic(partition.topic)
            await client.force_metadata_update()
            node = client.cluster.leader_for_partition(wanted)
        if partition.topic in client.cluster.unauthorized_topics:
            self._check(TOPIC, f"finding {partition}", on_topic("Read", partition.topic))
        if node is None or node == -1:
            raise UnavailableError(f"{partition} on {self._alias} has no leader at the moment")
        return int(node)

    def leaders_changed(self) -> None:
        """See the port."""
        self._started().force_metadata_update()

    def fetch_session(self, node: int, *, read_committed: bool) -> FetchSession:
        """See the port."""
        # A long poll holds up everything behind it on its connection.
        return WireFetchSession(partial(self._fetch, "poll", node), read_committed=read_committed)

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
        body = fetch_request(partitions, max_wait_ms, max_bytes, read_committed=read_committed)
        buffer = await self._fetch("fetch", node, body, max_wait_ms)
        response = fetch_response(memoryview(buffer.data))
        return Fetched(response.error, response.partitions, buffer, response.throttle_ms)

    async def connect(self, node: int) -> None:
        """See the port."""
        await self._connection("produce", node)

    def produce(
        self, node: int, batches: Sequence[tuple[TopicPartition, memoryview]]
    ) -> asyncio.Future[ProduceAnswer]:
        """See the port."""
        connection = self._connections.get(("produce", node))
        if connection is None or connection.closed:
            failed: asyncio.Future[ProduceAnswer] = asyncio.get_running_loop().create_future()
            failed.set_exception(UnavailableError(f"no connection to {self._alias} node {node}"))
            return failed
        parts = produce_request(batches, int(_REQUEST_TIMEOUT_S * 1000))
        return connection.request(*PRODUCE, parts, _produced, flexible=False)

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        """See the port."""
        return (
            await self._offset(partition, EARLIEST),
            await self._offset(partition, LATEST),
        )

    async def topic_id(self, topic: str) -> bytes | None:
        """See the port."""

        async def once() -> bytes | None:
            node = self._started().get_random_node()
            error, topic_id = topic_id_of(await self._send(node, TopicIdRequest(topic)))
            if error == codes.UNKNOWN_TOPIC:
                return None
            self._check(error, f"finding {topic}", on_topic("Describe", topic))
            return topic_id

        return await self._persistently(once)

    async def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        """See the port."""
        found = await self._offset(partition, max(0, time_ms))
        return found if found >= 0 else await self._offset(partition, LATEST)

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> int:
        """See the port."""

        async def once() -> int:
            node = await self.leader(partition)
            response = await self._send(node, EpochEndRequest(partition, epoch))
            [(_, [(error, _, _, end)])] = response.topics
            if error in codes.LEADERSHIP:
                self.leaders_changed()
            self._check(error, f"leader epochs of {partition}")
            return int(end)

        return await self._persistently(once)

    async def init_producer_id(self, transactional_id: str) -> ProducerId:
        """See the port."""

        async def once() -> ProducerId:
            request = InitProducerIdRequest(transactional_id, _TRANSACTION_TIMEOUT_MS)
            response = await self._to_coordinator(transactional_id, request)
            self._check_coordinator(
                response.error_code,
                transactional_id,
                f"taking over {transactional_id}",
                on_transactional_id("Write", transactional_id),
            )
            return ProducerId(response.producer_id, response.producer_epoch)

        return await self._persistently(once)

    async def abort_empty_transaction(
        self, transactional_id: str, producer: ProducerId, partition: TopicPartition
    ) -> None:
        """See the port."""
        needs = {
            **on_transactional_id("Write", transactional_id),
            **on_topic("Write", partition.topic),
        }

        async def add() -> None:
            request = AddPartitionsToTxnRequest(
                transactional_id,
                producer.id,
                producer.epoch,
                [(partition.topic, [partition.partition])],
            )
            response = await self._to_coordinator(transactional_id, request)
            for _, answers in response.errors:
                for _, error in answers:
                    self._check_coordinator(error, transactional_id, f"claiming {partition}", needs)

        async def end() -> None:
            request = EndTxnRequest(
                transactional_id, producer.id, producer.epoch, transaction_result=False
            )
            response = await self._to_coordinator(transactional_id, request)
            self._check_coordinator(
                response.error_code, transactional_id, f"claiming {partition}", needs
            )

        await self._persistently(add)
        await self._persistently(end)

    def _started(self) -> AIOKafkaClient:
        if self._client is None:
            raise UnavailableError(f"cluster {self._alias} is not connected")
        return self._client

    async def _connection(self, purpose: str, node: int) -> Connection:
        key = (purpose, node)
        connection = self._connections.get(key)
        if connection is not None and not connection.closed:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and not connection.closed:
                return connection
            broker = self._started().cluster.broker_metadata(node)
            if broker is None:
                self.leaders_changed()
                raise UnavailableError(f"{self._alias} does not know node {node} at the moment")
            self._raise_refusal(node)
            try:
                connection = await Connection.open(
                    broker.host, broker.port, self._pool, _CONNECT_TIMEOUT_S, self._access
                )
            except UnavailableError:
                self.leaders_changed()
                raise
            except SrmError as error:
                self._refusals[node] = (time.monotonic() + _REFUSAL_S, error)
                raise
            self._connections[key] = connection
            return connection

    def _raise_refusal(self, node: int) -> None:
        """Do not ask again at once who has just refused: many partitions would do so together."""
        until, error = self._refusals.get(node, (0.0, None))
        if error is not None and time.monotonic() < until:
            raise error

    async def _fetch(self, purpose: str, node: int, body: bytes, max_wait_ms: int) -> PooledBuffer:
        connection = await self._connection(purpose, node)
        answer = connection.request(*FETCH, [body], as_it_is, flexible=True)
        return await self._answer(connection, answer, _REQUEST_TIMEOUT_S + max_wait_ms / 1000)

    async def _answer(
        self, connection: Connection, future: asyncio.Future[PooledBuffer], timeout_s: float
    ) -> PooledBuffer:
        try:
            # Not wait_for(): in Python 3.11 it forgets that it was cancelled when the answer comes
            # at the same moment, and whoever waits for the task to end waits for ever.
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as error:
            connection.close("no answer in time")
            raise UnavailableError(f"{self._alias}: no answer in {timeout_s:.0f} s") from error

    async def _offset(self, partition: TopicPartition, which: int) -> int:
        async def once() -> int:
            node = await self.leader(partition)
            error, offset = await self._log_offsets.ask(node, partition, which)
            if error in codes.LEADERSHIP:
                self.leaders_changed()
            self._check(error, f"offsets of {partition}", on_topic("Describe", partition.topic))
            return offset

        return await self._persistently(once)

    async def _to_coordinator(self, transactional_id: str, request: Any) -> Any:
        node = self._coordinators.get(transactional_id)
        if node is None:
            find = FindCoordinatorRequest(transactional_id, CoordinationType.TRANSACTION)
            found = await self._send(self._started().get_random_node(), find)
            self._check(
                found.error_code,
                f"finding the coordinator of {transactional_id}",
                on_transactional_id("Write", transactional_id),
            )
            node = self._coordinators[transactional_id] = found.coordinator_id
        try:
            return await self._send(node, request, ConnectionGroup.COORDINATION)
        except UnavailableError:
            self._coordinators.pop(transactional_id, None)
            raise

    def _check_coordinator(
        self, code: int, transactional_id: str, doing: str, needs: Needs
    ) -> None:
        if code in codes.COORDINATOR:
            self._coordinators.pop(transactional_id, None)
        self._check(code, doing, needs)

    async def _send(self, node: int, request: Any, group: int = ConnectionGroup.DEFAULT) -> Any:
        try:
            return await self._started().send(node, request, group=group)
        except NodeNotReadyError as error:  # aiokafka has logged the reason, at most
            await self._connection("control", node)
            raise UnavailableError(f"{self._alias} node {node} is not ready") from error
        except (KafkaError, OSError, TimeoutError) as error:
            raise UnavailableError(f"{self._alias} node {node}: {error!r}") from error

    def _check(self, code: int, doing: str, needs: Needs = NOTHING) -> None:
        if code == codes.NONE:
            return
        error = for_code(code)
        text = f"{doing} on {self._alias}: {error.__name__}"
        if code in codes.FENCED:
            raise FencedError(text)
        if code in _MISSING_RIGHTS:
            raise AuthorizationError(f"{text}; {missing(code, needs)}")
        if code in codes.TRANSIENT or getattr(error, "retriable", False):
            raise UnavailableError(text)
        raise SrmError(text)

    async def _persistently(self, once: Callable[[], Awaitable[T]]) -> T:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception(_is_retriable),
            stop=stop_after_delay(20),
            wait=wait_exponential(multiplier=0.005, max=0.5),
            reraise=True,
        ):
            with attempt:
                return await once()
        raise UnavailableError(f"{self._alias}: gave up")
