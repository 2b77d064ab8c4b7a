"""A move whose clients a later one leads says so, and is an error where it moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, held

from srm.domain.flow_state.replication_records import PartitionPosition, SlotReport
from srm.domain.moves.report import MoveReport
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import ERA, Route
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import away_cluster
from srm.engine.control.control_topics import CONTROL_ID
from srm.engine.moves.context import MoveContext
from srm.errors import ConflictError
from srm_lab.testing.fake_switch import FakeSwitch

Step = Callable[[MoveContext, str], object]
BACK = replace(REQUEST, operation="failback", source="B", target="P")


def carry_out(world: World, request: MoveRequest, move_id: str, copy: str) -> MoveReport:
    """Run all steps of a move, with clients that obey and work on the target."""
    context = world.context(request.source, request.target)
    moves.plan(context, request, move_id)
    moves.hold(context, move_id)
    world.obey("near", "far", alias=request.source)
    world.passing()
    moves.wait_status(context, move_id)
    moves.apply(context, move_id)
    moves.go(context, move_id)
    for group in ("near", "far"):
        resumed = max(world.offsets(request.target, group).values())
        world.start(group, request.target, {copy: resumed})
    world.passing(11_000)
    moves.verify(context, move_id)
    return moves.report(context, move_id)


def there_and_back(world: World) -> None:
    assert carry_out(world, REQUEST, "m1", "P.Payments").ok
    world.copy("B", "P")
    assert carry_out(world, BACK, "m2", "Payments").ok
    world.passing(90 * 86_400_000)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_plan_under_the_id_of_a_move_that_was_undone_since_is_refused(
    world: World, *, dry_run: bool
) -> None:
    """A run that is cleared, or a run id that is used again, would be green and move nothing.

    A dry run showed a plan, as if the move could run.
    """
    there_and_back(world)

    with pytest.raises(
        ConflictError,
        match=r"m1 ended at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, superseded by move m2; nothing was",
    ):
        moves.plan(world.context(), REQUEST, "m1", dry_run=dry_run)


def test_a_plan_of_a_move_that_is_in_force_is_returned_again(world: World) -> None:
    carry_out(world, REQUEST, "m1", "P.Payments")

    assert moves.plan(world.context(), REQUEST, "m1").move_id == "m1"


def test_a_go_that_is_repeated_after_a_later_move_is_an_error(world: World) -> None:
    there_and_back(world)

    with pytest.raises(ConflictError, match="superseded by move m2"):
        moves.go(world.context(), "m1")

    assert moves.report(world.context(), "m1").ok  # it did what it was for, then


def test_a_release_names_the_move_that_leads_the_clients_by_now(world: World) -> None:
    """They are where the released one would lead them, or at a third place."""
    there_and_back(world)

    with pytest.raises(ConflictError, match=r"m1 ended at .*, superseded by move m2; nothing was"):
        moves.release(world.context(), "m1")


def test_a_move_stays_in_force_when_a_later_one_was_released(world: World) -> None:
    """Its clients were held, and are where it has sent them."""
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": max(world.offsets("B", group).values())})
    world.copy("B", "P")
    back = world.context("B", "P")
    moves.plan(back, BACK, "m2")
    moves.hold(back, "m2")
    moves.release(back, "m2")
    moves.verify(context, "m1")
    world.passing(11_000)

    assert moves.plan(context, REQUEST, "m1").move_id == "m1"
    assert moves.go(context, "m1").step == "gone"
    assert moves.verify(context, "m1").done
    assert moves.report(context, "m1").ok


@pytest.mark.parametrize("step", ["held", "gone"])
def test_verification_waits_for_no_group_that_a_later_move_has_taken_over(
    world: World, step: str
) -> None:
    """It waited for members on B until its time limit, and its requests led them there."""
    request = replace(REQUEST, redirect=("routing", "manual"))
    context = held(world, request)
    moves.apply(context, "m1")
    moves.go(context, "m1")
    world.p.produce("Payments", records=1)
    world.copy("P", "B")
    world.start("near", "B", {"P.Payments": max(world.offsets("B", "near").values())})
    world.copy("B", "P")
    status = moves.verify(context, "m1")
    assert status.waiting
    assert len(status.asks) == 2
    back = world.context("B", "P")
    moves.plan(back, BACK, "m2")
    moves.hold(back, "m2")
    if step == "gone":
        world.obey("near", alias="B")
        world.passing()
        moves.apply(back, "m2")
        moves.go(back, "m2")

    status = moves.verify(context, "m1")

    assert status.done
    assert status.asks == ()
    assert "group far has not resumed on B" in moves.report(context, "m1").problems


def decide_during_go(world: World, *subjects: str) -> None:
    """Let another engineer send clients to P while this go has written its intent there."""
    route = Route(ERA, "P", "go", "m2", world.clock(), decided=True)
    records = {subject.encode(): route.value() for subject in subjects}

    def decide() -> None:
        world.p.control_writer(CONTROL_ID).write({internal_topics.ROUTING: records})

    # go renews the hold on B and P, and writes its intent on P.
    world.writes.before[world.writes.count + 4] = decide


def test_a_go_during_an_unplanned_move_that_leads_all_its_clients_is_an_error(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    decide_during_go(world, "topic:Payments", "group:near", "group:far")

    with pytest.raises(ConflictError, match="superseded by move m2; nothing was moved"):
        moves.go(context, "m1")

    status, report = moves.verify(context, "m1"), moves.report(context, "m1")
    assert world.routes("B")["group:near"].move_id == "m1"
    assert status.done
    assert not report.ok
    assert (
        "superseded by move m2, which leads group:far, group:near, topic:Payments"
        in report.problems
    )


def test_a_go_during_an_unplanned_move_of_some_of_its_clients_names_them(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    decide_during_go(world, "group:near")

    assert moves.go(context, "m1").step == "gone"

    assert "superseded by move m2, which leads group:near" in moves.report(context, "m1").problems


AT_ONCE = (moves.hold, moves.apply, moves.go)


def give_up(
    world: World, source: str, target: str, move_id: str, steps: Sequence[Step] = AT_ONCE
) -> None:
    """Move everybody to the only cluster that an engineer can reach."""
    topic, copy = world.clusters[source].topics()["Payments"], f"{source}.Payments"
    reached = world.clusters[target]
    reached.add_topic(internal_topics.checkpoints(source))
    reached.add_topic(internal_topics.replication(source), 2)
    maps = world.maps[Flow(source, target)]
    position = maps.load(["Payments"]).get(TopicPartition("Payments", 0)).position
    entry = PartitionPosition(topic.topic_id, 0, reached.topics()[copy].topic_id, position, 1, 0)
    now_ms = world.clock()
    maps.reports = (SlotReport("0", 1, now_ms, (entry,), source_heard_ms=now_ms),)
    whole, gone = world.context(source, target), away_cluster(source)
    context = replace(
        whole,
        forward=replace(whole.forward, source=gone, switch=FakeSwitch(reached, source)),
        reverse=replace(whole.reverse, target=gone),
    )
    request = MoveRequest("failover", source, target, ("Payments",), mode="unplanned")
    moves.plan(context, request, move_id)
    for step in steps:
        step(context, move_id)


def name_each_other(world: World, to_b: str, to_p: str) -> bool:
    """Return whether the report of either move shows the other one as a problem."""
    here = moves.report(world.context("P", "B"), to_b).problems
    there = moves.report(world.context("B", "P"), to_p).problems
    return any(f"move {to_p} sent clients of this one to P" in line for line in here) and any(
        f"move {to_b} sent clients of this one to B" in line for line in there
    )


@pytest.mark.parametrize(("to_b", "to_p"), [("a", "z"), ("z", "a")])
def test_of_two_unplanned_moves_that_did_not_see_each_other_the_later_decision_counts(
    world: World, to_b: str, to_p: str
) -> None:
    """Whatever their ids are: the names of Airflow's runs sort after those of the shell."""
    give_up(world, "P", "B", to_b)
    world.passing()
    now_s = world.clock() // 1000
    give_up(world, "B", "P", to_p)
    assert world.routes("B")["topic:Payments"].cluster == "B"

    assert name_each_other(world, to_b, to_p)
    for alias in ("P", "B"):
        route = world.routes(alias)["topic:Payments"]
        assert (route.generation, route.cluster, route.move_id) == (now_s * ERA, "P", to_p)


