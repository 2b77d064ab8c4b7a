"""Cache of partition leaders: looked up on first use, then kept.

Concurrent lookups share one request, and only topics in use are looked up: a slot may follow
thousands, and a single election does not justify a request for all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.replication.clock import now_s

_MAX_AGE_S: Final = 60.0

Look = Callable[[Collection[str]], Awaitable[Mapping[str, Any]]]
"""Requests the metadata of topics, see :meth:`srm.kafka.wire.brokers.Brokers.look`."""


@dataclass(frozen=True, slots=True)
class _Topic:
    """A broker's answer about a topic: its error, and the nodes that lead its partitions."""

    error: int
    nodes: Mapping[int, int]
    time: int
    asked_at: float


class Leaders:
    """The leaders of one cluster's partitions; for one event loop."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._topics: dict[str, _Topic] = {}
        self._asked: dict[str, tuple[int, asyncio.Future[_Topic]]] = {}
        self._to_ask: dict[str, asyncio.Future[_Topic]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._time = 0

    def outdate(self) -> None:
        """Mark the known leaders as outdated: query again before the next answer."""
        self._time += 1

    async def find(self, partition: TopicPartition) -> tuple[int, int]:
        """Return the topic's error code and the leading node, -1 while there is none.

        Raises:
            SrmError: as ``look``.
        """
        known = self._topics.get(partition.topic)
        if known is None or not self._is_current(known) or partition.partition not in known.nodes:
            known = await self._ask(partition.topic)
        return known.error, known.nodes.get(partition.partition, -1)

    def _is_current(self, known: _Topic) -> bool:
        return known.time == self._time and now_s() - known.asked_at < _MAX_AGE_S

    async def _ask(self, topic: str) -> _Topic:
        time, answer = self._asked.get(topic, (-1, None))
        if time != self._time or answer is None or answer.done():
            answer = self._to_ask.get(topic)
        if answer is None:
            loop = asyncio.get_running_loop()
            if not self._to_ask:
                loop.call_soon(self._leave)
            answer = self._to_ask[topic] = loop.create_future()
        return await asyncio.shield(answer)

    def _leave(self) -> None:
        questions, self._to_ask = self._to_ask, {}
        self._asked |= {topic: (self._time, answer) for topic, answer in questions.items()}
        task = asyncio.get_running_loop().create_task(self._request(questions, self._time))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request(self, questions: Mapping[str, asyncio.Future[_Topic]], time: int) -> None:
        try:
            metadata = await self._look(questions)
            now = now_s()
            for found in metadata["topics"]:
                nodes = {
                    p["partition"]: p["leader"] for p in found["partitions"] if p["leader"] >= 0
                }
                name = found["topic"]
                answer = _Topic(found["error_code"], nodes, time, now)
                self._topics[name] = answer
                if answer.error:
                    del self._topics[name]
                questions[name].set_result(answer)
        except Exception as error:  # noqa: BLE001 - each of the askers raises it
            for question in questions.values():
                if not question.done():
                    question.set_exception(error)
                    question.exception()  # the caller may be gone
        finally:
            for name, question in questions.items():
                if not question.done():
                    question.set_exception(UnavailableError(f"no news of topic {name}"))
                if self._asked.get(name, (0, None))[1] is question:
                    del self._asked[name]
