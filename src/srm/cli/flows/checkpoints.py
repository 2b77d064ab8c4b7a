"""``srm checkpoints``: compute and emit checkpoints by hand."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import ConfigOption, FlowsOption, JsonOption
from srm.cli.flows.for_flows import counts, cut, for_each_flow, raise_group_errors, require_groups
from srm.domain.text.amount import amount
from srm.engine import emission
from srm.engine.groups.checkpoints import CheckpointSummary
from srm.engine.ports import FlowContext
from srm.pages.tables import Listing

GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        help="Consumer group, may be given several times; without it all selected groups.",
        autocompletion=completing.groups,
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written, write nothing.")
]

_COLOURS = {"translated": "green", "not-selected": "dim"}


def emit_command(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    group: GroupsOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Translate committed offsets, forward and reverse, and write the checkpoints that changed.

    Exit code 3 where neither cluster of a flow has a named group.
    """

    def call(context: FlowContext) -> CheckpointSummary:
        require_groups(context, group)
        return emission.emit(context, group or None, dry_run=dry_run)

    results = for_each_flow(
        config, flow, "translating committed offsets", call, span="checkpoints.emit"
    )
    results.emit(as_json, lambda console: _render(console, results.values))
    raise_group_errors({g: why for one in results.values for g, why in one.errors.items()})


def _render(console: Console, summaries: list[CheckpointSummary]) -> None:
    for summary in summaries:
        if summary.skipped:
            console.print(f"{summary.flow}: nothing done, {summary.skipped}")
            continue
        verb = "would be written" if summary.dry_run else "written"
        console.print(
            f"[bold]{summary.flow}[/bold]: {amount(summary.groups, 'group')}, "
            f"{amount(summary.written, 'checkpoint')} {verb}, "
            f"{summary.unchanged} unchanged ({counts(summary.states)})"
        )
        if summary.outcomes:
            console.print(_table(summary, console))


def _table(summary: CheckpointSummary, console: Console) -> Listing:
    table = Listing()
    table.add_column("group")
    table.add_column(f"on {summary.flow.source}")
    table.add_column("offset", justify="right")
    table.add_column(f"on {summary.flow.target}")
    table.add_column("continues at", justify="right")
    table.add_column("state")
    table.add_column("remark")
    for outcome in cut(summary.outcomes, console):
        colour = _COLOURS.get(outcome.state, "yellow")
        table.add_row(
            escape(outcome.group),
            str(outcome.upstream),
            f"{outcome.upstream_offset:,}",
            str(outcome.downstream or "-"),
            "-" if outcome.downstream_offset is None else f"{outcome.downstream_offset:,}",
            f"[{colour}]{outcome.state}[/{colour}]",
            escape(outcome.reason),
        )
    return table
