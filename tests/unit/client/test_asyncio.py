"""A cancelled call of the consumer for asyncio loses no record, and nothing runs next to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, TopicPartition
from tests.waiting import DEADLINE_S, eventually

from srm.client import consumer as consumer_module
from srm.client.aio import FailoverAIOConsumer
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import Route

RECORDS = 5


class Watcher:
    """Says one route for all."""

    home = "P"

    def __init__(self, config: Config) -> None:
        self.config = config

    def start(self, **_: object) -> None: ...

    def route(self, _subject: str) -> Route:
        return Route(0, "P", "go")

    def acknowledge(self, ack: Ack) -> None: ...

    def withdraw(self, ack: Ack) -> None: ...


class Native:
    """Reads only after ``arrived`` is set; knows how many calls run at the same time."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.waits = threading.Event()
        self.running = 0
        self.most = 0
        self.messages = [Message(topic="T", partition=0, offset=n) for n in range(RECORDS)]
        self.stored = 0
        self.on_assign: Any = None

    def subscribe(self, _topics: list[str], *, on_assign: Any, **_: Any) -> None:
        self.on_assign = on_assign

    def poll(self, timeout: float) -> Message | None:
        with self:
            if self.on_assign is not None:
                on_assign, self.on_assign = self.on_assign, None
                on_assign(self, [TopicPartition("T", 0)])
            self.waits.set()
            arrived = self.arrived.wait(timeout)
            return self.messages.pop(0) if arrived and self.messages else None

    def consume(self, count: int, timeout: float) -> list[Message]:
        with self:
            self.waits.set()
            arrived = self.arrived.wait(timeout)
            return [self.messages.pop(0) for _ in range(count)] if arrived else []

    def memberid(self) -> str:
        return "member-1"

    def store_offsets(self, offsets: list[TopicPartition]) -> None:
        self.stored = offsets[0].offset

    def commit(self, **_: Any) -> list[TopicPartition]:
        with self:
            return [TopicPartition("T", 0, self.stored)]

    def committed(self, partitions: list[TopicPartition], **_: Any) -> list[TopicPartition]:
        return partitions

    def close(self) -> None: ...

    def __enter__(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)

    def __exit__(self, *_: object) -> None:
        self.running -= 1


Work = Callable[[FailoverAIOConsumer, Native], Coroutine[Any, Any, None]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Work], None]:
    path = tmp_path / "srm.properties"
    path.write_text("clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n")
    native, checked = Native(), consumer_module.Consumer

    def made(properties: dict[str, Any], **given: Any) -> Any:
        return native if "bootstrap.servers" in properties else checked(properties, **given)

    monkeypatch.setattr(consumer_module, "Consumer", made)

    async def main(work: Work) -> None:
        consumer = FailoverAIOConsumer({"group.id": "g"}, watcher=Watcher(load_config(path)))
        await consumer.subscribe(["T"])
        await work(consumer, native)
        await consumer.close()
        assert native.most == 1, "two calls ran at the same time"

    return lambda work: asyncio.run(asyncio.wait_for(main(work), DEADLINE_S))


async def cancel(call: Coroutine[Any, Any, Any], native: Native) -> None:
    """Cancel a call once its thread waits."""
    native.waits.clear()
    task = asyncio.ensure_future(call)
    await asyncio.to_thread(native.waits.wait, DEADLINE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_what_a_cancelled_poll_reads_the_next_one_returns(run: Callable[[Work], None]) -> None:
    async def work(consumer: FailoverAIOConsumer, native: Native) -> None:
        await cancel(consumer.poll(DEADLINE_S), native)
        native.arrived.set()
        found = [await consumer.poll(DEADLINE_S) for _ in range(RECORDS)]
        assert [message.offset() for message in found] == list(range(RECORDS))

    run(work)


def test_what_a_cancelled_consume_reads_the_next_poll_returns(run: Callable[[Work], None]) -> None:
    async def work(consumer: FailoverAIOConsumer, native: Native) -> None:
        assert await consumer.poll(0) is None
        native.waits.clear()
        reading = asyncio.ensure_future(consumer.consume(3, DEADLINE_S))
        await asyncio.to_thread(native.waits.wait, DEADLINE_S)
        native.arrived.set()
        eventually(lambda: len(native.messages) <= RECORDS - 3, "the thread has read")
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        found = [await consumer.poll(DEADLINE_S) for _ in range(RECORDS)]
        assert [message.offset() for message in found] == list(range(RECORDS))

    run(work)


def test_a_commit_leaves_out_what_a_cancelled_poll_has_read(run: Callable[[Work], None]) -> None:
    async def work(consumer: FailoverAIOConsumer, native: Native) -> None:
        native.arrived.set()
        await consumer.poll(DEADLINE_S)
        native.arrived.clear()
        await cancel(consumer.poll(DEADLINE_S), native)
        native.arrived.set()
        [committed] = await consumer.commit(asynchronous=False)
        assert committed.offset == 1

    run(work)


def test_a_consumer_closes_after_a_poll_without_a_limit_was_cancelled(
    run: Callable[[Work], None],
) -> None:
    async def work(consumer: FailoverAIOConsumer, native: Native) -> None:
        await cancel(consumer.poll(), native)

    run(work)


def test_a_consumer_closes_while_another_task_polls_without_a_limit(
    run: Callable[[Work], None],
) -> None:
    async def work(consumer: FailoverAIOConsumer, native: Native) -> None:
        polling = asyncio.ensure_future(consumer.poll())
        await asyncio.to_thread(native.waits.wait, DEADLINE_S)
        await consumer.close()
        assert await polling is None

    run(work)
