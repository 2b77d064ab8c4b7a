"""Steps that come in between where fencing, plans, offsets and clocks could be fooled."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.engine.move.moving import THREE_CLUSTERS, World, config_in

from srm.domain.topics import TopicPartition
from srm.engine import move
from srm.engine.move import MoveRequest, MoveStore
from srm.errors import SrmError


@pytest.mark.parametrize("number", range(1, 25))
def test_moves_of_the_same_clients_to_two_clusters_never_overlap(
    tmp_path: Path, number: int
) -> None:
    """They share the source alone, so that is where one of them has to be refused."""
    world = World(config_in(tmp_path, THREE_CLUSTERS), 1, ("P", "B", "C"))
    world.p.produce("Payments", records=10)
    for target in ("B", "C"):
        world.copy("P", target)
        world.copy(target, "P")
    world.p.commit("near", {TopicPartition("Payments", 0): 7})
    overlaps: list[str] = []

    def held_for() -> set[str]:
        return {
            route.move_id
            for alias in ("P", "B", "C")
            for route in world.routes(alias).values()
            if route.state == "hold" and MoveStore(
                world.context("P", {"m1": "B", "m2": "C"}[route.move_id])
            ).progress(route.move_id).step in {"held", "applied", "going"}
        }  # fmt: skip

    def watch() -> None:
        if held_for() == {"m1", "m2"}:
            overlaps.append(f"write {world.writes.count}")

    def run(target: str, move_id: str) -> None:
        context = world.context("P", target)
        request = MoveRequest("failover", "P", target, ("Payments",), ("near",))
        move.plan(context, request, move_id)
        move.hold(context, move_id)
        world.passing()
        move.apply(context, move_id)

    world.writes.watch = watch
    world.writes.before[number] = lambda: run("C", "m2")
    with suppress(SrmError):
        run("B", "m1")

    assert overlaps == []
