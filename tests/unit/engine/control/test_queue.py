"""The queue in front of the writer of control records: one turn after the other."""

from __future__ import annotations

import time
from threading import Thread

import pytest

from srm.domain.names import internal_topics
from srm.engine.control import control_topics
from srm.engine.control.control_topics import (
    QUEUE_PREFIX,
    Place,
    create_control_topics,
    until_not_fenced,
)
from srm.errors import BusyError, FencedError
from srm_lab.testing.fake_cluster import FakeCluster

MOVES = internal_topics.MOVES


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster("B")
    create_control_topics(made, 1)
    return made


def queued(cluster: FakeCluster) -> list[bytes]:
    return [key for key in cluster.compacted_topic(MOVES).read() if key.startswith(QUEUE_PREFIX)]


def test_places_are_served_in_the_order_in_which_they_were_taken(cluster: FakeCluster) -> None:
    topic, served = cluster.compacted_topic(MOVES), list[int]()
    first = Place(topic)
    first.wait(time.monotonic() + 60)

    def take_turn(number: int) -> None:
        place = Place(cluster.compacted_topic(MOVES))
        place.wait(time.monotonic() + 60)
        served.append(number)
        place.leave()

    waiting = []
    for number in range(3):
        waiting.append(Thread(target=take_turn, args=(number,)))
        waiting[-1].start()
        while waiting[-1].is_alive() and len(queued(cluster)) < number + 2:
            time.sleep(0.001)
    assert served == []
    first.leave()
    for thread in waiting:
        thread.join(60)

    assert (served, queued(cluster)) == ([0, 1, 2], [])


def test_the_place_of_a_dead_process_is_passed(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_topics, "TURN_S", 0.01)
    Place(cluster.compacted_topic(MOVES)).wait(time.monotonic() + 60)  # and never leaves
    place = Place(cluster.compacted_topic(MOVES))

    place.wait(time.monotonic() + 60)

    assert len(queued(cluster)) == 1
    place.leave()
    assert queued(cluster) == []


def test_a_step_that_others_fence_until_its_time_is_over_may_be_tried_again(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_topics, "_PAUSE_S", 0.0001)
    tried = []

    def attempt() -> None:
        tried.append(1)
        raise FencedError("a newer one")

    with pytest.raises(BusyError, match=r"hold of m1: other changes .* for 0\.05 s; retry") as busy:
        until_not_fenced("hold of m1", attempt, 0.05, lambda: cluster.compacted_topic(MOVES))

    assert busy.value.retriable
    assert len(tried) > 1
    assert queued(cluster) == []


def test_a_step_that_is_not_fenced_takes_no_place() -> None:
    until_not_fenced("a step", lambda: None, 1, lambda: pytest.fail("it queued"))
