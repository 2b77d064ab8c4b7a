"""Where a slot starts, from what former owners wrote down."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.replication.mapping.map_world import starts

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    PartitionNotes,
    PartitionPosition,
    SlotReport,
)
from srm.domain.offset_map.map_records import BlockKey, MapBlock
from srm.domain.offset_map.map_tree import MapTree
from srm.domain.offset_map.offset_map import Position, Run, Translated
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.replication.mapping.starts import Start, cut_start, decided_start
from srm.replication.ports import ProducerId

OLD, NEW, TARGET, OTHER = "A" * 21 + "g", "B" * 21 + "g", "C" * 21 + "g", "D" * 21 + "g"
WANTED = AssignedPartition("T", 0, NEW, "P.T", TARGET)


def block(*runs: Run, topic_id: str = NEW, target_id: str = TARGET, pid: int = 5) -> MapBlock:
    return MapBlock("T", topic_id, 0, target_id, (pid,), runs)


def key(target_start: int) -> BlockKey:
    return BlockKey(NEW, 0, target_start, (-1, -1))


def report(
    source_next: int,
    target_next: int,
    slot: str = "0",
    topic_id: str = NEW,
    target_id: str = TARGET,
) -> SlotReport:
    position = Position(source_next, target_next, source_next)
    entry = PartitionPosition(topic_id, 0, target_id, position, 5, 0)
    return SlotReport(slot, 1, 0, (entry,))


def same(start: Start, expected: Start, last: BlockKey | None = None) -> bool:
    """Compare all but the records of the map's end."""
    ends_at = start.tree.last.block_key if start.tree.last else None
    plain = replace(start, tree=MapTree(), rewrite_index=False, garbage=())
    return (plain, ends_at) == (expected, last)


def test_without_a_report_the_map_says_the_leader_epochs_before_its_end() -> None:
    lineage = Lineage(((3, 0), (4, 7)))
    written = replace(block(Run(0, 1, 10)), source_lineage=lineage)

    [start] = starts([WANTED], [written], []).values()
    assert (start.source_next, start.source_lineage) == (10, lineage)

    [start] = starts([WANTED], [written], [report(30, 31)]).values()
    assert (start.source_next, start.source_lineage) == (30, UNKNOWN_LINEAGE), "of another place"


def test_a_partition_that_was_never_copied_is_left_out() -> None:
    assert starts([WANTED], [], []) == {}


def test_a_position_ahead_of_the_runs_is_the_start() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10))], [report(30, 40)])

    run = Run(0, 1, 10)
    start = Start(30, 40, frozenset({5}), written_by=ProducerId(5, 0), last_run=run)
    assert same(found[WANTED], start, key(1))


def test_where_all_blocks_are_lost_both_logs_are_walked_from_their_starts() -> None:
    """A map that began at the reported position would take older offsets for that one."""
    start = Start(0, 0, frozenset({5}), fresh=True, has_position=False)

    assert starts([WANTED], [], [report(30, 40)]) == {WANTED: start}


def test_a_position_before_any_record_needs_no_block() -> None:
    [start] = starts([WANTED], [], [report(30, 0)]).values()
    assert (start.source_next, start.target_next, start.fresh) == (30, 0, True)

    former = [block(Run(0, 1, 10), topic_id=OLD)]
    [start] = starts([WANTED], former, [report(3, 11)]).values()
    assert (start.source_next, start.target_next, start.fresh) == (3, 11, True)


def test_the_walk_begins_before_the_first_block_that_cannot_be_read() -> None:
    before, damaged = block(Run(0, 1, 10)), (BlockKey(NEW, 0, 20, (5, 0)),)
    after = replace(block(Run(30, 40, 5)), previous=damaged[0])

    [start] = starts([WANTED], [before, after], [report(50, 60)], damaged).values()

    assert same(start, Start(10, 11, frozenset({5}), last_run=Run(0, 1, 10)), key(1))
    assert set(start.garbage) == {*damaged, key(40)}


def test_the_walk_begins_before_a_block_that_is_missing() -> None:
    first = block(Run(0, 1, 10))
    second = replace(block(Run(20, 22, 5)), previous=key(1))
    third = replace(block(Run(30, 40, 5)), previous=key(22))
    fourth = replace(block(Run(40, 50, 5)), previous=key(40))

    [start] = starts([WANTED], [first, third, fourth], [report(50, 60)]).values()
    assert same(start, Start(10, 11, frozenset({5}), last_run=Run(0, 1, 10)), key(1))

    [start] = starts([WANTED], [second, third, fourth], [report(50, 60)]).values()
    assert (start.source_next, start.target_next, start.has_position) == (0, 0, False)
    assert start.tree.last is None


def test_a_walk_from_the_starts_mends_a_first_block_that_cannot_be_read() -> None:
    key = BlockKey(NEW, 0, 1, (5, 0))

    [start] = starts([WANTED], [], [report(50, 60)], [key]).values()

    assert not start.has_position
    assert start.garbage == (key,)


