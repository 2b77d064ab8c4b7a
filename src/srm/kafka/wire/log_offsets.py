"""ListOffsets for many partitions: questions that arise together leave in one request per broker.

A slot that is given a thousand new partitions looks for the start of each; one by one that would be
thousands of round trips.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiokafka.protocol.offset import OffsetRequest

from srm.domain.names.topics import TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1

Send = Callable[[int, Any], Awaitable[Any]]
Answer = tuple[int, int]
"""Error code and offset."""
_Questions = dict[TopicPartition, asyncio.Future[Answer]]


class LogOffsets:
    """Requests offsets from the brokers of one cluster; for one event loop."""

    def __init__(self, send: Send) -> None:
        """``send`` sends a request of aiokafka's protocol to a node and returns the response."""
        self._send = send
        self._waiting: dict[tuple[int, int], _Questions] = defaultdict(dict)
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, node: int, partition: TopicPartition, which: int) -> Answer:
        """Return error code and offset of a partition that a node leads.

        Raises:
            SrmError: as ``send``.
        """
        questions = self._waiting[node, which]
        answer = questions.get(partition)
        if answer is None:
            loop = asyncio.get_running_loop()
            if not questions:
                loop.call_soon(self._leave, node, which)
            answer = questions[partition] = loop.create_future()
        return await asyncio.shield(answer)

    def _leave(self, node: int, which: int) -> None:
        questions = self._waiting.pop((node, which))
        task = asyncio.get_running_loop().create_task(self._request(node, which, questions))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _request(self, node: int, which: int, questions: _Questions) -> None:
        topics: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for partition in questions:
            topics[partition.topic].append((partition.partition, which))
        try:
            response = await self._send(node, OffsetRequest(-1, 0, list(topics.items())))
            answers = {
                TopicPartition(topic, number): (error, rest[1])
                for topic, found in response.topics
                for number, error, *rest in found
            }
            for partition, future in questions.items():
                future.set_result(answers[partition])
        except Exception as error:  # noqa: BLE001 - each of the askers raises it
            for future in questions.values():
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # the caller may be gone
