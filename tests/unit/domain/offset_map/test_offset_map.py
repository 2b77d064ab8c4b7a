"""The exact offset map against a naive model: a list of (source offset, target offset) pairs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.offset_map import (
    NoMap,
    NotCopiedYet,
    OffsetMap,
    Position,
    Run,
    Translated,
    coalesce,
)
from srm.errors import IntegrityError


@dataclass(frozen=True)
class Copied:
    """What really happened to one partition, record by record."""

    pairs: tuple[tuple[int, int], ...]
    position: Position

    def runs(self) -> list[Run]:
        return [Run(source, target, 1) for source, target in self.pairs]

    def forward(self, committed: int) -> int | None:
        at_or_after = [target for source, target in self.pairs if source >= committed]
        if at_or_after:
            return at_or_after[0]
        if committed > self.position.source_next:
            return None
        return self.pairs[-1][1] + 1 if self.pairs else self.position.target_next

    def backward(self, committed: int) -> int:
        before = [source for source, target in self.pairs if target < committed]
        return before[-1] + 1 if before else self.pairs[0][0]


@st.composite
def histories(draw: st.DrawFn, min_records: int = 0) -> Copied:
    """Draw copies with holes on either side: markers, aborted or compacted records, claims."""
    source = draw(st.integers(0, 1000))
    target = draw(st.integers(0, 1000))
    steps = draw(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 6)),
            min_size=min_records,
            max_size=12,
        )
    )
    pairs = []
    for source_hole, target_hole, count in steps:
        source += source_hole
        target += target_hole
        pairs.extend((source + i, target + i) for i in range(count))
        source += count
        target += count
    source_next = source + draw(st.integers(0, 3))
    return Copied(tuple(pairs), Position(source_next, target, source_next))


@given(histories(), st.integers(-5, 1200))
def test_forward_gives_the_first_copied_record_at_or_after_the_commit(
    copied: Copied, committed: int
) -> None:
    offsets = OffsetMap.of(copied.runs(), copied.position)
    expected = copied.forward(committed)

    found = offsets.forward(committed)

    if not copied.pairs and committed < copied.position.source_next and copied.position.target_next:
        assert found == NoMap()
    elif expected is None:
        assert found == NotCopiedYet(committed - copied.position.source_next)
    else:
        assert found == Translated(expected)


@given(histories(min_records=1), st.integers(0, 1200))
def test_backward_gives_the_offset_after_the_last_copied_record_before(
    copied: Copied, committed: int
) -> None:
    offsets = OffsetMap.of(copied.runs(), copied.position)
    end = copied.pairs[-1][1] + 1

    found = offsets.backward(committed)

    if committed > end:
        assert found == NotCopiedYet(committed - end)
    else:
        assert found == Translated(copied.backward(committed))


@given(histories(min_records=1), st.data())
def test_a_round_trip_never_moves_a_group_forward_over_a_record(
    copied: Copied, data: st.DataObject
) -> None:
    committed = data.draw(st.integers(0, copied.position.source_next))
    offsets = OffsetMap.of(copied.runs(), copied.position)

    there = offsets.forward(committed)
    assert isinstance(there, Translated)
    back = offsets.backward(there.offset)
    assert isinstance(back, Translated)

    skipped = [source for source, _ in copied.pairs if committed <= source < back.offset]
    read_again = [source for source, _ in copied.pairs if back.offset <= source < committed]
    assert (skipped, read_again) == ([], [])


@given(histories(min_records=1), st.data())
def test_translation_is_monotonic(copied: Copied, data: st.DataObject) -> None:
    first, second = sorted(
        data.draw(st.tuples(st.integers(0, 1200), st.integers(0, 1200)), label="commits")
    )
    offsets = OffsetMap.of(copied.runs(), copied.position)

    for translate in (offsets.forward, offsets.backward):
        low, high = translate(first), translate(second)
        if isinstance(low, Translated) and isinstance(high, Translated):
            assert low.offset <= high.offset


@given(histories(min_records=1), st.randoms(use_true_random=False), st.data())
def test_facts_in_any_order_cut_and_repeated_give_the_same_map(
    copied: Copied, random: object, data: st.DataObject
) -> None:
    whole = coalesce(copied.runs())
    cuts = []
    for run in whole:
        at = data.draw(st.integers(0, run.count))
        cuts += [
            Run(run.source_start, run.target_start, at),
            Run(run.source_start + at, run.target_start + at, run.count - at),
            run,
        ]
    random.shuffle(cuts)  # type: ignore[attr-defined]

    assert coalesce(cuts) == whole


@given(histories(min_records=1))
def test_neighbouring_runs_keep_the_invariants(copied: Copied) -> None:
    runs = coalesce(copied.runs())

    assert sum(run.count for run in runs) == len(copied.pairs)
    for left, right in pairwise(runs):
        assert left.source_end <= right.source_start
        assert left.target_end <= right.target_start
        assert (left.source_end, left.target_end) != (right.source_start, right.target_start)


@given(histories(min_records=1), st.data())
def test_the_open_run_grows_with_the_position(copied: Copied, data: st.DataObject) -> None:
    *closed, last = coalesce(copied.runs())
    written = Run(last.source_start, last.target_start, data.draw(st.integers(1, last.count)))
    position = Position(last.source_end, last.target_end, last.source_end)

    assert OffsetMap.of([*closed, written], position).runs == (*closed, last)


def test_a_position_ahead_of_the_runs_has_only_holes_before_it() -> None:
    """Every run before a position is in the map: a claim's marker alone may stand between."""
    offsets = OffsetMap.of([Run(0, 0, 10)], Position(source_next=20, target_next=19, source_end=20))

    assert offsets.forward(10) == Translated(10)
    assert offsets.forward(15) == Translated(10)
    assert offsets.forward(21) == NotCopiedYet(1)
    assert offsets.backward(15) == Translated(10)
    assert offsets.backward(20) == NotCopiedYet(1)


