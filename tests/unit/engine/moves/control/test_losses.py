"""What a cluster has lost of decided moves is found, and the next emission writes it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import World
from tests.unit.engine.moves.control.sites import world_of
from tests.unit.engine.moves.control.test_third_clusters import hold, move, places
from tests.unit.engine.moves.giving_up import Disaster, disaster

from srm.domain.moves.disaster import Outcome
from srm.domain.moves.request import MoveRequest
from srm.domain.names import internal_topics
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.losses import lost_pause_findings, lost_route_findings, restore_pause
from srm.engine.moves.registers import level_if_needed
from srm.engine.recovery import store_outcome
from srm.engine.status.observing import flow_status

__all__ = ["disaster"]

ROUTING = internal_topics.ROUTING


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Return three clusters after a move from A to B."""
    world = world_of(tmp_path, "AB", "BC")
    move(world, "A", "B", "m1")
    return world


def lose_routes(world: World, *aliases: str) -> None:
    for alias in aliases:
        del world.clusters[alias]._topics[ROUTING]
    for flow in ("AB", "BC"):
        ensure_topics(world.context(flow[0], flow[1]))


def found(context: MoveContext) -> list[str]:
    clusters, flow = (context.target, context.source), context.forward.config.flow
    return [one.line for one in lost_route_findings(clusters, flow)]


def test_deleted_routes_of_a_decided_move_are_found_and_written_again(world: World) -> None:
    context = world.context("A", "B")
    assert found(context) == []
    lose_routes(world, "A", "B", "C")
    lost = found(context)
    assert places(world)["A"] == "A"

    level_if_needed(context.forward)

    assert [line.partition(":")[0] for line in lost] == [
        f"{ROUTING} on {alias} lacks the routes of decided moves (m1)" for alias in "BA"
    ]
    assert all(line.endswith("srm checkpoints emit --flow 'A->B'") for line in lost)
    assert (places(world), found(context)) == ({"A": "B", "B": "B", "C": "C"}, [])


def test_one_deleted_record_of_a_route_is_found(world: World) -> None:
    routing = world.clusters["B"].compacted_topic(ROUTING)
    routing.write({b"group:audit": None})

    assert found(world.context("A", "B"))

    level_if_needed(world.context("A", "B").forward)
    assert found(world.context("A", "B")) == []


def test_routes_of_a_chain_are_written_again_as_they_were(world: World) -> None:
    """Each cluster knows the moves of which it was an end."""
    move(world, "B", "C", "m2")
    moves.release(hold(world, "C", "B", "m3"), "m3")
    before = places(world)
    lose_routes(world, "A", "B", "C")

    level_if_needed(world.context("B", "C").forward)

    assert before == places(world) == {"A": "C", "B": "C", "C": "C"}


def test_a_route_that_clients_follow_is_never_replaced_by_a_lower_one(world: World) -> None:
    move(world, "B", "A", "m2")
    lose_routes(world, "A", "B")

    level_if_needed(world.context("A", "B").forward)

    assert places(world) == {"A": "A", "B": "A", "C": "C"}
    assert {route.move_id for route in world.routes("B").values()} == {"m2"}


def test_an_attempt_ranks_above_one_whose_routes_are_lost(world: World) -> None:
    """Clients that run have read them, and would take the hold for that of the past."""
    moves.release(hold(world, "B", "C", "m2"), "m2")
    before = world.routes("B")["group:audit"].generation
    lose_routes(world, "A", "B", "C")
    level_if_needed(world.context("A", "B").forward)
    assert world.routes("B")["group:audit"].generation < before

    hold(world, "B", "C", "m3")

    assert world.routes("B")["group:audit"].generation > before


def test_lost_routes_block_a_planned_move_and_are_hints_of_the_status(world: World) -> None:
    lose_routes(world, "A", "B")
    context = world.context("A", "B")

    plan = moves.plan(context, MoveRequest("failover", "A", "B"), "m9", dry_run=True)

    assert next(one.id for one in plan.findings if one.blocks) == "lost-routes"
    hints = flow_status(context.forward).hints
    assert len([line for line in hints if "lacks the routes of decided moves (m1)" in line]) == 2


def test_the_pause_of_a_disaster_that_is_not_settled_is_found_and_set_again(
    disaster: Disaster,
) -> None:
    disaster.planned()
    disaster.through("hold", "apply", "go")
    before, flow = disaster.pause(), disaster.context.forward
    assert not [*lost_pause_findings(flow)]
    del disaster.world.b._topics[internal_topics.replication("P")]
    disaster.world.b.add_topic(internal_topics.replication("P"), 2)

    [lost] = lost_pause_findings(flow)
    restore_pause(flow)

    assert lost.text.startswith("P->B has lost its pause for m1: records of P are copied")
    again = disaster.pause()
    assert replace(again, request="", by="") == replace(before, request="", by="")
    assert not [*lost_pause_findings(flow)]


def test_a_settled_return_needs_no_pause(disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold", "apply", "go")
    flow = disaster.world.context().forward
    store_outcome(flow, Outcome("m1", "P->B", "discard", disaster.world.clock(), "me"))
    disaster.switch.resume()

    restore_pause(replace(flow, switch=disaster.switch))

    assert disaster.pause() is None
    assert not [*lost_pause_findings(flow)]


def test_a_planned_or_released_move_needs_no_pause(world: World, disaster: Disaster) -> None:
    disaster.planned()
    disaster.through("hold", "release")

    assert disaster.pause() is None
    assert not [*lost_pause_findings(disaster.context.forward)]
    assert not [*lost_pause_findings(world.context("A", "B").forward)]
