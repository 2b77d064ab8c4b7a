"""What slots note about partitions is added up, whoever else has noted something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import (
    PartitionNotes,
    PartitionStatus,
    begin_of_copy,
    in_force,
    with_notes,
)
from srm.errors import IntegrityError

EMPTY = PartitionNotes("0", "orders", 1, "A" * 22)
COPYING = PartitionStatus("orders", 1, "copying")


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1))
def test_every_lost_offset_is_counted_and_ranges_that_touch_are_one(
    losses: list[tuple[int, int]],
) -> None:
    notes, at, ranges = EMPTY, 0, 0
    for hole, count in losses:
        ranges += bool(hole) or not ranges
        notes = notes.with_loss(at + hole, at + hole + count, "retention passed them", 0)
        at += hole + count

    assert (notes.lost, notes.ranges) == (sum(count for _, count in losses), ranges)
    assert notes.lost_to == at
    assert PartitionNotes.decode(notes.value()) == notes


def test_a_status_says_what_all_slots_have_noted_with_the_newest_lost_range() -> None:
    mine = EMPTY.with_loss(0, 5, "retention passed them", 60_000).with_anomaly("odd", 120_000)
    other = PartitionNotes("1", "orders", 1, "A" * 22).with_loss(7, 8, "too large", 60_000)

    told = with_notes(COPYING, [mine, other])

    assert told is not None
    assert told.state == "copying"
    assert told.reason == (
        "lost 1 source offset, 7 to 7: too large (1970-01-01 00:01:00 UTC); "
        "lost 5 source offsets, 0 to 4: retention passed them; odd (1970-01-01 00:02:00 UTC)"
    )
    assert (told.lost_from, told.lost_to) == (0, 5)


@pytest.mark.parametrize("blocked", [(9, 10), (None, None)])
def test_a_stopped_partition_has_the_range_that_stops_it_not_one_that_it_has_passed(
    blocked: tuple[int | None, int | None],
) -> None:
    stopped = PartitionStatus("orders", 1, "stopped", "why", *blocked)

    told = with_notes(stopped, [EMPTY.with_loss(0, 5, "retention passed them", 0)])

    assert told is not None
    assert (told.state, told.lost_from, told.lost_to) == ("stopped", *blocked)
    assert told.reason.startswith("why; lost 5 source offsets, 0 to 4: retention")


def test_where_the_copy_of_a_topic_begins_that_was_created_again_is_told_once() -> None:
    mine = EMPTY.with_begin(901, 60_000)
    other = PartitionNotes("1", "orders", 1, "A" * 22).with_begin(907, 60_000)

    told = with_notes(COPYING, [mine, other])

    assert told is not None
    assert told.reason == (
        "the topic was re-created: its copy begins at target offset 907, earlier records "
        "belong to the former topic"
    )
    assert (begin_of_copy([mine, other]), begin_of_copy([EMPTY])) == (907, None)
    assert PartitionNotes.decode(other.value()) == other


def test_without_notes_a_status_is_as_it_was() -> None:
    assert with_notes(COPYING, []) is COPYING
    assert with_notes(None, []) is None


@pytest.mark.parametrize("value", [b"", b"[]", b'{"slot": "0"}', b"\xff"])
def test_damaged_notes_are_an_integrity_error(value: bytes) -> None:
    with pytest.raises(IntegrityError, match="damaged"):
        PartitionNotes.decode(value)


def test_a_decision_says_in_its_own_words_what_became_of_the_range() -> None:
    place = "orders", 1, "A" * 22
    kept = PartitionNotes.from_decision("keep", "r1", place, (10, 14), "kept on P (by ann)", 60_000)
    cut = PartitionNotes.from_decision("cut", "r1", place, (5, 10), "P has lost them", 60_000, 77)

    assert kept.text == "4 source offsets, 10 to 13, kept on P (by ann) (1970-01-01 00:01:00 UTC)"
    assert (kept.left_out, cut.left_out) == ((10, 14), None)
    assert PartitionNotes.decode(cut.value()) == cut
    assert kept.key() != cut.key()


def test_a_status_shows_a_decision_as_far_as_the_source_holds_what_it_was_about() -> None:
    """A slot has found that the source's log was truncated since, and copied on from there."""
    place = "orders", 1, "A" * 22
    kept = PartitionNotes.from_decision("keep", "r1", place, (10, 14), "kept on P (by ann)", 1)

    cut, gone = (with_notes(COPYING, [kept, EMPTY.with_over({kept.slot: at})]) for at in (12, 10))

    assert cut is not None
    assert cut.reason.startswith("2 source offsets, 10 to 11, kept on P (by ann)")
    assert (cut.lost_from, cut.lost_to) == (10, 12)
    assert gone == COPYING


def test_what_was_discarded_is_missing_to_nobody() -> None:
    place = "orders", 1, "A" * 22
    discarded = PartitionNotes.from_decision("discard", "r1", place, (10, 14), "discarded", 120_000)
    lost = EMPTY.with_loss(0, 5, "retention passed them", 60_000)

    alone, both = with_notes(COPYING, [discarded]), with_notes(COPYING, [discarded, lost])

    assert alone is not None
    assert both is not None
    assert (alone.lost_from, alone.lost_to) == (None, None)
    assert (both.lost_from, both.lost_to) == (0, 5)
    assert "10 to 13, discarded" in alone.reason


def test_a_decision_ends_where_slots_found_that_the_log_has_other_records() -> None:
    """Whatever their clocks say: a slot names the decision, and the lowest end counts."""
    place = "orders", 1, "A" * 22
    whole = PartitionNotes.from_decision("keep", "r1", place, (10, 30), "kept", 9000, epoch=5)
    gone = PartitionNotes.from_decision(
        "discard", "r2", place, (40, 50), "discarded", 9000, epoch=5
    )
    later = PartitionNotes.from_decision(
        "discard", "r3", place, (40, 50), "discarded", 1000, epoch=7
    )
    cut = PartitionNotes.from_decision("cut", "r3", place, (20, 90), "P has lost them", 1000, 77)
    mine = EMPTY.with_loss(60, 70, "too large", 500).with_over({"keep-r1": 25, "discard-r2": 20})
    other = PartitionNotes("1", "orders", 1, "A" * 22, over={"keep-r1": 20})

    found = in_force([whole, gone, later, cut, mine, other])

    assert [(n.slot, n.lost_from, n.lost_to, n.lost) for n in found] == [
        ("keep-r1", 10, 20, 10),
        ("discard-r3", 40, 50, 10),
        ("cut-r3", 20, 90, 70),
        ("0", 60, 70, 10),
        ("1", None, None, 0),
    ]
    assert PartitionNotes.decode(mine.value()) == mine
