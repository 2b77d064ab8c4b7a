"""A fetch session tells the broker what has changed, and everything where it has to."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from srm.errors import UnavailableError
from srm.kafka.wire.frames import FetchResponse, WireFetchSession
from srm.replication.ports import Fetched, FetchFrom

A = b"a" * 16
SESSION_NOT_FOUND = 70


class Broker:
    """Answers fetches as told: (error, session id) or an exception, the last one for ever."""

    def __init__(self, *answers: tuple[int, int] | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[tuple[int, int, list[int]]] = []

    async def ask(self, body: bytes, max_wait_ms: int) -> FetchResponse:
        del max_wait_ms
        session, epoch = struct.unpack_from(">ii", body, 17)
        self.requests.append((session, epoch, _partitions(body)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return FetchResponse(*answer, Fetched([], None))


def _partitions(body: bytes) -> list[int]:
    """Return the numbers of the partitions of topic A in a request."""
    if body[25] == 1:
        return []
    count = body[26 + 16] - 1
    return [struct.unpack_from(">i", body, 43 + 33 * i)[0] for i in range(count)]


def wanted(number: int, offset: int = 0) -> FetchFrom:
    return FetchFrom(A, number, offset, 100)


def polled(broker: Broker, *steps: Callable[[WireFetchSession], None]) -> WireFetchSession:
    async def scenario() -> WireFetchSession:
        session = WireFetchSession(broker.ask, read_committed=True)
        for step in steps:
            step(session)
            await session.poll(max_wait_ms=1, max_bytes=1)
        return session

    return asyncio.run(scenario())


def both(session: WireFetchSession) -> None:
    session.want(wanted(1))
    session.want(wanted(2))


def test_after_the_first_poll_only_changes_are_sent() -> None:
    broker = Broker((0, 7))

    polled(broker, both, lambda s: s.want(wanted(2, 10)), lambda s: s.forget(A, 1), lambda s: None)

    assert [(session, epoch) for session, epoch, _ in broker.requests] == [
        (0, 0),
        (7, 1),
        (7, 2),
        (7, 3),
    ]
    assert [sorted(numbers) for _, _, numbers in broker.requests] == [[1, 2], [2], [], []]


def test_a_session_the_broker_has_lost_is_begun_again_with_everything() -> None:
    broker = Broker((0, 7), (SESSION_NOT_FOUND, 0), (0, 8))

    polled(broker, both, lambda s: None, lambda s: None)

    assert [(s, epoch, sorted(n)) for s, epoch, n in broker.requests] == [
        (0, 0, [1, 2]),
        (7, 1, []),
        (0, 0, [1, 2]),
        (8, 1, []),
    ]


def test_a_broker_without_room_for_sessions_is_told_everything_in_turns() -> None:
    broker = Broker((0, 0))

    polled(broker, both, lambda s: None)

    assert [(epoch, numbers) for _, epoch, numbers in broker.requests] == [
        (0, [2, 1]),
        (0, [1, 2]),
    ]


def test_a_broken_connection_forgets_no_partition() -> None:
    broker = Broker((0, 7), UnavailableError("gone"), (0, 9))

    async def scenario() -> None:
        session = WireFetchSession(broker.ask, read_committed=True)
        both(session)
        await session.poll(max_wait_ms=1, max_bytes=1)
        session.want(wanted(1, 5))
        with pytest.raises(UnavailableError):
            await session.poll(max_wait_ms=1, max_bytes=1)
        await session.poll(max_wait_ms=1, max_bytes=1)

    asyncio.run(scenario())

    assert sorted(broker.requests[-1][2]) == [1, 2]
