"""How ``srm failover`` shows plans, running moves and reports."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from srm.domain.move.gate import SyncStatus
from srm.domain.move.plan import MovePlan
from srm.domain.move.report import MoveReport
from srm.engine.move import RunEvent, VerifyStatus
from srm.engine.move.sequence import STEPS

_STEPS = tuple(step.name for step in STEPS)
_MOST_REASONS = 8


def render_plan(console: Console, plan: MovePlan) -> None:
    """Show a plan: one row per group and partition with offsets, then what speaks against it."""
    request = plan.request
    table = Table(
        "group",
        f"on {request.source}",
        "committed",
        "behind",
        f"on {request.target}",
        "goes on at",
        "read again",
        "skipped",
        "state",
        box=None,
        header_style="bold",
        title=f"{request.operation} {request.flow}: {', '.join(plan.topics)}",
        title_justify="left",
    )
    for group in plan.groups:
        name = group.group
        for position in group.positions:
            if position.state == "no_commit" and not position.lag:
                continue
            table.add_row(
                name,
                position.name,
                _number(position.committed),
                f"{position.lag:,}",
                f"{position.target_topic}-{position.partition}",
                _number(position.resume),
                f"{position.re_read:,}",
                f"{position.skipped:,}",
                position.state.replace("_", " "),
            )
            name = ""
    console.print(table)
    for warning in plan.warnings:
        console.print(f"[yellow]note[/] {escape(warning)}")
    for reason in plan.blocking:
        console.print(f"[bold red]blocked[/] {escape(reason)}")


def render_report(console: Console, report: MoveReport) -> None:
    """Show a report."""
    verdict = "[bold green]clean[/]" if report.ok else "[bold red]not clean[/]"
    rto = "-" if report.rto_seconds is None else f"{report.rto_seconds:.1f} s"
    console.print(f"{report.operation} {report.source}->{report.target}: {verdict}")
    console.print(f"RPO {_number(report.rpo_records)} records, RTO {rto}")
    table = Table(
        "group",
        "behind at hold",
        "skipped",
        "read again",
        "resumed after",
        box=None,
        header_style="bold",
    )
    for name, group in report.groups.items():
        seconds = "-" if group.rto_seconds is None else f"{group.rto_seconds:.1f} s"
        table.add_row(
            name, f"{group.lag_at_hold:,}", f"{group.skipped:,}", f"{group.re_read:,}", seconds
        )
    console.print(table)
    for problem in report.problems:
        console.print(f"[red]{escape(problem)}[/]")


class MoveView:
    """A running move: its steps, its groups, and what it waits for."""

    def __init__(self, plan: MovePlan, event: RunEvent | None = None) -> None:
        self._plan = plan
        self.event = event or RunEvent("hold")

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._steps()]
        if self.event.sync is not None:
            parts += _sync_lines(self.event.sync)
        if self.event.verify is not None:
            parts += _verify_lines(self.event.verify)
        return Group(*parts)

    def _steps(self) -> Text:
        line = Text(f"{self._plan.move_id}  ")
        now = _STEPS.index(self.event.step)
        for index, step in enumerate(_STEPS):
            style = "green" if index < now else "bold cyan" if index == now else "dim"
            line.append(f"{step}", style=style)
            line.append(" > " if step != _STEPS[-1] else "", style="dim")
        return line


def _sync_lines(status: SyncStatus) -> list[RenderableType]:
    eta = "" if status.eta_seconds is None else f", about {status.eta_seconds:.0f} s to go"
    lines: list[RenderableType] = [
        Text(
            f"{status.elapsed_seconds:.0f} s since the hold, "
            f"{status.remaining_records:,} records to copy{eta}"
        )
    ]
    table = Table("group", "members left", "synchronised", "applied", box=None)
    for group in status.groups:
        table.add_row(
            group.group, str(group.members_left), _tick(group.synchronised), _tick(group.applied)
        )
    lines.append(table)
    lines += [Text(f"waits: {reason}", "yellow") for reason in status.blocking[:_MOST_REASONS]]
    if len(status.blocking) > _MOST_REASONS:
        lines.append(Text(f"and {len(status.blocking) - _MOST_REASONS} more reasons", "yellow"))
    return lines


def _verify_lines(status: VerifyStatus) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(f"{status.elapsed_seconds:.0f} s since go")]
    lines += [Text(f"waits: {reason}", "yellow") for reason in status.waiting]
    return lines


def _tick(yes: bool) -> str:  # noqa: FBT001 -- a cell of a table
    return "[green]yes[/]" if yes else "[yellow]not yet[/]"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
