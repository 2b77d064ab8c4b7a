"""Under which claim a position is told, and that an older one of another process does not win."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.replication.mapping.map_world import ASSIGNED

from srm.domain.flow_state.replication_records import PartitionPosition
from srm.domain.flow_state.replication_state import GoneTopics, is_superseded, newest_position
from srm.domain.offset_map.map_tree import NO_BLOCKS, RebuiltMap
from srm.domain.offset_map.offset_map import Position, Translated
from srm.domain.offset_map.runs import Lineage
from srm.replication.mapping.starts import KnownMap, Start, cut_start, start_of
from srm.replication.partition import PartitionCopy
from srm.replication.ports import ProducerId

LEFT = PartitionPosition(*ASSIGNED.copy_id, Position(40, 50, 40), 7, 3, map_end=NO_BLOCKS)


def start_after(*told: PartitionPosition) -> Start:
    found = start_of(KnownMap(RebuiltMap()), told)
    assert found is not None
    return found


def is_out_of_use(entry: PartitionPosition, told: PartitionPosition) -> bool:
    return is_superseded(entry, {ASSIGNED.copy_id: [told]}, GoneTopics(), {})


@given(st.integers(0, 5))
def test_a_successor_that_has_claimed_nothing_tells_its_predecessors_claim_and_wins(
    passed: int,
) -> None:
    copy = PartitionCopy(ASSIGNED, start_after(LEFT))
    copy.source_next += passed  # markers, say: nothing is written for them
    told = copy.position()

    assert (told.producer_id, told.producer_epoch) == (7, 3)
    assert newest_position([told, LEFT]) is told
    assert newest_position([LEFT, told]) is (told if passed else LEFT)
    assert is_out_of_use(LEFT, told)


def test_a_report_about_a_log_before_an_election_loses_to_one_after_it_whatever_its_claim() -> None:
    """A former owner's marker went with the log's end; it wakes up late and reports under it."""
    late = replace(LEFT, producer_epoch=4, target_lineage=Lineage(((5, 0),)))
    late = replace(late, position=Position(45, 56, 45))
    owner = replace(LEFT, target_lineage=Lineage(((5, 0), (7, 50))))

    assert newest_position([late, owner]) is newest_position([owner, late]) is owner
    assert is_out_of_use(late, owner)
    assert newest_position([late, replace(owner, target_lineage=late.target_lineage)]) is late


@given(st.permutations([1, 2, 3, 4]))
def test_of_all_that_left_the_last_owner_wins_in_any_order(order: list[int]) -> None:
    left = [
        replace(LEFT, producer_epoch=epoch, position=Position(10 * epoch, 10 * epoch, 10 * epoch))
        for epoch in order
    ]
    copy = PartitionCopy(ASSIGNED, start_after(*left))

    assert copy.written_by == ProducerId(7, 4)
    assert all(is_out_of_use(entry, copy.position()) for entry in left)


def test_after_a_cut_the_old_position_counts_until_the_claim_and_not_after_it() -> None:
    """Until then nothing was written, and whoever comes next finds the same cut again."""
    copy = PartitionCopy(ASSIGNED, cut_start(start_after(LEFT), Translated(20), 30))
    before = copy.position()
    assert newest_position([before, LEFT]) is LEFT
    assert not is_out_of_use(LEFT, before)

    copy.written_by = ProducerId(7, 4)  # as a claim leaves it
    after = copy.position()
    assert after.position.target_next < LEFT.position.target_next
    assert newest_position([LEFT, after]) is after
    assert is_out_of_use(LEFT, after)
