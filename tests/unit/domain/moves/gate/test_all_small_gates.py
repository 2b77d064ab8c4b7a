"""The answer of the gate to all combinations of up to four conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from tests.unit.domain.moves.gate.test_gate import HELD, HELD_BACK, OPEN, partition, position

from srm.domain.moves.gate import GateFacts, GroupFacts, ReplicationFacts, decide
from srm.domain.moves.plan import PartitionMove
from srm.domain.names.topics import TopicPartition

MOST = 4


def _group(**changes: object) -> Callable[[GateFacts], GateFacts]:
    def change(facts: GateFacts) -> GateFacts:
        [group] = facts.groups
        return replace(facts, groups=(replace(group, **changes),))

    return change


def _place(row: PartitionMove) -> Callable[[GateFacts], GateFacts]:
    def change(facts: GateFacts) -> GateFacts:
        [group] = facts.groups
        return replace(facts, groups=(_with(group, row),))

    return change


def _with(group: GroupFacts, row: PartitionMove) -> GroupFacts:
    number = len(group.positions)
    return replace(group, positions=(*group.positions, replace(row, partition=number)))


def _copied(row: ReplicationFacts) -> Callable[[GateFacts], GateFacts]:
    return lambda facts: replace(facts, replication=(*facts.replication, row))


CONDITIONS: Mapping[str, Callable[[GateFacts], GateFacts]] = {
    "a group is not held": lambda facts: replace(facts, routes={"topic:T": HELD}),
    "a producer has not stopped": lambda facts: replace(facts, unheld=("p writes",)),
    "a redirector is silent": lambda facts: replace(facts, unconfirmed=("webhook",)),
    "a topic grows": lambda facts: replace(facts, moving={"T": 3}),
    "members are left on the source": _group(source_state="active", source_members=("a@h",)),
    "members are on the target": _group(target_state="active", target_members=("b@h",)),
    "offsets are in a transaction": _group(pending=(TopicPartition("T", 0),)),
    "offsets cannot be read": _group(unreadable="no right"),
    "a commit is not copied": _place(position("not-copied-yet", None, None, remaining=2)),
    "a commit is ahead": _place(position("conflict", 10, 12)),
    "records would be skipped": _place(position(skipped=1)),
    "a partition is behind": _copied(partition(90, number=1)),
    "a transaction is open": _copied(HELD_BACK),
}


@pytest.mark.parametrize("size", range(MOST + 1))
def test_each_condition_closes_the_gate_with_reasons_of_its_own(size: int) -> None:
    alone = {name: {*decide(change(OPEN)).blocking} for name, change in CONDITIONS.items()}
    assert all(alone.values())
    for names in combinations(CONDITIONS, size):
        facts = OPEN
        for name in names:
            facts = CONDITIONS[name](facts)
        status = decide(facts)
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
