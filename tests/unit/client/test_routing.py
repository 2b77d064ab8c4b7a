"""How long a client that starts waits for clusters that do not answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from srm.client import routing
from srm.client.messages import PRINCIPAL
from srm.client.routing import RoutingWatcher
from srm.config.loader import load_config
from srm.domain.moves.routing import ERA, Route
from srm.errors import UnavailableError
from srm.kafka.tables.topic_tail import PATIENT

WAITED_S = 60.0


class Tail:
    """The routing topic of a cluster that answers or not, by its address."""

    routes: Mapping[str, Route]

    def __init__(
        self, properties: Mapping[str, str], _topic: str, *, later: object, principal: str
    ) -> None:
        assert (later, principal) == (PATIENT, PRINCIPAL)
        self.answers = properties["bootstrap.servers"] == "b:9092"
        self.caught_up = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def poll(self, _timeout_s: float) -> list[tuple[bytes, bytes]]:
        if not self.answers or self.caught_up:
            time.sleep(0.01)
            return []
        self.caught_up = True
        return [(key.encode(), route.value()) for key, route in Tail.routes.items()]


@pytest.fixture
def watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    path = tmp_path / "srm.properties"
    path.write_text(
        "clusters = P, B\nP.bootstrap.servers = p:9092\nB.bootstrap.servers = b:9092\n"
        "P->B.enabled = true\nB->P.enabled = true\n"
    )
    monkeypatch.setattr(routing, "KafkaTopicTail", Tail)
    monkeypatch.setattr(routing, "_ALL_ANSWER_S", WAITED_S)
    monkeypatch.setattr(routing, "_OTHERS_ANSWER_S", 0.05)
    Tail.routes = {}
    made = RoutingWatcher(load_config(path))
    yield made
    made.close()


@pytest.mark.parametrize(
    "route", [Route(ERA, "P", "hold", "m"), Route(ERA, "B", "go", "m", decided=True)]
)
def test_a_cluster_that_is_given_up_is_not_waited_for(watcher: Any, route: Route) -> None:
    Tail.routes = {"group:g": route}
    began = time.monotonic()

    watcher.start(subjects=["group:g"])

    assert time.monotonic() - began < WAITED_S / 2
    assert watcher.route("group:g").cluster == route.cluster


@pytest.mark.parametrize(
    "routes",
    [
        {"group:g": Route(ERA + 1, "P", "go", "back", decided=True)},
        {"group:g": Route(3, "B", "go", "planned", decided=True)},
        {"group:other": Route(ERA, "B", "go", "m", decided=True)},
    ],
)
def test_a_cluster_that_may_know_better_is_waited_for_once(
    watcher: Any, monkeypatch: pytest.MonkeyPatch, routes: Mapping[str, Route]
) -> None:
    Tail.routes = routes
    monkeypatch.setattr(routing, "_ALL_ANSWER_S", 1.0)
    began = time.monotonic()
    watcher.start(subjects=["group:g"])
    assert time.monotonic() - began >= 1.0

    monkeypatch.setattr(watcher._changed, "wait", lambda *_: pytest.fail("it waits again"))
    watcher.start(subjects=["group:g"])


def test_a_call_that_may_not_wait_so_long_fails_only_where_no_cluster_answered(
    watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tail, "poll", lambda *_: time.sleep(0.01) or [])
    with pytest.raises(UnavailableError, match="none of the clusters"):
        watcher.start(0.2)


def test_a_client_that_no_route_names_goes_where_those_at_its_home_were_sent(watcher: Any) -> None:
    """Its home may be lost: a move of everything has sent all that would start there elsewhere."""
    gone = Route(ERA, "B", "go", "m", decided=True, homes=("P",))
    Tail.routes = {"home:P": gone, "group:named": Route(ERA + 1, "P", "go", "back", decided=True)}
    began = time.monotonic()

    watcher.start(subjects=["group:new", "topic:new"])

    assert time.monotonic() - began < WAITED_S / 2
    assert watcher.route("group:new") == watcher.route("topic:new") == gone
    assert watcher.route("group:named").cluster == "P"
