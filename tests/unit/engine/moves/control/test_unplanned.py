"""The source is given up: everything is known from the target, and nobody is waited for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import (
    REQUEST,
    Killed,
    busy_world,
)
from tests.unit.engine.moves.giving_up import COPY, UNPLANNED, Disaster, disaster

from srm.config.model import Config
from srm.domain.flow_state.replication_records import PartitionStatus, Pause
from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import ERA, order_number
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.history import RoutingTables
from srm.engine.moves.store import MoveStore
from srm.engine.status.observing import read_forecast
from srm.errors import (
    ConflictError,
    GateClosedError,
    NotFoundError,
    UnavailableError,
    UsageError,
)

__all__ = ["disaster"]

ROUTED = (
    "routed to B, so it cannot leave P: take over its clients with --reroute (in the form: reroute)"
)


def test_the_plan_says_what_is_lost_and_where_groups_go_on(disaster: Disaster) -> None:
    disaster.world.p.fail()
    disaster.world.passing(400)

    plan = disaster.planned()

    assert not plan.blocking
    assert plan.forecast is not None
    assert (plan.forecast.not_copied, plan.forecast.age_ms) == (7, 400)
    near = next(group for group in plan.groups if group.group == "near")
    position, empty = near.positions
    assert (empty.name, empty.resume, empty.lag) == ("B.Payments-0", 0, 0)
    assert (position.resume, position.committed, position.lag) == (96, 95, 5)
    assert {g.group: g.re_read for g in plan.forecast.groups} == {"near": 5, "far": 90}
    assert disaster.pause() is None


def test_producers_that_would_find_no_topic_there_are_warned_of(disaster: Disaster) -> None:
    disaster.world.p.fail()
    disaster.world.b.delete_topic("Payments")

    plan = disaster.planned()
    disaster.world.b.add_topic("Payments")

    assert any("topic Payments does not exist on B" in warning for warning in plan.warnings)
    assert not any("does not exist on B" in warning for warning in disaster.planned().warnings)


def test_a_whole_move_runs_without_the_source(disaster: Disaster) -> None:
    world = disaster.world
    disaster.planned()
    world.p.fail()

    report = moves.carry_out(disaster.context, "m1", poll_seconds=0.001)

    assert world.offsets("B", "near")["P.Payments-0"] == 96
    assert {(r.cluster, r.state) for r in world.routes("B").values()} == {("B", "go")}
    assert (report.rpo_records, report.rpo_at_least) == (None, 7)
    assert disaster.switch.sealed == [COPY]
    pause = disaster.pause()
    assert pause is not None
    assert pause.move_id == "m1"


def test_a_source_that_lives_is_neither_asked_nor_told(disaster: Disaster) -> None:
    before = dict(disaster.world.p.topics())
    disaster.planned()

    moves.carry_out(disaster.context, "m1", poll_seconds=0.001)

    assert disaster.world.p.topics() == before
    assert disaster.world.routes("P") == {}


def test_nothing_that_the_source_still_says_outranks_the_move(disaster: Disaster) -> None:
    """Planned moves that the target never saw hold or moved the same clients on the source."""
    world = disaster.world
    context = world.context()
    for number in range(5):
        moves.plan(context, REQUEST, f"planned-{number}")
        moves.hold(context, f"planned-{number}")
        moves.release(context, f"planned-{number}")
    known = max(route.generation for route in world.routes("P").values())

    disaster.planned()
    disaster.through("hold", "apply", "go")

    mine = {route.generation for route in world.routes("B").values() if route.move_id == "m1"}
    assert mine == {world.clock() // 1000 * ERA}
    assert known < ERA


def test_a_later_move_outranks_earlier_ones_that_its_target_knows_nothing_of(
    disaster: Disaster, config: Config
) -> None:
    """As of B, which two earlier moves led clients to, to C: some clients only obey webhooks."""
    disaster.planned()
    disaster.through("hold", "apply", "go")
    [obeyed] = {route.generation for route in disaster.world.routes("B").values()}
    later = Disaster(busy_world(config))
    later.world.passing(3_600_000)

    later.planned()
    later.through("hold")

    [now] = {route.generation for route in later.world.routes("B").values()}
    assert order_number(now, "hold") > order_number(obeyed + 2, "go")


def test_the_next_unplanned_move_outranks_the_one_before(disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold", "release", "hold")

    now_s = disaster.world.clock() // 1000
    assert {r.generation for r in disaster.world.routes("B").values()} == {(now_s + 1) * ERA}


def test_the_flow_is_stopped_before_clients_are_told_anything(disaster: Disaster) -> None:
    disaster.planned()
    routes_at_seal: list[object] = []
    disaster.switch.before_seal = lambda: routes_at_seal.extend(
        (disaster.pause() is not None, disaster.world.routes("B"))
    )

    disaster.through("hold")

    assert routes_at_seal == [True, {}]


@pytest.mark.parametrize(("stopped_before_ms", "said"), [(500, 1), (-1, 0)])
def test_a_partition_that_had_stopped_before_the_source_died_is_named(
    disaster: Disaster, stopped_before_ms: int, said: int
) -> None:
    heard = disaster.world.clock()
    status = PartitionStatus(
        "Payments", 0, "stopped", "bad batch", None, None, heard - stopped_before_ms
    )
    disaster.world.maps[Flow("P", "B")].statuses[TopicPartition("Payments", 0)] = status

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert len(forecast.topics[0].unknown) == said


def test_the_time_counts_from_the_trigger(disaster: Disaster) -> None:
    disaster.planned()
    disaster.switch.before_seal = lambda: disaster.world.passing(3_000)

    disaster.through("hold", "apply", "go")

    report = moves.report(disaster.context, "m1")
    assert report.rto_seconds == report.rto_steps["hold"] == 3.0


def test_a_copy_that_cannot_be_sealed_is_named_and_stops_nothing(disaster: Disaster) -> None:
    disaster.planned()
    disaster.switch.unsealable = {COPY: "no leader"}

    disaster.through("hold", "apply", "go")

    progress = MoveStore.read(disaster.context).progress("m1")
    assert progress.forecast is not None
    assert any("no leader" in note for note in progress.forecast.notes)


def test_a_copy_without_a_leader_is_named_and_stops_nothing(disaster: Disaster) -> None:
    """A broker of the target is away, too."""
    disaster.world.b.leaderless = {COPY}

    plan = disaster.planned()

    assert not plan.blocking
    assert any("no broker of B leads P.Payments-0 now" in line for line in plan.warnings)
    disaster.through("hold", "apply", "go")
    progress = MoveStore.read(disaster.context).progress("m1")
    assert progress.forecast is not None
    assert progress.forecast.not_copied == 7
    assert any("no leader" in note for note in progress.forecast.notes)
    assert disaster.switch.sealed == []
    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 96
    assert not moves.verify(disaster.context, "m1").timed_out


@pytest.mark.parametrize("step", ["apply", "go"])
def test_no_step_is_done_before_the_one_that_it_needs(disaster: Disaster, step: str) -> None:
    disaster.planned()
    with pytest.raises(GateClosedError):
        disaster.through(step)
    assert disaster.world.routes("B") == {}


@pytest.mark.parametrize("step", [moves.apply, moves.go])
def test_a_run_that_finds_its_move_released_names_the_command_that_holds_again(
    disaster: Disaster, step: Callable[[MoveContext, str], object]
) -> None:
    """It ended with 'is released: apply first', and no command applies."""
    disaster.planned()
    disaster.through("hold", "release")

    with pytest.raises(GateClosedError, match=r"is released: .*srm failover run --move-id m1"):
        step(disaster.context, "m1")


@pytest.mark.parametrize("heard", [False, True])
@pytest.mark.parametrize("topics", [True, False])
@pytest.mark.parametrize("groups", [(), ("near",)])
def test_nothing_leaves_by_a_flow_of_which_nothing_is_known(
    disaster: Disaster, groups: tuple[str, ...], topics: bool, heard: bool
) -> None:
    """``heard``: a slot lives and has placed nothing; then no group has a checkpoint either."""
    world, checkpoints = disaster.world, internal_topics.checkpoints("P")
    world.b.delete_topic(checkpoints)
    world.b.add_topic(checkpoints)
    world.maps[Flow("P", "B")].maps.clear()
    world.maps[Flow("P", "B")].reports = ()
    if heard:
        world.report("P", "B")
    for topic in () if topics else ("Payments", "P.Payments"):
        world.b.delete_topic(topic)

    plan = disaster.planned(topics=(), groups=groups)

    [reason] = plan.blocking
    assert reason.startswith("flow P->B has")
    assert f"{read_forecast(world.context().forward).line}" == f"if P died now: {reason}"
    with pytest.raises(ConflictError, match="flow P->B has"):
        disaster.through("hold")
    assert (disaster.pause(), world.routes("B")) == (None, {})


def test_a_flow_that_never_copied_is_no_way_out(disaster: Disaster) -> None:
    disaster.world.maps[Flow("P", "B")].reports = ()
    plan = disaster.planned()
    assert any("has never copied anything" in reason for reason in plan.blocking)
    with pytest.raises(ConflictError, match="never copied"):
        disaster.through("hold")
    assert disaster.pause() is None


@pytest.mark.parametrize(
    ("topics", "error"), [(("Nowhere",), NotFoundError), (("P.Payments",), UsageError)]
)
def test_a_topic_that_cannot_be_moved_is_named(disaster: Disaster, topics, error) -> None:
    with pytest.raises(error, match=topics[0]):
        disaster.planned(topics=topics)


def test_all_topics_and_groups_that_are_known_move_by_default(disaster: Disaster) -> None:
    plan = disaster.planned(topics=(), groups=())

    assert plan.topics == ("Payments",)
    assert plan.group_names == ("far", "near")


def test_what_was_named_and_works_there_already_is_told_and_the_others_move(
    disaster: Disaster,
) -> None:
    disaster.planned(groups=("near",))
    disaster.through("hold", "apply", "go")

    plan = moves.plan(disaster.context, UNPLANNED, "m2", dry_run=True)

    assert plan.group_names == ("far",)
    assert plan.blocking == ()
    assert f"group:near is {ROUTED}" in plan.warnings
    assert f"topic:Payments is {ROUTED}" in plan.warnings


def test_where_all_that_was_named_works_there_already_nothing_else_moves_instead(
    disaster: Disaster,
) -> None:
    disaster.world.b.add_topic("P.Payments.late")
    disaster.planned(groups=("near",))
    disaster.through("hold", "apply", "go")

    request = replace(UNPLANNED, topics=(), groups=("near",))
    plan = moves.plan(disaster.context, request, "m2")

    assert (plan.topics, plan.groups) == ((), ())
    assert plan.blocking == (f"group:near is {ROUTED}",)
    with pytest.raises(ConflictError, match="m2 cannot start: group:near is routed to B"):
        moves.hold(disaster.context, "m2")


def test_what_works_there_already_and_was_not_named_is_no_news(disaster: Disaster) -> None:
    disaster.planned(groups=("near",))
    disaster.through("hold", "apply", "go")

    plan = moves.plan(disaster.context, replace(UNPLANNED, topics=(), groups=()), dry_run=True)

    assert plan.group_names == ("far",)
    assert [line for line in (*plan.blocking, *plan.warnings) if "is routed" in line] == []


def test_killed_at_any_write_and_run_again_it_ends_the_same(config) -> None:
    counted = Disaster(busy_world(config))
    counted.planned()
    before = counted.world.writes.count
    counted.through("hold", "apply", "go")
    total = counted.world.writes.count - before
    assert total > 3
    for at in range(1, total + 1):
        for after in (False, True):
            disaster = Disaster(busy_world(config))
            disaster.planned()
            writes = disaster.world.writes
            writes.die_at = (writes.count + at, after)
            with pytest.raises(Killed):
                disaster.through("hold", "apply", "go")
            writes.die_at = None
            disaster.through("hold", "apply", "go")

            assert disaster.world.offsets("B", "near")["P.Payments-0"] == 96
            assert {(r.cluster, r.state) for r in disaster.world.routes("B").values()} == {
                ("B", "go")
            }
            assert disaster.pause() is not None


@pytest.mark.parametrize("then", ["hold", "release", "plan"])
@pytest.mark.parametrize(
    "moment", ["before the pause", "after the pause", "seal", "after the seal"]
)
def test_a_hold_that_is_killed_while_the_flow_is_paused_is_repeated_or_undone(
    disaster: Disaster, moment: str, then: str
) -> None:
    """A flow that stays paused for a move that never held a client copies nothing, unnoticed."""
    disaster.planned()
    writes, at = disaster.world.writes, disaster.world.writes.count

    def die() -> None:
        raise Killed

    if moment == "seal":
        disaster.switch.before_seal = die
    else:  # of the clock, the pause, the routes
        writes.die_at = {
            "before the pause": (at + 2, False),
            "after the pause": (at + 2, True),
            "after the seal": (at + 3, False),
        }[moment]
    with pytest.raises(Killed):
        disaster.through("hold")
    assert (disaster.pause() is None) == (moment == "before the pause")
    assert disaster.world.routes("B") == {}
    disaster.switch.before_seal, writes.die_at = lambda: None, None

    if then == "release":
        disaster.through("release")
        assert disaster.pause() is None
        assert {r.state for r in disaster.world.routes("B").values()} <= {"go"}
    else:
        if then == "plan":
            assert not disaster.planned().blocking
        disaster.through("hold", "apply", "go")
        assert disaster.switch.sealed == [COPY]
        pause = disaster.pause()
        assert pause is not None
        assert pause.moves == ("m1",)
        assert {(r.cluster, r.state) for r in disaster.world.routes("B").values()} == {("B", "go")}


def test_that_the_source_is_given_up_is_no_news_in_the_log(
    disaster: Disaster, caplog: pytest.LogCaptureFixture
) -> None:
    disaster.planned()

    moves.carry_out(disaster.context, "m1", poll_seconds=0.001)

    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_followers_are_counted_by_what_they_told_the_target(disaster: Disaster) -> None:
    """A client on another cluster stays there, with what it reads there as a group of this name."""
    ack = Ack("group:near", "c", 0, "resumed", "P", disaster.world.clock())
    acks = (ack, replace(ack, subject="group:far", cluster="C", home="C"))
    disaster.planned()
    clients = disaster.world.b.compacted_topic(internal_topics.CLIENTS)
    clients.write({one.key(): one.value() for one in acks})

    disaster.through("hold")

    members = MoveStore.read(disaster.context).progress("m1").members_at_hold
    assert members == {"far": 0, "near": 1}


def test_a_report_looks_again_for_groups_that_start_later(disaster: Disaster) -> None:
    disaster.planned()
    disaster.world.p.fail()
    context = disaster.context
    report = moves.carry_out(context, "m1", poll_seconds=0.001)
    assert not report.groups["near"].resumed

    disaster.world.passing(30_000)
    disaster.world.b.join("near")
    report = moves.watch_residue(context, "m1")

    assert (report.groups["near"].resumed, report.residue_over) == (True, False)
    disaster.world.passing(300_000)
    assert moves.watch_residue(context, "m1").residue_over


def test_while_the_source_lives_only_what_clients_told_it_counts_of_them(
    disaster: Disaster,
) -> None:
    """What they told the target has the stamp of another clock."""
    world = disaster.world
    ensure_topics(world.context())
    ack = Ack("group:near", "c", 0, "resumed", "P", world.clock())
    for cluster in (world.p, world.b):
        cluster.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})

    tables = RoutingTables.read(world.context())

    assert [one.ack for one in tables.on_source] == [ack]


def test_while_the_flow_is_paused_the_source_has_no_say_about_groups(disaster: Disaster) -> None:
    """It may come back with old commits, while its groups have long gone on elsewhere."""
    disaster.planned()
    disaster.through("hold", "apply", "go")
    world = disaster.world
    world.p.leave("near")
    world.p.commit("near", {TopicPartition("Payments", 0): 99})
    forward = world.context().forward
    forward = replace(forward, config=replace(forward.config, sync_group_offsets_enabled=True))

    emitted, synced = emit(forward), sync(forward)

    assert "paused" in emitted.skipped
    assert "paused" in synced.skipped
    assert world.offsets("B", "near")["P.Payments-0"] == 96


def test_a_partition_that_has_stopped_is_named_once_with_its_reason(disaster: Disaster) -> None:
    maps = disaster.world.maps[Flow("P", "B")]
    stopped = PartitionStatus("Payments", 0, "stopped", "Payments-0: records 3 to 4 are gone")
    maps.statuses[TopicPartition("Payments", 0)] = stopped

    forecast = disaster.planned().forecast

    assert forecast is not None
    assert forecast.topics[0].unknown == ("Payments-0 is not copied: records 3 to 4 are gone",)


def test_a_move_that_only_a_silent_cluster_may_know_is_not_called_unknown(
    disaster: Disaster,
) -> None:
    """Seen after a kill -9 of B: status and release said that nothing knows the move."""
    plan = disaster.planned()
    context = disaster.world.context()
    disaster.world.b.fail()

    with pytest.raises(UnavailableError, match=r"not known on B or P: .*B does not answer"):
        MoveStore.read(context).load(plan.move_id)


def test_a_run_that_another_run_has_overtaken_leaves_the_move_to_that_one(
    disaster: Disaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two engineers run one move at once: a release by one would refuse the hold of the other."""
    disaster.planned()
    pause = disaster.switch.pause

    def overtaken(wanted: Pause) -> int:
        disaster.world.passing(1_000)
        disaster.planned()
        return pause(wanted)

    with monkeypatch.context() as patched:
        patched.setattr(disaster.switch, "pause", overtaken)
        with pytest.raises(ConflictError, match="planned again in the meantime"):
            moves.carry_out(disaster.context, "m1", poll_seconds=0.001)

    assert MoveStore.read(disaster.context).progress("m1").step == "planned"
    assert disaster.pause() is not None, "the other run may have paused the flow, and hold now"
    disaster.through("hold", "apply", "go")
    assert disaster.world.routes("B")["group:near"].cluster == "B"
