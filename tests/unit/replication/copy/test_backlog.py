"""One slow target broker holds up what goes to it, and nothing else."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.replication.copy.test_copying import Loop, Session, batch, copying, fetched

from srm.replication.copy import fetching
from srm.replication.copy.fetching import Backlog
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Fetched, Produced

LIMIT, RESPONSE = 1000, 100


class Stock:
    """Partitions that are fetched whenever they may be, and taken as the test says."""

    def __init__(self, partitions: int, nodes: int) -> None:
        self.backlog = Backlog()
        self.copies: list[Any] = [_Counted() for _ in range(partitions)]
        for number, copy in enumerate(self.copies):
            self.backlog.add(copy, number % nodes)
        self.told: dict[Any, None] = {}

    def fetch(self, number: int) -> bool:
        """Fetch for a partition if it is not held back; whether that was done."""
        changed = self.backlog.weigh(LIMIT)
        if changed is None:
            return False
        for copy in changed:
            if copy in self.told:
                del self.told[copy]
            else:
                self.told[copy] = None
        copy = self.copies[number % len(self.copies)]
        if self.backlog.holds_back(copy):
            return False
        copy.waiting_bytes += RESPONSE
        self.backlog.on_data(copy)
        return True

    def take(self, number: int) -> None:
        self.copies[number % len(self.copies)].waiting_bytes = 0

    @property
    def total(self) -> int:
        return sum(copy.waiting_bytes for copy in self.copies)


class _Counted(SimpleNamespace):
    waiting_bytes = 0
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


@given(
    st.integers(1, 5),
    st.lists(st.tuples(st.sampled_from("ffffft"), st.integers(0, 11)), max_size=300),
)
def test_all_brokers_together_hardly_have_more_than_twice_the_limit(
    nodes: int, steps: list[tuple[str, int]]
) -> None:
    stock = Stock(12, nodes)
    for step, number in steps:
        if step == "f":
            stock.fetch(number)
        else:
            stock.take(number)
        assert stock.total <= 2 * LIMIT + nodes * (LIMIT / 8 + RESPONSE)
        assert set(stock.told) == {c for c in stock.copies if stock.backlog.holds_back(c)}


@given(st.integers(2, 6))
def test_beside_brokers_that_take_nothing_one_that_does_is_fetched_for(nodes: int) -> None:
    stock = Stock(nodes, nodes)
    while sum(stock.fetch(number) for number in range(1, nodes)):
        pass

    for _ in range(50):
        assert stock.fetch(0)
        stock.take(0)


def test_a_broker_alone_may_have_the_whole_limit_and_is_never_told_to_be_held_back() -> None:
    stock = Stock(3, 1)
    while stock.fetch(0):
        pass

    assert stock.total == LIMIT
    assert stock.told == {}


def test_what_is_held_back_comes_again_when_half_of_its_share_is_taken() -> None:
    stock = Stock(3, 2)  # partitions 0 and 2 go to one node, 1 to the other
    for _ in range(5):
        assert stock.fetch(0)
        assert stock.fetch(2)
    assert not stock.fetch(0)
    assert stock.fetch(1)
    stock.take(1)
    stock.copies[0].waiting_bytes = 200
    assert not stock.fetch(0), "700 of 1000 are left"
    stock.copies[0].waiting_bytes = 0
    assert stock.fetch(0)


def test_a_partition_that_leaves_takes_its_weight_with_it() -> None:
    stock = Stock(2, 2)
    while stock.fetch(0):
        pass
    stock.backlog.remove(stock.copies[0])
    stock.backlog.add(stock.copies[0], 1)

    assert stock.fetch(1)
    stock.backlog.remove(stock.copies[0])
    stock.backlog.remove(stock.copies[0])
    assert stock.backlog.weigh(LIMIT) == []


def test_polls_continue_for_healthy_brokers_while_one_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A frozen target broker held up all partitions of a source broker until it was given up."""

    async def scenario() -> None:
        stuck, healthy = copying(0), copying(1)
        first = [fetched(stuck, batch(0), batch(1)), fetched(healthy, batch(0))]
        session = Session(Fetched(first, None), *[Fetched([], None) for _ in range(3)])
        loop = Loop(session)
        loop.loop.add(stuck, 1)
        loop.loop.add(healthy, 2)
        loop.loop.on_data = lambda copy: copy is stuck or _take_all(copy)

        await loop.run()
        assert len(session.polls) == 5
        assert session.wanted == {1: 1}

        _take_all(stuck)
        loop.loop.look_at(stuck)
        session.answers = [Fetched([], None)]
        await loop.run()
        assert session.wanted == {0: 2, 1: 1}

    monkeypatch.setattr(fetching, "_WAITING_BYTES", 18_000)
    monkeypatch.setattr(fetching, "_PARTITION_BYTES", 9_000)
    asyncio.run(scenario())


def _take_all(copy: PartitionCopy) -> None:
    while copy.can_send:
        outgoing = copy.send_next()
        assert copy.on_ack(outgoing, Produced(0, copy.target_next).base_offset, 0)
