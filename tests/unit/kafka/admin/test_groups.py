"""Groups are described by their coordinators."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from srm.kafka.admin.groups import _Look
from srm.kafka.wire import requests as api

ABSENT = {"group": "g", "error_code": 69, "state": "", "members": []}
EMPTY = {"group": "g", "error_code": 0, "state": "Empty", "members": []}
OFFSETS = {"topic": "T", "partitions": [{"offset": 7}]}


class Coordinator:
    """Gives its answers one after another, and knows classic groups only."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [{"groups": [answer]} for answer in answers]

    async def serves(self, _node: int, message: object) -> bool:
        return message is api.DESCRIBE_CLASSIC

    async def query(self, _node: int, _request: object) -> dict[str, Any]:
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        pytest.param([EMPTY], "empty", id="described"),
        pytest.param([{"topics": []}], "dead", id="absent"),
        pytest.param([{"topics": [OFFSETS]}, EMPTY], "empty", id="created in between"),
        pytest.param([{"topics": [OFFSETS]}, ABSENT], "unknown", id="only its offsets are visible"),
    ],
)
def test_a_group_with_offsets_that_was_absent_is_described_again(
    answers: list[dict[str, Any]], state: str
) -> None:
    first = [] if answers == [EMPTY] else [ABSENT]
    coordinator = Coordinator(*first, *({**ABSENT, "error_code": 0} | one for one in answers))
    look = _Look(None)  # type: ignore[arg-type]

    async def describe() -> None:
        await look._describe(coordinator, 1, ["g"])  # type: ignore[arg-type]

    look.found = {}
    asyncio.run(describe())

    assert look.found["g"].state == state
    assert coordinator.answers == []
