"""One cluster on the wire: leaders (KIP-320), hot requests by :mod:`.frames`, and rare ones."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from srm.clock import now_s, pauses
from srm.domain.names.topics import TopicPartition
from srm.errors import SrmError, UnavailableError
from srm.kafka.wire import frames
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import POLLS, Brokers, refusal
from srm.kafka.wire.errors import TOPIC, Needs, error_name, of_code, on_topic, on_transactional_id
from srm.kafka.wire.messages import Request
from srm.replication import codes, ports

_Query = TypeVar("_Query", bound=Hashable)
_Answer = TypeVar("_Answer")
_MAX_AGE_S: Final = 60.0
Look = Callable[[Sequence[str]], Awaitable[api.Answer]]
"""Requests the metadata of topics, see :meth:`srm.kafka.wire.brokers.Brokers.look`."""
T = TypeVar("T")
_ACKS_WITHIN: Final = 2 / 3
"""Part of the request timeout that a broker waits for followers, shorter than for the broker."""
_TRANSACTION_KEYS: Final = 1
"""Key type of FindCoordinator for transactions."""
_PATIENCE_S: Final = 20.0
_FIRST_PAUSE_S: Final = 0.005
_LONGEST_PAUSE_S: Final = 0.5


class SharedQueries(Generic[_Query, _Answer]):
    """Queries of one kind that share one request per broker; for one event loop.

    ``send`` carries out some queries, each once.
    """

    def __init__(
        self, send: Callable[[Sequence[_Query]], Awaitable[Mapping[_Query, _Answer]]]
    ) -> None:
        self._send = send
        self._waiting: dict[_Query, asyncio.Future[_Answer]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def find(self, query: _Query) -> _Answer:
        return await asyncio.shield(self.begin(query))

    def begin(self, query: _Query) -> asyncio.Future[_Answer]:
        """Send a query with the next request; the future is shared, so do not cancel it."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._leave)
        if query not in self._waiting:
            self._waiting[query] = loop.create_future()
        return self._waiting[query]

    def _leave(self) -> None:
        queries, self._waiting = self._waiting, {}
        task = asyncio.get_running_loop().create_task(self._request(queries))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request(self, queries: Mapping[_Query, asyncio.Future[_Answer]]) -> None:
        failure: Exception = UnavailableError("the broker's answer lacks the query")
        try:
            answers = await self._send(list(queries))
            for query in queries.keys() & answers.keys():
                queries[query].set_result(answers[query])
        except Exception as error:  # noqa: BLE001 - each of the callers raises it
            failure = error
        for future in queries.values():
            if not future.done():
                future.set_exception(failure)
                future.exception()  # the caller may be gone


@dataclass(frozen=True, slots=True)
class _KnownTopic:
    """A broker's answer about a topic.

    ``time``: count of changes of leaders when the request was sent.
    ``said_s``: when a broker last gave this answer, monotonic.
    """

    error: int
    topic_id: bytes
    leaders: Mapping[int, ports.Leader]
    time: int
    said_s: float

    def is_newer_than(self, other: _KnownTopic) -> bool:
        """Return whether the other answer is that of a broker that lags behind the controller."""
        return self.topic_id == other.topic_id and any(
            leader.epoch > other.leaders.get(number, leader).epoch
            for number, leader in self.leaders.items()
        )