def test_a_run_ahead_of_all_positions_is_the_start() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10)), block(Run(10, 12, 10), pid=6)], [report(5, 6)])

    start = Start(20, 22, frozenset({5, 6}), last_run=Run(10, 12, 10))
    assert same(found[WANTED], start, key(12))


def test_a_run_ahead_of_all_positions_was_written_under_the_claim_of_its_block() -> None:
    """Without that, a loss of the target's end, and a successor that copied on, go unnoticed."""
    written = replace(block(Run(0, 1, 10)), owner=(5, 3))

    assert starts([WANTED], [written], [report(5, 6)])[WANTED].written_by == ProducerId(5, 3)
    assert starts([WANTED], [written], [report(30, 31)])[WANTED].written_by == ProducerId(5, 0)


def test_the_furthest_of_several_reports_counts() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10))], [report(30, 31), report(20, 21, "1")])

    assert found[WANTED].source_next == 30


def test_a_topic_created_again_goes_on_behind_its_former_self() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10), topic_id=OLD)], [])

    assert found == {WANTED: Start(0, 11, frozenset({5}), fresh=True, has_former=True)}


def test_what_only_a_report_tells_of_the_former_topic_is_behind_too() -> None:
    former = report(500, 501, topic_id=OLD)

    found = starts([WANTED], [block(Run(0, 1, 10), topic_id=OLD)], [former])

    assert found == {WANTED: Start(0, 501, frozenset({5}), fresh=True, has_former=True)}


def test_a_first_claim_of_the_former_topic_may_have_written_more_than_it_reported() -> None:
    found = starts([WANTED], [], [report(0, 0, topic_id=OLD)])

    assert found == {WANTED: Start(0, 0, frozenset({5}), fresh=True, has_former=True)}


def test_what_is_known_of_a_former_remote_topic_says_nothing() -> None:
    blocks = [block(Run(0, 1, 10), target_id=OTHER)]

    assert starts([WANTED], blocks, [report(30, 40, target_id=OTHER)]) == {}


def test_a_report_of_the_former_remote_topic_does_not_hide_one_of_the_current() -> None:
    reports = [report(500, 501, target_id=OTHER), report(3, 4, "1")]

    found = starts([WANTED], [block(Run(0, 1, 2))], reports)

    assert (found[WANTED].source_next, found[WANTED].target_next) == (3, 4)


def test_the_end_of_a_run_that_only_a_report_tells_of_is_handed_on() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10))], [report(500, 501)])

    start = Start(
        *(500, 501, frozenset({5}), Run(10, 11, 490)),
        written_by=ProducerId(5, 0),
        last_run=Run(0, 1, 500),
    )
    assert same(found[WANTED], start, key(1))


def decided(decision: str, begin: int, end: int, target_next: int | None = None) -> PartitionNotes:
    place = "T", 0, NEW
    return PartitionNotes.from_decision(decision, "r", place, (begin, end), "why", 0, target_next)  # type: ignore[arg-type]


def test_ranges_that_were_kept_or_discarded_are_left_out_wherever_the_copy_stands() -> None:
    notes = [decided("discard", 70, 80), decided("keep", 30, 40)]

    for start in (None, Start(10, 11), Start(90, 91)):
        found = decided_start(start, notes)
        assert found is not None
        assert found.left_out == (notes[1], notes[0])
    assert decided_start(None, notes) == Start(
        0, 0, fresh=True, has_position=False, left_out=(notes[1], notes[0])
    )


def test_a_decision_that_a_slot_found_to_be_over_is_no_concern_of_the_next_owner() -> None:
    whole, part = decided("discard", 70, 80), decided("keep", 30, 40)
    found_over = PartitionNotes("1", "T", 0, NEW, over={"discard-r": 60, "keep-r": 35})

    found = decided_start(Start(10, 11), [whole, part, found_over])

    assert found is not None
    assert [note.left_out for note in found.left_out] == [(30, 35)]


def test_a_cut_holds_for_the_position_that_it_was_decided_about_and_for_no_later_one() -> None:
    note = decided("cut", 30, 50, target_next=61)
    at = Start(50, 61, source_lineage=Lineage(((3, 0), (4, 40))))

    cut = decided_start(at, [note])

    assert cut is not None
    assert (cut.source_next, cut.target_next) == (30, 61)
    assert cut.source_lineage == Lineage(((3, 0),))
    assert cut.cut
    assert cut.truncated
    for later in (Start(50, 70), Start(45, 61), Start(50, 61, has_position=False)):
        assert decided_start(later, [note]) == later


def test_a_cut_of_both_logs_ends_the_map_at_the_lower_place() -> None:
    cut = decided_start(Start(50, 61), [decided("cut", 30, 50, target_next=61)])
    assert cut is not None

    assert cut_start(cut, Translated(44), 55).source_next == 30
    assert cut_start(cut, Translated(20), 31).source_next == 20
