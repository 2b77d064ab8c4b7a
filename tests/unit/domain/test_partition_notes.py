"""What slots note about partitions is added up, whoever else has noted something."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.partition_notes import PartitionNotes, begin_of_copy, with_notes
from srm.domain.replication_records import PartitionStatus
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
    mine = EMPTY.with_loss(0, 5, "retention passed them", 60_000).with_strange("odd", 120_000)
    other = PartitionNotes("1", "orders", 1, "A" * 22).with_loss(7, 8, "too large", 60_000)

    told = with_notes(COPYING, [mine, other])

    assert told is not None
    assert told.state == "copying"
    assert told.reason == (
        "lost 1 source offset, 7 to 8: too large (1970-01-01 00:01 UTC); "
        "lost 5 source offsets, 0 to 5: retention passed them; odd (1970-01-01 00:02 UTC)"
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
    assert told.reason.startswith("why; lost 5 source offsets, 0 to 5: retention")


def test_where_the_copy_of_a_topic_begins_that_was_created_again_is_told_once() -> None:
    mine = EMPTY.with_begin(901, 60_000)
    other = PartitionNotes("1", "orders", 1, "A" * 22).with_begin(907, 60_000)

    told = with_notes(COPYING, [mine, other])

    assert told is not None
    assert told.reason == (
        "the topic was created again: its copy begins at target offset 907, what stands before "
        "that is of the former topic"
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
