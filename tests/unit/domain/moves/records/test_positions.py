"""What a move makes of a translation, beside what the group has committed on the target."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.groups.copy_history import COPY, ORIGINAL, History, histories

from srm.domain.flow_state.replication_records import PartitionNotes
from srm.domain.groups.translation import UNKNOWN_LOG, LogRange, Losses, PartitionFacts
from srm.domain.moves.plan import GroupPosition, LastPlace, partition_move, position_problem
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run


def drained(history: History) -> History:
    """The same copy without an open transaction, and with whole logs."""
    original = history.original[: history.copied]
    return replace(history, original=original, stable=history.copied, starts=(0, 0))


def unread(history: History, direction: str, start: int) -> int:
    side = 0 if direction == "forward" else 1
    return sum(pair[side] >= start for pair in history.pairs)


@given(histories(), st.data())
def test_lag_counts_records_never_markers_of_a_copy(history: History, data: st.DataObject) -> None:
    committed = data.draw(st.none() | st.integers(0, len(history.copy)))
    row = partition_move(GroupPosition(history.facts("reverse"), committed, None, False))

    assert row.lag == unread(history, "reverse", max(committed or 0, history.starts[1]))


@given(histories(), st.data())
def test_applying_never_goes_back_over_records_a_consumer_on_the_target_has_committed(
    history: History, data: st.DataObject
) -> None:
    history = drained(history)
    committed = data.draw(st.integers(0, history.copied))
    theirs = data.draw(st.integers(0, len(history.copy)))
    row = partition_move(GroupPosition(history.facts("forward"), committed, theirs, False))

    if row.resume is not None:
        passed = [place for _, place in history.pairs if row.resume <= place < theirs]
        assert (row.state == "conflict") == bool(passed)
        assert row.re_read == len(passed)


@given(histories(), st.data())
def test_what_srm_itself_wrote_on_the_target_is_no_conflict(
    history: History, data: st.DataObject
) -> None:
    committed = data.draw(st.integers(0, len(history.original)))
    theirs = data.draw(st.integers(0, len(history.copy)))
    row = partition_move(GroupPosition(history.facts("forward"), committed, theirs, True))

    assert row.state != "conflict"


def test_past_markers_only_the_consumers_own_commit_on_the_target_stays() -> None:
    """After a failback a commit beyond a transaction marker is the same place, not a conflict."""
    history = History(("record", "marker", "marker"), 0, 3, 3, (0,), 1, (0, 0))
    row = partition_move(GroupPosition(history.facts("reverse"), 1, 3, False))

    assert (row.state, row.resume, row.is_applied) == ("translated", 3, True)


@pytest.mark.parametrize(("stable", "copied"), [(1, 1), (4, 1), (4, 4)])
def test_a_commit_within_an_open_transaction_there_names_it_and_ends_with_it(
    stable: int, copied: int
) -> None:
    """A reader of uncommitted records read the two of a producer that died with the source."""
    history = History(("record", *["marker"] * 3), 0, copied, stable, (0,), 1, (0, 0))
    row = partition_move(GroupPosition(history.facts("reverse"), 1, 3, False))

    problem = position_problem("audit", row, MoveRequest("failback", "B", "P"))
    text = problem.text if problem else ""
    assert (row.state == "conflict") == (copied < 4) == bool(text)
    assert ("--start-offset 1)" in text) == (stable < 3)
    assert ("the copy has come to 1 only" in text) == (copied < 4 <= stable)


@pytest.mark.parametrize("end", [0, 3, 9])
def test_a_commit_past_a_truncated_log_goes_to_its_end_though_nothing_was_ever_copied(
    end: int,
) -> None:
    """A Java client commits past markers: of aborted transactions, which no copy has."""
    copied = OffsetMap.of([], Position(end, 1, end), open_end=False)
    logs = LogRange(0, 1, 1), LogRange(0, end, end)
    copy, original = TopicPartition("P.Payments", 0), TopicPartition("Payments", 0)
    facts = PartitionFacts("reverse", copy, original, "P", *logs, copied)
    row = partition_move(GroupPosition(facts, 1, 9, False))

    assert (row.state, row.resume) == ("translated", end)


@pytest.mark.parametrize("last", [None, LastPlace(50, None, by_srm=True)])
def test_a_commit_that_retention_has_overtaken_on_the_target_goes_to_the_start_of_its_log(
    last: LastPlace | None,
) -> None:
    """The plan let the group continue at 60, where its clients reset to the end of the log."""
    facts = PartitionFacts("reverse", COPY, ORIGINAL, "B", UNKNOWN_LOG, LogRange(70, 100, 100))
    row = partition_move(GroupPosition(facts, None, 60, False, last=last))

    assert (row.state, row.resume, row.skipped, row.lag) == ("own-commit", 70, 10, 30)
    assert not row.is_applied
    replaced = partition_move(GroupPosition(facts, None, 60, False, overwrite=True, last=last))
    assert replaced.resume == 70


def test_a_partition_without_a_commit_is_left_to_the_clients_reset_policy() -> None:
    history = History(("record", "record"), 0, 2, 2, (0, 1), 2, (0, 0))
    row = partition_move(GroupPosition(history.facts("forward"), None, None, False))

    assert (row.state, row.resume, row.lag, row.is_applied) == ("no-commit", None, 2, True)
    assert row.left_to_reset
    assert not replace(row, target_committed=1).left_to_reset


def test_a_commit_in_an_empty_partition_waits_for_nothing() -> None:
    history = History((), 0, 0, 0, (), 0, (0, 0))
    facts = replace(history.facts("forward"), downstream_log=None)

    assert partition_move(GroupPosition(facts, 0, None, False)).state == "no-commit"


@pytest.mark.parametrize(("committed", "unread"), [(10, 0), (7, 3)])
def test_a_copy_whose_original_has_fewer_partitions_now_holds_a_group_only_for_what_is_unread(
    committed: int, unread: int
) -> None:
    copy, original = TopicPartition("P.Payments", 2), TopicPartition("Payments", 2)
    facts = PartitionFacts("reverse", copy, original, "P", LogRange(0, 10, 10), None, OffsetMap())
    row = partition_move(GroupPosition(facts, committed, None, False))

    assert (row.state, row.resume, row.lag, row.skipped) == ("no-commit", None, unread, unread)
    problem = position_problem("audit", row, MoveRequest("failback", "B", "P"))
    assert (problem is None) == (not unread)
    assert problem is None or "does not exist" in problem.text


@pytest.mark.parametrize(
    ("committed", "theirs", "passed"),
    [
        (50, None, 0),  # it reads them on the source
        (60, None, 20),
        (60, 55, 15),  # five of them were read there before the disaster
        (60, 70, 0),
    ],
)
def test_what_was_kept_on_a_returned_source_is_not_skipped_in_silence(
    committed: int, theirs: int | None, passed: int
) -> None:
    kept = PartitionNotes.from_decision("keep", "r", ("Payments", 0, "id"), (50, 70), "kept", 0)
    facts = PartitionFacts(
        *("reverse", COPY, ORIGINAL, "P", LogRange(0, 60, 60), LogRange(0, 80, 80)),
        OffsetMap.of([Run(0, 0, 50), Run(70, 50, 10)], Position(80, 60, 80)),
        losses=Losses.of([kept], None),
    )

    row = partition_move(GroupPosition(facts, committed, theirs, False))

    assert (row.passed_kept, row.skipped) == (passed, passed), "plan and report count them"
    assert position_problem("audit", row, MoveRequest("failback", "B", "P")) is None
    assert row.resume == (80 if committed == 60 else 50)


def test_what_was_kept_and_lost_there_is_not_passed_by_who_has_read_what_replaced_it() -> None:
    """The source lost the end of its log after its return: others at these offsets were copied."""
    kept = PartitionNotes.from_decision("keep", "r", ("Payments", 0, "id"), (50, 70), "kept", 0)
    facts = PartitionFacts(
        *("reverse", COPY, ORIGINAL, "P", LogRange(0, 75, 75), LogRange(0, 75, 75)),
        OffsetMap.of([Run(0, 0, 50), Run(55, 55, 20)], Position(75, 75, 75)),
        losses=Losses.of([kept], None),
    )

    assert partition_move(GroupPosition(facts, 75, None, False)).passed_kept == 5


@pytest.mark.parametrize(("upstream", "skipped"), [(40, 20), (60, 10), (70, 0), (None, 0)])
def test_what_was_kept_counts_as_skipped_by_a_group_that_moves_without_the_source(
    upstream: int | None, skipped: int
) -> None:
    """A second disaster: what the group has not read on the source before is not on the target."""
    kept = PartitionNotes.from_decision("keep", "r", ("Payments", 0, "id"), (50, 70), "kept", 0)
    facts = PartitionFacts(
        *("forward", ORIGINAL, COPY, "B", UNKNOWN_LOG, LogRange(0, 60, 60)),
        OffsetMap.of([Run(0, 0, 50), Run(70, 50, 10)], Position(80, 60, 80)),
        losses=Losses.of([kept], None),
    )
    last = LastPlace(min(50, upstream or 0), upstream)

    row = partition_move(GroupPosition(facts, None, None, False, last=last))

    assert row.skipped == skipped
