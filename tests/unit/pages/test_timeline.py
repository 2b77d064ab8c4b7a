"""The picture of a move: everything on one axis, in proportion."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.domain.moves.report.reporting import GROUP, REPORT

from srm.pages.html import LANES, move_timeline


def test_steps_follow_each_other_and_each_group_has_its_lane() -> None:
    drawn = move_timeline(REPORT)

    assert drawn is not None
    assert [bar.name for bar in drawn.steps.bars] == ["hold", "wait and apply", "go", "resume"]
    for bar, following in zip(drawn.steps.bars, drawn.steps.bars[1:], strict=False):
        assert bar.left + bar.width == pytest.approx(following.left, abs=0.01)
    [lane] = drawn.groups
    assert (lane.name, lane.bars[0].ended) == ("billing", True)
    assert [(mark.kind, mark.seconds) for mark in lane.marks] == [
        ("assigned", 4.0),
        ("working", 4.25),
        ("commit", 6.5),
    ]
    assert [tick.text for tick in drawn.ticks] == ["0 s", "1 s", "2 s", "3 s", "4 s", "5 s", "6 s"]


def test_a_group_that_does_not_work_yet_has_a_bar_without_an_end() -> None:
    waiting = replace(GROUP, rto_seconds=None, rto_end=None, first_commit_seconds=None)
    drawn = move_timeline(replace(REPORT, groups={"billing": GROUP, "audit": waiting}))

    assert drawn is not None
    assert [(lane.name, lane.bars[0].ended) for lane in drawn.groups] == [
        ("audit", False),
        ("billing", True),
    ], "the slowest first"


def test_a_move_that_held_nobody_has_no_picture_and_a_large_one_draws_the_slowest() -> None:
    assert move_timeline(replace(REPORT, rto_steps={})) is None
    groups = {f"g{n}": replace(GROUP, rto_seconds=float(n)) for n in range(LANES + 3)}
    groups["idle"] = replace(GROUP, members_at_hold=0)
    drawn = move_timeline(replace(REPORT, groups=groups))

    assert drawn is not None
    assert (len(drawn.groups), drawn.hidden) == (LANES, 3)
    assert drawn.groups[0].name == f"g{LANES + 2}"


@given(st.lists(st.floats(0, 1e7), min_size=1, max_size=4), st.none() | st.floats(0, 1e7))
def test_whatever_the_times_nothing_is_drawn_outside(steps: list[float], rto: float | None) -> None:
    named = {str(number): seconds for number, seconds in enumerate(steps)}
    group = replace(GROUP, rto_seconds=rto)
    drawn = move_timeline(replace(REPORT, rto_steps=named, groups={"g": group}))

    assert drawn is not None
    bars = [*drawn.steps.bars, *drawn.groups[0].bars]
    assert all(bar.left >= 0 and bar.left + bar.width <= 100.01 for bar in bars)
    assert all(0 <= mark.left <= 100 for mark in drawn.groups[0].marks)
    assert 1 <= len(drawn.ticks) <= 12
    assert len({tick.text for tick in drawn.ticks}) == len(drawn.ticks)
