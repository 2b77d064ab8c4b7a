"""What a flow was while the service looked on is told after it has passed, too."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.service_views import look_at
from tests.unit.engine.copying_records import CopiedTopic

from srm.engine.health import Health
from srm.service.changes import MOST, with_change
from srm.service.events import events
from srm.service.looks import FlowLook


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
        (100_000, "UNKNOWN: cannot be seen now: B does not answer"),
    ]


def test_the_first_look_changes_nothing(running: FlowLook) -> None:
    nothing = FlowLook(running.flow, running.config)

    assert with_change(nothing, running, 5).changes == ()


def test_a_target_that_was_away_from_the_beginning_is_told_once_it_is_seen(
    running: FlowLook,
) -> None:
    away = FlowLook(running.flow, running.config, error="B does not answer")

    [change] = with_change(away, running, 5).changes

    assert (change.state, change.former, change.lasted_ms) == ("RUNNING", "UNKNOWN", None)


def test_a_flow_that_comes_and_goes_fills_no_memory(running: FlowLook) -> None:
    assert running.view is not None
    stopped = replace(running, view=replace(running.view, health=Health("STOPPED")))
    look = running
    for number in range(200):
        look = with_change(look, (stopped, running)[number % 2], number)

    assert [change.time_ms for change in look.changes] == list(range(200 - MOST, 200))
