"""``srm demo``: the main job end to end, and the proof that nothing was lost or read twice."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from srm import patience
from srm.cli.console import JsonOption, emit
from srm.errors import IntegrityError, UsageError
from srm_lab.cli.stack import entering

if TYPE_CHECKING:
    from srm_lab.demo.report import DemoReport
    from srm_lab.demo.run import DemoResult
    from srm_lab.stack.stack import StackStatus

DEFAULT_HOME = Path("build/demo")


def demo(
    *,
    records: Annotated[
        int, typer.Option(metavar="COUNT", help="Payments to start with; more come all the time.")
    ] = 100_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running at the end, to explore.")
    ] = False,
    disaster: Annotated[
        bool,
        typer.Option(
            "--disaster",
            help="Instead of planned moves: P is killed, groups resume on B, P returns.",
        ),
    ] = False,
    home: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder of the report and the stack.")
    ] = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    if disaster and keep:
        raise UsageError("--disaster and --keep do not go together")
    # What the demo needs takes longer to import than most other commands run.
    from srm_lab.demo.display import Display
    from srm_lab.demo.run import DemoOptions, run_demo

    signal.signal(signal.SIGTERM, _interrupt)
    # Its clusters start, crash and end on purpose.
    with patience.limit(None), Display(Console(stderr=True)) as display:
        result = run_demo(DemoOptions(home, records, keep, disaster), display)
    emit(result.report, as_json, lambda console: _render(console, result))
    if not result.report.ok:
        raise IntegrityError(
            f"the demo found {len(result.report.problems)} problems, first: "
            f"{result.report.problems[0]} (see {result.folder}/report.html)"
        )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Let SIGTERM end the demo as Ctrl-C does: with everything stopped."""
    raise KeyboardInterrupt


def _render(console: Console, result: DemoResult) -> None:
    from srm_lab.demo.disaster_report import DisasterReport, render_disaster

    report = result.report
    if isinstance(report, DisasterReport):
        render_disaster(console, report, result.folder)
        return
    console.print(_moves(report))
    console.print(_groups(report))
    for name, group in report.groups.items():
        console.print(f"  [bold]{name}[/] says: {escape(group.says)}", highlight=False)
    console.print()
    for problem in report.problems:
        console.print(f"[bold red]problem[/] {escape(problem)}")
    equal = all(copy.equal for copy in report.verification)
    records = sum(copy.records for copy in report.verification)
    copies = "are equal, record by record" if equal else "[bold red]differ[/]"
    console.print(f"{records:,} copied records on both sides {copies}.")
    verdict = "[bold green]OK[/]" if report.ok else "[bold red]NOT OK[/]"
    console.print(f"{verdict} after {report.seconds:.0f} s. Report: {result.folder}/report.html")
    if result.kept is not None:
        _invite(console, result.kept)


def _moves(report: DemoReport) -> Table:
    table = _table("move", "RPO", "RTO s", "group", "lag at hold", "skipped", "re-read", "pause s")
    for move in report.moves:
        shown = (
            f"{move.operation} {move.source}->{move.target}",
            "-" if move.rpo_records is None else f"{move.rpo_records:,}",
            _seconds(move.rto_seconds),
        )
        for name, group in move.groups.items():
            counts = (group.lag_at_hold, group.skipped, group.re_read)
            table.add_row(*shown, name, *(f"{n:,}" for n in counts), _seconds(group.pause_seconds))
            shown = ("", "", "")
        table.add_section()
    return table


def _groups(report: DemoReport) -> Table:
    table = _table("in all", "group", "processed", "on P", "on B", "skipped", "re-read")
    shown = f"{report.produced:,} records"
    for name, group in report.groups.items():
        where = (group.processed_on.get("P", 0), group.processed_on.get("B", 0))
        counts = (group.processed, *where, group.skipped, group.re_read)
        table.add_row(shown, name, *(f"{n:,}" for n in counts))
        shown = ""
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for column in columns:
        left = column in {"move", "in all", "group"}
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _invite(console: Console, kept: StackStatus) -> None:
    name, password = kept.airflow_login or ("", "")
    console.print(
        f"\n{kept.service_url}: flows, groups and moves of this stack, live\n"
        f"\nEverything is still running. Open {kept.airflow_url}, log in\n"
        f"as {name} with password {password}, and\n"
        "  - choose Dags, srm_failover.P.B, Trigger: leave the form as it is for a failover P->B;\n"
        "    for the way back choose failback\n"
        "  - watch the run's graph; the log of task wait shows the remaining records live\n"
        "  - read the table in the log of task report, and the note of the run\n"
        "From here:\n"
        f"{entering(kept.config)}"
        "  srm status --flow 'P->B'\n"
        f"  srm stack down --home {kept.home}     # stops everything",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
