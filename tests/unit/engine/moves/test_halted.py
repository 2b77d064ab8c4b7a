"""A planned move that would wait for copying in vain: it is refused before any client is held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World

from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REPORTS,
    REQUEST_KEY,
    DriverHeartbeat,
    DriverRequest,
    Incarnation,
    PartitionStatus,
    State,
)
from srm.domain.flow_state.slot_records import SlotHeartbeat
from srm.domain.moves.plan import MovePlan
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.flows.supervision import SEE_LOG
from srm.errors import ConflictError, UnavailableError

PAYMENTS = TopicPartition("Payments", 0)
GONE = "records 100 to 107 are gone: retention passed them"
CONTINUE = "set data.loss.policy=continue to record the loss and continue"


@pytest.fixture
def behind(world: World) -> World:
    """Seven records on P that are not on B, and a slot that lives."""
    world.p.produce("Payments", records=7)
    world.report("P", "B")
    return world


def dry_run(world: World) -> MovePlan:
    return moves.plan(world.context(), REQUEST, dry_run=True)


def say(world: World, state: State, reason: str = GONE) -> None:
    """Let the slot say of Payments-0 how it is."""
    world.maps[Flow("P", "B")].statuses[PAYMENTS] = PartitionStatus(
        "Payments", 0, state, reason, action=CONTINUE
    )


def end_replicator(world: World) -> None:
    """Let somebody stop the replicator, which ends in good order."""
    beat = DriverHeartbeat("d-1", "local-1", "host-7", 42, world.clock(), ended=True)
    asked = DriverRequest("r-1", "stop", "alice", world.clock())
    state = internal_topics.replication("P")
    world.b.add_topic(state, 2)
    world.b.compacted_topic(state).write({DRIVER_KEY: beat.value(), REQUEST_KEY: asked.value()})


def test_what_a_slot_that_lives_has_still_to_copy_is_waited_for(behind: World) -> None:
    plan = dry_run(behind)

    assert plan.blocking == ()
    assert "the move will wait: replication of Payments from P is 7 records behind" in plan.warnings


def test_a_partition_that_is_stopped_and_holds_records_back_is_a_reason_not_to_start(
    behind: World,
) -> None:
    say(behind, "stopped")

    plan = dry_run(behind)

    [line] = plan.blocking
    assert line.startswith(f"replication of Payments-0 is stopped: {GONE}: set data.loss.policy=")
    assert [warning for warning in plan.warnings if "will wait" in warning] == []


def test_a_partition_that_is_stopped_and_holds_nothing_back_is_none(world: World) -> None:
    world.report("P", "B")
    say(world, "stopped")

    assert dry_run(world).blocking == ()


@pytest.mark.parametrize("state", ["waiting", "claiming"])
def test_a_partition_that_waits_by_itself_is_none(behind: World, state: State) -> None:
    say(behind, state, "no leader now")

    assert dry_run(behind).blocking == ()


def test_where_nobody_copies_and_records_are_missing_the_move_does_not_start(behind: World) -> None:
    """Even in the first seconds, in which its slots were heard of a moment ago."""
    end_replicator(behind)

    plan = dry_run(behind)

    [reason] = plan.blocking
    assert reason == (
        "not copied: 7 offsets of Payments; replicator down: alice has stopped the "
        "replicator, 0 s ago: srm replicator restart --flow 'P->B'"
    )
    assert [warning for warning in plan.warnings if "will wait" in warning] == []


def test_where_a_map_cannot_be_used_nobody_knows_what_is_missing(behind: World) -> None:
    end_replicator(behind)
    maps = behind.maps[Flow("P", "B")]
    maps.maps.clear()
    maps.errors[PAYMENTS] = "a block is damaged"

    assert [reason for reason in dry_run(behind).blocking if "not copied:" in reason] == []


def test_where_nobody_copies_and_nothing_is_missing_the_move_can_start(world: World) -> None:
    end_replicator(world)

    plan = dry_run(world)

    assert plan.blocking == ()
    assert (
        "the replicator of P->B is down: alice has stopped the replicator, 0 s ago; srm replicator "
        "restart --flow 'P->B'"
    ) in plan.warnings


def test_what_an_open_transaction_holds_back_needs_somebody_who_copies_unless_it_is_accepted(
    world: World,
) -> None:
    world.p.produce_in("someone", "Payments", 0, 1)
    accepted = replace(REQUEST, accept_open_transactions=True)

    assert "no replicator has ever run" in dry_run(world).blocking[0]
    assert moves.plan(world.context(), accepted, dry_run=True).blocking == ()


def test_a_plan_over_a_disabled_flow_says_that_it_is_disabled(world: World) -> None:
    world.p.produce("Payments", records=7)
    context = world.context()
    config = replace(context.forward.config, enabled=False)
    over = replace(context, forward=replace(context.forward, config=config))

    blocked = moves.plan(over, REQUEST, dry_run=True).blocking
    world.b.delete_topic("P.Payments")
    absent = moves.plan(over, REQUEST, dry_run=True).blocking

    assert "flow P->B is disabled: set P->B.enabled = true" in blocked[0]
    assert "topic P.Payments does not exist on B: P->B is disabled" in absent


def beat(world: World) -> None:
    """Let the driver say that it lives."""
    state = internal_topics.replication("P")
    world.b.add_topic(state, 2)
    alive = DriverHeartbeat("d-1", "local-1", "host-7", 42, world.clock())
    world.b.compacted_topic(state).write({DRIVER_KEY: alive.value()})


def make_looks_slow(
    world: World, monkeypatch: pytest.MonkeyPatch, milliseconds: int = 20_000
) -> None:
    """Let time pass in each look between the slots' reports and its end; the driver goes on."""
    ask = world.p.active_producers

    def slowly(places: Collection[TopicPartition]) -> Mapping[TopicPartition, Any]:
        world.passing(milliseconds)
        beat(world)
        return ask(places)

    monkeypatch.setattr(world.p, "active_producers", slowly)


