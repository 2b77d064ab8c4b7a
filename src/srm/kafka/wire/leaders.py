"""Leaders of the partitions of one cluster (KIP-320), and queries that share a request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from srm.clock import now_s
from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.replication.ports import NO_LEADER, Leader

_Query = TypeVar("_Query", bound=Hashable)
_Answer = TypeVar("_Answer")
_MAX_AGE_S: Final = 60.0
Look = Callable[[Collection[str]], Awaitable[Mapping[str, Any]]]
"""Requests the metadata of topics, see :meth:`srm.kafka.wire.brokers.Brokers.look`."""


class SharedQueries(Generic[_Query, _Answer]):
    """Queries of one kind that share one request per broker; for one event loop."""

    def __init__(
        self, send: Callable[[Sequence[_Query]], Awaitable[Mapping[_Query, _Answer]]]
    ) -> None:
        """``send`` carries out some queries, each once."""
        self._send = send
        self._waiting: dict[_Query, asyncio.Future[_Answer]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def find(self, query: _Query) -> _Answer:
        """Return the answer to a query."""
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
        failure: Exception = UnavailableError("the broker left the query out of its answer")
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
    leaders: Mapping[int, Leader]
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

    A leader is looked up on first use, then kept. Concurrent lookups share one request, for topics
    in use only: a slot may follow thousands, and one election does not justify a request for all.

    A leader with an older epoch than the known one is ignored for a minute after a broker last
    named the known one. The answer comes from a broker that is cut off from the controller, or all
    brokers were restored from a backup.
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

    async def find(self, partition: TopicPartition) -> tuple[int, Leader]:
        """Return the topic's error code and the leader."""
        topic, number = partition
        known = self._topics.get(topic)
        if known is not None and self._is_current(known):
            leader = known.leaders.get(number, NO_LEADER)
            if leader.node >= 0:
                return known.error, leader
        known = await self.look_up(topic)
        return known.error, known.leaders.get(number, NO_LEADER)

    async def look_up(self, topic: str) -> _KnownTopic:
        """Query a topic, also if it is known."""
        time, answer = self._sent.get(topic, (-1, None))
        if time != self._time or answer is None or answer.done():
            answer = self._queries.begin(topic)
            self._sent[topic] = self._time, answer
        return await asyncio.shield(answer)

    def _is_current(self, known: _KnownTopic) -> bool:
        return known.time == self._time and now_s() - known.said_s < _MAX_AGE_S

    async def _request(self, topics: Sequence[str]) -> dict[str, _KnownTopic]:
        time = self._time
        metadata = await self._look(topics)
        answers = {
            found["topic"]: _KnownTopic(
                found["error_code"],
                found["topic_id"],
                {
                    p["partition"]: Leader(p["leader"], p["leader_epoch"])
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
