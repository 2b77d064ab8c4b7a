"""What a move waits for, and why it was given up, is in its records: whoever looks on reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engine.move.moving import REQUEST, World, held, planned
from tests.unit.engine.move.test_run import Clients, run

from srm.domain.move.gate import SyncStatus
from srm.domain.move.progress import MoveProgress, Observation
from srm.engine import move
from srm.engine.move import MoveContext, MoveStore, wait_status
from srm.engine.move.control import ControlTables, decoded
from srm.engine.move.look import require
from srm.errors import GateClosedError


def progress(context: MoveContext) -> MoveProgress:
    return MoveStore(context).progress("m1")


def told(world: World) -> tuple[str, ...]:
    """Read what a service reads on the target."""
    seen = decoded(ControlTables.read_moves(world.b).looks.get("m1"), Observation.decode)
    assert seen is not None
    return seen.waits


def test_each_look_tells_what_is_waited_for(world: World) -> None:
    context = planned(world)
    move.hold(context, "m1")
    world.obey("near")
    world.passing()
    move.wait_status(context, "m1")
    world.passing()
    move.wait_status(context, "m1")
    [reason] = told(world)
    assert reason.startswith("group far is still active on P")

    world.obey("far")
    world.passing()
    assert move.wait_status(context, "m1").ready
    assert told(world) == ()


def test_a_look_on_tells_nothing(world: World) -> None:
    context = planned(world)
    move.hold(context, "m1")
    move.status(context, "m1")

    assert told(world) == ()


def test_of_many_reasons_the_first_are_told_and_how_many_more_there_are() -> None:
    seen = Observation("m1", 0).waiting([f"reason {number}" for number in range(1_200)])

    assert seen.waits == (*(f"reason {number}" for number in range(5)), "and 1,195 more")


def test_what_an_earlier_version_observed_has_no_reasons() -> None:
    assert Observation.decode(b'{"move_id": "m1", "time_ms": 7}').waits == ()
    assert MoveProgress.decode(b'{"move_id": "m1", "step": "released"}').reason == ""


def test_when_the_wait_was_over_is_kept_apart_from_when_offsets_were_applied(world: World) -> None:
    context = held(world)
    move.wait_status(context, "m1")
    world.passing()
    ready_ms = world.clock()
    move.apply(context, "m1")

    times = progress(context).times_ms
    assert times["held"] < times["ready"] == ready_ms <= times["applied"]


def test_a_time_out_with_a_reason_for_each_of_many_partitions_keeps_the_first_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the remedy in each it was a wall on the overview, among the moves and in the events."""
    many = tuple(f"group far, Topic-{number}: let it catch up" for number in range(100))

    def refused(context: MoveContext, move_id: str) -> SyncStatus:
        return replace(wait_status(context, move_id), blocking=many)

    monkeypatch.setattr("srm.engine.move.run.wait_status", refused)
    clients = Clients(world)
    clients.obedient = False
    with pytest.raises(GateClosedError):
        run(world, clients, replace(REQUEST, wait_seconds=5))

    reason = progress(world.context()).reason
    assert reason.endswith(f"clients stay on P: {'; '.join(many[:5])}; and 95 more")


def test_what_keeps_a_step_from_being_done_is_told_as_briefly(world: World) -> None:
    plan = MoveStore(planned(world)).plan("m1")

    with pytest.raises(GateClosedError, match=r"may not go yet: 0; 1; 2; 3; 4; and 5 more$"):
        require(tuple("0123456789"), plan, "clients may not go")


def test_a_time_out_is_the_reason_that_the_move_was_given_up(world: World) -> None:
    clients = Clients(world)
    clients.obedient = False
    with pytest.raises(GateClosedError) as error:
        run(world, clients, replace(REQUEST, wait_seconds=5))

    found = progress(world.context())
    assert (found.step, found.reason) == ("released", str(error.value))
    assert found.held_seconds == pytest.approx(6, abs=2)
    report = move.report(world.context(), "m1")
    assert report.problems == ("clients were not moved: the move is at step released", found.reason)


def test_a_move_that_somebody_released_says_what_it_was_waiting_for(world: World) -> None:
    context = planned(world)
    move.hold(context, "m1")
    world.passing()
    move.wait_status(context, "m1")
    move.release(context, "m1")

    assert "released while it waited: " in progress(context).reason
    assert "group far is still active on P" in progress(context).reason


def test_the_next_attempt_begins_without_the_reason_of_the_last(world: World) -> None:
    context = planned(world)
    move.hold(context, "m1")
    move.release(context, "m1", "somebody changed his mind")
    assert progress(context).reason == "somebody changed his mind"

    move.hold(context, "m1")
    assert (progress(context).reason, progress(context).held_seconds) == ("", None)


def test_an_observation_that_cannot_be_read_keeps_nobody_held(world: World) -> None:
    context = planned(world)
    move.hold(context, "m1")
    for cluster in (world.p, world.b):
        cluster.compacted("srm-moves.internal").write({b"look:m1": b"{"})
    move.release(context, "m1")

    assert (progress(context).step, progress(context).reason) == ("released", "")
