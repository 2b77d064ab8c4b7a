"""What people are shown before they approve a move."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.domain.moves.report import reporting

from srm.domain.moves.disaster import Forecast, GroupForecast, TopicForecast
from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove
from srm.domain.moves.request import MoveRequest
from srm.domain.text.amount import problem, warning
from srm.pages.reports import (
    SHOWN_ROWS,
    approval_subject,
    approval_text,
    bullets,
    escape,
    plan_page,
    report_note,
    table,
)

POSITION = PartitionMove("Payments", 0, "P.Payments", "forward", "translated", 1000, 50, 990)
PLANNED = MovePlan(
    "failover-1",
    1_700_000_000_000,
    MoveRequest("failover", "P", "B"),
    ("Payments",),
    (GroupPlan("billing", ("c-1@host",), (POSITION,)),),
    (warning("wait", "the move will wait: replication of Payments from P is 3 records behind"),),
    "f",
)
FORECAST = Forecast(
    1_700_000_000_000,
    (TopicForecast("Payments", 3, 312, 350, 0.4, 1200, ("Payments-2 is not copied: stopped",)),),
    (GroupForecast("audit", 3, 25, 0, 3100), GroupForecast("my|group", 3, 15, 2, 3100)),
    unseen=("late",),
    transactions=("producer 17 of P.Payments-0",),
)
UNPLANNED = replace(
    PLANNED,
    request=MoveRequest("failover", "P", "B", mode="unplanned"),
    groups=(GroupPlan("audit", (), ()), GroupPlan("my|group", (), ())),
    forecast=FORECAST,
)


def test_a_planned_move_is_approved_with_what_each_group_has_still_to_read() -> None:
    text = approval_text(PLANNED)

    assert approval_subject(PLANNED) == "Move group billing from P to B?"
    assert "| billing | 1 | 50 | 0 | 0 |" in text
    assert (
        "- Warning: the move will wait: replication of Payments from P is 3 records behind" in text
    )
    assert "Nothing has been changed yet" in text
    assert PLANNED.numbers() == {
        "groups": 1,
        "members": 1,
        "lag": 50,
        "records_read_again": 0,
        "records_skipped": 0,
    }


def test_an_unplanned_move_is_approved_with_what_is_lost() -> None:
    text = approval_text(UNPLANNED)

    assert approval_subject(UNPLANNED) == "Abandon P and move 2 groups to B?"
    assert "**P is abandoned:** the flow P->B is paused" in text
    assert "312 records (0.4 s) of P not copied, 350 at most" in text
    assert "| Payments | 312 | 350 | 0.4 s | 1.2 s ago |" in text
    assert r"| my\|group | 15 | - | 2 | 3.1 s ago |" in text, "a name is no markup"
    assert "- Unknown: Payments-2 is not copied: stopped" in text
    assert "- Known by name only: late" in text
    assert "- Open transaction: producer 17 of P.Payments-0" in text
    assert "An approval accepts the loss of up to 350 records; beyond that" in text
    assert UNPLANNED.numbers() == {**FORECAST.numbers(), "accepted_rpo": 350}


def test_the_text_does_not_grow_with_the_number_of_groups() -> None:
    many = tuple(GroupForecast(f"group-{n}", 1, 1, 0, 10) for n in range(2000))

    text = approval_text(replace(UNPLANNED, forecast=replace(FORECAST, groups=many)))

    assert len(text.splitlines()) < 2 * SHOWN_ROWS
    assert f"and {2000 - SHOWN_ROWS} more" in text


def test_the_page_of_a_plan_says_whether_the_move_could_start() -> None:
    assert "could start" in plan_page(PLANNED)
    assert "pre-wrap" in plan_page(PLANNED), "a frame in Airflow would cut long lines off"
    blocked = plan_page(
        replace(PLANNED, findings=(problem("in-use", "group <audit> is active on B"),))
    )
    assert "would be refused" in blocked
    assert "group &lt;audit&gt; is active on B" in blocked
    assert "http" not in blocked, "one file, which loads nothing"


REPORT = replace(reporting.REPORT, ok=True, residue={}, problems=())


def test_the_note_of_a_clean_move_is_one_line() -> None:
    assert report_note(REPORT).startswith("failover P->B: clean; RPO 0 records")
    assert "\n" not in report_note(REPORT)


@pytest.mark.parametrize(
    ("step", "problems", "reason", "first", "last"),
    [
        (
            "released",
            ("clients were not moved: the move is at step released",),
            "group audit is still active on P (c-1@host): stop it there",
            "group audit is still active on P (c-1@host): stop it there",
            "failover P->B: clients were not moved",
        ),
        (
            "released",
            ("clients were not moved: the move is at step released",),
            "",
            "clients were not moved: the move is at step released",
            "failover P->B: clients were not moved",
        ),
        (
            "reported",
            ("group billing read 2 records again",),
            "",
            "group billing read 2 records again",
            "failover P->B: not clean: group billing read 2 records again; RPO 0 records",
        ),
    ],
)
def test_the_note_of_any_other_begins_with_what_a_person_can_act_on(
    step: str, problems: tuple[str, ...], reason: str, first: str, last: str
) -> None:
    note = report_note(replace(REPORT, ok=False, step=step, problems=problems), reason)  # type: ignore[arg-type]

    lines = note.splitlines()
    assert lines[0] == first
    assert lines[-1].startswith(last)


def test_markdown_is_kept_on_one_line_and_counted_where_it_is_cut() -> None:
    assert escape("a_b *c*\n<d>") == r"a\_b \*c\* \<d\>"
    assert list(bullets("Note", ["a", "b", "c"], 2)) == [
        "- Note: a",
        "- Note: b",
        "- Note: and 1 more",
        "",
    ]
    assert list(table(("x",), [["1"], ["2"]], 1)) == [
        "| x |",
        "|---|",
        "| 1 |",
        "",
        "and 1 more",
        "",
    ]
    assert list(bullets("Note", [])) == []
