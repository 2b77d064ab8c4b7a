"""What giving the source up would cost: what is lost for certain, and at most."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.engine.moves.giving_up import Disaster, disaster

from srm.domain.flow_state.replication_records import (
    COMMANDS,
    DRIVER_KEY,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.store import MoveStore
from srm.engine.status.observing import flow_status, observe

__all__ = ["disaster"]


def test_what_the_source_may_have_taken_since_it_was_heard_is_a_bound(disaster: Disaster) -> None:
    last_ms = disaster.world.clock() - 1_400
    disaster.world.b.produce("P.Payments", records=50, timestamp_ms=last_ms)  # 5 a second
    disaster.world.passing(2_000)

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert (forecast.not_copied, forecast.at_most, forecast.seconds) == (7, 17, 1.4)
    line = "7 records (1.4 s) of P not copied, 17 at most if it took more since at its last rate; "
    assert line in forecast.line("P")


def test_the_forecast_is_made_again_when_the_copies_are_sealed(disaster: Disaster) -> None:
    disaster.planned()
    world = disaster.world
    heard = world.clock()
    disaster.switch.before_seal = lambda: disaster.copied(Position(104, 105, 107), heard)

    disaster.through("hold")

    progress = MoveStore.read(disaster.context).progress("m1")
    assert progress.forecast is not None
    assert progress.forecast.not_copied == 3


def test_traffic_that_was_over_long_before_the_source_was_last_heard_is_not_in_the_bound(
    disaster: Disaster,
) -> None:
    last_ms = disaster.world.clock() - 20 * 60_000
    disaster.world.b.produce("P.Payments", records=3_500, timestamp_ms=last_ms)  # 350 a second
    disaster.world.passing(56_000)

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert (forecast.not_copied, forecast.at_most, forecast.rate) == (7, 7, 0)


@pytest.mark.parametrize("behind_ms", [45_000, -3_600_000])
def test_a_producer_whose_clock_is_a_little_behind_or_ahead_is_in_the_bound(
    disaster: Disaster, behind_ms: int
) -> None:
    last_ms = disaster.world.clock() - behind_ms
    disaster.world.b.produce("P.Payments", records=50, timestamp_ms=last_ms)  # 5 a second
    disaster.world.passing(2_000)

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert forecast.at_most == 17


def test_a_burst_that_has_just_begun_is_in_the_bound(disaster: Disaster) -> None:
    """The copy has seen nothing of it yet, but the slot has seen the source grow."""
    maps = disaster.world.maps[Flow("P", "B")]
    maps.reports = tuple(replace(report, source_growth=400) for report in maps.reports)
    disaster.world.passing(2_000)

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert (forecast.not_copied, forecast.at_most, forecast.topics[0].at_most) == (7, 807, 807)


def test_the_final_forecast_counts_the_growth_that_slots_report_no_more_in_a_pause(
    disaster: Disaster,
) -> None:
    """12,565 records of a sale were lost, where the report of the move said at most 5,210."""
    maps = disaster.world.maps[Flow("P", "B")]

    def seen(growth: int) -> None:
        maps.reports = tuple(replace(report, source_growth=growth) for report in maps.reports)

    seen(400)
    disaster.world.passing(2_000)
    disaster.planned()
    disaster.switch.before_seal = lambda: seen(0)

    disaster.through("hold")

    forecast = MoveStore.read(disaster.context).progress("m1").forecast
    assert forecast is not None
    assert (forecast.at_most, forecast.rate) == (807, 400)


def test_what_a_group_may_read_again_after_a_commit_of_its_own_is_in_both_forecasts(
    disaster: Disaster,
) -> None:
    """Without reverse checkpoints its last place in the target's topic is what it left there.

    Of a group that left none there it is not known whether it has read the copy on the source.
    """
    disaster.world.b.produce("Payments", records=10)
    disaster.world.b.commit("near", {TopicPartition("Payments", 0): 3})

    planned = disaster.planned().forecast
    disaster.through("hold")

    final = MoveStore.read(disaster.context).progress("m1").forecast
    assert planned is not None
    assert final is not None
    assert (planned.re_read, final.re_read) == (112, 112)


def test_what_stands_behind_a_transaction_that_is_open_on_the_source_is_not_copied(
    disaster: Disaster,
) -> None:
    """The copy cannot go on behind it: 'caught up' would hide all that others wrote since."""
    maps = disaster.world.maps[Flow("P", "B")]
    held = ((disaster.world.b.topics()["P.Payments"].topic_id, 0, 107 + 500),)
    maps.reports = tuple(replace(report, held_back=held) for report in maps.reports)

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert forecast.not_copied == 507
    assert forecast.topics[0].unknown == (
        "Payments-0 is not copied: 500 offsets held back by an open transaction",
    )


def test_the_seal_of_a_copy_is_no_sign_of_a_quiet_source(disaster: Disaster) -> None:
    """Its marker is the newest of the log: the rate, and so seconds and bound, are of before."""
    world, last_ms = disaster.world, disaster.world.clock() - 1_400
    world.b.produce("P.Payments", records=50, timestamp_ms=last_ms)  # 5 a second
    world.passing(60_000)
    planned = disaster.planned().forecast
    disaster.switch.before_seal = lambda: world.b.produce(
        "P.Payments", records=1, timestamp_ms=world.clock()
    )

    disaster.through("hold")

    final = MoveStore.read(disaster.context).progress("m1").forecast
    assert planned is not None
    assert final is not None
    assert (planned.seconds, planned.at_most) == (1.4, 307)
    assert (final.seconds, final.at_most) == (1.4, 307)


def test_the_seal_of_a_copy_is_no_record_that_is_read_again(disaster: Disaster) -> None:
    """Drill and plan come before the seals, forecast and report after them."""
    world = disaster.world
    world.start("near", "P", {"Payments": 100})
    emit(world.context().forward)
    planned = disaster.planned().forecast
    disaster.switch.before_seal = lambda: world.b.mark("P.Payments")

    disaster.through("hold")

    final = MoveStore.read(disaster.context).progress("m1").forecast
    shown = observe(world.context().forward).outlook
    [topic] = flow_status(world.context().forward).topics
    assert planned is not None
    assert final is not None
    assert shown is not None
    counts = [{one.group: one.re_read for one in each.groups} for each in (planned, final)]
    assert counts == [{"far": 90, "near": 0}] * 2
    looked = {plan.group: shown.read_again(plan) for plan in shown.plans}
    assert looked == {"far": 0, "near": 0}, "by the commits on the source, which answers"
    assert topic.copied == 101  # as before the seal


def test_the_seal_that_a_released_move_has_left_is_no_record(disaster: Disaster) -> None:
    """Copies that get no record after it are not claimed: no slot has passed it."""
    world = disaster.world
    world.start("near", "P", {"Payments": 100})
    emit(world.context().forward)
    world.b.mark("P.Payments")

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert {one.group: one.re_read for one in forecast.groups}["near"] == 0


def test_what_a_copy_took_after_its_last_report_is_read_again(disaster: Disaster) -> None:
    world = disaster.world
    world.start("near", "P", {"Payments": 100})
    emit(world.context().forward)

    def copy_on() -> None:
        world.b.produce("P.Payments", records=3)
        world.b.mark("P.Payments")

    disaster.planned()
    disaster.switch.before_seal = copy_on
    disaster.through("hold")

    final = MoveStore.read(disaster.context).progress("m1").forecast
    assert final is not None
    assert {one.group: one.re_read for one in final.groups}["near"] == 4  # the marker, too


@pytest.mark.parametrize("assigned", [1, 2])
def test_partitions_that_a_topic_created_again_has_no_more_leave_the_upper_bound_known(
    disaster: Disaster, assigned: int
) -> None:
    world = disaster.world
    world.b.create_partitions({"P.Payments": 2})
    ids = world.p.topics()["Payments"].topic_id, world.b.topics()["P.Payments"].topic_id
    pairs = [
        CopiedTopic("Payments", one, "P.Payments", ids[1], "p", "b", active=one == ids[0])
        for one in (ids[0], "former")
    ]
    given = [
        AssignedPartition("Payments", number, ids[0], "P.Payments", ids[1])
        for number in range(assigned)
    ]
    records = [*pairs, Assignment("0", 1, tuple(given))]
    state = world.b.compacted_topic(internal_topics.replication("P"), COMMANDS)
    state.write({one.key(): one.value() for one in records})
    disaster.planned()
    disaster.switch.before_seal = lambda: state.write(dict.fromkeys([records[2].key()]))

    disaster.through("hold")

    forecast = MoveStore.read(disaster.context).progress("m1").forecast
    assert forecast is not None
    assert forecast.at_most == (7 if assigned == 1 else None)


@pytest.mark.parametrize("topics", [(), ("Payments",)])
def test_a_topic_that_moves_without_a_copy_leaves_no_upper_bound(
    disaster: Disaster, topics: tuple[str, ...]
) -> None:
    world = disaster.world
    beat = DriverHeartbeat("d1", "app", "host", 1, world.clock(), pending=("taken", "heartbeats"))
    state = world.b.compacted_topic(internal_topics.replication("P"), COMMANDS)
    state.write({DRIVER_KEY: beat.value()})

    forecast = disaster.planned(topics=topics).forecast

    assert forecast is not None
    assert forecast.at_most == (7 if topics else None)
    assert forecast.line("P").endswith("P last answered 0.0 s ago")
    unknown = {one.topic: one.unknown for one in forecast.topics if one.unknown}
    assert unknown == ({} if topics else {"taken": ("taken-0 is not copied: it has no copy",)})


def test_topics_without_a_loss_do_not_stand_for_the_age_of_what_another_lacks(
    disaster: Disaster,
) -> None:
    """No record of that one is copied yet, so the time of its first one is unknown."""
    forecast = disaster.planned().forecast
    assert forecast is not None
    [payments] = forecast.topics
    fresh, whole = replace(payments, seconds=None), replace(payments, not_copied=0, seconds=0.0)

    assert replace(forecast, topics=(fresh, whole)).seconds is None
    assert replace(forecast, topics=(whole,)).seconds == 0.0
    assert "7 records of P not copied" in replace(forecast, topics=(fresh, whole)).line("P")
