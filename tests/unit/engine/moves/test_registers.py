"""A process opens its writers of control records once, and again when it was fenced."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import World

from srm.domain.moves.request import MoveRequest
from srm.engine.cluster_ports import away_cluster
from srm.engine.moves.context import MoveContext, ensure_topics
from srm.engine.moves.holding import renew_now
from srm.engine.moves.registers import Registers, transact
from srm.engine.moves.store import MoveStore
from srm.engine.moves.tables import ControlChange
from srm.errors import FencedError
from srm_lab.testing.fake_compacted import FakeControlWriter

REQUEST = MoveRequest("failover", "P", "B", ("Payments",), ("near", "far"))


@pytest.fixture
def opened(world: World, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the writer of each cluster was opened."""
    counts: Counter[str] = Counter()

    def counting(alias: str) -> None:
        cluster = world.clusters[alias]
        writer = cluster.control_writer

        def count(transactional_id: str) -> FakeControlWriter:
            counts[alias] += 1
            return writer(transactional_id)

        monkeypatch.setattr(cluster, "control_writer", count)

    for alias in ("P", "B"):
        counting(alias)
    return counts


def test_all_steps_of_a_process_use_the_writers_that_it_has_opened(
    world: World, opened: Counter[str]
) -> None:
    context = world.context()
    plan = moves.plan(context, REQUEST, "m1")
    moves.hold(context, "m1")
    for _ in range(3):
        renew_now(context, plan)
    moves.release(context, "m1")

    assert opened == {"P": 1, "B": 1}


def test_a_renewal_within_a_step_does_not_fence_the_step(
    world: World, opened: Counter[str]
) -> None:
    context = world.context()
    plan = moves.plan(context, REQUEST, "m1")
    moves.hold(context, "m1")
    registers = Registers(context)
    bodies = 0

    def note() -> None:
        nonlocal bodies
        bodies += 1
        known = registers.store.progress("m1")
        registers.write("target", ControlChange(progress=(known.noting(reason="seen"),)))

    registers.run("a step", lambda: None)
    renew_now(context, plan)
    registers.run("a step", note)

    assert (bodies, opened) == (1, {"P": 1, "B": 1})
    assert MoveStore.read(context).progress("m1").reason == "seen"


def test_a_step_reads_what_another_process_has_written_since_its_last_one(world: World) -> None:
    mine, other = world.context(), world.context()
    moves.plan(mine, REQUEST, "m1")
    moves.hold(other, "m1")

    assert transact(mine, "a step", lambda one: one.store.progress("m1").step) == "held"


def test_a_step_that_was_fenced_opens_again(world: World, opened: Counter[str]) -> None:
    mine, other = world.context(), world.context()
    moves.plan(mine, REQUEST, "m1")
    moves.hold(other, "m1")
    moves.release(mine, "m1")

    assert opened == {"P": 3, "B": 3}
    assert MoveStore.read(mine).progress("m1").step == "released"


def test_a_step_without_its_lost_cluster_waits_for_its_turn_on_the_other(world: World) -> None:
    """Also if the lost one is the first of both, where the queue is while both answer."""
    known = world.context()
    ensure_topics(known)
    context = MoveContext(replace(known.forward, source=away_cluster("A")), known.reverse)
    attempts = 0

    def body(_: Registers) -> int:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise FencedError("another process was first")
        return attempts

    assert transact(context, "a step", body) == 2
