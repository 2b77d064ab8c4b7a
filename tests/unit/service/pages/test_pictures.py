"""Small pictures: nothing is outside, nothing is drawn where nothing was measured."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service_site import moving, past_moves

from srm.service.documents import FlowSummary
from srm.service.move_rows import move_row
from srm.service.pages.move_picture import bars, stages
from srm.service.pages.sparkline import HEIGHT, WIDTH, sparkline
from srm.service.pages.topology import BOX, topology


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", path)]


@given(st.lists(st.none() | st.floats(0, 1e12), max_size=40))
def test_a_line_stays_in_its_box_and_has_a_gap_for_each_stretch_without_value(
    values: list[float | None],
) -> None:
    drawn = sparkline(list(enumerate(values)), 0, 40)  # type: ignore[arg-type]
    known = [value for value in values if value is not None]

    if len(known) < 2:
        assert drawn is None
        return
    assert drawn is not None
    found = numbers(drawn.line)
    assert all(0 <= x <= WIDTH for x in found[::2])
    assert all(0 <= y <= HEIGHT for y in found[1::2])
    shown = "".join("x" if value is not None else " " for value in values)
    assert drawn.line.count("M") == len(shown.split())
    assert (drawn.last is None) == (values[-1] is None)


def flows(count: int) -> list[FlowSummary]:
    names = [f"C{n}" for n in range(count)]
    return [
        FlowSummary(f"{a}->{b}", a, b, "RUNNING", (), 0, 0, 1, 1, 0, 0)
        for a, b in permutations(names, 2)
    ]


@pytest.mark.parametrize("lag", [0, 9])
def test_clusters_stand_as_the_file_names_them_whoever_lags(lag: int) -> None:
    drawn = [replace(flow, lag=lag if flow.source == "C0" else 0) for flow in flows(2)]

    assert [box.alias for box in topology(drawn, {}, set(), ["C1", "C0"]).boxes] == ["C1", "C0"]


@pytest.mark.parametrize("count", range(2, 9))
def test_boxes_do_not_overlap_and_all_is_within_the_picture(count: int) -> None:
    found = topology(flows(count), {}, set())

    assert len(found.boxes) == count
    for box in found.boxes:
        assert BOX[0] / 2 <= box.x <= found.width - BOX[0] / 2
        assert BOX[1] / 2 <= box.y <= found.height - BOX[1] / 2
    for one, other in permutations(found.boxes, 2):
        assert abs(one.x - other.x) > BOX[0] or abs(one.y - other.y) > BOX[1]
    for arrow in found.arrows:
        begin, _, end = zip(*[iter(numbers(arrow.path))] * 2, strict=True)
        for x, y in (begin, end, (arrow.x, arrow.y)):
            assert 0 <= x <= found.width
            assert 0 <= y <= found.height


def test_a_flow_and_its_reverse_are_apart() -> None:
    there, back = topology(flows(2), {}, set()).arrows

    assert abs(there.y - back.y) > 60


def test_the_clusters_stay_where_they_are_when_a_lag_grows() -> None:
    there, back = flows(2)
    before = topology([there, back], {}, set())

    for one in (there, back):
        late = [replace(flow, lag=90_000 * (flow == one)) for flow in (there, back)]
        assert topology(late, {}, set()).boxes == before.boxes


def test_there_may_be_nothing_to_draw() -> None:
    assert topology([], {}, set()).boxes == ()


def test_a_move_under_way_shows_what_it_does_now() -> None:
    found = stages(moving(1_800_000_000_000))

    assert [stage.state for stage in found] == ["done", "done", "now", *["next"] * 4]
    assert found[1].seconds == 21


def test_a_move_that_was_given_up_shows_how_far_it_came() -> None:
    released = list(past_moves(1_800_000_000_000))[-1]

    found = stages(released)

    assert [stage.state for stage in found] == ["done", "done", *["undone"] * 5, "done"]
    assert found[-1].name == "Released"


def test_moves_are_drawn_by_time_and_none_higher_than_the_picture() -> None:
    rows = [move_row(look) for look in past_moves(1_800_000_000_000)]

    found = bars(rows[::-1])

    assert found is not None
    assert [bar.move.rto_seconds for bar in found.bars] == [4.2, 6.8, 3.9, 18.4, 5.1, 4.4]
    assert (found.top_seconds, found.top_records) == (20, 312)
    assert max(bar.rto_percent for bar in found.bars) == pytest.approx(92)
    assert bars(rows[:1]) is None
