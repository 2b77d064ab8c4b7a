"""What is decided about a residue, what that leads to, and what is not decided for anybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srm.domain.flow_state.replication_records import Pause
from srm.domain.moves.disaster import GroupOutcome
from srm.domain.recovery.source_return import (
    PartitionReturn,
    Shape,
    SourceReturn,
    TopicReturn,
    decisions,
    outcome_of,
    plan_settlement,
    read_choices,
)
from srm.errors import NotFoundError, UsageError

PAUSE = Pause("r", "ann", "P is gone", 1, "m1")


def entry(topic: str, **settings: object) -> PartitionReturn:
    usual = PartitionReturn(
        *(50, 61, 0, 74, 74),
        topic=topic,
        partition=0,
        shape="same",
        records=20,
        first_ms=1000,
        last_ms=2000,
    )
    return replace(usual, **settings)


def returned(*partitions: PartitionReturn, pause: Pause | None = PAUSE) -> SourceReturn:
    topics = tuple(
        TopicReturn(p.topic, f"id-{p.topic}", p.shape, "evidence", (p,)) for p in partitions
    )
    return SourceReturn("P->B", "same", "said", "c", "c", topics, pause=pause)


def test_a_topic_with_a_residue_needs_a_choice_by_name_or_by_default() -> None:
    found = returned(entry("A"), entry("B"), entry("C", records=0))

    plan = plan_settlement(found, {"A": "keep"}, None)
    [blocked] = plan.blocked
    assert "topic B is undecided" in blocked
    assert plan_settlement(found, {"A": "keep"}, "merge").choices == {"A": "keep", "B": "merge"}


@pytest.mark.parametrize("shape", ["rebuilt", "missing"])
def test_no_default_decides_about_what_was_to_be_restored(shape: Shape) -> None:
    found = returned(entry("A", shape=shape))

    [blocked] = plan_settlement(found, {}, "merge").blocked
    assert "srm restore --from B --to P --topic A" in blocked
    assert plan_settlement(found, {"A": "discard"}, None).blocked == ()


def test_heartbeats_are_merged_unless_they_are_named() -> None:
    """Left out by a default, they alone kept a return from being settled beside an open move."""
    found = returned(entry("heartbeats"))
    found = replace(found, topics=(replace(found.topics[0], is_heartbeats=True),))

    assert plan_settlement(found, {}, None).choices == {"heartbeats": "merge"}
    assert plan_settlement(found, {}, "keep").choices == {"heartbeats": "merge"}
    named = plan_settlement(found, {"heartbeats": "discard"}, None)
    assert named.choices == {"heartbeats": "discard"}


def test_heartbeats_are_not_records_that_were_lost() -> None:
    found = returned(entry("A"), entry("heartbeats"))
    payments, beats = found.topics
    found = replace(found, topics=(payments, replace(beats, is_heartbeats=True)))

    outcome = outcome_of(found, plan_settlement(found, {}, "merge"), "m1", "ann", 9)
    assert [(one.topic, one.records) for one in outcome.partitions] == [("A", 20)]
    assert outcome.records == 20


def test_what_clients_of_a_move_back_write_is_not_counted_as_lost() -> None:
    """B died before the return was settled: producers are on P again, after the same residue.

    What groups have read of it they read again, whoever wrote it.
    """
    found = returned(entry("A"), entry("B"))
    reads = {"g": GroupOutcome({"A-0": 20, "B-0": 3}, {"A-0": 70, "B-0": 53})}
    back = replace(found.topics[0], routed_by="m2")
    found = replace(found, topics=(back, found.topics[1]), groups=reads)

    outcome = outcome_of(found, plan_settlement(found, {}, "merge"), "m1", "ann", 9)
    assert (outcome.records, outcome.is_whole) == (20, False)
    assert [one.topic for one in outcome.partitions] == ["B"]
    assert outcome.groups == reads
    assert outcome.unread == ("A: its residue and what clients of move m2 write",)


def test_what_a_topic_holds_since_it_was_created_again_is_not_counted_as_lost() -> None:
    """It counted in rpo_at_least: a report said 'RPO 25 to 30' of 5 records that were lost."""
    found = returned(entry("A", shape="rebuilt"), entry("B", records=5))
    found = replace(found, shape="rebuilt")

    outcome = outcome_of(found, plan_settlement(found, {"A": "merge"}, "merge"), "m1", "ann", 9)
    assert (outcome.records, outcome.is_whole) == (5, False)
    assert outcome.choices == {"A": "merge", "B": "merge"}
    assert outcome.unread == ("A: what the topic holds since it was created again",)


@pytest.mark.parametrize(
    ("choice", "blocks"), [("merge", False), ("keep", True), ("discard", True)]
)
def test_an_open_transaction_blocks_what_would_leave_a_part_of_it(
    choice: str, blocks: bool
) -> None:
    found = returned(entry("A", high_watermark=80))

    assert bool(plan_settlement(found, {"A": choice}, None).blocked) == blocks  # type: ignore[dict-item]


def test_a_partition_of_which_nothing_can_be_said_is_merged_or_waited_for() -> None:
    """Its broker may never come back: that must not keep the whole flow paused."""
    found = returned(entry("A", error="no leader", records=0))

    for choices, default in (({}, None), ({"A": "keep"}, None), ({}, "discard")):
        plan = plan_settlement(found, choices, default)  # type: ignore[arg-type]
        assert any("A-0: no leader" in why for why in plan.blocked)
    merged = plan_settlement(found, {}, "merge")
    assert merged.blocked == ()
    assert "1 partition unavailable:" in merged.topics[0].means
    assert outcome_of(found, merged, "m1", "ann", 9).unread == ("A-0: no leader",)


def test_a_flow_that_is_not_paused_has_nothing_to_settle() -> None:
    [blocked] = plan_settlement(returned(entry("A"), pause=None), {}, "merge").blocked

    assert "not paused" in blocked


def test_a_topic_that_the_flow_does_not_copy_is_a_mistake() -> None:
    with pytest.raises(NotFoundError, match="Payment"):
        plan_settlement(returned(entry("Payments")), {"Payment": "keep"}, "merge")


def test_two_choices_for_one_topic_contradict_each_other() -> None:
    with pytest.raises(UsageError, match="--merge and --discard"):
        read_choices(["A"], [], ["A"])
    assert read_choices(["A"], ["B"], ["C"]) == {"A": "merge", "B": "keep", "C": "discard"}


@pytest.mark.parametrize(("count", "text"), [(7, "7 records that P has lost"), (0, "0 records")])
def test_a_settlement_says_how_many_records_are_on_the_copy_alone(count: int, text: str) -> None:
    found = returned(entry("Cut", cut_from=30, cut_to=50, only_copied=count))
    [row] = plan_settlement(found, {}, "merge").topics
    assert text in row.means

    unknown = returned(entry("Cut", cut_from=30, cut_to=50))  # its map is damaged
    [row] = plan_settlement(unknown, {}, "merge").topics
    assert "an unknown number of records that P has lost stay on B" in row.means


def test_only_what_is_left_on_the_source_and_what_is_lost_is_noted() -> None:
    found = returned(
        entry("Merged"),
        entry("Kept"),
        entry("Discarded"),
        entry("Cut", copied_to=30, cut_from=30, cut_to=50),
        entry("Gone", log_start=60),
    )
    choices = {"Kept": "keep", "Discarded": "discard"}
    plan = plan_settlement(found, choices, "merge")  # type: ignore[arg-type]

    notes = decisions(found, plan, "abc", "ann", 9)

    assert [(n.topic, n.topic_id, n.decision, n.lost_from, n.lost_to) for n in notes] == [
        ("Kept", "id-Kept", "keep", 50, 74),
        ("Discarded", "id-Discarded", "discard", 50, 74),
        ("Cut", "id-Cut", "cut", 30, 50),
        ("Gone", "id-Gone", "keep", 50, 60),
    ]
    assert notes[2].target_next == 61
    assert len({note.key() for note in notes}) == 4


def test_notes_of_one_partition_have_different_keys() -> None:
    found = returned(entry("A", copied_to=30, cut_from=30, cut_to=50, log_start=35))

    notes = decisions(found, plan_settlement(found, {"A": "keep"}, None), "abc", "ann", 9)

    assert len({note.key() for note in notes}) == len(notes) == 3


def test_the_outcome_has_the_residue_the_choices_and_what_groups_had_read() -> None:
    found = returned(entry("A"), entry("B", records=0))
    found = replace(found, groups={"audit": GroupOutcome({"A-0": 7}, {"A-0": 61})})

    outcome = outcome_of(found, plan_settlement(found, {}, "keep"), "m1", "ann", 9)

    assert (outcome.records, outcome.choices) == (20, {"A": "keep"})
    assert [one.topic for one in outcome.partitions] == ["A"]
    assert outcome.groups["audit"].records == 7
    assert type(outcome).decode(outcome.value()) == outcome


def test_what_stands_behind_an_open_transaction_is_decided_about_and_told() -> None:
    """Nothing of it can be counted yet: nobody may take it for settled."""
    found = returned(entry("A", records=0, log_end=50, high_watermark=560))

    assert "topic A is undecided" in "".join(plan_settlement(found, {}, None).blocked)
    assert "transaction is open" in "".join(plan_settlement(found, {}, "keep").blocked)
    merged = plan_settlement(found, {}, "merge")
    assert merged.blocked == ()
    assert "copied when they end" in merged.topics[0].means
    [unread] = outcome_of(found, merged, "m1", "ann", 9).unread
    assert unread == "A-0: 510 offsets after an open transaction, from 50 on"