class Leaders:
    """Cache of the partition leaders of one cluster; for one event loop.

    Concurrent lookups share one request, for topics in use only: one election does not justify a
    request for all of thousands. A leader with an older epoch than the known one is ignored for a
    minute after a broker last named the known one: a broker may be cut off from the controller, or
    all brokers were restored from a backup.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._topics: dict[str, _KnownTopic] = {}
        self._queries = SharedQueries(self._request)
        self._sent: dict[str, tuple[int, asyncio.Future[_KnownTopic]]] = {}
        self._time = 0

    def outdate(self) -> None:
        """Mark the known leaders as outdated: query again before the next answer."""
        self._time += 1

    async def find(self, partition: TopicPartition) -> tuple[int, ports.Leader]:
        topic, number = partition
        known = self._topics.get(topic)
        is_fresh = known is not None and now_s() - known.said_s < _MAX_AGE_S
        if known is not None and is_fresh and known.time == self._time:
            leader = known.leaders.get(number, ports.NO_LEADER)
            if leader.node >= 0:
                return known.error, leader
        known = await self.look_up(topic)
        return known.error, known.leaders.get(number, ports.NO_LEADER)

    async def look_up(self, topic: str) -> _KnownTopic:
        time, answer = self._sent.get(topic, (-1, None))
        if time != self._time or answer is None or answer.done():
            answer = self._queries.begin(topic)
            self._sent[topic] = self._time, answer
        return await asyncio.shield(answer)

    async def _request(self, topics: Sequence[str]) -> dict[str, _KnownTopic]:
        time = self._time
        metadata = await self._look(topics)
        answers = {
            found["topic"]: _KnownTopic(
                found["error_code"],
                found["topic_id"],
                {
                    p["partition"]: ports.Leader(p["leader"], p["leader_epoch"])
                    for p in found["partitions"]
                },
                time,
                now_s(),
            )
            for found in metadata["topics"]
        }
        for topic, answer in answers.items():
            known = self._topics.get(topic)
            if known and known.is_newer_than(answer) and answer.said_s - known.said_s < _MAX_AGE_S:
                answers[topic] = replace(known, time=time)
            if not answer.error:
                self._topics[topic] = answers[topic]
        return answers


_LogQueries = SharedQueries[api.LogQuery, api.Answer]


class WireCluster:
    """Implements :class:`srm.replication.ports.Wire` for one event loop."""

    def __init__(self, alias: str, properties: Mapping[str, str]) -> None:
        self.alias = alias
        self._brokers = Brokers(alias, properties)
        self._leaders = Leaders(self._brokers.look)
        timeout_s = self._brokers.access.security.request_timeout_s
        self._acks_timeout_ms = int(timeout_s * 1000 * _ACKS_WITHIN)
        self._coordinators: dict[str, int] = {}
        self._log_queries: dict[tuple[int, api.LogMaker], _LogQueries] = {}

    @property
    def replaced_by(self) -> str:
        """Id of another cluster in the place of this one, where nothing known holds; or empty."""
        return self._brokers.replaced_by

    async def start(self) -> None:
        try:
            await self._brokers.look()
        except SrmError as error:
            # Queries to single brokers reveal the cause.
            brokers = self._brokers
            raise await refusal(brokers.servers, brokers.access) or error from error

    async def close(self) -> None:
        self._brokers.close()

    async def leader(self, partition: TopicPartition) -> ports.Leader:
        error, leader = await self._leaders.find(partition)
        if error == TOPIC:
            self._check(TOPIC, f"finding {partition}", on_topic("Read", partition.topic))
        if leader.node < 0:
            raise UnavailableError(f"{partition} on {self.alias} has no leader at the moment")
        return leader

    def leaders_changed(self) -> None:
        self._leaders.outdate()

    def fetch_session(self, node: int, *, read_committed: bool) -> ports.FetchSession:
        # A long poll delays all later requests on its connection.
        return frames.WireFetchSession(
            partial(self._fetch, POLLS, node), read_committed=read_committed
        )

    async def fetch(
        self,
        node: int,
        partitions: Sequence[ports.FetchFrom],
        *,
        max_wait_ms: int,
        max_bytes: int,
        read_committed: bool,
    ) -> ports.Fetched:
        body = frames.fetch_request(
            partitions, max_wait_ms, max_bytes, read_committed=read_committed
        )
        while True:
            fetched = (await self._fetch("fetch", node, body, max_wait_ms)).fetched
            if fetched.partitions:
                return fetched
            if not fetched.throttle_time_ms:
                raise UnavailableError(f"{self._at(node)} answered a fetch without the partition")

    async def connect(self, node: int) -> None:
        await self._noticing(self._brokers.connection(node, "produce"))

    def produce(self, node: int, requests: Sequence[ports.ProduceRequest]) -> None:
        connection = self._brokers.open_connection(node, "produce")
        if connection is None:
            loop, text = asyncio.get_running_loop(), f"no connection to {self.alias} node {node}"
            for _, answered in requests:
                loop.call_soon(answered, UnavailableError(text))
            return
        with connection.cork():
            for batches, answered in requests:
                parts = frames.produce_request(batches, self._acks_timeout_ms)
                connection.send(frames.PRODUCE, parts, answered, frames.least_produced(batches))

    async def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        start = await self._offset(partition, api.EARLIEST)
        return start, (await self.log_end(partition)).end

    async def local_start(self, partition: TopicPartition) -> int:
        make = api.local_offsets_request
        return int((await self._query_log(partition, make, api.EARLIEST_LOCAL))["offset"])

    async def log_end(self, partition: TopicPartition) -> ports.EpochEnd:
        found = await self._query_log(partition, api.offsets_request, api.LATEST)
        return ports.EpochEnd(found["leader_epoch"], found["offset"])

    async def topic_id(self, topic: str) -> bytes | None:
        async def once() -> bytes | None:
            found = await self._leaders.look_up(topic)
            if found.error == codes.UNKNOWN_TOPIC:
                return None
            self._check(found.error, f"finding {topic}", on_topic("Describe", topic))
            return found.topic_id

        return await self._persistently(once)

    async def offset_at(self, partition: TopicPartition, time_ms: int) -> int:
        found = await self._offset(partition, max(0, time_ms))
        return found if found >= 0 else (await self.log_end(partition)).end

    async def epoch_end(self, partition: TopicPartition, epoch: int) -> ports.EpochEnd:
        found = await self._query_log(partition, api.epoch_ends_request, epoch)
        return ports.EpochEnd(found["leader_epoch"], found["end_offset"])

    async def init_producer_id(self, transactional_id: str) -> ports.ProducerId:
        async def once() -> ports.ProducerId:
            request = api.INIT_PRODUCER_ID(transactional_id, 10_000)
            answer = await self._to_coordinator(transactional_id, request)
            self._check_coordinator(
                answer["error_code"],
                transactional_id,
                f"taking over {transactional_id}",
                on_transactional_id("Write", transactional_id),
            )
            return ports.ProducerId(answer["producer_id"], answer["producer_epoch"])

        return await self._persistently(once)

    async def abort_empty_transaction(
        self, transactional_id: str, producer: ports.ProducerId, partition: TopicPartition
    ) -> None:
        needs = on_transactional_id("Write", transactional_id) | on_topic("Write", partition.topic)

        async def add() -> None:
            topics = [(partition.topic, [partition.partition])]
            request = api.ADD_PARTITIONS(transactional_id, producer.id, producer.epoch, topics)
            answer = await self._to_coordinator(transactional_id, request)
            for found in api.by_partition(answer).values():
                check(found["error_code"])

        async def end() -> None:
            fields = transactional_id, producer.id, producer.epoch, False
            request = api.END_TRANSACTION(*fields)
            check((await self._to_coordinator(transactional_id, request))["error_code"])

        def check(code: int) -> None:
            self._check_coordinator(code, transactional_id, f"claiming {partition}", needs)

        await self._persistently(add)
        await self._persistently(end)

    async def _noticing(self, answer: Awaitable[T]) -> T:
        """Await an answer; a broker that gives none may lead nothing any more."""
        try:
            return await answer
        except UnavailableError:
            self.leaders_changed()
            raise

    async def _fetch(
        self, purpose: str, node: int, body: bytes, max_wait_ms: int
    ) -> frames.FetchResponse:
        connection = await self._noticing(self._brokers.connection(node, purpose))
        response = await connection.request(frames.FETCH, [body], max_wait_ms / 1000)
        if response.error not in {codes.NONE, *frames.SESSION_LOST}:
            self.leaders_changed()
            raise UnavailableError(
                f"{self._at(node)} answered a whole fetch with error {response.error} "
                f"({error_name(response.error)}); its log says why"
            )
        return response

    def _at(self, node: int) -> str:
        return f"node {node} of {self.alias}"

    async def _offset(self, partition: TopicPartition, time_ms: int) -> int:
        return int((await self._query_log(partition, api.offsets_request, time_ms))["offset"])

    async def _query_log(self, place: TopicPartition, make: api.LogMaker, value: int) -> api.Answer:
        """Query the leader; concurrent queries of one kind share a request to their broker."""

        async def once() -> api.Answer:
            node, epoch = await self.leader(place)
            queries = self._log_queries.get((node, make))
            if queries is None:
                queries = SharedQueries(partial(self._send_queries, node, make))
                self._log_queries[node, make] = queries
            found = await queries.find(api.LogQuery(place, epoch, value))
            if found["error_code"] in codes.LEADERSHIP:
                self.leaders_changed()
            doing = f"offsets of {place}"
            self._check(found["error_code"], doing, on_topic("Describe", place.topic))
            return found

        return await self._persistently(once)

    async def _send_queries(
        self, node: int, make: api.LogMaker, queries: Sequence[api.LogQuery]
    ) -> dict[api.LogQuery, api.Answer]:
        """Send queries in as few requests as possible: each names a partition once."""
        requests: list[dict[TopicPartition, api.LogQuery]] = []
        for query in queries:
            free = (one for one in requests if query.partition not in one)
            request = next(free, None)
            if request is None:
                requests.append(request := {})
            request[query.partition] = query
        send = self._brokers.query
        sent = (self._noticing(send(node, make(one.values()))) for one in requests)
        answers = await asyncio.gather(*sent)
        return {
            request[partition]: found
            for request, answer in zip(requests, answers, strict=True)
            for partition, found in api.by_partition(answer).items()
        }

    async def _to_coordinator(self, transactional_id: str, request: Request) -> dict[str, Any]:
        node = self._coordinators.get(transactional_id)
        if node is None:
            find = api.FIND_COORDINATORS(_TRANSACTION_KEYS, [transactional_id])
            [found] = (await self._brokers.query_any(find))["coordinators"]
            self._check(
                found["error_code"],
                f"finding the coordinator of {transactional_id}",
                on_transactional_id("Write", transactional_id),
            )
            node = self._coordinators[transactional_id] = int(found["node"])
        try:
            return await self._noticing(self._brokers.query(node, request, "claims"))
        except UnavailableError:
            self._coordinators.pop(transactional_id, None)
            # It may have come back since the last look, or elsewhere: nothing else looks again.
            await self._brokers.look()
            raise

    def _check_coordinator(self, code: int, name: str, doing: str, needs: Needs) -> None:
        if code in codes.COORDINATOR:
            self._coordinators.pop(name, None)
        self._check(code, doing, needs)

    def _check(self, code: int, doing: str, needs: Needs) -> None:
        if code == codes.UNKNOWN_TOPIC:  # a new leader may not know it yet
            raise UnavailableError(f"{doing} on {self.alias}: {error_name(code)}")
        if code != codes.NONE:
            raise of_code(code, f"{doing} on {self.alias}", needs)

    async def _persistently(self, once: Callable[[], Awaitable[T]]) -> T:
        deadline = time.monotonic() + _PATIENCE_S
        pause_s = pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            try:
                return await once()
            except SrmError as error:
                if not error.retriable or time.monotonic() >= deadline:
                    raise
            await asyncio.sleep(next(pause_s))


@asynccontextmanager
async def open_wire(alias: str, properties: Mapping[str, str]) -> AsyncIterator[WireCluster]:
    wire = WireCluster(alias, properties)
    try:
        await wire.start()
        yield wire
    finally:
        await wire.close()
