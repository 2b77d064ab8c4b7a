"""Looking goes on whatever happens: a look that fails says so, and the next one follows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any

import pytest
from tests.service_views import config_of
from tests.waiting import eventually

from srm.domain.topics import Flow
from srm.engine import control_lists
from srm.engine.drill.leftovers import read_drills
from srm.service import watching
from srm.service.watching import TargetWatch
from srm.testing.fake_cluster import FakeCluster

FLOW = Flow("P", "B")


class Followed(FakeCluster):
    """A cluster whose tables somebody follows."""

    def follow(self, topic: str, sink: object) -> None: ...


def opened(alias: str, *_: object) -> AbstractContextManager[FakeCluster]:
    return nullcontext(Followed(alias))


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetWatch]:
    monkeypatch.setattr(watching, "following_cluster", opened)
    monkeypatch.setattr(watching, "kafka_cluster", opened)
    monkeypatch.setattr(watching, "_AGAIN_S", 0.0)
    with closing(TargetWatch(config_of(FLOW), "B", (FLOW,))) as made:
        yield made


class Broken:
    """Fails as nobody has expected, so many times."""

    def __init__(self, function: Any, times: int) -> None:
        self.function = function
        self.left = times

    def __call__(self, *arguments: object) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise TypeError("nobody has expected this")
        return self.function(*arguments)


def test_a_look_at_a_flow_that_fails_in_an_unknown_way_is_an_error_and_not_the_last_one(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(control_lists.load, 1)
    monkeypatch.setattr(control_lists, "load", broken)

    watch.start()
    eventually(lambda: "(TypeError)" in watch.look.flows[FLOW].error, "the state of the look")
    watch.refresh()
    eventually(lambda: watch.look.flows[FLOW].view is not None, "the state of the look")
    assert watch.look.flows[FLOW].error == ""


def test_what_the_target_keeps_of_moves_may_fail_so_too(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "read_drills", Broken(read_drills, 1))

    watch.start()
    eventually(lambda: "(TypeError)" in watch.look.error, "the state of the look")
    watch.refresh()
    eventually(lambda: watch.look.looked_ms > 0 and not watch.look.error, "the state of the look")


def test_a_target_that_cannot_be_opened_is_tried_again_and_says_why_meanwhile(
    watch: TargetWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Broken(opened, 10**9)
    monkeypatch.setattr(watching, "following_cluster", broken)

    watch.start()
    eventually(lambda: "(TypeError)" in watch.look.error, "the state of the look")
    assert not watch.look.looked_ms
    broken.left = 0
    eventually(lambda: bool(watch.look.looked_ms), "the state of the look")
    assert not watch.look.error
