"""Moves in words and tables, for task logs and run notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from srm.domain.move.gate import SyncStatus
from srm.domain.move.plan import MovePlan
from srm.domain.move.report import MoveReport

LOG_WIDTH: Final = 150
SHOWN_REASONS: Final = 5
KEPT_REASONS: Final = 20


def progress_line(status: SyncStatus) -> str:
    """Say in one line how far a waiting move is and what it waits for."""
    synchronised = sum(group.synchronised for group in status.groups)
    eta = "" if status.eta_seconds is None else f", about {status.eta_seconds:.0f} s"
    head = (
        f"{status.elapsed_seconds:.0f} s since the hold: "
        f"{status.remaining_records} records to copy{eta if status.remaining_records else ''}, "
        f"{synchronised} of {len(status.groups)} groups synchronised"
    )
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
        "synchronised": sum(group.synchronised for group in status.groups),
        "blocking": list(status.blocking[:KEPT_REASONS]),
    }


def reasons_text(reasons: Sequence[str]) -> str:
    """Join reasons, leaving out what would make the line unreadable."""
    shown = "; ".join(reasons[:SHOWN_REASONS])
    more = len(reasons) - SHOWN_REASONS
    return f"{shown}; and {more} more" if more > 0 else shown


def plan_text(plan: MovePlan) -> str:
    """Show a plan: one row per group and partition, then what speaks against it."""
    request = plan.request
    table = Table(
        "group",
        f"on {request.source}",
        "committed",
        "lag",
        f"on {request.target}",
        "resumes at",
        "re-read",
        "skipped",
        "state",
        title=f"{request.operation} {request.flow}, move {plan.move_id}",
    )
    for group in plan.groups:
        for position in group.positions:
            table.add_row(
                group.group,
                position.name,
                _number(position.committed),
                str(position.lag),
                f"{position.target_topic}-{position.partition}",
                _number(position.resume),
                str(position.re_read),
                str(position.skipped),
                position.state,
            )
    return "\n".join(
        (
            _rendered(table),
            f"topics: {', '.join(plan.topics) or 'none'}",
            *_listed("BLOCKING", plan.blocking),
            *_listed("warning", plan.warnings),
        )
    )


def report_text(report: MoveReport) -> str:
    """Show what a move did."""
    table = Table(
        "group",
        "lag at hold",
        "skipped",
        "re-read",
        "members at hold",
        "resumed",
        "RTO s",
        title=f"{report.operation} {report.source}->{report.target}, move {report.move_id}",
    )
    for name, group in sorted(report.groups.items()):
        table.add_row(
            name,
            str(group.lag_at_hold),
            str(group.skipped),
            str(group.re_read),
            str(group.members_at_hold),
            "yes" if group.resumed else "no",
            _seconds(group.rto_seconds),
        )
    return "\n".join(
        (_rendered(table), note_text(report), *_listed("problem", report.problems)),
    )


def note_text(report: MoveReport) -> str:
    """Sum a move up in one line, for the note of the run."""
    verdict = "ok" if report.ok else f"PROBLEMS: {reasons_text(report.problems)}"
    steps = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in report.rto_steps.items())
    return (
        f"{report.operation} {report.source}->{report.target}: {verdict}; "
        f"RPO {_number(report.rpo_records)} records, RTO {_seconds(report.rto_seconds)} s"
        f"{f' ({steps})' if steps else ''}, "
        f"skipped {sum(group.skipped for group in report.groups.values())}, "
        f"re-read {sum(group.re_read for group in report.groups.values())}, "
        f"residue {sum(report.residue.values())}"
    )


def _listed(label: str, lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{label}: {line}" for line in lines)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _rendered(table: Table) -> str:
    out = StringIO()
    Console(file=out, width=LOG_WIDTH, color_system=None).print(table)
    return out.getvalue().rstrip()
