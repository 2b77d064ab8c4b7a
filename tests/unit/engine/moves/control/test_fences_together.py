"""Fences of several moves from one cluster: what one lifts, the others keep."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, config_in
from tests.unit.engine.moves.giving_up import Disaster

from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import ERA, FenceKind
from srm.domain.names.topics import TopicPartition
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.effects import read_fences, set_fence

FENCED = replace(REQUEST, fence="acl")
ENDS = ("P->B", "B->P", "P->C", "C->P", "B->C", "C->B")


@pytest.fixture
def three(tmp_path: Path) -> World:
    """Payments of P, B and C, each copied to both others; near reads those of P."""
    lines = ["clusters = P, B, C", "topics = Payments.*", "groups = .*"]
    lines += [f"{alias}.bootstrap.servers = {alias.lower()}:9092" for alias in "PBC"]
    lines += [f"{end}.enabled = true" for end in ENDS]
    world = World(config_in(tmp_path, "\n".join(lines)), aliases="PBC")
    for alias in "PBC":
        world.clusters[alias].produce("Payments", records=10)
    for end in ENDS:
        ensure_topics(world.context(end[0], end[3]))
        world.copy(end[0], end[3])
    world.p.commit("near", {TopicPartition("Payments", 0): 7})
    return world


def fenced(world: World, source: str, target: str, move_id: str) -> MoveContext:
    """Hold the clients of a move, and let its wait deny writes on its source."""
    context = world.context(source, target)
    request = MoveRequest("failover", source, target, ("Payments",), ("near",), fence="acl")
    moves.plan(context, replace(request, accept_stray_offsets=True), move_id)
    moves.hold(context, move_id)
    world.passing()
    moves.wait_status(context, move_id)
    assert denied(world, source)
    return context


def gone(world: World, source: str, target: str, move_id: str) -> None:
    context = fenced(world, source, target, move_id)
    moves.apply(context, move_id)
    moves.go(context, move_id)


def denied(world: World, alias: str) -> bool:
    return bool(world.clusters[alias].write_denials(["Payments"]))


def owner(world: World, alias: str) -> str:
    """Return the move whose fence is set on a cluster."""
    [fence] = read_fences(world.clusters[alias]).values()
    return fence.move_id if fence.is_set else ""


def held_and_given_up(world: World) -> tuple[MoveContext, MoveContext]:
    """Hold the clients by a planned move; return its context, and that of an unplanned one."""
    given_up, context = replace(Disaster(world).context, condemned=world.p), world.context()
    moves.plan(context, FENCED, "m1")
    moves.hold(context, "m1")
    world.obey("near", "far")
    moves.wait_status(context, "m1")
    return context, given_up


def test_a_release_leaves_closed_what_an_unplanned_move_has_given_up(world: World) -> None:
    """A planned move comes to nothing, its source answers yet, and its clients leave at once."""
    context, given_up = held_and_given_up(world)
    moves.plan(given_up, replace(FENCED, mode="unplanned"), "m2")
    for step in (moves.hold, moves.apply, moves.go):
        step(given_up, "m2")
    assert denied(world, "P")

    moves.release(context, "m1")

    assert (denied(world, "P"), owner(world, "P")) == (True, "m2")


@pytest.mark.parametrize("fence", ["acl", "none"])
def test_the_release_of_an_unplanned_move_opens_what_the_move_that_it_took_over_has_closed(
    world: World, fence: FenceKind
) -> None:
    """The process of the planned move was killed; its clients return to a source that answers."""
    _, given_up = held_and_given_up(world)
    moves.plan(given_up, replace(FENCED, mode="unplanned", fence=fence), "m2")
    moves.hold(given_up, "m2")
    assert denied(world, "P")

    moves.release(given_up, "m2")

    assert not denied(world, "P")


def test_a_late_release_leaves_closed_what_clients_have_left_for_a_third_cluster(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, allow = fenced(three, "P", "B", "m1"), three.p.allow_writes

    def late(topics: Collection[str]) -> None:
        monkeypatch.setattr(three.p, "allow_writes", allow)
        moves.release(three.context("P", "B"), "m1")
        gone(three, "P", "C", "m2")
        allow(topics)

    monkeypatch.setattr(three.p, "allow_writes", late)
    moves.release(context, "m1")

    assert three.routes("P")["topic:Payments"].cluster == "C"
    assert (denied(three, "P"), owner(three, "P")) == (True, "m2")


def test_a_late_release_leaves_a_rule_that_a_move_to_a_third_cluster_relies_on(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own rule came back late, so the move to C has found it and set none."""
    context, allow = fenced(three, "P", "B", "m1"), three.p.allow_writes

    def late(topics: Collection[str]) -> None:
        monkeypatch.setattr(three.p, "allow_writes", allow)
        allow(topics)
        moves.release(three.context("P", "B"), "m1")
        three.p.deny_writes(topics)
        gone(three, "P", "C", "m2")

    monkeypatch.setattr(three.p, "allow_writes", late)
    moves.release(context, "m1")

    assert three.routes("P")["topic:Payments"].cluster == "C"
    assert denied(three, "P")


def test_a_release_lifts_no_fence_of_a_move_that_only_a_third_cluster_knows(three: World) -> None:
    """C has abandoned P, which took a fence and no route."""
    context = fenced(three, "P", "B", "m1")
    set_fence(three.p, ["Payments"], "m2", three.clock(), attempt=ERA)

    moves.release(context, "m1")

    assert (denied(three, "P"), owner(three, "P")) == (True, "m2")


def test_a_repeated_go_opens_no_target_that_a_later_move_has_left(three: World) -> None:
    """C has abandoned B, and neither P nor B has its route."""
    gone(three, "P", "B", "m1")
    set_fence(three.b, ["Payments"], "m2", three.clock(), attempt=ERA)

    moves.go(three.context("P", "B"), "m1")

    assert (denied(three, "B"), owner(three, "B")) == (True, "m2")


def test_a_late_go_leaves_its_target_closed_that_clients_have_left_for_a_third_cluster(
    three: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_fence(three.b, ["Payments"], "m0", 1)
    context = fenced(three, "P", "B", "m1")
    moves.apply(context, "m1")
    denials = three.b.write_denials

    def late(topics: Collection[str]) -> frozenset[str]:
        monkeypatch.setattr(three.b, "write_denials", denials)
        three.copy("B", "C")
        gone(three, "B", "C", "m2")
        return denials(topics)

    monkeypatch.setattr(three.b, "write_denials", late)
    moves.go(context, "m1")

    assert three.routes("B")["topic:Payments"].cluster == "C"
    assert (denied(three, "B"), denied(three, "P")) == (True, True)


def test_a_move_to_a_cluster_that_a_move_it_cannot_know_has_left_opens_it(three: World) -> None:
    """B has abandoned P, which is back and knows no route of it; clients of C are sent there."""
    set_fence(three.p, ["Payments"], "m1", 1, attempt=ERA)
    three.clusters["C"].commit("near", {TopicPartition("Payments", 0): 5})

    gone(three, "C", "P", "m2")

    assert (denied(three, "P"), denied(three, "C")) == (False, True)
