"""Groups of an unplanned move: where each continues, and those that it leaves where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import (
    PROPERTIES,
    busy_world,
    config_in,
)
from tests.unit.engine.moves.giving_up import COPY, UNPLANNED, Disaster, disaster

from srm.domain.groups.mm2_records import Checkpoint
from srm.domain.moves.announcements import Ack
from srm.domain.moves.plan import MovePlan, PartitionMove
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm.engine.moves.context import ensure_topics
from srm.engine.moves.store import MoveStore
from srm.errors import (
    UnavailableError,
)

__all__ = ["disaster"]
EVERYTHING = replace(UNPLANNED, topics=(), groups=())


def place(plan: MovePlan, group: str = "near") -> PartitionMove:
    """Return the place of a group in the copy of Payments."""
    [positions] = [each.positions for each in plan.groups if each.group == group]
    [position] = [each for each in positions if each.target == COPY]
    return position


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


def delete_far(disaster: Disaster) -> None:
    forward, world = disaster.world.context().forward, disaster.world
    emit(forward)
    for cluster in (world.p, world.b):
        cluster.delete_groups(["far"])
    emit(forward)


@pytest.mark.parametrize("later_s", [0, 400])
def test_a_deleted_group_stays_out_although_a_route_or_an_old_client_names_it(
    disaster: Disaster, later_s: int
) -> None:
    """Also after its checkpoint is forgotten."""
    world, route = disaster.world, Route(1, "P", "go", "m0", 1, decided=True).value()
    ensure_topics(world.context())
    ack = Ack("group:far", "c1", 0, "resumed", "P", world.clock())
    for cluster in (world.p, world.b):
        table = cluster.compacted_topic(internal_topics.ROUTING)
        table.write({b"group:far": route, b"group:new": route})
        cluster.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})
    world.p.leave("far")
    world.passing(1_000)
    delete_far(disaster)
    world.passing(later_s * 1000)
    emit(world.context().forward)
    world.p.fail()

    plan = moves.plan(disaster.context, EVERYTHING, "m1")

    assert plan.group_names == ("near", "new"), "no commit of new is known"
    [line] = [one for one in plan.warnings if "not moved" in one]
    assert line.startswith("group far is not moved: deleted on P since")


@pytest.mark.parametrize("sign", ["client", "route"])
def test_a_deleted_group_that_was_brought_to_the_source_since_moves(
    disaster: Disaster, sign: str
) -> None:
    """A client has announced itself; a failback has led it there, and no checkpoint followed."""
    world = disaster.world
    ensure_topics(world.context())
    world.p.leave("far")
    delete_far(disaster)
    world.passing(1_000)
    ack = Ack("group:far", "c1", 0, "resumed", "P", world.clock())
    route = Route(2, "P", "go", "m0", world.clock(), decided=True).value()
    if sign == "client":
        world.b.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})
    else:
        world.b.compacted_topic(internal_topics.ROUTING).write({b"group:far": route})
    world.p.fail()

    plan = moves.plan(disaster.context, EVERYTHING, "m1")

    assert plan.group_names == ("far", "near")
    assert not [one for one in plan.warnings if "not moved" in one]


def test_deleted_groups_are_one_line_of_a_plan(disaster: Disaster) -> None:
    world, names = disaster.world, [f"old-{number:02}" for number in range(20)]
    forward = world.context().forward
    for name in names:
        world.p.commit(name, {TopicPartition("Payments", 0): 10})
    emit(forward)
    world.p.delete_groups(names)
    emit(forward)
    world.p.fail()

    plan = moves.plan(disaster.context, EVERYTHING, "m1")

    [line] = [one for one in plan.warnings if "not moved" in one]
    assert line.startswith("20 groups (old-00, old-01")
    assert line.endswith("or later; --group moves them all the same")


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
    ack = Ack("group:home", "c", 0, "resumed", "P", disaster.world.clock())
    clients = disaster.world.b.compacted_topic(internal_topics.CLIENTS)
    clients.write({ack.key(): ack.value()} if why == "followed" else {})

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
    had = {"B": world.b.join("far", "c")}
    ack = Ack("group:far", "c", 0, "resumed", works_on, world.clock(), members=had)
    world.b.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})
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


def test_checkpoints_of_topics_that_do_not_move_are_left_alone(disaster: Disaster) -> None:
    strange = Checkpoint("near", TopicPartition("P.Refunds", 0), 5, 5)
    table = disaster.world.b.compacted_topic(internal_topics.checkpoints("P"))
    table.write({strange.key(): strange.value(), b"damaged": b"x"})

    [near] = [group for group in disaster.planned().groups if group.group == "near"]

    assert [position.name for position in near.positions] == ["Payments-0", "B.Payments-0"]


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


def test_a_living_member_on_the_target_stays_though_a_client_has_its_name(
    disaster: Disaster,
) -> None:
    """A service at work on both sites, with one client id: only a member id is removed."""
    world = disaster.world
    ensure_topics(world.context())
    there = {"B": world.b.join("near", "shop")}
    world.b.commit("near", {COPY: 20})
    for instance, cluster, members in (("i1", "B", there), ("i2", "P", {"P": "near-on-P"})):
        ack = Ack(
            *("group:near", "shop", 0, "resumed", cluster, world.clock()),
            home=cluster,
            instance=instance,
            members=members,
        )
        world.b.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})

    plan = disaster.planned()
    disaster.through("hold", "apply")

    assert not [line for line in plan.warnings if "the hold removes them" in line]
    assert world.b.groups(["near"])["near"].ids == (there["B"],)
    assert world.offsets("B", "near")["P.Payments-0"] == 20
    left = MoveStore.read(disaster.context).progress("m1").left_alone
    assert "it is active on B" in left["near"]
