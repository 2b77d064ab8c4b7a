"""Questions for log offsets that arise together leave together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.wire.cluster import EARLIEST, LATEST, LogOffsets
from srm.kafka.wire.messages import Request


class Brokers:
    """Answer each question with 1000 times the node plus the partition's number."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.asked: list[tuple[int, int]] = []
        self.failure = failure

    async def send(self, node: int, request: Request) -> dict[str, Any]:
        topics = request.values[-1]
        self.asked.append((node, sum(len(partitions) for _, partitions in topics)))
        if self.failure is not None:
            raise self.failure
        return {
            "topics": [
                {
                    "topic": topic,
                    "partitions": [
                        {"partition": number, "error_code": 0, "offset": 1000 * node + number}
                        for number, _ in partitions
                    ],
                }
                for topic, partitions in topics
            ]
        }


def test_a_broker_is_asked_once_for_all_its_partitions() -> None:
    async def scenario() -> None:
        brokers = Brokers()
        offsets = LogOffsets(brokers.send)
        partitions = [TopicPartition(f"T{n % 3}", n) for n in range(300)]

        answers = await asyncio.gather(
            *(offsets.ask(p.partition % 2, p, EARLIEST) for p in partitions),
            *(offsets.ask(p.partition % 2, p, LATEST) for p in partitions),
            offsets.ask(0, partitions[0], EARLIEST),
        )

        assert sorted(brokers.asked) == [(0, 150), (0, 150), (1, 150), (1, 150)]
        assert answers[:300] == answers[300:600]
        assert answers[:4] == [(0, 0), (0, 1001), (0, 2), (0, 1003)]

    asyncio.run(scenario())


def test_later_questions_are_asked_anew() -> None:
    async def scenario() -> None:
        brokers = Brokers()
        offsets = LogOffsets(brokers.send)
        for _ in range(2):
            assert await offsets.ask(1, TopicPartition("T", 5), LATEST) == (0, 1005)
        assert brokers.asked == [(1, 1), (1, 1)]

    asyncio.run(scenario())


def test_a_failure_reaches_everybody_who_asked() -> None:
    async def scenario() -> None:
        offsets = LogOffsets(Brokers(UnavailableError("gone")).send)
        answers = await asyncio.gather(
            *(offsets.ask(1, TopicPartition("T", n), LATEST) for n in range(3)),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [UnavailableError] * 3

    asyncio.run(scenario())


def test_one_who_gives_up_takes_the_answer_from_nobody() -> None:
    async def scenario() -> None:
        offsets = LogOffsets(Brokers().send)
        first = asyncio.create_task(offsets.ask(1, TopicPartition("T", 1), LATEST))
        second = asyncio.create_task(offsets.ask(1, TopicPartition("T", 1), LATEST))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == (0, 1001)
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(scenario())
