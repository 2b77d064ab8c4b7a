"""A client says again and again that it is there, and takes it back when it is closed."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.waiting import eventually

from srm.client import routing
from srm.client.routing import Announcer, RoutingWatcher
from srm.config.loader import load_config
from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import Route


class Watcher:
    """Takes announcements as the routing topic would."""

    def __init__(self) -> None:
        self.home = "P"
        self.acks: list[Ack] = []
        self.withdrawn: list[Ack] = []

    def acknowledge(self, ack: Ack) -> None:
        self.acks.append(ack)

    def withdraw(self, ack: Ack) -> None:
        self.withdrawn.append(ack)


def test_what_was_said_is_repeated_with_its_age_until_the_client_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "REPEAT_S", 0.02)
    watcher: Any = Watcher()
    announcer = Announcer(watcher, "c")
    announcer.reach("topic:t", Route(0, "P", "go"), "resumed")
    eventually(lambda: len(watcher.acks) >= 3, "repeated")
    announcer.close()
    said = len(watcher.acks)
    announcer.lose("topic:t", {"t-0": 1})

    assert {(ack.state, ack.generation, ack.home, ack.time_ms) for ack in watcher.acks} == {
        ("resumed", 0, "P", watcher.acks[0].time_ms)
    }
    assert watcher.acks[-1].ages_ms["resumed"] > watcher.acks[0].ages_ms["resumed"]
    assert len(watcher.acks) == said
    assert [ack.key() for ack in watcher.withdrawn] == [watcher.acks[0].key()]


def test_it_is_taken_back_once_for_each_subject() -> None:
    """Each cluster has one record of it, whatever cluster it speaks of."""
    watcher: Any = Watcher()
    announcer = Announcer(watcher, "c")
    announcer.reach("topic:t", Route(1, "P", "hold"), "held")
    announcer.reach("topic:t", Route(1, "B", "go"), "resumed")
    announcer.close()

    assert [ack.key() for ack in watcher.withdrawn] == [watcher.acks[0].key()]


@pytest.mark.parametrize(
    ("generation", "code", "warned"),
    [
        (0, KafkaError.UNKNOWN_TOPIC_OR_PART, False),
        (0, KafkaError.TOPIC_AUTHORIZATION_FAILED, True),
        (1, KafkaError.UNKNOWN_TOPIC_OR_PART, True),
    ],
)
@pytest.mark.parametrize("raised", [False, True])
def test_a_missing_topic_of_routes_is_an_error_only_after_a_move(
    tmp_path, monkeypatch, caplog, generation: int, code: int, warned: bool, raised: bool
) -> None:
    class Refusing:
        def produce(self, *_: object, on_delivery: Any) -> None:
            if raised:
                raise KafkaException(KafkaError(code))
            on_delivery(KafkaError(code), None)

        def poll(self, _timeout: float) -> None: ...

        def flush(self, _timeout: float) -> None: ...

    monkeypatch.setattr(routing, "open_writer", lambda _properties: Refusing())
    file = tmp_path / "srm-client.properties"
    file.write_text("clusters = P, B\nP.bootstrap.servers = p:1\nB.bootstrap.servers = b:1\n")
    watcher = RoutingWatcher(load_config(file))
    announcer = Announcer(watcher, "c")
    announcer.reach("topic:t", Route(generation, "P", "go"), "resumed")
    announcer.close()
    watcher.close()

    warnings = {one.getMessage() for one in caplog.records if one.levelname == "WARNING"}
    assert bool(warnings) == warned
    assert all("writing on P" in text and "srm's principal" not in text for text in warnings)


def test_each_start_of_a_client_takes_back_its_own_announcement_alone() -> None:
    """Replicas of a service share one client id."""
    watcher: Any = Watcher()
    one, other = (Announcer(watcher, "shop") for _ in range(2))
    for each in (one, other):
        each.reach("topic:t", Route(0, "P", "go"), "resumed")
    one.close()

    first, second = watcher.acks
    assert (first.client, first.key() != second.key()) == (second.client, True)
    assert [ack.key() for ack in watcher.withdrawn] == [first.key()]
    other.close()
