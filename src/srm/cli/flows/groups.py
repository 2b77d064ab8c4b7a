"""``srm groups``: write translated offsets for idle consumer groups on the target."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from srm.cli.console import ConfigOption, FlowsOption, JsonOption
from srm.cli.flows.checkpoints import DryRunOption, GroupsOption
from srm.cli.flows.for_flows import counts, cut, for_each_flow, raise_group_errors, require_groups
from srm.domain.text.amount import amount
from srm.engine.groups import group_sync
from srm.engine.groups.group_sync import GroupSyncSummary
from srm.engine.ports import FlowContext
from srm.pages.tables import Listing

_COLOURS = {"write": "green", "unchanged": "dim", "failed": "red", "not-written": "red"}


def sync(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    group: GroupsOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write translated offsets for groups that are idle on the target; never over a consumer's.

    Exit code 3 where neither cluster of a flow has a named group.
    """

    def call(context: FlowContext) -> GroupSyncSummary:
        require_groups(context, group)
        return group_sync.sync(context, group or None, dry_run=dry_run)

    results = for_each_flow(config, flow, "comparing offsets of groups", call, span="groups.sync")
    results.emit(as_json, lambda console: _render(console, results.values))
    raise_group_errors({g: why for one in results.values for g, why in _errors(one).items()})


def _errors(summary: GroupSyncSummary) -> dict[str, str]:
    failed = {
        decision.group: f"{decision.partition}: {decision.reason}"
        for decision in summary.decisions
        if decision.action in ("failed", "not-written")
    }
    return {**failed, **summary.errors}


def _render(console: Console, summaries: list[GroupSyncSummary]) -> None:
    for summary in summaries:
        if summary.skipped:
            console.print(f"{summary.flow}: nothing done, {summary.skipped}")
            continue
        done = "dry run" if summary.dry_run else f"{amount(summary.applied, 'offset')} written"
        console.print(f"[bold]{summary.flow}[/bold]: {done} ({counts(summary.actions)})")
        if summary.decisions:
            console.print(_table(summary, console))


def _table(summary: GroupSyncSummary, console: Console) -> Listing:
    table = Listing()
    table.add_column("group")
    table.add_column(f"on {summary.flow.target}")
    table.add_column("was", justify="right")
    table.add_column("translated", justify="right")
    table.add_column("action")
    table.add_column("remark")
    for decision in cut(summary.decisions, console):
        colour = _COLOURS.get(decision.action, "yellow")
        table.add_row(
            escape(decision.group),
            str(decision.partition),
            "-" if decision.current is None else f"{decision.current:,}",
            "-" if decision.offset is None else f"{decision.offset:,}",
            f"[{colour}]{decision.action}[/{colour}]",
            escape(decision.reason),
        )
    return table
