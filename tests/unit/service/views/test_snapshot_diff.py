"""What a flow was while the service looked on is told after it has passed, too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.service_views import look_at
from tests.unit.engine.copying_records import CopiedTopic

from srm.service.views.flow_rows import FlowLook
from srm.service.views.views import events
from srm.service.views.watching import MOST, with_change


@pytest.fixture
def running(world: CopiedTopic) -> FlowLook:
    return look_at(world.forward)


def states(look: FlowLook) -> list[tuple[int, str]]:
    return [(one.time_ms, one.text) for one in events(look, (), ()) if one.kind == "state"]


def test_an_outage_that_is_over_says_when_it_was_why_and_for_how_long(running: FlowLook) -> None:
    away = with_change(running, replace(running, error="B does not answer"), 100_000)
    still = with_change(away, replace(away, error="B does not answer"), 150_000)
    back = with_change(still, running, 340_000)

    assert states(back) == [
        (340_000, "RUNNING (was UNKNOWN for 4 min)"),
        (100_000, "UNKNOWN: latest look failed: B does not answer"),
    ]


def test_the_first_look_changes_nothing(running: FlowLook) -> None:
    nothing = FlowLook(running.flow, running.config)

    assert with_change(nothing, running, 5).changes == ()


def test_a_target_that_was_away_from_the_beginning_is_told_once_it_is_seen(
    running: FlowLook,
) -> None:
    away = FlowLook(running.flow, running.config, error="B does not answer")

    [change] = with_change(away, running, 5).changes

    assert change.text == "RUNNING"


def test_a_flow_that_comes_and_goes_fills_no_memory(running: FlowLook) -> None:
    assert running.view is not None
    status = replace(running.view.status, enabled=False)
    stopped = replace(running, view=replace(running.view, status=status))
    look = running
    for number in range(200):
        look = with_change(look, (stopped, running)[number % 2], number)

    assert [change.time_ms for change in look.changes] == list(range(200 - MOST, 200))


def stopped(look: FlowLook, since_ms: int) -> FlowLook:
    assert look.view is not None
    [topic] = look.view.status.topics
    topic = replace(topic, state="stopped", reason="0: a gap on P")
    partitions = {
        name: tuple(replace(one, state="stopped", since_ms=since_ms) for one in some)
        for name, some in look.view.partitions.items()
    }
    status = replace(look.view.status, topics=(topic,))
    return replace(look, view=replace(look.view, status=status, partitions=partitions))


@pytest.mark.parametrize(("since_ms", "lasted"), [(100_000, " for 4 min"), (0, "")])
def test_a_topic_that_was_stopped_says_afterwards_why_and_for_how_long(
    running: FlowLook, since_ms: int, lasted: str
) -> None:
    """The flow said that it was DEGRADED by one topic, and the topic's own page nothing."""
    ill = stopped(running, since_ms)
    away = with_change(ill, replace(ill, error="B does not answer"), 200_000)
    healed = with_change(away, running, 340_000)
    later = with_change(healed, running, 350_000)

    [event] = [one for one in events(later, (), ()) if one.topic and one.kind == "state"]
    assert (event.time_ms, event.topic) == (340_000, "Topic")
    assert event.text == f"no longer stopped (was{lasted}: 0: a gap on P)"


def test_a_topic_that_stops_again_and_again_fills_no_memory(running: FlowLook) -> None:
    look, ill = running, stopped(running, 7)
    for number in range(200):
        look = with_change(look, (ill, running)[number % 2], number)

    assert [one.time_ms for one in look.healed] == list(range(101, 200, 2))
