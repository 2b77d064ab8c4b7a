"""The source is given up: everything is known from the target, and nobody is waited for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import (
    PROPERTIES,
    REQUEST,
    Killed,
    busy_world,
    config_in,
)
from tests.unit.engine.moves.giving_up import COPY, UNPLANNED, Disaster, disaster

from srm.config.model import Config
from srm.domain.flow_state.replication_records import PartitionStatus, Pause
from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.moves.plan import MovePlan, PartitionMove
from srm.domain.moves.routing import ERA, Ack, order_number
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm.engine.moves.records import MoveContext, MoveStore, RoutingTables, ensure_topics
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


def place(plan: MovePlan, group: str = "near") -> PartitionMove:
    """Return the place of a group in the copy of Payments."""
    [positions] = [each.positions for each in plan.groups if each.group == group]
    [position] = [each for each in positions if each.target == COPY]
    return position


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


def test_a_group_deleted_on_the_source_is_listed_apart_and_moves_only_if_named(
    disaster: Disaster,
) -> None:
    forward, every = disaster.world.context().forward, replace(UNPLANNED, groups=())
    emit(forward)
    sync(forward)
    disaster.world.p._groups.expire("far")
    disaster.world.b.delete_groups(["far"])
    emit(forward)
    disaster.world.p.fail()

    plan = moves.plan(disaster.context, every, dry_run=True)
    named = moves.plan(disaster.context, replace(every, groups=("far",)), dry_run=True)

    assert plan.group_names == ("near",)
    assert any("group far is not moved: deleted on P since" in line for line in plan.warnings)
    assert named.group_names == ("far",)


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


def test_a_group_that_somebody_has_started_there_already_keeps_nobody_waiting(
    disaster: Disaster,
) -> None:
    disaster.world.start("far", "B", {"P.Payments": 3})
    plan = disaster.planned(overwrite=True)
    assert any("far is not changed: it is active on B" in line for line in plan.warnings)

    disaster.through("hold", "apply", "go")

    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 96
    assert disaster.world.offsets("B", "far")["P.Payments-0"] == 3
    report = moves.report(disaster.context, "m1")
    assert any("far was not changed" in problem for problem in report.problems)
    groups = moves.status(disaster.context, "m1").groups
    assert {group.group: group.applied for group in groups} == {"near": True, "far": False}


def test_a_group_that_a_repeated_apply_sets_is_no_longer_reported_as_unchanged(
    disaster: Disaster,
) -> None:
    disaster.planned()
    disaster.through("hold")
    disaster.world.b.join("near")
    disaster.through("apply")
    disaster.world.b.leave("near")

    disaster.through("apply", "go")

    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 96
    assert moves.report(disaster.context, "m1").problems == ()


def test_a_group_whose_clients_start_between_two_applies_is_reported_as_set(
    disaster: Disaster,
) -> None:
    disaster.planned()
    disaster.through("hold", "apply")
    disaster.world.b.join("near")

    disaster.through("apply", "go")

    progress = MoveStore.read(disaster.context).progress("m1")
    assert progress.intended["near"]["P.Payments-0"] == 96
    assert moves.report(disaster.context, "m1").problems == ()


def test_a_group_that_has_committed_between_two_applies_keeps_its_commit(
    disaster: Disaster,
) -> None:
    disaster.planned()
    disaster.through("hold", "apply")
    disaster.world.start("near", "B", {"P.Payments": 99})
    disaster.world.b.leave("near")

    disaster.through("apply", "go")

    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 99
    assert MoveStore.read(disaster.context).progress("m1").intended["near"]["P.Payments-0"] == 99


def home_on_b(disaster: Disaster, read: int) -> None:
    """Let a group of B read the copy; group sync has written its place to P, and P emitted it."""
    world, there, here = disaster.world, COPY, TopicPartition("Payments", 0)
    world.start("home", "B", {COPY.topic: 96})
    back = world.context("B", "P").forward
    sync(replace(back, config=replace(back.config, sync_group_offsets_enabled=True)))
    assert world.p.committed_offsets("home") == {here: 95}
    emit(world.context().forward)
    world.b.commit("home", {there: read})


REVERSED = (
    PROPERTIES
    + """
