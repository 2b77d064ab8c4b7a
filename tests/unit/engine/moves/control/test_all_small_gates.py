"""The answer of the gate to all combinations of up to four conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations

import pytest
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

from srm.domain.moves.gate import ReplicationFacts
from srm.domain.moves.plan import PartitionMove
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import Reason
from srm.engine.moves.facts import Look, SideFacts

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
