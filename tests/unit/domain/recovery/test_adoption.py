"""A plan of an adoption says what is proven of each copy, and by what."""

from __future__ import annotations

import pytest

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.offset_map.alignment import AlignedCopy, Ranges
from srm.domain.offset_map.runs import Run, Runs
from srm.domain.recovery.adoption import AdoptedCopy, from_record

ASSIGNED = AssignedPartition("T", 0, "id", "P.T", "there")


@pytest.mark.parametrize(
    ("stored", "source", "older", "position", "skipped"),
    [
        (999, (1000, 1000), ((0, 900),), 1000, ()),
        (999, (1000, 1200), ((0, 900),), 1000, ()),
        (949, (1000, 1200), ((0, 900),), 1000, ((950, 1000),)),
        (1100, (1000, 1200), (), 1101, ()),
        (1199, (1000, 1200), (), 1200, ()),
        (949, (1000, 1000), (), 1000, ((950, 1000),)),
    ],
)
def test_the_position_of_mirror_maker_counts_where_no_record_is_in_both_logs(
    stored: int, source: tuple[int, int], older: Ranges, position: int, skipped: Ranges
) -> None:
    found = from_record(stored, source, older)

    assert found is not None
    assert (found.source_next, found.skipped, len(found.runs)) == (position, skipped, 0)
    copy = AdoptedCopy(ASSIGNED, 900, source[1], found, stored, by_record=True)
    assert copy.state == ("differs" if skipped else "adopt")
    assert copy.reason.startswith("no record is in both logs; MirrorMaker 2's own position counts")


@pytest.mark.parametrize(
    ("stored", "source", "older"),
    [
        (None, (1000, 1000), ((0, 900),)),
        (1100, (1000, 1200), ((0, 900),)),  # the target lacks what it claims
        (1300, (1000, 1200), ()),  # of a former topic
    ],
)
def test_a_position_that_does_not_fit_to_the_logs_decides_nothing(
    stored: int | None, source: tuple[int, int], older: Ranges
) -> None:
    assert from_record(stored, source, older) is None


def test_a_repeat_that_was_cut_short_is_a_warning_and_no_refusal() -> None:
    runs = Runs.of([Run(0, 0, 50)])
    found = AlignedCopy(runs, 50, 50, 3, (), 0, (), (), 0, (), ((43, 50),))

    copy = AdoptedCopy(ASSIGNED, 53, 100, found)

    assert copy.state == "adopt"
    assert "did not reach source offsets 43 to 49: a key may have an older" in copy.reason


def test_a_copy_of_which_compaction_left_no_record_on_the_source_is_not_srm_s_own() -> None:
    found = AlignedCopy(Runs(), 0, 0, 0, (), 0, (), (), 300, ())

    copy = AdoptedCopy(ASSIGNED, 300, 1500, found)

    assert copy.state == "undecided"
    assert copy.reason.startswith("no record of the target is in the source's log, perhaps after a")
    assert copy.reason.endswith(" transform, or of a former topic of that name")
