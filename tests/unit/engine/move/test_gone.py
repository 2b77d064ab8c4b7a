"""Moves after go: who resumed where, what is left behind, and a crash at every single write."""

from __future__ import annotations

import pytest
from tests.unit.engine.move.moving import (
    WRITES_OF_A_MOVE,
    Killed,
    World,
    busy_world,
    held,
    planned,
    run_through,
)

from srm.config.model import Config
from srm.domain.ledger import Ledger
from srm.domain.move.routes import Ack
from srm.domain.topics import TopicPartition
from srm.engine import move
from srm.engine.move import MoveContext, MoveRequest, MoveStore
from srm.errors import (
    ConflictError,
    UnavailableError,
)


def gone(world: World) -> MoveContext:
    context = held(world)
    move.apply(context, "m1")
    move.go(context, "m1")
    return context


def acknowledge(world: World, group: str, position: int, client: str = "c1") -> None:
    route = world.routes("B")[f"group:{group}"]
    ack = Ack(
        f"group:{group}",
        client,
        route.generation,
        "resumed",
        "B",
        world.clock(),
        {"P.Payments-0": position},
    )
    world.b.compacted("srm-routing.internal").write({ack.key(): ack.value()})


def test_verification_waits_for_groups_that_had_members(world: World) -> None:
    context = gone(world)

    assert move.verify(context, "m1").waiting == (
        "group far has no members on B yet",
        "group near has no members on B yet",
    )
    world.start("near", "B", {})
    world.start("far", "B", {})
    world.passing(1_500)
    status = move.verify(context, "m1")
    assert status.done
    assert move.report(context, "m1").rto_seconds == 3.5


def test_a_group_that_resumed_elsewhere_than_planned_is_counted(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 4)
    acknowledge(world, "near", 99)
    acknowledge(world, "near", 101, "c2")
    move.verify(context, "m1")

    report = move.report(context, "m1")
    assert (report.groups["far"].re_read, report.groups["far"].skipped) == (6, 0)
    assert (report.groups["near"].re_read, report.groups["near"].skipped) == (0, 3)
    assert not report.ok


def test_a_second_member_starts_where_the_first_has_come_to(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "far", 55, "c2")
    acknowledge(world, "near", 96)
    move.verify(context, "m1")

    assert move.report(context, "m1").ok


def test_what_is_written_to_the_old_side_after_go_is_residue(world: World) -> None:
    context = gone(world)
    world.p.produce("Payments", records=4)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)

    assert move.verify(context, "m1").residue == {"Payments": 4}
    assert not move.report(context, "m1").ok


def test_the_new_side_alone_finishes_a_move_that_was_decided(world: World) -> None:
    """The old side may go down right after go."""
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    world.p.fail()

    assert move.verify(context, "m1").done
    assert move.report(context, "m1").ok


def test_the_old_side_may_go_down_while_clients_are_sent_away(world: World) -> None:
    context = held(world)
    move.apply(context, "m1")
    world.writes.watch = lambda: world.p.fail() if "go" in states(world, "B") else None
    progress = move.go(context, "m1")

    assert progress.step == "gone"


def states(world: World, alias: str) -> set[str]:
    return {route.state for route in world.routes(alias).values()}


def test_before_the_decision_both_sides_are_needed(world: World) -> None:
    context = planned(world)
    world.b.fail()

    with pytest.raises(UnavailableError):
        move.hold(context, "m1")
    assert states(world, "P") == set()


def test_the_report_is_kept_on_both_clusters(world: World) -> None:
    context = gone(world)
    acknowledge(world, "far", 10)
    acknowledge(world, "near", 96)
    move.verify(context, "m1")
    report = move.report(context, "m1")

    for alias in ("P", "B"):
        records = world.clusters[alias].compacted("srm-moves.internal").read()
        assert records[b"report:m1"] == report.value()
        assert {key for key in records if b"html" in key} == set(), "pages are made when asked for"
    assert MoveStore(context).move_ids() == ("m1",)


def test_a_finished_move_stays_finished_when_later_moves_went_back(world: World) -> None:
    context = gone(world)
    world.start("near", "B", {})
    world.start("far", "B", {})
    move.verify(context, "m1")
    move.report(context, "m1")
    back = world.context("B", "P")
    move.plan(back, MoveRequest("failback", "B", "P", ("Payments",), ("near", "far")), "m2")
    move.hold(back, "m2")
    world.obey("near", "far", alias="B")
    world.passing()
    move.apply(back, "m2")
    move.go(back, "m2")

    assert move.go(context, "m1").step == "reported"
    assert {r.cluster for r in world.routes("B").values()} == {"P"}
    with pytest.raises(ConflictError):
        move.release(context, "m1")


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, WRITES_OF_A_MOVE + 1))
def test_killed_at_any_write_a_rerun_finishes_and_nobody_goes_too_early(
    config: Config, number: int, after: bool
) -> None:
    world = busy_world(config)
    world.writes.die_at = (number, after)

    def nobody_goes_too_early() -> None:
        for alias in ("P", "B"):
            if any(route.cluster == "B" for route in world.routes(alias).values()):
                assert world.offsets("B", "near") == {"P.Payments-0": 96, "Payments-0": 0}
                assert world.offsets("B", "far") == {"P.Payments-0": 10, "Payments-0": 0}

    world.writes.watch = nobody_goes_too_early
    with pytest.raises(Killed):
        run_through(world)
    world.writes.die_at = None
    run_through(world)

    assert world.routes("P") == world.routes("B")
    assert {(r.cluster, r.state) for r in world.routes("B").values()} == {("B", "go")}
    assert MoveStore(world.context()).progress("m1").step == "gone"
    entries = Ledger.decode(world.b.compacted("srm-ledger.internal").read())
    assert entries.entry("near", TopicPartition("P.Payments", 0)).settled


def test_the_crash_test_covers_every_write_of_a_move(world: World) -> None:
    run_through(world)

    assert world.writes.count == WRITES_OF_A_MOVE
