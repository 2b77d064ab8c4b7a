"""Checkpoints: four rows, what is selected, and which outcomes are kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.groups.checkpoints import (
    CheckpointOutcome,
    CheckpointState,
    FactsOf,
    Selection,
    checkpoint_outcomes,
)
from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.groups.translation import Direction, LogRange, PartitionFacts
from srm.domain.names.flow_topics import FlowTopics
from srm.domain.names.policy import DefaultReplicationPolicy, NameFilter
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run

GROUP = "billing"
PAYMENTS = TopicPartition("Payments", 0)
P_PAYMENTS = TopicPartition("P.Payments", 0)
B_PAYMENTS = TopicPartition("B.Payments", 0)
FULL = LogRange(0, 10_000, 10_000)
# P's records 100..199 are at 60..159 on B; B's records 10..29 are at 5..24 on P.
P_TO_B = OffsetMap.of([Run(100, 60, 100)], Position(200, 160, 200))
B_TO_P = OffsetMap.of([Run(10, 5, 20)], Position(30, 25, 30))


def selection(flow: str = "P->B") -> Selection:
    parsed = Flow.parse(flow)
    return Selection(
        FlowTopics(parsed, DefaultReplicationPolicy(), NameFilter(("Payments",))),
        NameFilter((".*",), ("console-.*",)),
        NameFilter((f"{parsed.target}\\.Payments",)),
        reverse_enabled=True,
    )


def facts(flow: str = "P->B", chosen: Selection | None = None) -> FactsOf:
    own, opposite = (P_TO_B, B_TO_P) if flow == "P->B" else (B_TO_P, P_TO_B)

    def facts_of(partition: TopicPartition, direction: Direction) -> PartitionFacts:
        offset_map = own if direction == "forward" else opposite
        counterpart = (chosen or selection(flow)).downstream(partition, direction)
        return PartitionFacts(direction, partition, counterpart, "B", FULL, FULL, offset_map)

    return facts_of


def ids_of(upstream: TopicPartition, downstream: TopicPartition) -> TopicIds:
    return TopicIds(f"id of {upstream.topic}", f"id of {downstream.topic}")


def one(
    partition: TopicPartition,
    offset: int,
    known: FactsOf | None = None,
    chosen: Selection | None = None,
) -> CheckpointOutcome:
    [outcome] = checkpoint_outcomes(
        GROUP, {partition: offset}, chosen or selection(), known or facts(chosen=chosen), ids_of
    )
    return outcome


@pytest.mark.parametrize(
    ("flow", "commit", "expected"),
    [
        ("P->B", (PAYMENTS, 150), (P_PAYMENTS, 110)),
        ("P->B", (B_PAYMENTS, 15), (PAYMENTS, 20)),
        ("B->P", (PAYMENTS, 20), (B_PAYMENTS, 15)),
        ("B->P", (P_PAYMENTS, 110), (PAYMENTS, 150)),
    ],
)
def test_the_four_rows(
    flow: str, commit: tuple[TopicPartition, int], expected: tuple[TopicPartition, int]
) -> None:
    outcome = one(*commit, facts(flow), selection(flow))

    assert outcome.state == "translated"
    metadata = f"srm:id of {commit[0].topic}:id of {expected[0].topic}"
    assert outcome.checkpoint == Checkpoint(GROUP, expected[0], commit[1], expected[1], metadata)


def test_the_direction_of_a_topic_is_found_once_for_all_groups() -> None:
    looked: list[str] = []

    class Counting(NameFilter):
        def matches(self, name: str) -> bool:
            looked.append(name)
            return super().matches(name)

    names = replace(selection().names, listed=Counting(("Payments",)))
    chosen = replace(selection(), names=names)

    for partition in range(3):
        assert one(TopicPartition("Payments", partition), 150, chosen=chosen).checkpoint

    assert looked == ["Payments"]


def test_outcomes_come_in_the_order_of_partitions_one_for_each_commit() -> None:
    commits = {PAYMENTS: 150, B_PAYMENTS: 15, TopicPartition("Other", 1): 3}

    outcomes = checkpoint_outcomes(GROUP, commits, selection(), facts(), ids_of)

    assert [(o.upstream.topic, o.state) for o in outcomes] == [
        ("B.Payments", "translated"),
        ("Other", "not-selected"),
        ("Payments", "translated"),
    ]


@pytest.mark.parametrize(
    ("partition", "chosen", "advice"),
    [
        (
            TopicPartition("Other", 0),
            selection(),
            "srm-control topics --source P --target B --add Other",
        ),
        (
            TopicPartition("B.Other", 0),
            selection(),
            "srm-control reverse-checkpointed-topics --source P --target B --add B.Other",
        ),
        (
            B_PAYMENTS,
            replace(selection(), reverse_enabled=False),
            "set P->B.reverse.checkpointing.enabled=true",
        ),
        (TopicPartition("__consumer_offsets", 0), selection(), "internal topics"),
    ],
)
def test_what_is_not_selected_says_how_to_select_it(
    partition: TopicPartition, chosen: Selection, advice: str
) -> None:
    outcome = one(partition, 1, chosen=chosen)

    assert (outcome.state, outcome.checkpoint) == ("not-selected", None)
    assert advice in outcome.reason


def test_a_replica_that_came_over_the_target_is_never_checkpointed_forward() -> None:
    names = replace(selection().names, listed=NameFilter((".*",)))
    everything = replace(selection(), names=names, reverse_enabled=False)

    assert one(B_PAYMENTS, 1, chosen=everything).state == "not-selected"
    assert one(TopicPartition("C.B.Payments", 0), 1, chosen=everything).state == "not-selected"


def test_a_group_that_reads_only_the_replica_is_selected() -> None:
    assert selection("B->P").selects_group(GROUP, {P_PAYMENTS: 1})
    assert not selection("B->P").selects_group(GROUP, {TopicPartition("Other", 0): 1})
    assert not selection("B->P").selects_group("console-1", {P_PAYMENTS: 1})


@pytest.mark.parametrize("state", ["not-copied-yet", "map-behind"])
def test_an_unfinished_translation_keeps_the_true_pair_where_the_map_ends(
    state: CheckpointState,
) -> None:
    outcome = CheckpointOutcome(GROUP, PAYMENTS, 230, state, "forward", P_PAYMENTS, 160, 200)

    assert outcome.checkpoint == Checkpoint(GROUP, P_PAYMENTS, 200, 160)


@pytest.mark.parametrize("state", ["no-map", "damaged-map", "no-target", "past-end"])
def test_without_a_true_pair_there_is_no_checkpoint(state: CheckpointState) -> None:
    outcome = CheckpointOutcome(GROUP, PAYMENTS, 230, state, "forward", P_PAYMENTS)

    assert outcome.checkpoint is None


def test_another_separator_names_other_topics() -> None:
    usual = selection()
    names = replace(usual.names, policy=DefaultReplicationPolicy("_"))
    chosen = replace(usual, names=names, reverse_topics=NameFilter(("B_Payments",)))

    forward = one(PAYMENTS, 150, chosen=chosen)
    back = one(TopicPartition("B_Payments", 0), 15, chosen=chosen)

    assert forward.downstream == TopicPartition("P_Payments", 0)
    assert back.downstream == PAYMENTS
