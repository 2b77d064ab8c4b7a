"""Where a group continues, in all small histories of a partition and its copy.

A log holds up to four offsets, records and markers in any order; a commit is anywhere in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from tests.unit.domain.groups.copy_history import History, Kind

from srm.domain.groups.translation import Direction
from srm.domain.moves.plan import GroupPosition, PartitionMove, partition_move

MOST = 4
DIRECTIONS: tuple[Direction, ...] = ("forward", "reverse")


def small() -> Iterator[History]:
    """Yield each original and each copy of it, with and without a marker before each record."""
    kinds: tuple[Kind, ...] = ("record", "marker")
    for size in range(MOST + 1):
        for original in product(kinds, repeat=size):
            records = [at for at, kind in enumerate(original) if kind == "record"]
            for marked in product((False, True), repeat=len(records) + 1):
                copy: list[int | None] = []
                for record, is_marked in zip(records, marked, strict=False):
                    copy += [None] * is_marked + [record]
                copy += [None] * marked[-1]
                yield History(original, 0, size, size, tuple(copy), len(copy), (0, 0))


SMALL = tuple(small())


def place(
    history: History, direction: Direction, commit: int | None, theirs: int | None, *, ours: bool
) -> PartitionMove:
    return partition_move(GroupPosition(history.facts(direction), commit, theirs, ours))


def commits(history: History, direction: Direction) -> range:
    upstream = history.original if direction == "forward" else history.copy
    return range(len(upstream) + 1)


def on_target(history: History, direction: Direction) -> range:
    """Return all commits on the target; the last is of a log that was longer before."""
    return range(target_end(history, direction) + 2)


def target_end(history: History, direction: Direction) -> int:
    return len(history.copy if direction == "forward" else history.original)


def record_before(history: History, direction: Direction, commit: int) -> list[int]:
    """Return the records before an offset of the target's log."""
    side = 1 if direction == "forward" else 0
    return [pair[0] for pair in history.pairs if pair[side] < commit]


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_group_continues_with_the_first_record_that_it_has_not_read(
    direction: Direction,
) -> None:
    for history in SMALL:
        for commit in commits(history, direction):
            row = place(history, direction, commit, None, ours=False)
            if row.resume is None:
                assert not history.pairs, (history, commit)
                continue
            before = record_before(history, direction, row.resume)
            left = history.to_read(direction, commit)
            assert before == [pair[0] for pair in history.pairs if pair[0] not in left]
            assert row.skipped == history.skipped(direction, commit)
            assert row.re_read == 0


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_commit_of_its_own_on_the_target_is_a_conflict_only_where_records_lie_between(
    direction: Direction,
) -> None:
    for history in SMALL:
        for commit, theirs in product(commits(history, direction), on_target(history, direction)):
            row = place(history, direction, commit, theirs, ours=False)
            read = record_before(history, direction, theirs)
            left = history.to_read(direction, commit)
            again = [record for record in read if record in left]
            assert (row.state == "conflict") == bool(again), (history, commit, theirs, row)
            assert row.re_read == len(again)
            if row.resume is not None and not again:
                assert row.resume <= target_end(history, direction)
                assert record_before(history, direction, row.resume) == [
                    pair[0] for pair in history.pairs if pair[0] not in left
                ]