def test_a_move_that_was_released_and_held_again_did_not_see_the_other_either(
    world: World,
) -> None:
    """What it knows by then of its clients is its own first hold."""
    give_up(world, "P", "B", "m1")
    world.passing()
    again = (moves.hold, moves.release, *AT_ONCE)
    give_up(world, "B", "P", "m2", again)

    assert name_each_other(world, "m1", "m2")


@pytest.mark.parametrize(("to_b", "to_p"), [("a", "z"), ("z", "a")])
def test_of_two_unplanned_moves_of_one_second_all_clients_follow_one_and_both_say_so(
    world: World, to_b: str, to_p: str
) -> None:
    give_up(world, "P", "B", to_b)
    give_up(world, "B", "P", to_p)

    assert name_each_other(world, to_b, to_p)
    ends = [world.routes(alias)["topic:Payments"] for alias in ("P", "B")]
    assert {(one.generation % ERA, one.move_id) for one in ends} == {(0, max(to_b, to_p))}


def test_records_of_a_time_when_later_moves_had_led_producers_back_are_no_residue(
    world: World,
) -> None:
    """Seen only after the producers had left the source again, they looked like those of m1."""
    assert carry_out(world, REQUEST, "m1", "P.Payments").ok
    world.copy("B", "P")
    assert carry_out(world, BACK, "m2", "Payments").ok
    world.p.produce("Payments", records=20)
    world.copy("P", "B")
    assert carry_out(world, REQUEST, "m3", "P.Payments").ok

    watched = moves.watch_residue(world.context(), "m1")
    assert (watched.ok, sum(watched.residue.values())) == (True, 0)
