"""Checkpoints: four rows, every state, and no echo of our own writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.checkpoints import (
    Bounds,
    CheckpointOutcome,
    Facts,
    Selection,
    checkpoint_outcomes,
)
from srm.domain.filters import NameFilter
from srm.domain.ledger import Ledger, LedgerEntry
from srm.domain.mm2_records import Checkpoint
from srm.domain.offset_map import OffsetMap, Position, Run
from srm.domain.policy import DefaultReplicationPolicy
from srm.domain.topics import Flow, TopicPartition

GROUP = "billing"
PAYMENTS = TopicPartition("Payments", 0)
P_PAYMENTS = TopicPartition("P.Payments", 0)
B_PAYMENTS = TopicPartition("B.Payments", 0)
FULL = Bounds(0, 10_000)
# P's records 100..199 are at 60..159 on B; B's records 10..29 are at 5..24 on P.
P_TO_B = OffsetMap.of([Run(100, 60, 100)], Position(200, 160, 200))
B_TO_P = OffsetMap.of([Run(10, 5, 20)], Position(30, 25, 30))


def selection(flow: str = "P->B") -> Selection:
    parsed = Flow.parse(flow)
    return Selection(
        parsed,
        DefaultReplicationPolicy(),
        NameFilter(("Payments",)),
        NameFilter((".*",), ("console-.*",)),
        NameFilter((f"{parsed.target}\\.Payments",)),
        reverse_enabled=True,
    )


def facts(flow: str = "P->B") -> Facts:
    own, opposite = (P_TO_B, B_TO_P) if flow == "P->B" else (B_TO_P, P_TO_B)
    everywhere = dict.fromkeys((PAYMENTS, P_PAYMENTS, B_PAYMENTS), FULL)
    return Facts(
        forward_maps={PAYMENTS: own},
        reverse_maps={PAYMENTS: opposite},
        upstream_bounds=everywhere,
        downstream_bounds=everywhere,
    )


def one(
    partition: TopicPartition,
    offset: int,
    known: Facts | None = None,
    chosen: Selection | None = None,
) -> CheckpointOutcome:
    [outcome] = checkpoint_outcomes(
        GROUP, {partition: offset}, chosen or selection(), known or facts()
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
    assert outcome.checkpoint == Checkpoint(GROUP, expected[0], commit[1], expected[1])


def test_outcomes_come_in_the_order_of_partitions_one_for_each_commit() -> None:
    commits = {PAYMENTS: 150, B_PAYMENTS: 15, TopicPartition("Other", 1): 3}

    outcomes = checkpoint_outcomes(GROUP, commits, selection(), facts())

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
    everything = replace(selection(), topics=NameFilter((".*",)), reverse_enabled=False)

    assert one(B_PAYMENTS, 1, chosen=everything).state == "not-selected"
    assert one(TopicPartition("C.B.Payments", 0), 1, chosen=everything).state == "not-selected"


def test_a_group_that_reads_only_the_replica_is_selected() -> None:
    assert selection("B->P").selects_group(GROUP, {P_PAYMENTS: 1})
    assert not selection("B->P").selects_group(GROUP, {TopicPartition("Other", 0): 1})
    assert not selection("B->P").selects_group("console-1", {P_PAYMENTS: 1})


def test_a_commit_ahead_of_the_copy_names_what_remains_and_keeps_the_true_pair() -> None:
    outcome = one(PAYMENTS, 230)

    assert (outcome.state, outcome.remaining) == ("not-copied-yet", 30)
    assert outcome.checkpoint == Checkpoint(GROUP, P_PAYMENTS, 200, 160)


def test_a_commit_past_the_end_of_its_own_topic_gives_no_checkpoint() -> None:
    """The topic was created again: where its map ends says nothing about an old commit."""
    known = replace(facts(), upstream_bounds={PAYMENTS: Bounds(0, 220)})

    outcome = one(PAYMENTS, 230, known)

    assert (outcome.state, outcome.checkpoint) == ("past-end", None)
    assert "past the end 220" in outcome.reason


def test_a_commit_on_the_replica_beyond_the_map_waits_for_it() -> None:
    outcome = one(P_PAYMENTS, 170, facts("B->P"), selection("B->P"))

    assert (outcome.state, outcome.remaining) == ("map-behind", 10)
    assert outcome.checkpoint == Checkpoint(GROUP, PAYMENTS, 160, 200)


def test_without_a_map_or_with_a_damaged_one_there_is_no_checkpoint() -> None:
    unknown = replace(facts(), forward_maps={}, reverse_maps={})
    damaged = replace(facts(), forward_errors={PAYMENTS: "block 7 is damaged"})

    assert [one(p, 15, unknown).state for p in (PAYMENTS, B_PAYMENTS)] == ["no-map", "no-map"]
    assert one(PAYMENTS, 150, damaged).checkpoint is None
    assert "block 7 is damaged" in one(PAYMENTS, 150, damaged).reason


def test_a_missing_remote_partition_is_named() -> None:
    outcome = one(PAYMENTS, 150, replace(facts(), downstream_bounds={}))

    assert (outcome.state, outcome.checkpoint) == ("no-target", None)
    assert "P.Payments-0 does not exist on B" in outcome.reason


def test_records_the_replica_has_dropped_are_counted() -> None:
    known = replace(facts(), downstream_bounds={P_PAYMENTS: Bounds(120, 160)})

    outcome = one(PAYMENTS, 150, known)

    assert (outcome.downstream_offset, outcome.lost) == (120, 10)
    assert "10 records" in outcome.reason


def test_records_the_original_has_dropped_are_counted() -> None:
    known = replace(facts("B->P"), downstream_bounds={PAYMENTS: Bounds(170, 200)})

    outcome = one(P_PAYMENTS, 110, known, selection("B->P"))

    assert (outcome.state, outcome.downstream_offset, outcome.lost) == ("translated", 170, 20)


def test_an_offset_past_the_end_of_the_other_log_is_never_used() -> None:
    known = replace(facts(), downstream_bounds={P_PAYMENTS: Bounds(0, 109)})

    outcome = one(PAYMENTS, 150, known)

    assert (outcome.state, outcome.downstream_offset, outcome.checkpoint) == (
        "past-end",
        None,
        None,
    )
    assert "truncated or created again" in outcome.reason


def test_a_commit_from_before_the_replication_began_counts_what_was_never_copied() -> None:
    outcome = one(PAYMENTS, 20)

    assert (outcome.downstream_offset, outcome.uncopied) == (60, 80)


def test_what_the_source_itself_dropped_is_not_counted_as_uncopied() -> None:
    known = replace(facts(), upstream_bounds={PAYMENTS: Bounds(100, 200)})

    assert one(PAYMENTS, 20, known).uncopied == 0


def entry(partition: TopicPartition, previous: int, intended: int, origin: str) -> LedgerEntry:
    return LedgerEntry(GROUP, partition, previous, intended, origin, "sync 1", 1)


@pytest.mark.parametrize("offset", [150, 140])
def test_our_own_write_from_the_target_is_not_carried_back(offset: int) -> None:
    """Until it is settled the value before counts too: the write may not have happened."""
    known = replace(facts(), ledger=Ledger([entry(PAYMENTS, 140, 150, "B")]))

    outcome = one(PAYMENTS, offset, known)

    assert (outcome.state, outcome.checkpoint) == ("own-write", None)
    assert "B knows it already" in outcome.reason


def test_after_settling_the_value_before_is_a_rewind_and_is_carried() -> None:
    known = replace(facts(), ledger=Ledger([entry(PAYMENTS, 140, 150, "B").as_settled()]))

    assert one(PAYMENTS, 140, known).state == "translated"


def test_progress_beyond_our_own_write_is_carried() -> None:
    known = replace(facts(), ledger=Ledger([entry(PAYMENTS, 140, 150, "B")]))

    assert one(PAYMENTS, 151, known).state == "translated"


def test_our_own_write_from_a_third_cluster_is_news_to_the_target() -> None:
    known = replace(facts(), ledger=Ledger([entry(PAYMENTS, 140, 150, "C")]))

    assert one(PAYMENTS, 150, known).state == "translated"


def test_another_separator_names_other_topics() -> None:
    chosen = replace(
        selection(),
        policy=DefaultReplicationPolicy("_"),
        reverse_topics=NameFilter(("B_Payments",)),
    )
    known = replace(
        facts(), downstream_bounds=dict.fromkeys((PAYMENTS, TopicPartition("P_Payments", 0)), FULL)
    )

    forward = one(PAYMENTS, 150, known, chosen)
    back = one(TopicPartition("B_Payments", 0), 15, known, chosen)

    assert forward.downstream == TopicPartition("P_Payments", 0)
    assert back.downstream == PAYMENTS
