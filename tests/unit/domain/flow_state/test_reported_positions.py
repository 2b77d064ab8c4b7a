from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from srm.domain.flow_state.replication_records import PartitionPosition, SlotReport
from srm.domain.flow_state.replication_state import newest_position, positions_by_copy
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE

SOURCE, TARGET = "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ"


def entry(
    at: int, producer: int, epoch: int, partition: int = 0, leader_epoch: int = -1
) -> PartitionPosition:
    position = Position(at, at, at)
    lineage = UNKNOWN_LINEAGE.with_epoch(leader_epoch, at - 1)
    return PartitionPosition(
        SOURCE, partition, TARGET, position, producer, epoch, target_lineage=lineage
    )


@given(st.permutations([(90, 7, 1), (80, 7, 2), (70, -1, -1), (75, 12, 0)]))
def test_the_choice_does_not_depend_on_the_order_of_reports(order):
    best = newest_position([entry(*claim) for claim in order])

    assert best is not None
    assert best.position == Position(80, 80, 80)


def test_without_reports_there_is_no_position():
    assert newest_position([]) is None


def test_reports_of_several_slots_are_gathered_by_what_they_are_about():
    former, owner, other = entry(5, 7, 0), entry(9, 7, 1), entry(3, 8, 0, partition=1)

    found = positions_by_copy(
        [SlotReport("0", 1, 0, (former, other)), SlotReport("1", 2, 0, (owner,))]
    )

    assert found == {former.copy_id: [former, owner], other.copy_id: [other]}


@given(st.permutations([(1000, 7, 3, 4), (801, 9, 0, 6), (700, 8, 2, 5), (90, -1, -1, -1)]))
def test_what_was_told_before_the_target_lost_its_end_does_not_hide_what_is_told_since(order):
    """Its producer id has expired meanwhile; translations led to records that are others now."""
    best = newest_position(
        [entry(at, pid, epoch, leader_epoch=leader) for at, pid, epoch, leader in order]
    )

    assert best is not None
    assert best.position.target_next == 801
