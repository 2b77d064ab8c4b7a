"""Another process takes over a wait: it trusts what it can check, and watches for the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, held

from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.moves.context import MoveContext
from srm.engine.moves.store import MoveStore
from srm.errors import GateClosedError


def other_process(world: World) -> tuple[MoveContext, list[float]]:
    """Return the context of another process, and the seconds for which it pauses."""
    context, pauses = world.context(), list[float]()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        context.pause(seconds)

    return replace(context, pause=pause), pauses


def send(context: MoveContext) -> None:
    moves.apply(context, "m1")
    assert moves.go(context, "m1").step == "gone"


def test_what_has_not_moved_since_another_process_was_ready_is_not_waited_for_again(
    world: World,
) -> None:
    assert moves.wait_status(held(world), "m1").ready
    context, pauses = other_process(world)
    send(context)

    assert pauses == []


def test_what_rests_while_something_else_is_waited_for_is_not_waited_for_again(
    world: World,
) -> None:
    """As when a long wait leaves the worker for the triggerer."""
    context = held(world)
    world.p.join("far")
    assert [reason[:9] for reason in moves.wait_status(context, "m1").blocking] == ["group far"]
    other = world.context()
    moves.wait_status(other, "m1")
    world.obey("far")

    assert moves.wait_status(other, "m1").ready


def test_without_another_process_that_was_ready_it_looks_twice(world: World) -> None:
    """As after a wait that a person has marked as successful."""
    held(world)
    context, pauses = other_process(world)
    send(context)

    assert pauses == [REQUEST.quiet_seconds]


def test_go_alone_looks_twice_as_well(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    other, pauses = other_process(world)

    assert moves.go(other, "m1").step == "gone"
    assert pauses == [REQUEST.quiet_seconds]


def test_what_was_written_after_another_process_was_ready_is_by_a_slow_writer(world: World) -> None:
    assert moves.wait_status(held(world), "m1").ready
    world.p.produce("Payments")
    world.copy("P", "B")
    context, pauses = other_process(world)
    send(context)

    assert pauses == [REQUEST.slow_writer_seconds]


def test_what_is_written_while_it_watches_keeps_the_gate_closed(world: World) -> None:
    held(world)

    def write(_seconds: float) -> None:
        world.passing(1_000)
        world.p.produce("Payments")
        world.copy("P", "B")

    with pytest.raises(GateClosedError, match="topic Payments is still written to on P"):
        moves.apply(replace(world.context(), pause=write), "m1")


def test_a_note_of_an_earlier_attempt_vouches_for_nothing(world: World) -> None:
    context = held(world)
    assert moves.wait_status(context, "m1").ready
    moves.release(context, "m1")
    moves.hold(context, "m1")
    other, pauses = other_process(world)
    send(other)

    assert pauses == [REQUEST.quiet_seconds]


def test_nothing_is_paused_for_where_something_else_keeps_the_gate_closed(world: World) -> None:
    held(world)
    world.p.join("far")
    context, pauses = other_process(world)

    with pytest.raises(GateClosedError, match="group far is still active on P"):
        moves.apply(context, "m1")
    assert pauses == []


def test_the_time_that_is_left_is_forecast_by_who_only_looks_on(world: World) -> None:
    world.p.produce("Payments", records=100)
    world.report("P", "B")
    context = held(world)
    moves.wait_status(context, "m1")
    world.passing(1_000)
    place, half = TopicPartition("Payments", 0), Position(150, 151, 200)
    world.maps[Flow("P", "B")].put(place, [Run(0, 0, 60), Run(60, 61, 90)], half)

    assert moves.status(world.context(), "m1").eta_seconds == pytest.approx(1.0)


def test_a_move_of_many_partitions_and_producers_writes_small_records(world: World) -> None:
    """400 partitions with 60 producer ids each of the last day: 1.2 MB of sequences."""
    for number in range(1, 400):
        place = TopicPartition("Payments", number)
        world.p.create_partitions({"Payments": number + 1})
        for producer in range(60):
            world.p.produce(place.topic, number, producer_id=producer)
    world.report("P", "B")
    held(world)
    assert MoveStore.read(world.context()).progress("m1").step == "held"
