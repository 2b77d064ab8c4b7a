"""A child process follows routes by itself, and refuses what its parent has opened."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from tests.waiting import eventually

from srm.client import routing
from srm.client.consumer import FailoverConsumer
from srm.client.messages import ForkedError
from srm.client.producer import FailoverProducer
from srm.client.routing import Announcer, RoutingWatcher
from srm.config.loader import load_config
from srm.domain.moves.routing import Route

HELD = Route(1, "P", "hold", "m1")


class Tail:
    """The routing topic of a cluster: empty in the process that was there first, then a hold."""

    parent = 0

    def __init__(self, _properties: Mapping[str, str], _topic: str, **_: object) -> None:
        self.caught_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def poll(self, _timeout_s: float) -> list[tuple[bytes, bytes]]:
        time.sleep(0.01)
        first, self.caught_up = not self.caught_up, True
        return [(b"group:g", HELD.value())] if first and os.getpid() != Tail.parent else []


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "srm.properties"
    path.write_text("clusters = P\nP.bootstrap.servers = 127.0.0.1:1\n")
    monkeypatch.setattr(routing, "KafkaTopicTail", Tail)
    monkeypatch.setattr(Tail, "parent", os.getpid())
    with RoutingWatcher(load_config(path)) as made:
        yield made


def in_child(work: Callable[[], str]) -> str:
    """Return what a child process finds."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, work().encode())
        except BaseException as error:  # noqa: BLE001 -- the child must not run the tests on
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as found:
        text = found.read()
    os.waitpid(pid, 0)
    return text


def test_a_watcher_that_was_started_before_follows_in_the_child(watcher: RoutingWatcher) -> None:
    def work() -> str:
        watcher.start()
        return watcher.route("group:g").state

    assert watcher.route("group:g").state == "go"
    assert in_child(work) == "hold"
    assert watcher.route("group:g").state == "go", "the parent goes its own way"


class Taken:
    """Takes announcements."""

    home = "P"

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def acknowledge(self, ack: Any) -> None:
        self.keys.append(ack.key())

    withdraw = acknowledge


def test_a_client_in_the_child_is_an_instance_of_its_own() -> None:
    taken: Any = Taken()
    announcer = Announcer(taken, "shop")
    announcer.reach("topic:t", Route(0, "P", "go"), "resumed")

    def work() -> str:
        taken.keys.clear()
        announcer.reach("topic:t", Route(0, "P", "go"), "resumed")
        announcer.close()
        return " ".join(sorted({key.decode() for key in taken.keys}))

    [key] = taken.keys
    found = in_child(work)

    assert found.startswith("topic:t:")
    assert found != key.decode()
    announcer.close()


def test_a_consumer_or_producer_that_was_opened_before_is_refused_in_the_child(
    watcher: RoutingWatcher,
) -> None:
    consumer = FailoverConsumer({"group.id": "g"}, watcher=watcher)
    consumer.subscribe(["t"])
    consumer.poll(0)
    producer = FailoverProducer({}, watcher=watcher)
    producer.start()
    eventually(lambda: consumer.cluster == "P", "it is open")

    def work() -> str:
        refused = list[str]()
        for call in (lambda: consumer.poll(0), lambda: producer.produce("t", b"1")):
            try:
                call()
            except ForkedError as error:
                refused.append(str(error))
        consumer.close()
        producer.close()
        return "; ".join(refused)

    text = "was opened before fork and works only in the parent process; make one in each child"
    assert in_child(work) == f"this consumer {text}; this producer {text}"
    producer.close()
    consumer.close()


def test_a_consumer_that_was_made_before_and_not_used_works_in_the_child(
    watcher: RoutingWatcher,
) -> None:
    consumer = FailoverConsumer({"group.id": "g"}, watcher=watcher)
    consumer.subscribe(["t"])

    def work() -> str:
        return f"{consumer.poll(0)} {watcher.route('group:g').state} {consumer.cluster}"

    assert in_child(work) == "None hold None"
    consumer.close()
