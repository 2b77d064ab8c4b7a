"""Queries that arise together leave together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from srm.errors import UnavailableError
from srm.kafka.wire.cluster import SharedQueries


class Sender:
    """Answers each query with its double, except 13."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.sent: list[Sequence[int]] = []
        self.failure = failure

    async def send(self, queries: Sequence[int]) -> dict[int, int]:
        self.sent.append(queries)
        if self.failure is not None:
            raise self.failure
        return {query: 2 * query for query in queries if query != 13}


def test_queries_of_one_moment_share_a_request() -> None:
    async def scenario() -> None:
        sender = Sender()
        queries = SharedQueries(sender.send)

        assert await asyncio.gather(*map(queries.find, (1, 2, 3, 1))) == [2, 4, 6, 2]
        assert sender.sent == [[1, 2, 3]]

    asyncio.run(scenario())


def test_a_later_query_is_sent_again() -> None:
    async def scenario() -> None:
        sender = Sender()
        queries = SharedQueries(sender.send)
        for _ in range(2):
            assert await queries.find(5) == 10
        assert sender.sent == [[5], [5]]

    asyncio.run(scenario())


def test_a_failure_reaches_each_caller() -> None:
    async def scenario() -> None:
        queries = SharedQueries(Sender(UnavailableError("gone")).send)
        answers = await asyncio.gather(*map(queries.find, range(3)), return_exceptions=True)
        assert [str(answer) for answer in answers] == ["gone"] * 3

    asyncio.run(scenario())


def test_a_query_that_the_answer_leaves_out_fails_alone() -> None:
    async def scenario() -> None:
        queries = SharedQueries(Sender().send)
        found, missing = await asyncio.gather(*map(queries.find, (12, 13)), return_exceptions=True)
        assert found == 24
        assert isinstance(missing, UnavailableError)

    asyncio.run(scenario())


def test_a_caller_that_is_cancelled_takes_the_answer_from_no_other() -> None:
    async def scenario() -> None:
        queries = SharedQueries(Sender().send)
        first = asyncio.create_task(queries.find(1))
        second = asyncio.create_task(queries.find(1))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(scenario())
