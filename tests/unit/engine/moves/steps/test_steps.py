"""Moves over clusters in memory: there and back, every gate, and what a plan refuses."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, Killed, World, held, planned

from srm.config.model import RedirectSettings
from srm.domain.moves.announcements import Ack
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.store import MoveStore
from srm.errors import (
    ConflictError,
    GateClosedError,
    NotFoundError,
    SrmError,
    UsageError,
)


def test_a_plan_shows_where_each_group_stands_and_where_it_goes_on(world: World) -> None:
    plan = moves.plan(world.context(), REQUEST, "m1")

    rows = {group.group: group.positions[0] for group in plan.groups}
    assert plan.blocking == ()
    assert {g.group: g.lag for g in plan.groups} == {"near": 5, "far": 90}
    assert (rows["near"].target_topic, rows["near"].resume) == ("P.Payments", 96)
    assert (rows["far"].target_topic, rows["far"].resume) == ("P.Payments", 10)
    assert all((g.re_read, g.total_skipped) == (0, 0) for g in plan.groups)


def test_a_dry_run_writes_nothing(world: World) -> None:
    plan = moves.plan(world.context(), REQUEST, dry_run=True)

    assert plan.move_id
    assert world.writes.count == 0
    assert internal_topics.MOVES not in world.p.topics()


def test_groups_move_there_and_back_without_a_record_lost_or_repeated(world: World) -> None:
    context = held(world)
    assert moves.wait_status(context, "m1").ready
    applied = moves.apply(context, "m1")
    assert (applied.ready, applied.applied) == (True, True)
    moves.go(context, "m1")

    # Nothing of B's own Payments was ever copied to P: they have read none of it.
    assert world.offsets("B", "near") == {"P.Payments-0": 96, "Payments-0": 0}
    assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}
    for alias in ("P", "B"):
        assert {(r.cluster, r.state) for r in world.routes(alias).values()} == {("B", "go")}

    # On B: far reads up to the 60 before the marker, near all; both read new payments of B.
    world.b.produce("Payments", records=20)
    world.start("near", "B", {"P.Payments": 101, "Payments": 20})
    world.start("far", "B", {"P.Payments": 60, "Payments": 7})
    assert moves.verify(context, "m1").done
    first = moves.report(context, "m1")
    assert first.ok, first.problems
    assert first.rpo_records == 0
    assert first.groups["far"].lag_at_hold == 90

    back = MoveRequest("failback", "B", "P", ("Payments",), ("near", "far"))
    context = world.context("B", "P")
    moves.plan(context, back, "m2")
    world.copy("B", "P", markers=1)
    moves.hold(context, "m2")
    world.obey("near", "far", alias="B")
    world.passing()
    moves.apply(context, "m2")
    moves.go(context, "m2")

    assert world.offsets("P", "near") == {"Payments-0": 100, "B.Payments-0": 21}
    assert world.offsets("P", "far") == {"Payments-0": 60, "B.Payments-0": 8}
    assert {r.cluster for r in world.routes("P").values()} == {"P"}
    assert {r.generation for r in world.routes("P").values()} == {2}


def gate_of(world: World, context: MoveContext) -> None:
    """Show the gate that is asked by go, and that nothing was sent to B."""
    with pytest.raises(GateClosedError):
        moves.go(context, "m1")
    for alias in ("P", "B"):
        assert all(route.cluster == "P" for route in world.routes(alias).values())


def test_clients_do_not_go_before_the_hold(world: World) -> None:
    gate_of(world, planned(world))


def test_clients_do_not_go_while_a_member_is_alive_on_the_old_side(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    world.p.join("far", "late")

    gate_of(world, context)
    assert "far is still active on P (late" in moves.wait_status(context, "m1").blocking[0]


def test_clients_do_not_go_while_a_member_is_alive_on_the_new_side(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    world.b.join("far", "early")

    gate_of(world, context)


def test_clients_do_not_go_while_replication_is_behind(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    world.p.produce("Payments", records=1)
    moves.wait_status(context, "m1")
    world.passing()

    gate_of(world, context)
    assert moves.wait_status(context, "m1").blocking == (
        "replication of Payments from P is 1 record behind",
        "the replicator of P->B has never reported: is it running? see 'srm status'",
    )


def test_clients_do_not_go_before_offsets_are_applied(world: World) -> None:
    context = held(world)

    gate_of(world, context)


def test_clients_do_not_go_when_offsets_on_the_target_changed_after_apply(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    world.b.commit("far", {TopicPartition("P.Payments", 0): 3})

    gate_of(world, context)


def test_clients_do_not_go_when_the_group_committed_again_on_the_old_side(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    world.p.commit("far", {TopicPartition("Payments", 0): 50})

    gate_of(world, context)


def test_writers_that_go_on_after_the_hold_are_named_by_topic(world: World) -> None:
    context = held(world)
    world.p.produce("Payments", records=3)
    world.copy("P", "B")

    status = moves.wait_status(context, "m1")

    assert status.blocking == (
        "topic Payments is still written to on P (3 offsets since the hold): stop its producers",
    )
    with pytest.raises(GateClosedError, match="stop its producers"):
        moves.apply(context, "m1")
    world.passing()
    assert moves.wait_status(context, "m1").ready


def test_a_topic_that_is_created_again_during_a_hold_has_not_shrunk(world: World) -> None:
    """A run printed '-95 offsets since the hold'."""
    context = held(world)
    world.p.delete_topic("Payments")
    world.p.add_topic("Payments")
    world.p.produce("Payments", records=5)

    waits = [one for one in moves.wait_status(context, "m1").blocking if "topic Payments" in one]
    assert waits == ["topic Payments must be idle on P for 1 s"]


def test_offsets_are_not_applied_while_members_still_commit(world: World) -> None:
    context = planned(world)
    moves.hold(context, "m1")
    world.passing()

    with pytest.raises(GateClosedError, match="still active on P"):
        moves.apply(context, "m1")
    assert world.offsets("B", "near") == {}


def test_a_release_sends_clients_back_to_where_they_were(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    moves.release(context, "m1")

    assert {(r.cluster, r.state) for r in world.routes("B").values()} == {("P", "go")}
    gate_of(world, context)
    again = moves.hold(context, "m1")
    assert again.times_ms.keys() == {"holding", "held"}


def test_a_release_is_refused_once_clients_have_gone(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")

    with pytest.raises(ConflictError, match="move them back"):
        moves.release(context, "m1")


def test_every_step_of_a_finished_move_may_be_repeated_and_does_nothing(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    world.start("far", "B", {"P.Payments": 77})
    before = world.routes("B"), world.offsets("B", "far")

    assert moves.hold(context, "m1").step == "gone"
    assert moves.wait_status(context, "m1").ready
    applied = moves.apply(context, "m1")
    assert (applied.ready, applied.applied) == (True, True)
    assert moves.go(context, "m1").step == "gone"
    assert (world.routes("B"), world.offsets("B", "far")) == before


def test_a_release_before_the_hold_changes_nothing(world: World) -> None:
    context = planned(world)
    moves.release(context, "m1")

    assert world.routes("P") == {}


def test_a_time_out_leaves_both_sides_intact(world: World) -> None:
    context = planned(world, replace(REQUEST, wait_seconds=5))
    moves.hold(context, "m1")
    world.passing(6_000)

    status = moves.wait_status(context, "m1")
    assert status.timed_out
    moves.release(context, "m1")
    assert world.offsets("B", "near") == {}
    assert world.p.groups(["near"])["near"].state == "active"


def test_a_second_move_of_the_same_clients_is_refused_while_one_holds_them(world: World) -> None:
    context = held(world)
    second = moves.plan(context, REQUEST, "m2")

    assert second.blocking[0] == (
        "topic:Payments is held by move m1: finish or release that one first"
    )
    with pytest.raises(ConflictError, match="held by move m1"):
        moves.hold(context, "m2")


def test_a_group_that_lives_elsewhere_cannot_leave_from_here(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")

    plan = moves.plan(context, REQUEST, "m2")
    assert "group:near is routed to B, so it cannot leave P" in plan.blocking


@pytest.mark.parametrize("topics", [(), ("Payments",)])
def test_what_an_earlier_move_has_led_there_is_left_out_of_a_later_one(
    world: World, topics: tuple[str, ...]
) -> None:
    context = held(world, replace(REQUEST, groups=("near",)))
    moves.apply(context, "m1")
    moves.go(context, "m1")

    rest = moves.plan(context, MoveRequest("failover", "P", "B", topics), dry_run=True)
    assert (rest.topics, rest.group_names, rest.blocking) == ((), ("far",), ())
    assert "name groups with --group" not in str(rest.warnings), "near is there"
    assert ("topic:Payments is routed to B" in str(rest.warnings)) == bool(topics)


@pytest.mark.parametrize("topics", [(), ("Payments",)])
def test_groups_of_one_topic_move_one_after_the_other_there_and_back(
    world: World, topics: tuple[str, ...]
) -> None:
    """The first takes the producers along; the second follows, though it reads the same topic."""

    def move(source: str, group: str) -> None:
        target, move_id = ("B", "P")[source == "B"], f"{group}-from-{source}"
        request = MoveRequest("failover", source, target, topics, (group,))
        context = planned(world, request, move_id)
        moves.hold(context, move_id)
        world.obey(group, alias=source)
        world.passing(6_000)
        moves.apply(context, move_id)
        moves.go(context, move_id)
        world.passing(6_000)

    for group in ("near", "far"):
        move("P", group)
    assert world.offsets("B", "near") == {"P.Payments-0": 96, "Payments-0": 0}
    assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}
    assert {route.cluster for route in world.routes("P").values()} == {"B"}
    assert world.routes("B")["topic:Payments"].move_id == "near-from-P"
    again = moves.plan(world.context(), MoveRequest("failover", "P", "B", topics), dry_run=True)
    assert "topic:Payments is routed to B, so it cannot leave P" in again.blocking

    world.b.commit("far", {TopicPartition("P.Payments", 0): 15})
    world.copy("B", "P")
    for group in ("far", "near"):
        move("B", group)
    assert world.offsets("P", "far")["Payments-0"] == 15
    assert {route.cluster for route in world.routes("P").values()} == {"P"}


def test_a_consumers_own_later_commit_on_the_target_blocks_the_plan(world: World) -> None:
    world.b.commit("far", {TopicPartition("P.Payments", 0): 40})

    plan = moves.plan(world.context(), REQUEST, "m1")
    assert "ahead of the translated 10" in plan.blocking[0]
    with pytest.raises(ConflictError, match="cannot start"):
        moves.hold(world.context(), "m1")
    assert world.routes("P") == {}


def test_a_consumers_own_commit_is_replaced_when_the_request_says_so(world: World) -> None:
    world.b.commit("far", {TopicPartition("P.Payments", 0): 40})
    context = held(world, replace(REQUEST, overwrite=True))
    moves.apply(context, "m1")
    progress = moves.go(context, "m1")

    assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}
    assert progress.re_read == {"far": 30}


def test_a_move_killed_after_its_intent_applies_what_its_clients_have_committed_since(
    world: World,
) -> None:
    """The lease ended, so they continued on the source until it was held again."""
    context = held(world)
    moves.apply(context, "m1")
    world.writes.count, world.writes.die_at = 0, (3, True)
    with pytest.raises(Killed):
        moves.go(context, "m1")
    world.writes.die_at = None
    assert MoveStore.read(context).progress("m1").step == "going"
    world.p.commit("far", {TopicPartition("Payments", 0): 20})
    moves.hold(context, "m1")
    moves.wait_status(context, "m1")
    world.passing(6_000)

    assert moves.apply(context, "m1").applied
    moves.go(context, "m1")

    assert world.offsets("B", "far")["P.Payments-0"] == 20


def test_our_own_earlier_write_on_the_target_is_no_conflict(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    moves.release(context, "m1")
    world.p.commit("near", {TopicPartition("Payments", 0): 20})  # an operator rewinds

    plan = moves.plan(context, REQUEST, "m1")
    assert plan.blocking == ()


def test_records_the_target_has_dropped_block_until_accepted(world: World) -> None:
    world.b.trim("P.Payments", 0, 30)

    blocked = moves.plan(world.context(), REQUEST, dry_run=True)
    accepted = moves.plan(world.context(), replace(REQUEST, accept_skips=True), dry_run=True)

    assert "20 records already deleted by retention" in blocked.blocking[0]
    assert accepted.blocking == ()
    assert "group far will skip 20 records of Payments-0" in accepted.warnings[-1]


def test_offsets_on_topics_that_do_not_move_block(world: World) -> None:
    world.p.add_topic("Refunds")
    world.p.commit("near", {TopicPartition("Refunds", 0): 1})

    plan = moves.plan(world.context(), REQUEST, dry_run=True)
    assert "near also has offsets on Refunds" in plan.blocking[0]


def test_without_names_everything_the_flows_replicate_moves(world: World) -> None:
    world.start("other", "P", {"B.Payments": 0})
    world.p.add_topic("Refunds")

    plan = moves.plan(world.context(), MoveRequest("failover", "P", "B"), dry_run=True)
    assert plan.topics == ("Payments",)
    assert plan.group_names == ("far", "near", "other")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"topics": ("Nope",)}, NotFoundError, "'Nope' exists neither on P nor on B"),
        ({"topics": ("B.Payments",)}, UsageError, "is a copy: name the original, 'Payments'"),
        ({"groups": ("nobody",)}, NotFoundError, "'nobody' does not exist on P"),
        ({"source": "B", "target": "P"}, UsageError, "the move is B->P"),
    ],
)
def test_what_does_not_exist_is_named(
    world: World, change: dict, error: type[SrmError], message: str
) -> None:
    with pytest.raises(error, match=message):
        moves.plan(world.context(), replace(REQUEST, **change), "m1")


@pytest.mark.parametrize("step", ["hold", "wait_status", "apply", "go", "release", "report"])
def test_a_move_that_was_never_planned_is_not_found(world: World, step: str) -> None:
    with pytest.raises(NotFoundError, match="'zzz' is not known"):
        getattr(moves, step)(world.context(), "zzz")


def test_an_id_stands_for_one_request(world: World) -> None:
    planned(world)

    with pytest.raises(ConflictError, match="planned for another request"):
        moves.plan(world.context(), replace(REQUEST, groups=("near",)), "m1")


def test_a_host_with_other_names_or_lists_holds_nothing_and_names_the_keys(world: World) -> None:
    planned(world)
    use(world, groups_exclude=("near",), tasks_max=99)

    with pytest.raises(ConflictError) as refused:
        moves.hold(world.context(), "m1")

    assert str(refused.value) == (
        "move m1 was planned with other settings: P->B.groups.exclude was "
        "console-consumer-.*,connect-.*,__.*, is near; correct "
        "the file here, or plan the move again"
    )
    assert world.routes("P") == {}


def test_settings_without_a_meaning_for_moves_may_differ_between_hosts(world: World) -> None:
    planned(world)
    slow = RedirectSettings(webhook_timeout=timedelta(seconds=9))
    use(world, tasks_max=99, linger_ms=7, redirect=slow)

    assert moves.hold(world.context(), "m1").step == "held"


def use(world: World, **settings: Any) -> None:
    flows = dict(world.config.flow_configs)
    flows[Flow("P", "B")] = replace(flows[Flow("P", "B")], **settings)
    world.config = replace(world.config, flow_configs=flows)


def test_a_group_that_reads_the_topics_only_since_the_plan_is_named_in_the_report(
    world: World,
) -> None:
    context = planned(world, MoveRequest("failover", "P", "B", ("Payments",)))
    world.p.commit_idle("late", {TopicPartition("Payments", 0): 5})

    moves.hold(context, "m1")
    world.obey("near", "far", "other")
    world.passing()
    moves.apply(context, "m1")
    moves.go(context, "m1")

    found = moves.report(context, "m1")
    assert world.offsets("B", "late") == {}
    assert "group late was left out: reads on P only since the plan: start it on B" in (
        "; ".join(found.problems)
    )


def test_members_of_a_session_from_before_the_target_died_hold_up_no_move(world: World) -> None:
    """Their clients work on the source, and a cluster lists them until their sessions end."""
    ensure_topics(world.context())
    had = {"B": world.b.join("near", "c")}
    ack = Ack("group:near", "c", 0, "resumed", "P", world.clock(), members=had)
    world.p.compacted_topic(internal_topics.CLIENTS).write({ack.key(): ack.value()})
    world.b.join("near", "plain")
    blocked = moves.plan(world.context(), REQUEST, dry_run=True).blocking
    world.b.leave("near", "plain")

    context = held(world)

    assert blocked == ("group near is active on B (c@127.0.0.1, plain@127.0.0.1): stop it there",)
    assert moves.wait_status(context, "m1").ready
