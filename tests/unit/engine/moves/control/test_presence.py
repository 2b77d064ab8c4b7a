"""Who is still there: what the gate sees of clients that follow routes, and of the others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world, held, planned

from srm.config.model import Config
from srm.domain.moves.announcements import Ack, AckState
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.moves.context import ensure_topics
from srm.errors import GateClosedError


@pytest.fixture
def world(config: Config) -> World:
    return busy_world(config)


def say(
    world: World,
    state: AckState,
    generation: int = 0,
    subject: str = "topic:Payments",
    instance: str = "",
) -> None:
    ack = Ack(
        *(subject, "writer", generation, state, "P", world.clock()),
        host="h1",
        instance=instance,
    )
    world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


def test_an_announced_producer_has_to_say_that_it_has_stopped(world: World) -> None:
    context = planned(world)
    say(world, "resumed")
    moves.hold(context, "m1")
    world.obey("near", "far")
    world.passing()

    [reason] = moves.wait_status(context, "m1").blocking
    assert "producer writer on h1 of topic Payments has not stopped yet" in reason
    with pytest.raises(GateClosedError, match="producer writer on h1"):
        moves.go(context, "m1")

    say(world, "held", world.routes("P")["topic:Payments"].generation)
    assert moves.wait_status(context, "m1").blocking == ()


def test_an_announced_producer_that_died_without_a_word_counts_as_gone_in_the_end(
    world: World,
) -> None:
    context = planned(world)
    say(world, "resumed")
    moves.hold(context, "m1")
    world.obey("near", "far")
    moves.wait_status(context, "m1")
    for _ in range(2):
        world.passing(45_500)
        moves.wait_status(context, "m1")  # renews the hold: how late it is now is known from that

    assert moves.wait_status(context, "m1").blocking == ()


def test_a_host_whose_clock_is_ahead_forgets_no_client(world: World) -> None:
    context = planned(world)
    say(world, "resumed")
    ahead = replace(context.forward, now_ms=lambda: world.clock() + 7_200_000)
    moves.hold(replace(context, forward=ahead), "m1")

    assert "producer writer on h1" in str(moves.wait_status(context, "m1").blocking)


def test_a_slow_writer_that_follows_no_route_keeps_the_gate_closed(world: World) -> None:
    world.p.produce("Payments", producer_id=7, timestamp_ms=world.clock())
    world.copy("P", "B")
    context = held(world)

    [reason] = moves.wait_status(context, "m1").blocking
    assert "Payments must be idle on P for 5 s: a producer that follows no route" in reason
    world.passing(2_000)
    world.p.produce("Payments", producer_id=7, timestamp_ms=world.clock())
    world.copy("P", "B")
    moves.wait_status(context, "m1")
    world.passing(4_000)
    assert "still written to on P" in moves.wait_status(context, "m1").blocking[0]
    world.passing(2_000)
    assert moves.wait_status(context, "m1").blocking == ()


def test_producers_that_follow_are_not_waited_for_longer_than_the_quiet_time(world: World) -> None:
    world.p.produce("Payments", producer_id=7, timestamp_ms=world.clock())
    world.copy("P", "B")
    context = planned(world)
    say(world, "resumed")
    moves.hold(context, "m1")
    world.obey("near", "far")
    say(world, "held", world.routes("P")["topic:Payments"].generation)
    moves.wait_status(context, "m1")
    world.passing(1_500)

    assert moves.wait_status(context, "m1").blocking == ()


def test_brokers_whose_clocks_differ_hide_no_producer(config: Config) -> None:
    """A target that is 91 s ahead made live producers on the source look dead."""
    world = busy_world(config)
    world.b._clock = lambda: world.clock() + 91_000
    context = planned(world)
    say(world, "resumed")
    moves.hold(context, "m1")
    world.obey("near", "far")
    moves.wait_status(context, "m1")
    world.passing()

    assert "producer writer on h1" in moves.wait_status(context, "m1").blocking[0]


def test_a_time_of_day_that_is_set_does_not_make_a_topic_stand_still(world: World) -> None:
    context = held(world)
    moves.wait_status(context, "m1")
    world.p.produce("Payments")
    moves.wait_status(context, "m1")
    later = replace(context.forward, now_ms=lambda: world.clock() + 3_600_000)

    blocking = moves.wait_status(replace(context, forward=later), "m1").blocking
    assert any("Payments is still written to" in reason for reason in blocking)


def test_a_host_whose_clock_is_ahead_does_not_make_a_topic_stand_still(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near", "far")
    ahead = replace(context.forward, now_ms=lambda: world.clock() + 8_000)
    other = replace(world.context(), forward=ahead, host="elsewhere")

    assert "must be idle" in moves.wait_status(other, "m1").blocking[0]


def test_a_plan_names_the_clients_that_a_hold_cannot_reach(world: World) -> None:
    world.p.produce("Payments", producer_id=7, timestamp_ms=world.clock())
    ensure_topics(world.context())
    say(world, "resumed", subject="group:far")

    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    assert any(w.startswith("group near:") and "does not follow routes" in w for w in warnings)
    assert any("topic Payments: 1 of the producers" in w for w in warnings)


def announce(world: World, client: str, stamped_ms: int, *, reached: int, age: int) -> None:
    """Let the broker stamp what a client repeats of a state that it reached long ago."""
    now = world.clock()
    ack = Ack("topic:Payments", client, 0, "resumed", "P", reached, host="h1")
    world.clock.advance(stamped_ms - now)
    clients = world.p.compacted_topic(internal_topics.CLIENTS)
    clients.write({ack.key(): replace(ack, ages_ms={"resumed": age}).value()})


def test_a_client_that_has_worked_for_an_hour_does_not_make_clocks_look_wrong(
    world: World,
) -> None:
    ensure_topics(world.context())
    began = world.clock()
    announce(world, "steady", began + 3_600_000, reached=began, age=3_600_000)

    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    assert [warning for warning in warnings if "clock" in warning] == []


def test_what_arrives_late_does_not_make_clocks_look_wrong_where_others_arrived_in_time(
    world: World,
) -> None:
    ensure_topics(world.context())
    began = world.clock()
    announce(world, "prompt", began + 10, reached=began, age=0)
    announce(world, "connecting", began + 9_000, reached=began, age=0)

    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    assert [warning for warning in warnings if "clock" in warning] == []


def test_a_plan_says_when_a_clock_is_wrong(world: World) -> None:
    ensure_topics(world.context())
    began = world.clock()
    announce(world, "steady", began + 60_000, reached=began, age=50_000)

    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    assert any("the clock of cluster P, seen from h1, is 10.0 s ahead" in w for w in warnings)


def test_a_plan_names_the_groups_that_stay(world: World) -> None:
    world.p.commit("audit", {TopicPartition("Payments", 0): 3})

    warnings = moves.plan(world.context(), REQUEST, dry_run=True).warnings

    assert any("1 group with offsets of Payments on P will not move (audit)" in w for w in warnings)


def test_a_hold_reads_nothing_of_the_groups_that_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.p.commit("audit", {TopicPartition("Payments", 0): 3})
    context = planned(world)
    asked, committed = set(), world.p.committed_offsets
    monkeypatch.setattr(
        world.p, "committed_offsets", lambda group: asked.add(group) or committed(group)
    )

    moves.hold(context, "m1")

    assert asked == {"near", "far"}


def test_a_plan_says_when_there_is_no_way_back(world: World) -> None:
    context = world.context()
    reverse = replace(context.reverse, config=replace(context.reverse.config, enabled=False))

    warnings = moves.plan(replace(context, reverse=reverse), REQUEST, dry_run=True).warnings

    assert any("flow B->P is disabled" in w for w in warnings)


def test_stray_offsets_are_left_behind_where_that_is_accepted(world: World) -> None:
    world.p.add_topic("app-repartition")
    world.p.commit("near", {TopicPartition("app-repartition", 0): 3})

    blocked = moves.plan(world.context(), REQUEST, dry_run=True)
    accepted = moves.plan(
        world.context(), replace(REQUEST, accept_stray_offsets=True), dry_run=True
    )

    assert "accept_stray_offsets" in blocked.blocking[0]
    assert accepted.blocking == ()
    line = "without its offsets on app-repartition, which do not move: group offset sync or"
    assert any(line in w for w in accepted.warnings)


def warnings_of(world: World) -> str:
    return "\n".join(moves.plan(world.context(), REQUEST, dry_run=True).warnings)


def test_a_plan_names_producer_ids_that_are_anothers_on_the_target(world: World) -> None:
    for cluster, ids in ((world.p, (7, 8)), (world.b, (8, 9))):
        for producer_id in ids:
            cluster.produce("Payments", producer_id=producer_id, timestamp_ms=world.clock())

    found = warnings_of(world)

    assert "topic Payments: 2 of the producers that wrote to it recently follow no route" in found
    assert "Payments-0: P and B gave producer id 8 to different producers" in found


def test_ids_of_producers_that_have_long_stopped_are_nobodys_danger(world: World) -> None:
    world.passing(3_600_000)
    for cluster in (world.p, world.b):
        cluster.produce("Payments", producer_id=8, timestamp_ms=0)

    assert "another's" not in warnings_of(world)


def test_a_plan_says_that_the_state_of_a_streams_application_does_not_move(world: World) -> None:
    for topic in ("far-counts-changelog", "faraway-counts-changelog", "far-x-repartition"):
        world.p.add_topic(topic)

    found = warnings_of(world)

    assert "group far is a Kafka Streams application with state (far-counts-changelog)" in found
    assert "faraway" not in found


def test_a_hold_that_ran_out_says_so_and_blames_no_producer_that_follows_none(
    world: World,
) -> None:
    """Its clients work on the source again, so another process finds that the topic has grown."""
    context = held(world)
    say(world, "held", 1)
    world.passing(2_000)
    moves.wait_status(context, "m1")
    assert not any("ended" in reason for reason in moves.status(context, "m1").blocking)
    world.passing(61_000)
    say(world, "resumed", 1)
    world.p.produce("Payments", producer_id=7, timestamp_ms=world.clock())

    status = moves.status(world.context(), "m1")

    assert "clients continue on P: hold again" in status.blocking[0]
    assert any(reason == "topic Payments must be idle on P for 5 s" for reason in status.blocking)


def test_each_of_two_producers_with_one_client_id_has_to_say_that_it_has_stopped(
    world: World,
) -> None:
    """Replicas of a service usually share it; one of them has records in flight."""
    ensure_topics(world.context())
    for instance in ("i1", "i2"):
        say(world, "resumed", instance=instance)
    context = planned(world)
    moves.hold(context, "m1")
    world.obey("near", "far")
    generation = world.routes("P")["topic:Payments"].generation
    say(world, "held", generation, instance="i1")
    world.passing(6_000)

    [reason] = moves.wait_status(context, "m1").blocking
    assert "producer writer on h1 of topic Payments has not stopped yet" in reason
    say(world, "held", generation, instance="i2")
    assert moves.wait_status(context, "m1").blocking == ()
