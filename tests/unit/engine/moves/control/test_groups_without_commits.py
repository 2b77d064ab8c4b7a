"""Groups that have joined and committed nothing yet when a planned move is planned."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world, held, planned

from srm.domain.moves.announcements import Ack
from srm.domain.moves.plan import GroupPosition, PartitionMove, partition_move
from srm.domain.moves.report import MoveReport
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.errors import ConflictError, GateClosedError

EVERYTHING = replace(REQUEST, groups=())


@pytest.fixture
def world(config) -> World:
    made = busy_world(config)
    made.p.join("fresh")
    ensure_topics(made.context())
    return made


def announce(world: World, **positions: int) -> None:
    """Let a client of the group say that it follows routes, and where it started."""
    started = {f"{topic}-0": offset for topic, offset in positions.items()}
    ack = Ack("group:fresh", "c1", 0, "resumed", "P", world.clock(), started)
    world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})


def test_it_is_named_and_stays_where_nobody_knows_what_it_reads(world: World) -> None:
    plan = moves.plan(world.context(), EVERYTHING, "m1")

    assert plan.group_names == ("far", "near")
    [line] = [one for one in plan.warnings if one.startswith("group fresh")]
    assert "has committed nothing" in line
    assert "--group" in line


def test_those_move_without_members_that_a_route_leads_to_the_source(world: World) -> None:
    """A move has sent them there before they committed: their clients would stay for ever.

    Of a move of some topics they are no part: what they read is not known.
    """
    world.p.leave("fresh")
    route = Route(1, "P", "go", "m0", 1, decided=True).value()
    rows = dict.fromkeys((b"group:fresh", b"group:gone"), route)
    world.p.compacted_topic(internal_topics.ROUTING).write(rows)
    some = moves.plan(world.context(), EVERYTHING, "m1", dry_run=True)

    plan = moves.plan(world.context(), replace(EVERYTHING, topics=()), "m1")
    moves.hold(world.context(), "m1")

    assert some.group_names == ("far", "near")
    assert plan.group_names == ("far", "fresh", "gone", "near")
    assert plan.blocking == ()
    assert world.routes("P")["group:gone"].state == "hold"


@pytest.mark.parametrize("emissions", [1, 2])
def test_those_stay_that_were_deleted_on_the_source(world: World, emissions: int) -> None:
    """A route leads them there, as after a move, and their checkpoint has lost its commit."""
    forward, route = world.context().forward, Route(1, "P", "go", "m0", 1, decided=True).value()
    world.p.compacted_topic(internal_topics.ROUTING).write({b"group:far": route})
    for number in range(emissions):
        emit(forward)
        if not number:
            world.p.leave("far")
            world.p.delete_groups(["far"])
    plan = moves.plan(world.context(), replace(EVERYTHING, topics=()), "m1", dry_run=True)

    assert plan.group_names == ("near",)
    [line] = [line for line in plan.warnings if line.startswith("group far is not moved: deleted")]
    assert "--group" not in line, "a planned move refuses a group that its source does not have"


@pytest.mark.parametrize("emissions", [1, 2])
@pytest.mark.parametrize("sign", ["client", "route"])
def test_those_move_that_were_brought_there_after_they_were_deleted(
    world: World, sign: str, emissions: int
) -> None:
    """Neither a client that starts, nor what a move has led there without a place, has commits."""
    table = world.p.compacted_topic(internal_topics.ROUTING)
    table.write({b"group:far": Route(1, "P", "go", "m0", 1, decided=True).value()})
    emit(world.context().forward)
    world.p.leave("far")
    world.p.delete_groups(["far"])
    if emissions > 1:
        emit(world.context().forward)
    world.passing(1_000)
    ack = Ack("group:far", "c1", 1, "resumed", "P", world.clock())
    route = Route(2, "P", "go", "m0", world.clock(), decided=True).value()
    if sign == "client":
        world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})
    else:
        table.write({b"group:far": route})

    plan = moves.plan(world.context(), replace(EVERYTHING, topics=()), "m1", dry_run=True)

    assert plan.group_names == ("far", "near")
    assert not [line for line in plan.warnings if "deleted on" in line]


@pytest.mark.parametrize("positions", [{"Payments": 90}, {}])
def test_it_moves_where_a_client_follows_routes(world: World, positions: dict[str, int]) -> None:
    announce(world, **positions)
    plan = moves.plan(world.context(), EVERYTHING, "m1")

    moves.hold(world.context(), "m1")

    assert plan.group_names == ("far", "fresh", "near")
    assert world.routes("P")["group:fresh"].state == "hold"
    [line] = [one for one in plan.warnings if one.startswith("group fresh has committed nothing")]
    assert "auto.offset.reset" in line


def test_its_own_place_on_the_target_is_named(world: World) -> None:
    """Its topic was deleted and made again on P, and the commits on P with it."""
    announce(world, Payments=90)
    world.b.commit("fresh", {TopicPartition("P.Payments", 0): 13})

    plan = moves.plan(world.context(), EVERYTHING, "m1")

    own = "group fresh has no commit on P to move: it continues at its own on B: P.Payments-0 at 13"
    assert own in plan.warnings
    assert not [one for one in plan.warnings if one.startswith("group fresh has committed nothing")]


def test_it_stays_where_its_clients_read_something_else(world: World) -> None:
    announce(world, Other=5)

    plan = moves.plan(world.context(), EVERYTHING, "m1")

    assert plan.group_names == ("far", "near")
    assert not [one for one in plan.warnings if one.startswith("group fresh")]


def test_a_move_begins_although_such_a_group_has_gone_since_it_was_planned(world: World) -> None:
    announce(world, Payments=90)
    moves.plan(world.context(), EVERYTHING, "m1")
    world.p.leave("fresh")

    moves.hold(world.context(), "m1")

    assert world.routes("P")["group:fresh"].state == "hold"


def test_a_group_whose_offsets_srm_writes_during_a_look_is_not_active(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first group sync creates groups on the target while a move is planned."""
    read = world.b.commits_of

    def commits_of(groups: Collection[str]) -> object:
        world.b.commit("near", {TopicPartition("P.Payments", 0): 1})
        return read(groups)

    monkeypatch.setattr(world.b, "commits_of", commits_of)

    plan = moves.plan(world.context(), REQUEST, dry_run=True)

    assert not any("is active on B" in line for line in plan.blocking)


