"""What a move waits for, and why it was given up, is in its records: whoever looks on reads it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, held, planned
from tests.unit.engine.moves.control.test_gate import HOLD
from tests.unit.engine.moves.steps.test_run import Clients, run

from srm.domain.moves.gate import SyncStatus
from srm.domain.moves.progress import MoveProgress, WaitNote
from srm.domain.names import internal_topics
from srm.engine.moves.context import MoveContext
from srm.engine.moves.gate import require
from srm.engine.moves.steps import wait_status
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import MoveRecords
from srm.errors import GateClosedError


def progress(context: MoveContext) -> MoveProgress:
    return MoveStore.read(context).progress("m1")


def told(world: World) -> tuple[str, ...] | None:
    """Read what a service reads on the target."""
    note = MoveRecords.read(world.b).notes.get("m1")
    return None if note is None else note.waits


def test_each_look_tells_what_is_waited_for(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near")
    world.passing()
    moves.wait_status(context, "m1")
    world.passing()
    moves.wait_status(context, "m1")
    [reason] = told(world)
    assert reason.startswith("group far is still active on P")

    world.obey("far")
    world.passing()
    assert moves.wait_status(context, "m1").ready
    assert told(world) == ()


def test_a_look_on_tells_nothing(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    moves.status(context, "m1")

    assert told(world) is None


def test_a_note_is_small_whatever_it_waits_for() -> None:
    reasons = [f"reason {number} {'x' * 10_000}" for number in range(1_200)]
    note = replace(HOLD, unheld=tuple(reasons), rested=True).note(7, "process 1 on h")

    assert [reason[:8] for reason in note.waits] == [*(f"reason {n}" for n in range(5)), "and 1,19"]
    assert len(note.value()) < 4_000
    assert WaitNote.decode(note.value()) == note


def test_when_the_wait_was_over_is_kept_apart_from_when_offsets_were_applied(world: World) -> None:
    context = held(world)
    moves.wait_status(context, "m1")
    world.passing()
    ready_ms = world.clock()
    moves.apply(context, "m1")

    times = progress(context).times_ms
    assert times["held"] < times["ready"] == ready_ms <= times["applied"]


def test_a_time_out_with_a_reason_for_each_of_many_partitions_keeps_the_first_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the remedy in each it was a wall on the overview, among the moves and in the events."""
    many = tuple(f"group far, Topic-{number}: let it catch up" for number in range(100))

    def refused(context: MoveContext, move_id: str) -> SyncStatus:
        return replace(wait_status(context, move_id), blocking=many)

    monkeypatch.setattr("srm.engine.moves.steps.wait_status", refused)
    clients = Clients(world)
    clients.obedient = False
    with pytest.raises(GateClosedError):
        run(world, clients, replace(REQUEST, wait_seconds=5))

    reason = progress(world.context()).reason
    assert reason.endswith(f"clients stay on P: {'; '.join(many[:5])}; and 95 more")


def test_what_keeps_a_step_from_being_done_is_told_as_briefly(world: World) -> None:
    plan = MoveStore.read(planned(world)).load("m1")[0]

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
    report = moves.report(world.context(), "m1")
    assert report.problems == ("clients were not moved: the move is at step released", found.reason)


def test_a_move_that_somebody_released_says_what_it_was_waiting_for(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    world.passing()
    moves.wait_status(context, "m1")
    moves.release(context, "m1")

    assert "released while it waited: " in progress(context).reason
    assert "group far is still active on P" in progress(context).reason


def test_the_next_attempt_was_released_for_nothing_that_the_last_one_waited_for(
    world: World,
) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    moves.wait_status(context, "m1")
    moves.release(context, "m1")
    world.obey("near", "far")
    moves.hold(context, "m1")
    moves.release(context, "m1")

    assert progress(context).reason == ""


def test_the_next_attempt_begins_without_the_reason_of_the_last(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    moves.release(context, "m1", "somebody changed his mind")
    assert progress(context).reason == "somebody changed his mind"

    moves.hold(context, "m1")
    assert (progress(context).reason, progress(context).held_seconds) == ("", None)


def test_a_note_that_cannot_be_read_keeps_no_client_held(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    world.b.compacted_topic(internal_topics.MOVES).write({b"wait:m1": b"{"})
    moves.release(context, "m1")

    assert (progress(context).step, progress(context).reason) == ("released", "")
