"""Commits after the markers at the end of an idle copy: Java's consumers pass them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World

from srm.domain.moves.gate import SyncStatus
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.translate import translate
from srm.engine.moves.context import MoveContext

BACK = replace(
    REQUEST, operation="failback", source="B", target="P", groups=("near",), slow_writer_seconds=0.0
)
COPY = TopicPartition("P.Payments", 0)


@pytest.fixture
def back(world: World) -> MoveContext:
    """Return the way back, held: two markers follow the copy on B, and no slot runs."""
    world.obey("near")
    world.b.mark("P.Payments", 0, 2)
    world.b.commit("near", {COPY: 103, TopicPartition("Payments", 0): 0})
    world.copy("B", "P")
    return world.context("B", "P")


def wait(world: World, back: MoveContext) -> SyncStatus:
    moves.plan(back, BACK, "m1")
    moves.hold(back, "m1")
    world.passing(2_000)
    return moves.wait_status(back, "m1")


def test_markers_alone_keep_no_gate_closed_though_no_slot_passes_them(
    world: World, back: MoveContext
) -> None:
    assert translate(world.context().forward, COPY, 103, reverse=True).to_offset == 100

    assert wait(world, back).blocking == ()

    moves.apply(back, "m1")
    moves.go(back, "m1")
    assert world.offsets("P", "near")["Payments-0"] == 100


def test_a_record_that_is_not_in_the_map_is_waited_for(world: World, back: MoveContext) -> None:
    world.b.produce("P.Payments", records=1)
    world.b.commit("near", {COPY: 104})

    assert wait(world, back).blocking == (
        "group near, P.Payments-0: committed offset 104 is not copied yet, 1 to go",
    )


def test_a_group_before_a_record_that_is_not_in_the_map_moves(
    world: World, back: MoveContext
) -> None:
    world.b.produce("P.Payments", records=1)

    assert wait(world, back).ready