reverse.checkpointing.enabled = true
B->P.reverse.checkpointed.topics = P.Payments
"""
)


@pytest.mark.parametrize("read", [96, 99])
def test_groups_at_home_on_the_target_are_no_part_of_the_move(tmp_path: Path, read: int) -> None:
    disaster = Disaster(busy_world(config_in(tmp_path, REVERSED)))
    home_on_b(disaster, read)

    plan = moves.plan(disaster.context, replace(UNPLANNED, groups=()), "m1")
    report = moves.carry_out(disaster.context, "m1", poll_seconds=0.001)

    assert plan.group_names == ("far", "near")
    assert "group home has members on B alone, at home there: not moved" in plan.warnings
    assert report.problems == ()
    assert "group:home" not in disaster.world.routes("B")
    assert disaster.world.offsets("B", "home") == {"P.Payments-0": read}


@pytest.mark.parametrize("why", ["behind", "named", "followed"])
def test_a_group_with_members_on_the_target_that_may_be_of_the_source_is_named(
    tmp_path: Path, why: str
) -> None:
    disaster = Disaster(busy_world(config_in(tmp_path, REVERSED)))
    home_on_b(disaster, 90 if why == "behind" else 99)
    ensure_topics(disaster.world.context())
    ack = Ack("group:home", "c", 0, "resumed", "P", disaster.world.clock(), kind="consumer")
    routing = disaster.world.b.compacted_topic(internal_topics.ROUTING)
    routing.write({ack.key(): ack.value()} if why == "followed" else {})

    groups = ("home",) if why == "named" else ()
    moves.plan(disaster.context, replace(UNPLANNED, groups=groups), "m1")
    disaster.through("hold", "apply", "go")

    problems = moves.report(disaster.context, "m1").problems
    assert any("group home was not changed: it is active on B" in line for line in problems)


@pytest.mark.parametrize("works_on", ["P", "B"])
def test_members_whose_clients_work_on_the_source_are_of_a_session_that_its_target_has_kept(
    disaster: Disaster, works_on: str
) -> None:
    """The target had died and is back: it lists its former members until their sessions end."""
    world = disaster.world
    disaster.planned()
    world.b.join("far", "c")
    ack = Ack("group:far", "c", 0, "resumed", works_on, world.clock(), kind="consumer")
    world.b.compacted_topic(internal_topics.ROUTING).write({ack.key(): ack.value()})
    warnings = disaster.planned().warnings

    disaster.through("hold", "apply", "go")

    problems = moves.report(disaster.context, "m1").problems
    is_gone = works_on == "P"
    plain = "group near has" if is_gone else "2 groups (far, near) have"
    assert f"{plain} no client that follows routes: start the members on B after go" in warnings
    assert any("as after a restart of its brokers" in line for line in warnings) == is_gone
    assert any("far was not changed" in problem for problem in problems) != is_gone
    assert ("P.Payments-0" in world.offsets("B", "far")) == is_gone


def test_a_group_known_by_name_only_is_told_to_go_and_left_to_its_reset(disaster: Disaster) -> None:
    plan = disaster.planned(groups=("near", "ghost"))

    assert plan.forecast is not None
    assert plan.forecast.unseen == ("ghost",)
    disaster.through("hold", "apply", "go")
    assert disaster.world.routes("B")["group:ghost"].cluster == "B"


def test_the_newer_of_checkpoint_and_own_write_counts(disaster: Disaster) -> None:
    """Offset sync translates from newer maps than the last checkpoint run."""
    world = disaster.world
    world.passing(1_000)
    world.p.commit("near", {TopicPartition("Payments", 0): 98})
    forward = world.context().forward
    sync(replace(forward, config=replace(forward.config, sync_group_offsets_enabled=True)))

    position = place(disaster.planned())

    assert position.resume == 99


def test_an_own_write_of_the_checkpoints_place_leaves_known_where_that_is_on_the_source(
    disaster: Disaster,
) -> None:
    """Group sync writes what was emitted, a moment later; each of them would hide the source's."""
    world = disaster.world
    before = place(disaster.planned())
    world.passing(1_000)
    forward = world.context().forward
    sync(replace(forward, config=replace(forward.config, sync_group_offsets_enabled=True)))

    after = place(disaster.planned())

    assert before.committed is not None
    assert (after.committed, after.resume) == (before.committed, before.resume)