GONE = "near {} left out: it has no offset of Payments-0 on P any more, deleted or expired"


def finished(world: World, context: MoveContext) -> MoveReport:
    """Wait, apply, go and report, as the groups that move do what they should."""
    world.passing(2_000)
    assert moves.wait_status(context, "m1").ready
    moves.apply(context, "m1")
    moves.go(context, "m1")
    return moves.report(context, "m1")


def test_a_group_that_is_deleted_after_the_plan_is_left_out_and_refuses_no_other(
    world: World,
) -> None:
    """Its clients would start on B as auto.offset.reset says, where the plan had 96."""
    context = planned(world)
    world.obey("near", "far")
    world.p.delete_groups(["near"])

    moves.hold(context, "m1")

    assert "group:near" not in world.routes("P") | world.routes("B")
    assert world.routes("P")["group:far"].state == "hold"
    [note] = moves.status(context, "m1").notes
    assert GONE.format("is") in note
    report = finished(world, context)
    assert world.routes("B")["group:far"].cluster == "B"
    assert "group:near" not in world.routes("B")
    assert GONE.format("was") in str(report.problems)
    assert list(report.groups) == ["far"]
    assert not world.offsets("B", "near")


def test_a_group_that_is_deleted_during_the_wait_is_left_out_and_released(world: World) -> None:
    """Its members are held, and continue where they were."""
    context = held(world)
    world.report("P", "B")
    world.p.delete_groups(["near"])
    with pytest.raises(GateClosedError, match="group near cannot move: it has no offset"):
        moves.apply(context, "m1")

    status = moves.wait_status(context, "m1")

    assert GONE.format("is") in str(status.notes)
    assert not any("near" in reason for reason in status.blocking)
    near, far = (world.routes("P")[f"group:{one}"] for one in ("near", "far"))
    assert (near.state, near.cluster) == ("go", "P")
    assert far.state == "hold"
    report = finished(world, context)
    assert world.routes("B")["group:near"].cluster == "P"
    assert world.routes("B")["group:far"].cluster == "B"
    assert GONE.format("was") in str(report.problems)
    moves.verify(context, "m1")


