"""Groups spread over Spark tasks give what one call gives, and a task's failure stays its own."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.config.model import Config
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.group_sync import SyncDecision
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.groups.checkpoints import CheckpointSummary
from srm.engine.groups.group_sync import GroupSyncSummary
from srm.engine.ports import FlowContext
from srm.errors import UnavailableError
from srm.spark import jobs as spread
from srm.spark.jobs import deal, merge_checkpoints, merge_syncs, over_groups, run_hand

pytestmark = pytest.mark.spark

FLOW = Flow("P", "B")
CONFIG = Config("srm.properties", ("P", "B"), {}, {})


@given(st.sets(st.text(max_size=3)), st.integers(1, 8))
def test_each_group_is_dealt_once_and_hands_are_alike_in_size(groups, hands):
    dealt = deal(groups, hands)

    assert sorted(g for hand in dealt for g in hand) == sorted(groups)
    assert max(map(len, dealt), default=0) - min(map(len, dealt), default=0) <= 1


def test_tasks_that_cannot_open_the_flow_are_reported_for_each_of_their_groups(spark):
    groups = [f"g{n:03}" for n in range(100)]

    results, errors = over_groups(spark, CONFIG, FLOW, groups, len)

    assert results == []
    assert sorted(errors) == groups
    assert set(errors.values()) == {"flow P->B is unknown: srm.properties lists the clusters P, B"}


def test_a_hand_that_fails_is_reported_for_its_groups_only(monkeypatch):
    def call(_: FlowContext, groups: Collection[str]) -> int:
        if "g007" in groups:
            raise UnavailableError("cluster P is away")
        return len(groups)

    opened: list[tuple[str, Flow]] = []

    def open_nothing(config: Config, flow: Flow) -> AbstractContextManager[None]:
        opened.append((config.path, flow))
        return nullcontext()

    monkeypatch.setattr(spread, "open_flow", open_nothing)

    bad, good = [run_hand(CONFIG, FLOW, hand, call) for hand in (("g006", "g007"), ("g008",))]

    assert bad == (None, {"g006": "cluster P is away", "g007": "cluster P is away"})
    assert good == (1, {})
    assert opened == [("srm.properties", FLOW)] * 2


def test_without_groups_no_task_is_started(spark):
    assert over_groups(spark, CONFIG, FLOW, [], len) == ([], {})


def test_summaries_of_checkpoints_add_up_and_outcomes_are_in_order():
    def outcome(group: str) -> CheckpointOutcome:
        return CheckpointOutcome(group, TopicPartition("t", 0), 5, "translated", "forward")

    def part(*groups: str) -> CheckpointSummary:
        outcomes = tuple(outcome(g) for g in groups)
        return CheckpointSummary(
            FLOW, 9, len(groups), 1, len(groups) - 1, {"translated": len(groups)}, outcomes
        )

    merged = merge_checkpoints(
        CheckpointSummary(FLOW, 1), [part("b", "d"), part("a")], {"c": "away"}
    )

    assert (merged.time_ms, merged.groups, merged.written, merged.unchanged) == (1, 3, 2, 1)
    assert merged.states == {"translated": 3}
    assert [o.group for o in merged.outcomes] == ["a", "b", "d"]
    assert merged.errors == {"c": "away"}


def test_summaries_of_group_sync_add_up_and_decisions_are_in_order():
    def part(*groups: str) -> GroupSyncSummary:
        decisions = tuple(SyncDecision(g, TopicPartition("t", 0), "write") for g in groups)
        return GroupSyncSummary(FLOW, 9, {"write": len(groups)}, len(groups), decisions)

    merged = merge_syncs(GroupSyncSummary(FLOW, 1), [part("b", "d"), part("a")], {"c": "away"})

    assert (merged.time_ms, merged.applied, merged.actions) == (1, 3, {"write": 3})
    assert [d.group for d in merged.decisions] == ["a", "b", "d"]
    assert merged.errors == {"c": "away"}