def test_a_group_that_retention_has_overtaken_keeps_nobody_waiting(disaster: Disaster) -> None:
    """Any cluster has some that nobody uses; and nobody can catch up on a source that is dead."""
    disaster.world.b.trim("P.Payments", 0, 98)

    plan = disaster.planned()

    assert not plan.blocking
    assert plan.forecast is not None
    assert {g.group: g.skipped for g in plan.forecast.groups} == {"near": 2, "far": 88}
    [line] = [line for line in plan.warnings if ") skip " in line]
    assert line == (
        "2 groups (far, near) skip 90 records that B no longer holds and they may not have read"
    )
    disaster.world.passing(400)
    disaster.through("hold", "apply", "apply", "go")
    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 98
    groups = moves.report(disaster.context, "m1").groups
    assert {name: group.skipped for name, group in groups.items()} == {"near": 2, "far": 88}


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
    else:  # of the clock twice, the pause, the routes
        writes.die_at = {
            "before the pause": (at + 3, False),
            "after the pause": (at + 3, True),
            "after the seal": (at + 4, False),
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


def test_checkpoints_of_topics_that_do_not_move_are_left_alone(disaster: Disaster) -> None:
    strange = Checkpoint("near", TopicPartition("P.Refunds", 0), 5, 5)
    table = disaster.world.b.compacted_topic(internal_topics.checkpoints("P"))
    table.write({strange.key(): strange.value(), b"damaged": b"x"})

    [near] = [group for group in disaster.planned().groups if group.group == "near"]

    assert [position.name for position in near.positions] == ["Payments-0", "B.Payments-0"]


def test_that_the_source_is_given_up_is_no_news_in_the_log(
    disaster: Disaster, caplog: pytest.LogCaptureFixture
) -> None:
    disaster.planned()

    moves.carry_out(disaster.context, "m1", poll_seconds=0.001)

    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_followers_are_counted_by_what_they_told_the_target(disaster: Disaster) -> None:
    """A client on another cluster stays there, with what it reads there as a group of this name."""
    ack = Ack("group:near", "c", 0, "resumed", "P", disaster.world.clock(), kind="consumer")
    acks = (ack, replace(ack, subject="group:far", cluster="C", home="C"))
    disaster.planned()
    routing = disaster.world.b.compacted_topic(internal_topics.ROUTING)
    routing.write({one.key(): one.value() for one in acks})

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
    ack = Ack("group:near", "c", 0, "resumed", "P", world.clock(), kind="consumer")
    for cluster in (world.p, world.b):
        cluster.compacted_topic(internal_topics.ROUTING).write({ack.key(): ack.value()})

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


def test_groups_start_at_the_first_record_of_topics_that_were_empty_there(
    disaster: Disaster,
) -> None:
    """With auto.offset.reset=latest a group skips what producers write before its first poll."""
    disaster.planned()
    disaster.through("hold", "apply", "go")

    assert disaster.world.offsets("B", "near") == {"P.Payments-0": 96, "Payments-0": 0}
    assert disaster.world.offsets("B", "far")["Payments-0"] == 0


def test_a_place_that_is_not_known_in_a_log_with_records_is_a_warning(disaster: Disaster) -> None:
    disaster.world.b.produce("Payments", records=3)

    plan = disaster.planned()

    assert not plan.blocking
    assert any("near) have committed nothing for B.Payments-0" in line for line in plan.warnings)


def further_commit(folder: Path, records: int = 0, following: int = 0) -> Disaster:
    """A Java consumer has committed after the marker of a topic of B; its place is known from P."""
    back = "reverse.checkpointing.enabled = true\nreverse.checkpointed.topics = .*\n"
    disaster = Disaster(busy_world(config_in(folder, PROPERTIES + back)))
    world = disaster.world
    world.b.produce("Payments", records=3)
    world.copy("B", "P")
    world.p.commit("near", {TopicPartition("B.Payments", 0): 3})
    emit(world.context().forward)
    world.b.produce("Payments", records=records)
    world.b.mark("Payments")
    world.b.produce("Payments", records=following)
    world.b.commit("near", {TopicPartition("Payments", 0): 3 + records + 1})
    return disaster


@pytest.mark.parametrize("following", [0, 5])
@pytest.mark.parametrize(("records", "own"), [(0, False), (2, True)])
def test_a_commit_further_by_markers_alone_is_at_the_last_known_place(
    tmp_path: Path, records: int, own: bool, following: int
) -> None:
    disaster = further_commit(tmp_path, records, following)

    plan = disaster.planned()

    assert any("keep later commits of their own" in text for text in plan.warnings) == own
    assert disaster.world.offsets("B", "near")["Payments-0"] == 3 + records + 1


def test_markers_of_a_partition_without_a_leader_are_not_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disaster = further_commit(tmp_path)
    disaster.world.b.leaderless = {TopicPartition("Payments", 0)}

    disaster.planned()

    assert "markers on B are unknown" not in caplog.text


def test_a_group_keeps_its_own_later_commit_and_holds_up_no_other(disaster: Disaster) -> None:
    disaster.world.b.commit("near", {COPY: 99})

    plan = disaster.planned()

    assert not plan.blocking
    assert any("1 group (near) keep later commits of their own on B" in w for w in plan.warnings)
    disaster.through("hold", "apply", "go")
    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 99
    assert disaster.world.offsets("B", "far")["P.Payments-0"] == 10


def test_with_overwrite_the_last_known_place_replaces_a_later_commit(disaster: Disaster) -> None:
    disaster.world.b.commit("near", {COPY: 99})

    near = place(disaster.planned(overwrite=True))

    assert (near.state, near.resume, near.re_read) == ("conflict", 96, 3)


def test_what_srm_wrote_in_a_former_move_never_replaces_a_later_commit(disaster: Disaster) -> None:
    """A failover writes the start of an empty topic; the group then reads and commits there."""
    world = disaster.world
    disaster.planned()
    disaster.through("hold", "apply", "go")
    own = TopicPartition("Payments", 0)
    world.b.produce("Payments", records=5)
    world.b.commit("near", {own: 5})
    routing = world.b.compacted_topic(internal_topics.ROUTING)
    routing.write(dict.fromkeys(routing.read()))

    plan = moves.plan(disaster.context, UNPLANNED, "m2", dry_run=True)

    assert not plan.blocking
    [near] = [group for group in plan.groups if group.group == "near"]
    assert {str(p.target): p.resume for p in near.positions} == {
        "P.Payments-0": 96,
        "Payments-0": 5,
    }


def test_a_group_whose_offsets_cannot_be_read_is_left_alone_and_named(disaster: Disaster) -> None:
    read = disaster.world.b.committed_offsets

    def committed(group: str) -> dict[TopicPartition, int]:
        if group == "far":
            raise UnavailableError("reading offsets of group 'far' on cluster B: no coordinator")
        return read(group)

    disaster.world.b.committed_offsets = committed

    plan = disaster.planned()

    assert not plan.blocking
    assert any("far is not changed: its offsets cannot be read" in w for w in plan.warnings)
    disaster.through("hold", "apply", "go")
    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 96
    assert "no coordinator" in MoveStore.read(disaster.context).progress("m1").left_alone["far"]


def test_a_coordinator_that_hangs_within_apply_holds_up_no_other_group(disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold")
    read, looks = disaster.world.b.committed_offsets, list[str]()

    def committed(group: str) -> dict[TopicPartition, int]:
        looks.append(group)
        if looks.count("far") > 1 and group == "far":
            raise UnavailableError("reading offsets of group 'far' on cluster B: no answer")
        return read(group)

    disaster.world.b.committed_offsets = committed
    disaster.through("apply", "go")

    assert disaster.world.offsets("B", "near")["P.Payments-0"] == 96
    assert "no answer" in MoveStore.read(disaster.context).progress("m1").left_alone["far"]


def test_a_move_that_only_a_silent_cluster_may_know_is_not_called_unknown(
    disaster: Disaster,
) -> None:
    """Seen after a kill -9 of B: status and release said that nothing knows the move."""
    plan = disaster.planned()
    context = disaster.world.context()
    disaster.world.b.fail()

    with pytest.raises(UnavailableError, match=r"not known on B or P: .*B does not answer"):
        MoveStore.read(context).load(plan.move_id)


def test_a_group_whose_checkpoint_came_after_the_plan_is_named_and_moves_by_a_plan_of_its_own(
    disaster: Disaster,
) -> None:
    context, world = disaster.context, disaster.world
    moves.plan(context, replace(UNPLANNED, groups=()), "m1")
    world.p.commit_idle("late", {TopicPartition("Payments", 0): 5})
    emit(world.context().forward)
    world.p.fail()

    report = moves.carry_out(context, "m1", poll_seconds=0.001)

    assert (
        "group late was not changed: known on B only since the plan: plan a move with --group"
        in report.problems
    )
    moves.plan(context, replace(UNPLANNED, groups=("late",)), "m2")
    assert not moves.carry_out(context, "m2", poll_seconds=0.001).problems
    assert world.offsets("B", "late")["P.Payments-0"] == 5


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


@pytest.mark.parametrize(("on_source", "stays"), [(94, True), (95, True), (97, False)])
def test_groups_at_home_on_the_target_block_no_planned_move(
    tmp_path: Path, on_source: int, stays: bool
) -> None:
    """Group sync has written 95 on the source, maybe after the look at the commits there."""
    disaster = Disaster(busy_world(config_in(tmp_path, REVERSED)))
    home_on_b(disaster, 99)
    world, context = disaster.world, disaster.world.context()
    world.p.commit_idle("home", {TopicPartition("Payments", 0): on_source})

    plan = moves.plan(context, replace(UNPLANNED, mode="planned", groups=()), "m1")

    line = "group home has members on B alone, at home there: not moved"
    assert (line in plan.warnings) == stays
    assert any("group home is active on B" in why for why in plan.blocking) != stays
    if stays:
        moves.hold(context, "m1")
        assert MoveStore.read(context).progress("m1").left_alone == {}
        assert plan.group_names == ("far", "near")
