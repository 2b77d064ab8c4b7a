"""Steps that come in between where fencing, plans, offsets and clocks could be fooled."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import THREE_CLUSTERS, World, config_in, held, planned

from srm.domain.moves.announcements import Ack
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.moves import steps
from srm.engine.moves.context import MoveContext
from srm.engine.moves.store import MoveStore
from srm.errors import ConflictError, SrmError


@pytest.mark.parametrize("number", range(1, 17))
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
            if route.state == "hold" and MoveStore.read(
                world.context("P", {"m1": "B", "m2": "C"}[route.move_id])
            ).progress(route.move_id).step in {"held", "applied", "going"}
        }  # fmt: skip

    def watch() -> None:
        if held_for() == {"m1", "m2"}:
            overlaps.append(f"write {world.writes.count}")

    def run(target: str, move_id: str) -> None:
        context = world.context("P", target)
        request = MoveRequest("failover", "P", target, ("Payments",), ("near",))
        moves.plan(context, request, move_id)
        moves.hold(context, move_id)
        world.passing()
        moves.apply(context, move_id)

    world.writes.watch = watch
    world.writes.before[number] = lambda: run("C", "m2")
    with suppress(SrmError):
        run("B", "m1")

    assert overlaps == []


def test_a_plan_that_was_computed_long_ago_does_not_replace_the_one_that_holds(
    world: World,
) -> None:
    context = world.context()
    everything = MoveRequest("failover", "P", "B")
    first = moves.plan(context, everything, "m1")

    def hold_meanwhile() -> None:
        moves.hold(world.context(), "m1")

    # The groups that it finds are others than those that are held by then.
    world.start("later", "P", {"Payments": 20})
    world.writes.before[world.writes.count + 1] = hold_meanwhile
    with suppress(SrmError):
        moves.plan(context, everything, "m1")

    assert MoveStore.read(context).load("m1")[0] == first
    moves.release(context, "m1")
    assert "group:later" not in world.routes("P")


def test_a_hold_does_not_begin_with_a_plan_that_was_replaced(world: World) -> None:
    context = world.context()
    everything = MoveRequest("failover", "P", "B")
    moves.plan(context, everything, "m1")

    def plan_again() -> None:
        world.start("later", "P", {"Payments": 20})
        world.passing()
        moves.plan(world.context(), everything, "m1")

    world.writes.before[world.writes.count + 1] = plan_again
    with pytest.raises(ConflictError, match=r"was planned again.*run.*--move-id m1"):
        moves.hold(context, "m1")
    assert world.routes("P") == world.routes("B") == {}


def test_offsets_are_not_set_back_where_the_group_has_moved_on_since_the_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stalls after its look; another one moves the group, which works and idles."""
    context = held(world)
    original = steps.apply_exact

    def stalled(*arguments: object, **named: object) -> object:
        monkeypatch.setattr(steps, "apply_exact", original)
        moves.apply(world.context(), "m1")
        moves.go(world.context(), "m1")
        world.start("near", "B", {"P.Payments": 99})
        world.b.leave("near")
        return original(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(steps, "apply_exact", stalled)
    with suppress(SrmError):
        moves.apply(context, "m1")

    assert world.offsets("B", "near")["P.Payments-0"] == 99


def test_static_members_that_work_again_after_a_release_are_not_removed_by_a_late_look(
    world: World,
) -> None:
    world.p.join("near", "steady", instance_id="i-1")
    context = held(world)
    world.passing(5_000)
    # While the note of the wait is about to be written.
    world.writes.before[world.writes.count + 1] = lambda: moves.release(world.context(), "m1")
    moves.wait_status(context, "m1")

    assert world.p.groups(["near"])["near"].instance_ids == ("i-1",)
    assert not context.observations["m1"].removed


def late_offsets(world: World, context: MoveContext, resume: int) -> None:
    """Write what a process has computed before others continued the move."""
    plan, progress = MoveStore.read(context).load("m1")
    [near] = [group for group in plan.groups if group.group == "near"]
    current = world.offsets("B", "near").get("P.Payments-0")
    rows = [
        replace(one, resume=resume, target_committed=current)
        for one in near.positions
        if one.target_topic == "P.Payments"
    ]
    facts: Any = SimpleNamespace(
        plans=[replace(near, positions=tuple(rows))], share_groups=frozenset()
    )
    steps.apply_positions(context, plan, progress.attempt, facts)


def test_offsets_that_come_after_the_decision_are_those_that_were_decided(world: World) -> None:
    context = held(world)
    moves.apply(context, "m1")
    moves.go(context, "m1")

    late_offsets(world, context, 50)

    assert world.offsets("B", "near")["P.Payments-0"] == 96


def test_offsets_that_are_written_while_another_process_decides_become_the_decided_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = held(world)
    commit = world.b.commit_idle

    def stalled(group: str, offsets: Mapping[TopicPartition, int]) -> None:
        monkeypatch.setattr(world.b, "commit_idle", commit)
        moves.apply(world.context(), "m1")
        moves.go(world.context(), "m1")
        commit(group, offsets)

    monkeypatch.setattr(world.b, "commit_idle", stalled)
    late_offsets(world, context, 50)

    assert world.offsets("B", "near")["P.Payments-0"] == 96


def test_offsets_of_a_move_that_was_released_are_not_written(world: World) -> None:
    context = held(world)
    moves.release(world.context(), "m1")

    late_offsets(world, context, 50)

    assert "P.Payments-0" not in world.offsets("B", "near")


def test_records_of_somebody_elses_tool_stop_no_move(world: World) -> None:
    context = planned(world)
    foreign = Ack("group:other", "another client", 1, "held", "P", 0)
    world.p.compacted_topic(internal_topics.ROUTING).write(
        {b"group:\xff": Route(1, "P", "go").value()}
    )
    world.p.compacted_topic(internal_topics.CLIENTS).write({b"group:near:c": foreign.value()})
    world.p.compacted_topic(internal_topics.MOVES).write({b"plan:\xff": b"?", b"plan:other": b"?"})

    assert moves.hold(context, "m1").step == "held"
    assert moves.wait_status(context, "m1").blocking != ()
    assert [line.move_id for line in MoveStore.read(context).lines()] == ["m1"]


def test_a_lease_runs_on_while_the_machine_that_moves_is_suspended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = {time.CLOCK_MONOTONIC: 10.0, time.CLOCK_BOOTTIME: 3610.0}
    monkeypatch.setattr(time, "clock_gettime", clocks.__getitem__)
    context = world.context()

    assert MoveContext(context.forward, context.reverse).monotonic() == 3610.0