def test_slots_that_write_are_alive_whatever_the_clock_of_the_planning_host_says(
    behind: World,
) -> None:
    behind.passing(90_000)
    beat(behind)
    context = behind.context()

    def wait(_seconds: float) -> None:
        alive = SlotHeartbeat("0", Incarnation(1, "aa"), 1, behind.clock(), 1, 0, 0, ())
        state = behind.b.compacted_topic(internal_topics.replication("P"), REPORTS)
        state.write({alive.key(): alive.value()})

    blocked = moves.plan(context, REQUEST, dry_run=True).blocking
    assert moves.plan(replace(context, pause=wait), REQUEST, dry_run=True).blocking == ()
    assert f"the replicator has no live slot: {SEE_LOG}" in blocked[0]


def test_the_time_that_a_plan_takes_is_no_silence_of_the_replicator(
    behind: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(behind)
    make_looks_slow(behind, monkeypatch)

    plan = dry_run(behind)

    assert plan.blocking == ()
    assert [warning for warning in plan.warnings if "is down" in warning] == []


def test_slots_that_were_silent_before_a_slow_plan_asked_them_are_seen(
    behind: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind.passing(11_000)
    make_looks_slow(behind, monkeypatch)

    [reason] = dry_run(behind).blocking

    assert reason.endswith(f"; replicator down: the replicator has no live slot: {SEE_LOG}")


def test_the_time_that_a_look_of_the_gate_takes_is_no_silence_of_the_replicator(
    behind: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = behind.context()
    moves.plan(context, REQUEST, "m1")
    moves.hold(context, "m1")
    behind.report("P", "B")
    make_looks_slow(behind, monkeypatch)

    waits = moves.wait_status(context, "m1").blocking

    assert "replication of Payments from P is 7 records behind" in waits
    assert [reason for reason in waits if "the replicator" in reason] == []


def test_a_partition_that_stops_after_the_plan_keeps_the_hold_from_touching_anybody(
    behind: World,
) -> None:
    context = behind.context()
    moves.plan(context, REQUEST, "m1")
    say(behind, "stopped")

    with pytest.raises(ConflictError, match="cannot start: replication of Payments-0 is stopped"):
        moves.hold(context, "m1")
    assert behind.routes("P") == {}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_plan_whose_source_does_not_answer_repeats_the_request_without_it(
    world: World, dry_run: bool
) -> None:
    world.p.fail(UnavailableError("cluster P: connection refused", "start its brokers"))
    request = replace(
        REQUEST, operation="failback", wait_seconds=60.0, redirect=("routing", "manual")
    )
    request = replace(request, groups=("near", "far out"), accept_skips=True)
    context = world.context()

    with pytest.raises(UnavailableError) as raised:
        moves.plan(context, request, "m1", dry_run=dry_run)

    first, _, command = raised.value.action.partition(": ")
    assert first == "start its brokers; if P is lost, move with mode unplanned"
    assert command == (
        "srm failover run --mode unplanned --source P --target B --operation failback "
        "--topic Payments --group near --group 'far out' --timeout 60 --redirect routing,manual "
        "--accept-skips"
    )
