"""Moves in words and tables: their plan, how far they are, their report.

The functions give what rich prints, for terminals; :func:`as_text` turns it into plain text, for
logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from io import StringIO
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from srm.domain.amount import amount
from srm.domain.move.gate import SyncStatus
from srm.domain.move.plan import MovePlan
from srm.domain.move.report import MoveReport
from srm.engine.move.verify import VerifyStatus

LOG_WIDTH: Final = 150
SHOWN_REASONS: Final = 5
KEPT_REASONS: Final = 20


def as_text(view: RenderableType, width: int = LOG_WIDTH) -> str:
    """Return a view as plain text."""
    out = StringIO()
    Console(file=out, width=width, color_system=None).print(view)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def plan_view(plan: MovePlan) -> RenderableType:
    """Show a plan: one row per group and partition with offsets, then what speaks against it."""
    request = plan.request
    title = f"{request.operation} {request.flow}, move {plan.move_id}: {', '.join(plan.topics)}"
    table = _table(
        *("group", f"on {request.source}", "committed", "lag", f"on {request.target}"),
        *("resumes at", "re-read", "skipped", "state"),
        title=title,
    )
    for group in plan.groups:
        for position in group.positions:
            if position.state == "no-commit" and not position.lag:
                continue
            _row(
                table,
                *(group.group, position.name, number(position.committed), number(position.lag)),
                f"{position.target_topic}-{position.partition}",
                *(number(position.resume), number(position.re_read), number(position.skipped)),
                position.state.replace("_", " "),
            )
    return Group(
        table,
        *_list_names("warning", plan.warnings, "yellow"),
        *_list_names("blocked", plan.blocking, "bold red"),
    )


def plan_summary(plan: MovePlan) -> dict[str, Any]:
    """Return a plan as small plain JSON; the whole of it is in ``srm-moves.internal``."""
    return {
        "move_id": plan.move_id,
        "operation": plan.request.operation,
        "source": plan.request.source,
        "target": plan.request.target,
        "wait_seconds": plan.request.wait_seconds,
        "topics": list(plan.topics),
        "groups": {
            group.group: {
                "members": len(group.members),
                "lag": group.lag,
                "re_read": group.re_read,
                "skipped": group.skipped,
            }
            for group in plan.groups
        },
        "blocking": list(plan.blocking),
        "warnings": list(plan.warnings),
    }


def progress_line(status: SyncStatus) -> str:
    """Say in one line how far a waiting move is and what it waits for."""
    head = f"{_head(status)}, {_synchronised(status)} of {len(status.groups)} groups synchronised"
    if status.ready:
        return f"{head}; ready"
    return f"{head}; waiting for: {reasons_text(status.blocking)}"


def progress_summary(status: SyncStatus) -> dict[str, Any]:
    """Return a look at a move as small plain JSON: Airflow bounds what a task may keep."""
    return {
        "move_id": status.move_id,
        "ready": status.ready,
        "elapsed_seconds": status.elapsed_seconds,
        "remaining_records": status.remaining_records,
        "eta_seconds": status.eta_seconds,
        "groups": len(status.groups),
        "synchronised": _synchronised(status),
        "blocking": list(status.blocking[:KEPT_REASONS]),
    }


def sync_view(status: SyncStatus) -> RenderableType:
    """Show how far a waiting move is: one row per group, then what it waits for."""
    table = _table("group", "members left", "synchronised", "applied")
    for group in status.groups:
        _row(
            table,
            *(group.group, number(group.members_left)),
            *(_tick(group.synchronised), _tick(group.applied)),
        )
    return Group(Text(_head(status)), table, *_waits(status.blocking))


def verify_view(status: VerifyStatus) -> RenderableType:
    """Show what a move waits for after go."""
    return Group(Text(f"{status.elapsed_seconds:.0f} s since go"), *_waits(status.waiting))


def report_view(report: MoveReport) -> RenderableType:
    """Show what a move did."""
    table = _table(
        *("group", "lag at hold", "skipped", "re-read", "members at hold", "assigned after"),
        *("working after", ""),
    )
    for name, group in sorted(report.groups.items()):
        _row(
            table,
            *(name, number(group.lag_at_hold), number(group.skipped), number(group.re_read)),
            *(number(group.members_at_hold), seconds(group.assigned_seconds)),
            *(seconds(group.rto_seconds), group.rto_end or ""),
        )
    verdict = Text("clean", "bold green") if report.ok else Text("not clean", "bold red")
    headline = Text.assemble(f"{_name(report)}: ", verdict, f"; {_figures(report)}")
    return Group(
        headline,
        table,
        *_list_names("problem", report.problems, "red"),
        *_list_names("note", report.notes, "dim"),
    )


def report_line(report: MoveReport) -> str:
    """Sum a move up in one line, for the note of a run."""
    verdict = "clean" if report.ok else f"not clean: {reasons_text(report.problems)}"
    return f"{_name(report)}: {verdict}; {_figures(report)}"


def residue_text(report: MoveReport) -> str:
    """Say until when residue is looked for, or was; empty before go."""
    if not report.residue_over and report.residue_until_ms is not None:
        return f"watched until {_utc(report.residue_until_ms)}"
    if report.residue_seen_ms is not None:
        return f"last looked at {_utc(report.residue_seen_ms)}"
    return ""


def reasons_text(reasons: Sequence[str]) -> str:
    """Join reasons, leaving out what would make the line unreadable."""
    shown = "; ".join(reasons[:SHOWN_REASONS])
    more = len(reasons) - SHOWN_REASONS
    return f"{shown}; and {more} more" if more > 0 else shown


def number(value: int | None) -> str:
    """Render a count or an offset."""
    return "-" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Render a duration."""
    return "-" if value is None else f"{value:.1f} s"


