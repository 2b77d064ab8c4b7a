"""The first who answers counts; one that hangs or fails does not keep the others from it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from srm.errors import UnavailableError
from srm.service.federation.federation import first_answer

Ask = Callable[[], Awaitable[str]]
LONG_S = 3600.0


class Asked:
    """Those who are asked, each of whom answers once it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._heard: dict[str, asyncio.Future[str]] = {}

    def __call__(self, name: str) -> Ask:
        async def ask() -> str:
            self.begun.append(name)
            try:
                return await self.heard(name)
            except asyncio.CancelledError:
                self.cancelled.append(name)
                raise

        return ask

    def heard(self, name: str) -> asyncio.Future[str]:
        return self._heard.setdefault(name, asyncio.get_running_loop().create_future())

    def answers(self, name: str) -> Ask:
        self.heard(name).set_result(name)
        return self(name)

    def fails(self, name: str, why: str) -> Ask:
        self.heard(name).set_exception(UnavailableError(why))
        return self(name)


def test_who_answers_is_not_followed_by_another_question() -> None:
    async def run() -> tuple[str, list[str]]:
        asked = Asked()
        return await first_answer([asked.answers("a"), asked("b")], LONG_S), asked.begun

    assert asyncio.run(run()) == ("a", ["a"])


def test_the_next_one_is_asked_at_once_where_one_fails() -> None:
    async def run() -> str:
        asked = Asked()
        return await first_answer([asked.fails("a", "is down"), asked.answers("b")], LONG_S)

    assert asyncio.run(run()) == "b"


def test_one_that_hangs_is_given_up_once_another_has_answered() -> None:
    async def run() -> tuple[str, list[str]]:
        asked = Asked()
        found = await first_answer([asked("a"), asked.answers("b")], 0.01)
        await asyncio.sleep(0)  # what was cancelled takes its turn of the loop
        return found, asked.cancelled

    assert asyncio.run(run()) == ("b", ["a"])


def test_one_that_was_slow_may_still_answer_first() -> None:
    async def run() -> str:
        asked = Asked()
        second = asked("b")

        async def then_the_first_answers() -> str:
            asked.heard("a").set_result("a")
            return await second()

        return await first_answer([asked("a"), then_the_first_answers], 0.01)

    assert asyncio.run(run()) == "a"


def test_without_any_answer_all_failures_are_told() -> None:
    async def run() -> str:
        asked = Asked()
        return await first_answer([asked.fails("a", "is down"), asked.fails("b", "too")], LONG_S)

    with pytest.raises(UnavailableError, match="is down; too"):
        asyncio.run(run())


def test_any_other_error_is_one_of_srm_and_ends_it() -> None:
    async def broken() -> str:
        raise KeyError("x")

    async def run() -> str:
        return await first_answer([broken, Asked().answers("b")], LONG_S)

    with pytest.raises(KeyError):
        asyncio.run(run())
