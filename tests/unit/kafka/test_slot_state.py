"""Where a slot starts, from what former owners wrote down."""

from __future__ import annotations

from srm.domain.map_records import MapBlock
from srm.domain.offset_map import Position, Run
from srm.domain.replication_records import AssignedPartition, PartitionPosition, SlotReport
from srm.kafka.slot_state import starts
from srm.replication.resume import Start

OLD, NEW, TARGET, OTHER = "A" * 21 + "g", "B" * 21 + "g", "C" * 21 + "g", "D" * 21 + "g"
WANTED = AssignedPartition("T", 0, NEW, "P.T", TARGET)


def block(*runs: Run, topic_id: str = NEW, target_id: str = TARGET, pid: int = 5) -> MapBlock:
    return MapBlock("T", topic_id, 0, target_id, (pid,), runs)


def report(
    source_next: int,
    target_next: int,
    slot: str = "0",
    topic_id: str = NEW,
    target_id: str = TARGET,
) -> SlotReport:
    position = Position(source_next, target_next, source_next)
    entry = PartitionPosition(topic_id, 0, target_id, position, -1, 5, 0)
    return SlotReport(slot, 1, 0, (entry,))


def test_a_partition_that_was_never_copied_is_left_out() -> None:
    assert starts([WANTED], [], []) == {}


def test_a_position_ahead_of_the_runs_is_the_start() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10))], [report(30, 40)])

    assert found == {WANTED: Start(30, 40, frozenset({5}))}


def test_without_blocks_a_report_tells_the_producer_id() -> None:
    assert starts([WANTED], [], [report(30, 40)]) == {WANTED: Start(30, 40, frozenset({5}))}


def test_a_run_ahead_of_all_positions_is_the_start() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10)), block(Run(10, 12, 10), pid=6)], [report(5, 6)])

    assert found == {WANTED: Start(20, 22, frozenset({5, 6}))}


def test_the_furthest_of_several_reports_counts() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10))], [report(30, 31), report(20, 21, "1")])

    assert found[WANTED].source_next == 30


def test_a_topic_created_anew_goes_on_behind_its_former_self() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10), topic_id=OLD)], [])

    assert found == {WANTED: Start(0, 11, frozenset({5}), fresh=True)}


def test_what_only_a_report_tells_of_the_former_topic_is_behind_too() -> None:
    former = report(500, 501, topic_id=OLD)

    found = starts([WANTED], [block(Run(0, 1, 10), topic_id=OLD)], [former])

    assert found == {WANTED: Start(0, 501, frozenset({5}), fresh=True)}


def test_what_is_known_of_a_former_remote_topic_says_nothing() -> None:
    blocks = [block(Run(0, 1, 10), target_id=OTHER)]

    assert starts([WANTED], blocks, [report(30, 40, target_id=OTHER)]) == {}


def test_a_report_of_the_former_remote_topic_does_not_hide_one_of_the_current() -> None:
    reports = [report(500, 501, target_id=OTHER), report(3, 4, "1")]

    found = starts([WANTED], [block(Run(0, 1, 2))], reports)

    assert (found[WANTED].source_next, found[WANTED].target_next) == (3, 4)


def test_the_end_of_a_run_that_only_a_report_tells_of_is_handed_on() -> None:
    found = starts([WANTED], [block(Run(0, 1, 10))], [report(500, 501)])

    assert found == {WANTED: Start(500, 501, frozenset({5}), Run(10, 11, 490))}