@pytest.mark.parametrize("write", range(1, 4))
def test_what_another_process_leaves_out_during_apply_stays_left_out(
    world: World, write: int
) -> None:
    context, other = held(world), world.context()
    world.report("P", "B")
    world.passing()
    assert moves.wait_status(context, "m1").ready

    def leave_out() -> None:
        world.p.delete_groups(["near"])
        moves.wait_status(other, "m1")

    world.writes.before[world.writes.count + write] = leave_out
    with suppress(GateClosedError, ConflictError):
        moves.apply(context, "m1")

    report = finished(world, context)
    assert world.routes("B")["group:near"].cluster == "P"
    assert GONE.format("was") in str(report.problems)
    moves.verify(context, "m1")


def test_a_group_that_was_left_out_moves_with_the_next_attempt_if_it_is_back(world: World) -> None:
    context = planned(world)
    world.obey("near", "far")
    world.p.delete_groups(["near"])
    moves.hold(context, "m1")
    moves.release(context, "m1")
    world.p.commit("near", {TopicPartition("Payments", 0): 95})

    moves.hold(context, "m1")

    assert world.routes("P")["group:near"].state == "hold"
    assert moves.status(context, "m1").notes == ()


@pytest.mark.parametrize("when", ["hold", "wait"])
def test_a_move_whose_groups_are_all_gone_has_to_be_planned_again(world: World, when: str) -> None:
    context = planned(world) if when == "hold" else held(world)
    world.obey("near", "far")
    world.p.delete_groups(["near", "far"])

    if when == "hold":
        with pytest.raises(ConflictError, match=r"no group .* plan the move again"):
            moves.hold(context, "m1")
        assert world.routes("P") == {}
    else:
        blocking = moves.wait_status(context, "m1").blocking
        assert any("no group of the move has its offsets" in reason for reason in blocking)
        assert world.routes("P")["group:near"].state == "hold"


def test_a_run_that_leaves_out_a_group_releases_the_others_if_it_fails(world: World) -> None:
    context = planned(world, replace(REQUEST, wait_seconds=1.0))
    world.obey("near")
    world.p.delete_groups(["near"])

    with pytest.raises(GateClosedError, match="group far is still active on P"):
        moves.carry_out(context, "m1", poll_seconds=0.1)

    far = world.routes("P")["group:far"]
    assert (far.state, far.cluster) == ("go", "P")
    assert "group:near" not in world.routes("P")


def test_a_topic_that_is_deleted_during_the_hold_closes_the_gate(world: World) -> None:
    context = held(world)
    world.report("P", "B")
    world.passing()
    assert moves.wait_status(context, "m1").ready

    world.p.delete_topic("Payments")

    [line] = moves.wait_status(context, "m1").blocking
    assert line == "topic Payments was deleted on P since the plan: plan the move again"


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_finding_of_many_groups_is_one_line(world: World, overwrite: bool) -> None:
    for number in range(20):
        world.p.commit(f"g{number:02}", {TopicPartition("Payments", 0): 10})
        world.b.commit(f"g{number:02}", {TopicPartition("P.Payments", 0): 70 + number})
    request = replace(EVERYTHING, overwrite=overwrite)

    plan = moves.plan(world.context(), request, "m1", dry_run=True)

    [found] = [one for one in plan.findings if one.id == "conflict"]
    assert found.text.startswith("group g19")  # the worst
    alike = "; 19 more positions alike, 1,370 records to read again in all: g18 Payments-0, "
    assert alike in found.text
    assert found.blocks is not overwrite


def test_findings_with_different_reasons_are_not_joined(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An offset in an open transaction cannot be overwritten as others are."""
    open_from = {
        88: "in a transaction open from 80: wait",
        89: "in a transaction open from 9: wait",
    }

    def row(group: GroupPosition) -> PartitionMove:
        reason = open_from.get(group.target_committed or 0, "")
        return replace(partition_move(group), reason=reason)

    monkeypatch.setattr("srm.engine.moves.facts.partition_move", row)
    for committed in (87, 88, 89):
        world.p.commit(f"g{committed}", {TopicPartition("Payments", 0): 10})
        world.b.commit(f"g{committed}", {TopicPartition("P.Payments", 0): committed})

    plan = moves.plan(world.context(), EVERYTHING, "m1", dry_run=True)

    plain, waits = sorted(one.text for one in plan.findings if one.id == "conflict")
    assert plain.startswith("group g87")
    assert "alike" not in plain
    assert waits.startswith("group g89")
    assert waits.endswith(" in all: g88 Payments-0")
