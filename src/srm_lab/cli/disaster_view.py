"""Display of the losses for ``srm demo --disaster``."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from srm_lab.demo.disaster_report import DisasterReport


def render_disaster(console: Console, report: DisasterReport, folder: str) -> None:
    """Print forecast and outcome side by side, then the verdict."""
    console.print(_sides(report))
    console.print(_groups(report))
    for problem in report.problems:
        console.print(f"[bold red]problem[/] {escape(problem)}")
    console.print(
        f"{report.lost:,} of {report.produced:,} acknowledged payments are lost in the end; what P "
        f"still held was copied when it came back."
    )
    verdict = "[bold green]OK[/]" if report.ok else "[bold red]NOT OK[/]"
    console.print(f"{verdict} after {report.seconds:.0f} s. Report: {folder}/report.json")


def _sides(report: DisasterReport) -> Table:
    forecast, outcome = report.forecast, report.outcome
    at_most = "not known" if forecast.at_most is None else f"{forecast.at_most:,}"
    table = _table("", "forecast", "at most", "outcome")
    table.add_row(
        "records of P not copied", f"{forecast.not_copied:,}", at_most, f"{outcome.records:,}"
    )
    read = sum(group.re_read for group in report.groups.values())
    bound = sum(group.re_read_at_most for group in report.groups.values())
    table.add_row("payments read again", "", f"{bound:,}", f"{read:,}")
    return table


def _groups(report: DisasterReport) -> Table:
    table = _table("group", "working after s", "lacked on B", "re-read", "at most", "lost")
    for name, group in report.groups.items():
        after = "-" if group.working_seconds is None else f"{group.working_seconds:.1f}"
        counts = (group.lacked, group.re_read, group.re_read_at_most, group.skipped)
        table.add_row(name, after, *(f"{count:,}" for count in counts))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
