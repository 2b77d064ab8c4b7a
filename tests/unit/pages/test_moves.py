"""A move in words, tables and pages: the same for commands, tasks and reports."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.domain.moves.report import reporting

from srm.domain.moves.gate import GroupSync, SyncStatus
from srm.domain.moves.plan import GroupPlan, MovePlan, PartitionMove
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.revisions import KeptReport
from srm.domain.text.amount import problem, warning
from srm.pages.html import report_page
from srm.pages.moves import (
    as_text,
    plan_summary,
    plan_view,
    progress_line,
    progress_summary,
    progress_view,
    report_line,
    report_view,
)

POSITION = PartitionMove(
    topic="Payments",
    partition=0,
    target_topic="P.Payments",
    direction="forward",
    state="translated",
    committed=1000,
    lag=50,
    resume=990,
)
PLAN = MovePlan(
    move_id="failover-1",
    created_ms=1,
    request=MoveRequest("failover", "P", "B", topics=("Payments",)),
    topics=("Payments",),
    groups=(GroupPlan("billing", ("c-1@host",), (POSITION,)),),
    findings=(
        problem("no-commit", "group audit has [no] commits"),
        warning("wait", "replication of Payments lags by 3 records: the move will wait for it"),
    ),
    settings={},
)
REPORT = replace(
    reporting.REPORT,
    rto_steps={"hold": 1.0, "wait and apply": 2.0},
    groups={"billing": replace(reporting.GROUP, first_commit_seconds=None)},
)
WAITING = SyncStatus(
    move_id="failover-1",
    ready=False,
    applied=False,
    blocking=tuple(f"reason {n}" for n in range(7)),
    unapplied=(),
    remaining_records=1500,
    groups=(GroupSync("billing", 1, synchronised=False, applied=False, remaining=1500),),
    eta_seconds=4.0,
    elapsed_seconds=3.0,
    timed_out=False,
)


def rows(text: str, first: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip().startswith(first)]


def test_the_plan_shows_where_each_group_resumes_and_what_speaks_against_it() -> None:
    text = as_text(plan_view(PLAN))

    assert rows(text, "billing") == [
        ["billing", "Payments-0", "1,000", "50", "P.Payments-0", "990", "0", "0", "translated"]
    ]
    assert "resumes at" in text
    assert f"move {PLAN.move_id}:" in text
    assert "move" not in as_text(plan_view(replace(PLAN, move_id=""))).partition(":")[0]
    assert "warning: replication of Payments lags by 3 records" in text
    assert "blocked: group audit has [no] commits" in text, "no markup in what is shown"


def test_a_narrow_terminal_still_tells_partitions_apart() -> None:
    other = replace(POSITION, partition=17)
    plan = replace(PLAN, groups=(GroupPlan("billing-of-team-one", (), (POSITION, other)),))

    text = as_text(plan_view(plan), 60)

    assert "…" not in text
    assert "17" in text


def test_names_in_tables_are_whole_where_the_numbers_find_no_room_next_to_them() -> None:
    name = "settlement-of-the-eastern-region"
    plan = replace(PLAN, groups=(GroupPlan(name, (), (POSITION,)),))

    lines = as_text(plan_view(plan), width=80).splitlines()

    assert any(line.strip().startswith(name) for line in lines)
    assert any("resumes at 990" in line for line in lines), "beneath it, by the header"


def test_partitions_that_nobody_reads_are_left_out_of_the_plan() -> None:
    unread = replace(POSITION, state="no-commit", committed=None, resume=None, lag=0)
    plan = replace(PLAN, groups=(GroupPlan("billing", (), (unread,)),))

    assert rows(as_text(plan_view(plan)), "billing") == []


def test_a_run_shows_the_first_of_many_reasons_and_how_many_more_there_are() -> None:
    plan = replace(
        PLAN, findings=tuple(problem("halted", f"Payments-{n} is stopped") for n in range(1_000))
    )

    assert rows(as_text(plan_view(plan, 2)), "blocked") == [
        ["blocked:", "Payments-0", "is", "stopped"],
        ["blocked:", "Payments-1", "is", "stopped"],
        ["blocked:", "and", "998", "more"],
    ]


def test_a_plan_of_a_site_is_cut_after_its_costly_rows() -> None:
    names = tuple(f"topic-{n}" for n in range(1_000))
    costly = replace(POSITION, re_read=7)
    plan = replace(
        PLAN,
        topics=names,
        groups=(*(GroupPlan(n, (), (POSITION,)) for n in names), GroupPlan("z", (), (costly,))),
    )

    lines = as_text(plan_view(plan)).splitlines()

    assert len(lines) < 250
    assert "topic-7 and 992 more" in " ".join(lines)
    assert lines.index(next(line for line in lines if line.startswith("z "))) < 5
    assert "and 801 more rows; --json shows all" in lines


def test_a_report_of_a_site_is_cut() -> None:
    groups = {f"group-{n}": REPORT.groups["billing"] for n in range(1_000)}
    report = replace(REPORT, groups=groups, notes=tuple(f"{name} waits" for name in groups))

    lines = as_text(report_view(report)).splitlines()

    assert len(lines) < 450
    assert "and 800 more rows; --json shows all" in lines
    assert "note: and 800 more" in lines


def test_the_summary_of_a_plan_counts_by_group() -> None:
    summary = plan_summary(PLAN)

    assert summary["groups"] == {"billing": {"members": 1, "lag": 50, "re_read": 0, "skipped": 0}}
    assert (summary["source"], summary["target"]) == ("P", "B")


def test_the_report_is_one_line_for_a_note_and_a_row_for_each_group() -> None:
    assert report_line(REPORT) == (
        "failover P->B: not clean: group billing read 2 records again; RPO 0 records, RTO 4.2 s "
        "(hold 1.0 s, wait and apply 2.0 s), assigned after 4.0 s, skipped 0, read again 2, "
        "residue 7 (watched until 2023-11-14 22:18:20 UTC)"
    )
    text = as_text(report_view(REPORT))
    assert rows(text, "billing") == [
        ["billing", "50", "0", "2", "1", "4.0", "s", "4.2", "s", "processed"]
    ]
    assert "problem: group billing read 2 records again" in text
    assert "note: group audit had nothing to process on B" in text
    clean = replace(REPORT, ok=True, problems=())
    assert "failover P->B: clean; RPO 0 records" in as_text(report_view(clean))


def test_the_page_is_made_from_the_report_alone() -> None:
    page = report_page(KeptReport.made(REPORT, None))

    assert "<style>" in page
    assert "--accent" in page, "the style that all pages share"
    assert "group billing read 2 records again" in page
    assert "http" not in page, "one file, which loads nothing"
    assert "assigned after" in page
    assert "group audit had nothing to process on B" in page
    assert "after go, watched until 2023-11-14 22:18:20 UTC" in page


def test_residue_is_dated_by_the_last_look_when_nobody_looks_any_more() -> None:
    over = replace(REPORT, residue_over=True, residue_seen_ms=1_700_000_100_000)

    assert report_line(over).endswith("residue 7 (last checked 2023-11-14 22:15:00 UTC)")
    never = replace(REPORT, residue_over=False, residue_until_ms=None)
    assert report_line(never).endswith("residue 7")


def test_a_line_break_in_a_name_breaks_no_row_and_no_warning() -> None:
    """A group named ``a<newline>warning: ...`` wrote a line of its own into the plan."""
    name = "a\nwarning: all is well"
    groups = (GroupPlan(name, (), (POSITION,)),)
    broken = replace(PLAN, groups=groups, findings=(problem("x", name),))

    lines = as_text(plan_view(broken)).splitlines()

    assert not any(line.startswith("warning: all") for line in lines)
    assert "blocked: a\\nwarning: all is well" in lines
    assert any(line.startswith("a\\nwarning: all is well") for line in lines)


def test_the_summary_of_a_wait_names_the_groups_that_are_left_out() -> None:
    sync = SyncStatus(
        *("m1", False, False, (), (), 7, (), None, 3.0, False), notes=("group a is left out: x",)
    )

    assert progress_summary(sync)["notes"] == ["group a is left out: x"]


def test_a_wait_says_how_far_it_is_and_for_what() -> None:
    assert progress_line(WAITING) == (
        "3 s since the hold: 1,500 records to copy, about 4 s, 0 of 1 groups synchronised; "
        "waiting for: reason 0; reason 1; reason 2; reason 3; reason 4; and 2 more"
    )
    text = as_text(progress_view(WAITING))
    assert rows(text, "billing") == [["billing", "1", "not", "yet", "not", "yet"]]
    assert "waits: reason 4" in text
    assert "and 2 more" in text


def test_a_wait_of_hundreds_of_groups_shows_those_it_waits_for() -> None:
    """A terminal has few lines: the reasons below a table of all groups would be cut off."""
    [late] = WAITING.groups
    ready = [replace(late, group=f"g{n:03}", synchronised=True) for n in range(400)]

    lines = as_text(progress_view(replace(WAITING, groups=(*ready, late)))).splitlines()

    assert lines[2].startswith("billing")
    assert "and 381 more groups" in lines
    assert len(lines) < 32