def test_a_group_behind_trailing_markers_is_caught_up() -> None:
    offsets = OffsetMap.of([Run(0, 0, 10)], Position(source_next=12, target_next=10, source_end=12))

    assert offsets.forward(12) == Translated(10)
    assert offsets.forward(13) == NotCopiedYet(1)


def test_an_empty_copy_translates_only_what_needs_no_record() -> None:
    empty = OffsetMap.of([], Position(source_next=7, target_next=0, source_end=7))
    filled = OffsetMap.of([], Position(source_next=7, target_next=4, source_end=7))

    assert (empty.forward(3), empty.backward(0)) == (Translated(0), Translated(7))
    assert (filled.forward(7), filled.backward(4)) == (Translated(4), Translated(7))
    assert (filled.forward(3), filled.backward(3)) == (NoMap(), NoMap())
    assert (OffsetMap().forward(0), OffsetMap().backward(0)) == (NoMap(), NoMap())


def test_a_copy_that_both_logs_dropped_starts_at_the_target_log_start() -> None:
    offsets = OffsetMap.of([], Position(source_next=700, target_next=400, source_end=700))

    assert offsets.forward(3, target_log_start=400) == Translated(400)


@pytest.mark.parametrize("other", [Run(5, 7, 3), Run(20, 5, 3)])
def test_two_records_in_one_place_are_an_integrity_error(other: Run) -> None:
    with pytest.raises(IntegrityError, match="contradicts itself"):
        coalesce([Run(0, 0, 10), other])


@given(histories(min_records=1), st.integers(0, 1200), st.integers(0, 1200))
def test_records_are_counted_on_both_sides(copied: Copied, start: int, end: int) -> None:
    offsets = OffsetMap.of(copied.runs(), copied.position)

    assert offsets.records_between(start, end) == sum(start <= t < end for _, t in copied.pairs)
    assert offsets.source_records_between(start, end) == sum(
        start <= s < end for s, _ in copied.pairs
    )


@st.composite
def truncated_histories(draw: st.DrawFn) -> tuple[dict[int, int], list[Run], Position]:
    """Copies of a source that is truncated now and then: what its offsets mean in the end."""
    counterpart: dict[int, int] = {}  # source offset -> target offset
    runs, source_next, target_next = [], 0, 0
    for _ in range(draw(st.integers(1, 6))):
        for _ in range(draw(st.integers(0, 4))):
            source_next += draw(st.integers(0, 3))
            target_next += draw(st.integers(0, 3))
            count = draw(st.integers(1, 20))
            runs.append(Run(source_next, target_next, count))
            for i in range(count):
                counterpart[source_next + i] = target_next + i
            source_next, target_next = source_next + count, target_next + count
        source_next = draw(st.integers(0, source_next))
        runs.append(Run(source_next, target_next, 0))
        target_next += draw(st.integers(0, 1))  # the marker of a claim
        counterpart = {s: t for s, t in counterpart.items() if s < source_next}
    return counterpart, runs, Position(source_next, target_next, source_next)


def test_a_position_after_a_cut_does_not_extend_the_run_before_it() -> None:
    """The source was cut to 20 when the copy stood at 21, by accident on the line of the run."""
    facts = [Run(0, 1, 18), Run(20, 19, 2), Run(20, 21, 0)]

    offsets = OffsetMap.of(facts, Position(20, 21, 20))

    assert offsets.runs == (Run(0, 1, 18),)


@given(truncated_histories(), st.randoms())
def test_what_a_truncated_source_held_is_cut_from_the_map(
    history: tuple[dict[int, int], list[Run], Position], chance: Random
) -> None:
    counterpart, runs, position = history
    chance.shuffle(runs)

    offsets = OffsetMap.of(runs, position)

    mapped = {r.source_start + i: r.target_start + i for r in offsets.runs for i in range(r.count)}
    assert mapped == counterpart
    for committed in range(position.source_next):
        following = [s for s in counterpart if s >= committed]
        last = max(counterpart.values(), default=None)
        if following:
            assert offsets.forward(committed) == Translated(counterpart[min(following)])
        elif last is not None:
            assert offsets.forward(committed) == Translated(last + 1)
    for committed in range(position.target_next + 1):
        before = [s for s, t in counterpart.items() if t < committed]
        if before:
            assert offsets.backward(committed) == Translated(max(before) + 1)
