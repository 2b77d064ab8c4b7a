"""What comes between the plan and go is in the report: its rows and warnings are those of go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world, config_in, planned

from srm.domain.moves.report import MoveReport
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.moves.context import MoveContext
from srm.errors import GateClosedError


@pytest.fixture
def world(tmp_path: Path) -> World:
    return busy_world(config_in(tmp_path))


def add_partition(world: World) -> None:
    """Add a partition that the replicator has copied and no consumer has discovered."""
    for cluster in (world.p, world.b):
        own = [name for name in cluster.topics() if name.endswith("Payments")]
        cluster.create_partitions(dict.fromkeys(own, 2))
    world.p.produce("Payments", 1, 50)
    world.b.produce("P.Payments", 1, 50)
    place = TopicPartition("Payments", 1)
    world.maps[Flow("P", "B")].put(place, [Run(0, 0, 50)], Position(50, 50, 50))
    world.maps[Flow("B", "P")].put(place, [], Position(0, 0, 0))


def move(world: World, when: str, context: MoveContext | None = None) -> MoveReport:
    if when == "plan":
        add_partition(world)
    context = context or planned(world)
    if when == "hold":
        add_partition(world)
    moves.hold(context, "m1")
    world.obey("near", "far")
    world.passing()
    moves.wait_status(context, "m1")
    moves.apply(context, "m1")
    if when == "go":
        add_partition(world)
        with pytest.raises(GateClosedError, match="Payments is still written to"):
            moves.go(context, "m1")
        world.passing()
        moves.apply(context, "m1")
    moves.go(context, "m1")
    for group in ("near", "far"):
        world.start(group, "B", {"P.Payments": 101})
    world.passing(11_000)
    moves.verify(context, "m1")
    return moves.report(context, "m1")


@pytest.mark.parametrize("when", ["plan", "hold", "go"])
def test_a_partition_that_comes_before_go_has_its_rows_and_warnings(
    world: World, when: str
) -> None:
    report = move(world, when)

    rows = {
        (group, row.topic): (row.lag, row.planned, row.applied)
        for group, of in report.groups.items()
        for row in of.partitions
        if row.partition == 1
    }
    assert rows[("near", "Payments")] == rows[("far", "Payments")] == (50, None, None)
    [line] = [line for line in report.warnings if "Payments-1" in line]
    assert "committed nothing for Payments-1" in line
    assert "2 groups" in line


def test_without_changes_the_report_has_the_plan_s_rows_and_warnings(world: World) -> None:
    context = planned(world)
    plan = moves.plan(context, REQUEST, "m1")
    report = move(world, "never", context)

    for group in plan.groups:
        rows = {(row.topic, row.partition): row.resume for row in group.positions}
        found = report.groups[group.group].partitions
        assert {(row.topic, row.partition): row.planned for row in found}.items() <= rows.items()
    assert {*report.warnings} <= {*plan.warnings}


def test_a_topic_that_comes_after_the_plan_is_named_as_not_moved(world: World) -> None:
    context = planned(world, replace(REQUEST, topics=(), groups=()))
    for cluster, topic in ((world.p, "Payments-late"), (world.b, "P.Payments-late")):
        cluster.add_topic(topic, 1)
    report = move(world, "never", context)

    assert report.topics == ("Payments",)
    line = "Payments-late: copied only since the plan, so its clients stay on P"
    assert line in report.warnings
