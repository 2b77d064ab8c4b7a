"""What of two copies is compared, held against a model that knows each record's place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srm.domain.offset_map.offset_map import OffsetMap, Position, Run, coalesce
from srm.domain.verification.verification_plan import (
    RangePlan,
    cut,
    newest,
    plan_partition,
)
from srm.errors import UsageError


def logs(source: tuple[int, int], target: tuple[int, int]) -> RangePlan:
    """Return the plan of two whole logs, by their starts and ends."""
    return RangePlan("pay", 0, "P.pay", *source, source[1], *target, target[1], ())


@dataclass(frozen=True)
class History:
    """Places of all copied records, and where both logs start and end."""

    pairs: tuple[tuple[int, int], ...]
    source: tuple[int, int]
    target: tuple[int, int]
    position: Position

    def plan(self) -> RangePlan:
        offset_map = OffsetMap(coalesce(Run(s, t, 1) for s, t in self.pairs), self.position)
        plan = plan_partition(logs(self.source, self.target), offset_map, self.target[1])
        assert plan is not None
        return plan


@st.composite
def histories(draw: st.DrawFn) -> History:
    steps = draw(st.lists(st.sampled_from(["record", "source hole", "target hole"]), max_size=40))
    pairs, source, target = [], draw(st.integers(0, 5)), draw(st.integers(0, 5))
    for step in steps:
        if step == "record":
            pairs.append((source, target))
        source += step != "target hole"
        target += step != "source hole"
    behind = draw(st.integers(0, 10))
    return History(
        tuple(pairs),
        (draw(st.integers(0, source)), source + behind),
        (draw(st.integers(0, target)), target),
        Position(source, target, source + behind),
    )


def pairs_of(plan: RangePlan) -> list[tuple[int, int]]:
    return [(r.source_start + i, r.target_start + i) for r in plan.runs for i in range(r.count)]


@given(histories())
def test_exactly_the_records_that_both_logs_still_hold_are_compared(history):
    held = [(s, t) for s, t in history.pairs if s >= history.source[0] and t >= history.target[0]]

    plan = history.plan()

    assert pairs_of(plan) == held
    assert all(plan.source_start <= s < plan.source_end for s, _ in held)
    assert all(plan.target_start <= t < plan.target_end for _, t in held)


@given(histories())
def test_no_record_whose_counterpart_is_gone_or_to_come_is_compared(history):
    plan = history.plan()
    held = set(pairs_of(plan))

    for s, t in set(history.pairs) - held:
        assert not plan.source_start <= s < plan.source_end
        assert not plan.target_start <= t < plan.target_end
    assert plan.source_end <= max(history.position.source_next, history.source[0])


@given(histories(), st.integers(1, 50))
def test_the_newest_records_are_the_last_ones(history, count):
    plan = history.plan()

    narrowed = newest(plan, count)

    assert pairs_of(narrowed) == pairs_of(plan)[-count:]
    assert (narrowed.source_end, narrowed.target_end) == (plan.source_end, plan.target_end)


@given(histories(), st.integers(1, 15))
def test_cut_ranges_follow_each_other_and_keep_each_pair_together(history, size):
    plan = history.plan()

    parts = cut(plan, size)

    assert [pair for part in parts for pair in pairs_of(part)] == pairs_of(plan)
    assert all(len(pairs_of(part)) <= size for part in parts)
    assert (parts[0].source_start, parts[0].target_start) == (plan.source_start, plan.target_start)
    assert (parts[-1].source_end, parts[-1].target_end) == (plan.source_end, plan.target_end)
    for before, after in pairwise(parts):
        assert (before.source_end, before.target_end) == (after.source_start, after.target_start)
    for part in parts:
        assert all(part.source_start <= s < part.source_end for s, _ in pairs_of(part))
        assert all(part.target_start <= t < part.target_end for _, t in pairs_of(part))


def test_target_records_that_may_be_copies_not_reported_yet_are_left_out():
    copied = OffsetMap.of([Run(0, 0, 10)], Position(10, 10, 15))

    plan = plan_partition(logs((0, 15), (0, 13)), copied, 13)

    assert plan is not None
    assert (plan.source_end, plan.target_end) == (10, 10)
    assert plan.left_out == "source offsets 10 to 14 are not copied yet"


def test_records_that_a_decision_keeps_on_the_source_are_not_said_to_be_copied_later():
    copied = OffsetMap.of([Run(0, 0, 10)], Position(10, 10, 15))
    whole = replace(logs((0, 15), (0, 10)), decided=((10, 13),))

    plan = plan_partition(whole, copied, 10)

    assert plan is not None
    assert plan.left_out == "source offsets 13 to 14 are not copied yet"


def test_when_the_source_holds_nothing_more_the_target_is_compared_to_its_end():
    copied = OffsetMap.of([Run(0, 0, 10)], Position(10, 10, 10))

    plan = plan_partition(logs((0, 10), (0, 14)), copied, 13)

    assert plan is not None
    assert plan.target_end == 13


def test_source_records_before_the_first_run_are_compared_too():
    copied = OffsetMap.of([Run(5, 0, 10)], Position(15, 10, 15))

    plan = plan_partition(logs((0, 15), (0, 10)), copied, 10)

    assert plan is not None
    assert (plan.source_start, plan.target_start) == (0, 0)


def test_a_target_that_lost_its_end_is_compared_as_far_as_the_map_goes():
    copied = OffsetMap.of([Run(0, 0, 10)], Position(10, 10, 10))

    plan = plan_partition(logs((0, 10), (0, 7)), copied, 7)

    assert plan is not None
    assert (plan.target_end, plan.target_log_end) == (10, 7)


def test_a_partition_of_which_nothing_was_copied_has_no_plan_unless_it_is_empty():
    empty = OffsetMap()

    assert plan_partition(logs((0, 3), (0, 0)), empty, 0) is None
    plan = plan_partition(logs((4, 4), (0, 2)), empty, 2)
    assert plan is not None
    assert (plan.source_start, plan.source_end) == (4, 4)
    assert (plan.target_start, plan.target_end) == (0, 2)


@pytest.mark.parametrize("records", [0, -1])
def test_numbers_of_records_that_are_not_positive_are_refused(records):
    plan = plan_partition(logs((0, 0), (0, 0)), OffsetMap(), 0)
    assert plan is not None

    with pytest.raises(UsageError, match="records"):
        newest(plan, records)
    with pytest.raises(UsageError, match="records"):
        cut(plan, records)
