"""Groups are described by their coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from srm.errors import UnavailableError
from srm.kafka.admin import groups as admin_groups
from srm.kafka.admin.groups import _Look, _OfGroups
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


class Limited:
    """Clients of a cluster that repeat a call until their time limit, three times."""

    alias = "B"

    def __init__(self) -> None:
        self.silent_groups: set[str] = set()
        self.calls = 0

    def label(self, doing: str) -> str:
        return doing

    def request(self, _doing: str, request: Callable[[Any], Any]) -> Any:
        for left in (2, 1, 0):
            self.calls += 1
            try:
                return asyncio.run(self._limited(request))
            except (TimeoutError, UnavailableError) as error:
                if not left:
                    raise UnavailableError(str(error)) from error
        raise AssertionError

    async def _limited(self, request: Callable[[Any], Any]) -> Any:
        async with asyncio.timeout(0.05):
            return await request(SimpleNamespace(coordinators={}, nodes=(1, 2), look=_nothing))


async def _nothing(*_: object) -> None:
    """Do what a broker does that is not there."""


def test_a_group_without_a_coordinator_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead broker led its partition of offsets; each further look would wait as long."""
    clients, lost = Limited(), {"dead": UnavailableError("no coordinator")}

    async def by_coordinator(*args: object) -> tuple[dict[int, list[str]], dict[str, Any]]:
        names: Collection[str] = args[2]  # type: ignore[assignment]
        return {1: sorted({*names} - lost.keys())}, {n: e for n, e in lost.items() if n in names}

    async def described(self: _Look, *args: Any) -> None:
        self.found |= {name: admin_groups.GroupDescription(name, "empty") for name in args[2]}

    async def read(self: Any, *args: Any) -> None:
        self._results |= dict.fromkeys(args[2], 7)

    monkeypatch.setattr(admin_groups, "by_coordinator", by_coordinator)
    monkeypatch.setattr(_Look, "_describe", described)
    monkeypatch.setattr(_OfGroups, "_read", read)

    def look() -> tuple[int, str, dict[str, int], set[str]]:
        clients.calls = 0
        found = admin_groups.describe(clients, ["alive", "dead"])  # type: ignore[arg-type]
        of = _OfGroups[int](clients, lambda _: (), (), lambda _: 7)  # type: ignore[arg-type]
        results, errors = of.of(["alive", "dead"])
        return clients.calls, found["dead"].state, dict(results), set(errors)

    assert look() == (3 + 1, "unknown", {"alive": 7}, {"dead"})
    assert look() == (1 + 1, "unknown", {"alive": 7}, {"dead"})
    lost.clear()
    assert look() == (2, "empty", {"alive": 7, "dead": 7}, set())
    assert clients.silent_groups == set()


def test_a_coordinator_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen broker holds up neither the groups of others nor, again, each look at its own."""
    clients, frozen = Limited(), {2}

    async def by_coordinator(*args: object) -> tuple[dict[int, list[str]], dict[str, Any]]:
        names: Collection[str] = args[2]  # type: ignore[assignment]
        nodes = {1: ["alive"], 2: ["hidden"]}
        return {node: some for node, some in nodes.items() if {*some} <= {*names}}, {}

    async def described(self: _Look, _brokers: object, node: int, names: list[str]) -> None:
        if node in frozen:
            await asyncio.Event().wait()
        self.found |= {name: admin_groups.GroupDescription(name, "empty") for name in names}

    async def read(self: Any, _brokers: object, node: int, names: list[str]) -> None:
        if node in frozen:
            await asyncio.Event().wait()
        self._results |= dict.fromkeys(names, 7)

    monkeypatch.setattr(admin_groups, "by_coordinator", by_coordinator)
    monkeypatch.setattr(admin_groups, "_SILENT_S", 0.01, raising=False)
    monkeypatch.setattr(_Look, "_describe", described)
    monkeypatch.setattr(_OfGroups, "_read", read)

    def look() -> tuple[int, str, dict[str, int], set[str]]:
        clients.calls = 0
        found = admin_groups.describe(clients, ["alive", "hidden"])  # type: ignore[arg-type]
        of = _OfGroups[int](clients, lambda _: (), (), lambda _: 7)  # type: ignore[arg-type]
        results, errors = of.of(["alive", "hidden"])
        return clients.calls, found["hidden"].state, dict(results), set(errors)

    assert look() == (3 + 1, "unknown", {"alive": 7}, {"hidden"})
    assert look() == (1 + 1, "unknown", {"alive": 7}, {"hidden"})
    assert (
        "broker 2, does not answer"
        in admin_groups.describe(clients, ["alive", "hidden"])["hidden"].reason
    )  # type: ignore[arg-type]
    frozen.clear()
    assert look() == (2, "empty", {"alive": 7, "hidden": 7}, set())


def test_a_list_that_lacks_the_groups_of_a_broker_is_no_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A planned move of everything would leave them on the source without a word."""

    async def listed(self: _Look, _brokers: object, node: int) -> None:
        if node == 2:
            await asyncio.Event().wait()
        self.found["alive"] = admin_groups.GroupDescription("alive", "empty")

    monkeypatch.setattr(_Look, "_list", listed)

    with pytest.raises(UnavailableError):
        admin_groups.describe(Limited())  # type: ignore[arg-type]


def test_a_coordinator_that_another_call_drops_in_between_still_counts() -> None:
    """Threads share a cluster: one looks for coordinators while another fails at one of them."""

    async def look() -> None:
        brokers.coordinators.pop("old")

    async def query_any(_request: object) -> dict[str, Any]:
        return {"coordinators": [{"key": "new", "error_code": 0, "node": 2}]}

    brokers = SimpleNamespace(coordinators={"old": 1}, nodes=(1, 2), look=look, query_any=query_any)
    found = admin_groups.by_coordinator(None, brokers, ["old", "new"])  # type: ignore[arg-type]

    assert asyncio.run(found) == ({1: ["old"], 2: ["new"]}, {})


def test_a_look_at_all_groups_forgets_where_deleted_ones_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Groups with random names would fill the memory of a service."""

    async def listed(self: _Look, *_: object) -> None:
        self.found["here"] = admin_groups.GroupDescription("here", "empty")
        self.later["slow"] = UnavailableError("it loads")

    monkeypatch.setattr(_Look, "_list", listed)
    clients = SimpleNamespace(silent_groups={"slow"})
    known = dict.fromkeys(["here", "slow", "gone"], 1)
    brokers = SimpleNamespace(coordinators=known, nodes=(1,), look=_nothing)

    asyncio.run(_Look(clients).at(brokers, None))  # type: ignore[arg-type]

    assert sorted(brokers.coordinators) == ["here", "slow"]
