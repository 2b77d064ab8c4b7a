"""Small pictures: nothing is outside, nothing is drawn where nothing was measured."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service_site import moving, past_moves

from srm.domain.moves.progress import Carrier, MoveProgress, MoveStep
from srm.domain.moves.revisions import KeptReport
from srm.domain.text.amount import problem
from srm.service.pages.figures import HEIGHT, WIDTH, sparkline
from srm.service.pages.moves import bars, stages
from srm.service.pages.topology import BOX, LABEL, topology
from srm.service.views.documents import FlowSummary, State
from srm.service.views.flow_rows import MoveLook, move_row


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


def joined(pairs: Iterable[tuple[str, str]], state: State = "RUNNING") -> list[FlowSummary]:
    return [FlowSummary(f"{a}->{b}", a, b, state, (), 0, 0, 1, 1, 0, 0) for a, b in pairs]


def names(count: int) -> list[str]:
    return [f"C{n}" for n in range(count)]


def flows(count: int) -> list[FlowSummary]:
    return joined(permutations(names(count), 2))


def star(count: int) -> list[tuple[str, str]]:
    hub, *others = names(count)
    return [(other, hub) for other in others]


def ring(count: int) -> list[tuple[str, str]]:
    return list(pairwise([*names(count), "C0"]))


@pytest.mark.parametrize("lag", [0, 9])
def test_clusters_stand_as_the_file_names_them_whoever_lags(lag: int) -> None:
    drawn = [replace(flow, lag=lag if flow.source == "C0" else 0) for flow in flows(2)]

    assert [box.alias for box in topology(drawn, {}, set(), ["C1", "C0"]).boxes] == ["C1", "C0"]


@pytest.mark.parametrize("shape", [star, ring, lambda count: permutations(names(count), 2)])
@pytest.mark.parametrize("count", [*range(2, 14), 20, 40])
def test_boxes_do_not_overlap_and_all_is_within_the_picture(
    shape: Callable[[int], Iterable[tuple[str, str]]], count: int
) -> None:
    """With twelve clusters boxes covered their arrows, and the overview was an error."""
    found = topology(joined(shape(count)), {}, set(), names(count))

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


@pytest.mark.parametrize("count", [2, 3])
def test_figures_next_to_arrows_cover_neither_each_other_nor_a_box(count: int) -> None:
    """Their frame is 172 by 46, as overview.html has it."""
    assert LABEL == (172, 46)
    found = topology(flows(count), {}, set())

    for one, other in permutations(found.arrows, 2):
        assert abs(one.x - other.x) > 172 + 8 or abs(one.y - other.y) > 46 + 8
    for arrow in found.arrows:
        assert 86 <= arrow.x <= found.width - 86
        for box in found.boxes:
            beside, above = abs(arrow.x - box.x), abs(arrow.y - box.y)
            assert beside > (172 + BOX[0]) / 2 or above > (46 + BOX[1]) / 2


@pytest.mark.parametrize("shape", [star, ring])
def test_of_many_flows_in_trouble_those_have_figures_that_cover_nothing(
    shape: Callable[[int], list[tuple[str, str]]],
) -> None:
    found = topology(joined(shape(12), "STOPPED"), {}, set(), names(12))
    told = [arrow for arrow in found.arrows if arrow.is_labelled]

    assert found.is_large
    for one, other in permutations(told, 2):
        assert abs(one.x - other.x) > LABEL[0] or abs(one.y - other.y) > LABEL[1]
    for arrow in told:
        for box in found.boxes:
            beside, above = abs(arrow.x - box.x), abs(arrow.y - box.y)
            assert beside > (LABEL[0] + BOX[0]) / 2 or above > (LABEL[1] + BOX[1]) / 2
    assert len(told) > 5 or shape is ring, "between neighbours is no room"


def test_figures_of_a_flow_in_trouble_stand_in_a_picture_of_many_that_are_well() -> None:
    bad, *well = star(12)[4:] + star(12)[:4]
    found = topology(joined([bad], "STOPPED") + joined(well), {}, set(), names(12))

    assert [arrow.flow.source for arrow in found.arrows if arrow.is_labelled] == [bad[0]]


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
    assert (found[2].name, found[2].time_ms) == ("Wait", None)
    assert found[2].reasons == ("replication of payments from P is 1,204 records behind",)
    assert found[2].carrier == Carrier(
        "process 17 on host-7", 1_799_999_998_000, alive=True, waits=found[2].reasons
    )


def test_a_move_that_holds_clients_says_how_it_is_given_up() -> None:
    look = moving(1_800_000_000_000)
    command = f"srm failover release {look.plan.move_id} --source P --target B"

    assert [stage.way_out for stage in stages(look)] == ["", "", command, *[""] * 4]
    assert not any(stage.again for stage in stages(look))


def test_a_move_that_holds_nobody_has_nobody_to_send_back() -> None:
    for step in ("planned", "released", "gone"):
        assert not any(stage.way_out for stage in stages(at_step(step)))


def at_step(step: MoveStep, **times_ms: int) -> MoveLook:
    """Return the move under way at another step, reached so many milliseconds after its hold."""
    look = moving(1_800_000_000_000)
    held = look.progress.times_ms["held"]
    times = {**look.progress.times_ms, **{name: held + ms for name, ms in times_ms.items()}}
    return MoveLook(look.plan, replace(look.progress, step=step, times_ms=times))


def test_clients_that_are_just_being_told_are_no_wait_yet() -> None:
    found = stages(at_step("holding"))

    assert [stage.name for stage in found if stage.state == "now"] == ["Hold"]


def test_the_wait_has_its_time_and_applying_its_own() -> None:
    waited = stages(at_step("held", ready=9_000))
    applied = stages(at_step("applied", ready=9_000, applied=9_400))

    assert [stage.name for stage in waited if stage.state == "now"] == ["Apply"]
    assert [(stage.name, stage.seconds) for stage in applied[2:4]] == [("Wait", 9), ("Apply", 0.4)]


def test_a_move_that_waits_again_after_it_was_ready_is_shown_to_wait() -> None:
    look = replace(
        at_step("held", ready=9_000), carrier=Carrier("p", 1, alive=True, waits=("a slow writer",))
    )

    [now] = [stage for stage in stages(look) if stage.state == "now"]
    assert (now.name, now.reasons) == ("Wait", ("a slow writer",))


def test_a_move_of_before_the_end_of_a_wait_was_kept_claims_no_time_for_it() -> None:
    """Such moves showed a wait of 0.0 s, and all of it as applying."""
    assert stages(at_step("applied", applied=9_400))[2].seconds is None


def test_an_unplanned_move_waits_for_nothing() -> None:
    look = at_step("held")
    unplanned = replace(look.plan, request=replace(look.plan.request, mode="unplanned"))

    found = stages(replace(look, plan=unplanned))
    assert [stage.name for stage in found][:3] == ["Plan", "Hold", "Apply"]
    assert found[2].state == "now"


def test_a_move_that_was_given_up_shows_how_far_it_came() -> None:
    released = list(past_moves(1_800_000_000_000))[-1]

    found = stages(released)

    assert [stage.state for stage in found] == ["done", "done", *["undone"] * 5, "done"]
    assert (found[2].name, found[2].seconds) == ("Wait", 44.8)
    assert found[2].text == "released here: until all is copied and translated"
    assert (found[-1].name, found[-1].seconds) == ("Released", None), "its time is told already"


def test_a_move_of_groups_without_members_claims_nobody_to_work_there() -> None:
    look = next(past_moves(1_800_000_000_000))
    alone = replace(look, progress=replace(look.progress, members_at_hold={}))

    texts = [one.text for found in (look, alone) for one in stages(found) if one.name == "Verify"]
    assert texts == [
        "the groups that it leads work there",
        "no group had members that could resume",
    ]


def test_a_move_that_was_reported_before_its_groups_came_back_has_no_tick_for_that() -> None:
    look = next(past_moves(1_800_000_000_000))
    assert look.report is not None
    times = {step: at for step, at in look.progress.times_ms.items() if step != "verified"}
    look = replace(look, progress=replace(look.progress, times_ms=times))
    why = ("group audit has not resumed on B",)
    absent = replace(look.report.report, ok=False, problems=why)

    missed = stages(replace(look, report=KeptReport.made(absent, None)))
    late = stages(look)

    assert [stage.state for stage in missed] == [*["done"] * 5, "undone", "done"]
    assert (missed[5].text, missed[5].reasons) == ("not verified", why)
    assert {stage.state for stage in late} == {"done"}, "they came back while it was watched"


def test_a_move_that_its_plan_keeps_from_beginning_is_not_about_to_hold_anybody() -> None:
    look = moving(1_800_000_000_000)
    planned = MoveProgress(look.plan.move_id)
    plan = replace(look.plan, findings=(problem("in-use", "group audit is active on B"),))

    found = stages(MoveLook(plan, planned))

    assert [stage.state for stage in found] == ["done", *["undone"] * 6]
    assert [stage.reasons for stage in found[:3]] == [(), plan.blocking, ()]


def test_a_plan_with_a_reason_for_each_of_many_partitions_shows_the_first_of_them() -> None:
    look = moving(1_800_000_000_000)
    plan = replace(look.plan, findings=tuple(problem("halted", f"orders-{n}") for n in range(100)))

    found = stages(MoveLook(plan, MoveProgress(look.plan.move_id)))

    assert found[1].reasons == (*plan.blocking[:5], "and 95 more")


def test_moves_are_drawn_by_time_and_none_higher_than_the_picture() -> None:
    rows = [move_row(look) for look in past_moves(1_800_000_000_000)]

    found = bars(rows[::-1])

    assert found is not None
    assert [bar.move.rto_seconds for bar in found.bars] == [4.2, 6.8, 3.9, 18.4, 5.1, 4.4, 45]
    assert (found.longest_s, found.top_records) == (45, 312), "no round figure above it"
    assert max(bar.rto_percent for bar in found.bars) == pytest.approx(90)
    assert bars(rows[:1]) is None
