"""A cluster that returned from a disaster gets no clients before its return is settled."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST
from tests.unit.engine.moves.giving_up import Disaster, disaster

from srm.domain.flow_state.replication_records import Pause
from srm.engine.drill import run_drill
from srm.engine.moves.context import MoveContext
from srm.engine.moves.planning import unsettled_problems
from srm.engine.status.observing import flow_status
from srm.engine.status.status import flow_health
from srm.engine.why import why_group, why_topic
from srm.errors import ConflictError

__all__ = ["disaster"]

FAILBACK = replace(REQUEST, operation="failback", source="B", target="P", slow_writer_seconds=0.0)
UNSETTLED = r"P->B is paused .* srm return status --flow 'P->B'"


@pytest.fixture
def back(disaster: Disaster) -> MoveContext:
    """Return the way back: B was moved to, P is there again with all its data, unsettled."""
    world = disaster.world
    disaster.planned()
    disaster.through("hold", "apply", "go")
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": 101, "Payments": 0})
        world.obey(group)
    world.passing(10_000)
    world.copy("B", "P")
    world.report("B", "P")
    return world.context("B", "P")


def test_a_failback_is_blocked_until_the_return_is_settled(
    disaster: Disaster, back: MoveContext
) -> None:
    [reason] = moves.plan(back, FAILBACK, "m2").blocking
    with pytest.raises(ConflictError, match=UNSETTLED):
        moves.hold(back, "m2")
    assert not any(route.state == "hold" for route in disaster.world.routes("B").values())

    disaster.switch.resume()

    assert "m1" in reason
    assert moves.plan(back, FAILBACK, "m2").blocking == ()


def test_a_gate_closes_when_the_target_is_given_up_in_between(
    disaster: Disaster, back: MoveContext
) -> None:
    """Another move may give P up for topics of its own while this one holds clients."""
    disaster.switch.resume()
    moves.plan(back, FAILBACK, "m2")
    moves.hold(back, "m2")
    disaster.world.obey("near", "far", alias="B")
    disaster.switch.pause(Pause("", "ann", "P is gone", 1, "m3"))

    status = moves.wait_status(back, "m2")

    assert [reason for reason in status.blocking if "P->B is paused" in reason]


def test_a_drill_the_status_and_why_say_the_same(back: MoveContext) -> None:
    [reason] = moves.plan(back, FAILBACK, "m2").blocking
    flow = replace(back.forward, opposite=back.reverse.config)

    assert reason in run_drill(back, groups=("near",)).problems
    assert reason in flow_status(flow).hints
    steps = {step.name: step for step in why_group(flow, "near").steps}
    assert steps["movable"].answer == reason


@pytest.mark.parametrize("step", ["plan", "hold"])
def test_what_waits_for_an_undecided_move_names_the_way_to_end_it(
    disaster: Disaster, step: str
) -> None:
    """A run killed before its decision: nothing has come back yet that could be settled."""
    disaster.planned()
    if step == "hold":
        disaster.through("hold")
    else:
        disaster.switch.pause(Pause("r1", "ann", "unplanned failover m1: P is lost", 1, "m1"))
    flow = disaster.world.context().forward
    ends = "m1 --source P --target B'"
    again, end = f"'srm failover run --move-id {ends}", f"'srm failover release {ends}"

    said = [
        flow_status(flow).hints[0],
        flow_health(flow_status(flow)).reasons[0].action,
        {one.name: one for one in why_topic(flow, "Payments").steps}["not-paused"].action,
        {one.name: one for one in why_group(flow, "near").steps}["not-paused"].action,
        *(one.action for one in unsettled_problems(disaster.world.context("B", "P").forward)),
    ]

    assert len(said) == 5
    assert all(again in one and end in one and "srm return" not in one for one in said)


def test_what_waits_for_a_decided_move_names_the_return(disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold", "apply", "go")

    [hint, *_] = flow_status(disaster.world.context().forward).hints

    assert "srm return status --flow 'P->B'" in hint
