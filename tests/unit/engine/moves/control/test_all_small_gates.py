"""The answer of the gate to all combinations of up to four conditions.

First of facts as given, then of clusters that the engine reads, before apply and before go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from typing import Final

import pytest
from tests import moves
from tests.unit.engine.moves.control.moving import REQUEST, World, busy_world, planned
from tests.unit.engine.moves.control.test_gate import (
    HELD,
    HELD_BACK,
    HOLD,
    OPEN,
    Facts,
    here,
    partition,
    position,
    routed,
    there,
)

from srm.config.model import Config
from srm.domain.flow_state.replication_records import PartitionStatus, Pause
from srm.domain.moves.gate import ReplicationFacts
from srm.domain.moves.plan import PartitionMove
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.domain.text.amount import Reason
from srm.engine.moves.context import MoveContext
from srm.engine.moves.facts import Look, SideFacts
from srm.errors import GateClosedError
from srm_lab.testing.fake_switch import FakeSwitch

MOST = 4


def _facts(**changes: object) -> Callable[[Look], Look]:
    return lambda look: replace(look, facts=replace(look.facts, **changes))


def _side(name: str, changed: Facts) -> Callable[[Look], Look]:
    """Change the group on one side, besides what has changed on the other."""
    side: SideFacts = getattr(changed, name)

    def change(look: Look) -> Look:
        before: SideFacts = getattr(look.facts, name)
        joined = replace(
            before,
            groups=before.groups if side.groups == getattr(OPEN, name).groups else side.groups,
            pending={**before.pending, **side.pending},
            errors={**before.errors, **side.errors},
        )
        return replace(look, facts=replace(look.facts, **{name: joined}))

    return change


def _place(row: PartitionMove) -> Callable[[Look], Look]:
    def change(look: Look) -> Look:
        [plan] = look.facts.plans
        added = replace(row, partition=len(plan.positions))
        return _facts(plans=(replace(plan, positions=(*plan.positions, added)),))(look)

    return change


def _copied(row: ReplicationFacts) -> Callable[[Look], Look]:
    return lambda look: _facts(replication=(*look.facts.replication, row))(look)


def _silent(look: Look) -> Look:
    behind = replace(partition(90), place=TopicPartition("U", 0))
    return _facts(report_age_ms=60_000)(_copied(behind)(look))


def _hold(**changes: object) -> Callable[[Look], Look]:
    return lambda look: replace(look, **changes)


CONDITIONS: Mapping[str, Callable[[Look], Look]] = {
    "a group is not held": _facts(routing=routed(topic_T=HELD)),
    "a producer has not stopped": _hold(unheld=("p writes",)),
    "a redirector is silent": _hold(unconfirmed=("webhook",)),
    "a topic grows": _hold(moving={"T": 3}),
    "members are left on the source": _side("source", here("active", ("a@h",))),
    "members are on the target": _side("target", there("active", ("b@h",))),
    "offsets are in a transaction": _side("source", here(pending={"g": {TopicPartition("T", 0)}})),
    "offsets cannot be read": _side("source", here(errors={"g": Reason("no right")})),
    "a commit is not copied": _place(position("not-copied-yet", None, None, remaining=2)),
    "a commit is ahead": _place(position("conflict", 10, 12)),
    "records would be skipped": _place(position(skipped=1)),
    "a partition is behind": _copied(partition(90, number=1)),
    "a transaction is open": _copied(HELD_BACK),
    "a partition is stopped": _copied(partition(90, number=2, stopped=Reason("it is gone"))),
    "a map is damaged": _copied(partition(None, number=3, damage="block 7")),
    "the replicator is silent": _silent,
}


@pytest.mark.parametrize("size", range(MOST + 1))
def test_each_condition_closes_the_gate_with_reasons_of_its_own(size: int) -> None:
    alone = {name: {*change(HOLD).status.blocking} for name, change in CONDITIONS.items()}
    assert all(alone.values())
    for names in combinations(CONDITIONS, size):
        look = HOLD
        for name in names:
            look = CONDITIONS[name](look)
        status = look.status
        assert status.ready == (not names)
        for name in names:
            missing = {_unnumbered(text) for text in alone[name]} - {
                _unnumbered(text) for text in status.blocking
            }
            assert not missing, (names, missing)
        assert len(status.blocking) == sum(len(alone[name]) for name in names)


def _unnumbered(text: str) -> str:
    """Leave out the number of the partition, which depends on what else there is."""
    return text.replace("T-1", "T-0").replace("T-2", "T-0").replace("T-3", "T-0")


PAYMENTS: Final = TopicPartition("Payments", 0)


def _copied_to_60(world: World) -> None:
    """Let the copy of Payments lack 40 records, if its map can be read."""
    maps = world.maps[Flow("P", "B")]
    if not maps.errors:
        maps.put(PAYMENTS, [Run(0, 0, 60)], Position(60, 60, 60))


def _stop_partition(world: World) -> None:
    _copied_to_60(world)
    stopped = PartitionStatus("Payments", 0, "stopped", "retention passed them")
    world.maps[Flow("P", "B")].statuses[PAYMENTS] = stopped


def _silence_replicator(world: World) -> None:
    _copied_to_60(world)
    maps = world.maps[Flow("P", "B")]
    maps.reports = tuple(replace(one, time_ms=one.time_ms - 60_000) for one in maps.reports)


def _damage_map(world: World) -> None:
    maps = world.maps[Flow("P", "B")]
    del maps.maps[PAYMENTS]
    maps.errors[PAYMENTS] = "block 7"


def _pause_back(world: World) -> None:
    FakeSwitch(world.p, "B").pause(Pause("", "ann", "B was lost", 1, "m0"))


CHANGES: Final[Mapping[str, tuple[str, Callable[[World], None]]]] = {
    "no fence": ("not denied on P yet", lambda world: world.p.allow_writes(["Payments"])),
    "an unsettled return": ("B->P is paused (B was lost)", _pause_back),
    "assign()": (
        "has no members on P, but its commits of Payments-0 change",
        lambda world: world.p.commit("far", {PAYMENTS: 11}),
    ),
    "a damaged map": ("map of Payments-0 cannot be used: block 7", _damage_map),
    "a stopped partition": ("replication of Payments-0 is stopped", _stop_partition),
    "a silent replicator": ("the replicator of P->B last reported", _silence_replicator),
    "a deleted group": (
        "near cannot move: it has no offset",
        lambda world: world.p.expire_group("near"),
    ),
    "a deleted topic": (
        "topic Payments was deleted on P",
        lambda world: world.p.delete_topic("Payments"),
    ),
}
"""Changes after the hold, with a part of the reason that each must have, in order of their time."""
HIDDEN: Final = {
    "a damaged map": {"a stopped partition", "a silent replicator"},  # the lag is not known
    "a deleted topic": {*CHANGES} - {"an unsettled return", "a deleted topic"},
}
"""Changes whose own reasons have no object any more after others."""


def open_gates(config: Config) -> Mapping[str, tuple[World, MoveContext]]:
    """Return a move that may apply its offsets, and the same one when it may decide."""
    world = busy_world(config)
    world.p.add_topic(internal_topics.replication("B"), 2)
    context = planned(world, replace(REQUEST, fence="acl"))
    moves.hold(context, "m1")
    world.obey("near", "far")
    world.passing()
    world.report("P", "B")
    while not moves.wait_status(context, "m1").ready:
        pass
    before, observed = copy_of(world, context)
    moves.apply(context, "m1")
    return {"apply": (before, observed), "go": (world, context)}


def copy_of(world: World, context: MoveContext) -> tuple[World, MoveContext]:
    twin = deepcopy(world)
    return twin, replace(twin.context(), observations=dict(context.observations))


def test_each_change_on_the_clusters_keeps_apply_and_go_from_acting(config: Config) -> None:
    gates = open_gates(config)
    cases = [names for size in range(MOST + 1) for names in combinations(CHANGES, size)]
    for step, names in [(step, names) for step in gates for names in cases]:
        world, context = copy_of(*gates[step])
        for name in names:
            CHANGES[name][1](world)
        blocking = moves.status(context, "m1").blocking
        assert bool(blocking) == bool(names), (step, names, blocking)
        for name in {*names}.difference(*(HIDDEN[one] for one in {*names} & HIDDEN.keys())):
            assert any(CHANGES[name][0] in reason for reason in blocking), (step, name, blocking)
        if not names:
            getattr(moves, step)(context, "m1")
        elif len(names) <= 2:
            assert not moves.status(world.context(), "m1").ready, "of another process"
            written = len(world.b.commits)
            with pytest.raises(GateClosedError):
                getattr(moves, step)(context, "m1")
            assert len(world.b.commits) == written, (step, names)
            assert {route.state for route in world.routes("B").values()} == {"hold"}, (step, names)