def _name(report: MoveReport) -> str:
    return f"{report.operation} {report.source}->{report.target}"


def _figures(report: MoveReport) -> str:
    lost = "-" if report.rpo_records is None else amount(report.rpo_records, "record")
    steps = ", ".join(f"{name} {seconds(spent)}" for name, spent in report.rto_steps.items())
    watched = residue_text(report)
    return (
        f"RPO {lost}, RTO {seconds(report.rto_seconds)}"
        f"{f' ({steps})' if steps else ''}, assigned after {seconds(report.assigned_seconds)}, "
        f"skipped {number(sum(group.skipped for group in report.groups.values()))}, "
        f"re-read {number(sum(group.re_read for group in report.groups.values()))}, "
        f"residue {number(sum(report.residue.values()))}{f' ({watched})' if watched else ''}"
    )


def _utc(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _head(status: SyncStatus) -> str:
    eta = "" if status.eta_seconds is None else f", about {status.eta_seconds:.0f} s"
    left = f"{amount(status.remaining_records, 'record')} to copy"
    return (
        f"{status.elapsed_seconds:.0f} s since the hold: "
        f"{left}{eta if status.remaining_records else ''}"
    )


def _synchronised(status: SyncStatus) -> int:
    return sum(group.synchronised for group in status.groups)


def _table(*columns: str, title: str | None = None) -> Table:
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    table.pad_edge, table.collapse_padding = False, True
    for column in columns:
        # Names are wrapped, never cut: two groups with the same beginning would look the same.
        # Numbers stay whole.
        wraps = column in {"group", "state"} or column.startswith("on ")
        table.add_column(column, overflow="fold", no_wrap=not wraps and title is not None)
    return table


def _row(table: Table, *cells: str | Text) -> None:
    """Add a row of plain text: names may hold what rich takes for markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def _waits(reasons: Sequence[str]) -> list[Text]:
    lines = [Text(f"waits: {reason}", "yellow") for reason in reasons[:SHOWN_REASONS]]
    more = len(reasons) - SHOWN_REASONS
    return [*lines, Text(f"and {more} more reasons", "yellow")] if more > 0 else lines


def _list_names(label: str, lines: Iterable[str], style: str) -> list[Text]:
    return [Text.assemble((label, style), f": {line}") for line in lines]


def _tick(yes: bool) -> Text:  # noqa: FBT001 -- a cell of a table
    return Text("yes", "green") if yes else Text("not yet", "yellow")
