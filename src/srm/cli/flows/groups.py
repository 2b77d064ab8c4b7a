"""``srm checkpoints emit``, ``srm groups sync``, ``srm translate``: places on the other cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from srm.cli import completing
from srm.cli.console import DryRunOption, topic_option
from srm.cli.flows.for_flows import (
    Flows,
    OneFlow,
    counts,
    print_table,
    raise_group_errors,
    require_groups,
    say,
)
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.group_sync import SyncDecision
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import amount
from srm.engine import emission
from srm.engine.groups import group_sync
from srm.engine.groups.checkpoints import CheckpointSummary, unselected_reason
from srm.engine.groups.group_sync import GroupSyncSummary
from srm.engine.groups.translate import TranslatedOffset
from srm.engine.groups.translate import translate as translate_offset
from srm.engine.ports import FlowContext
from srm.errors import UsageError
from srm.wiring import open_flow

GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        help="Consumer group; may be repeated. Default: all selected groups.",
        autocompletion=completing.groups,
    ),
]

_COLOURS: Final = {
    "translated": "green",
    "not-selected": "dim",
    "write": "green",
    "unchanged": "dim",
    "failed": "red",
    "not-written": "red",
}
"""By state of a checkpoint, or action on an offset; others are yellow."""


def emit_command(
    flows: Flows, *, group: GroupsOption = None, dry_run: DryRunOption = False
) -> None:
    def call(context: FlowContext) -> CheckpointSummary:
        require_selected(context, group)
        return emission.emit(context, group or None, dry_run=dry_run)

    results = flows.each("translating committed offsets", call, span="checkpoints.emit")
    results.emit(flows.as_json, _render_checkpoints)
    raise_group_errors({g: why for one in results.values for g, why in one.errors.items()})


def sync(flows: Flows, *, group: GroupsOption = None, dry_run: DryRunOption = False) -> None:
    def call(context: FlowContext) -> GroupSyncSummary:
        require_selected(context, group)
        return group_sync.sync(context, group or None, dry_run=dry_run)

    results = flows.each("comparing offsets of groups", call, span="groups.sync")
    results.emit(flows.as_json, _render_offsets)
    raise_group_errors({g: why for one in results.values for g, why in _errors(one).items()})


def require_selected(context: FlowContext, groups: Collection[str] | None) -> None:
    """Make sure that the flow selects each named group, and one of its clusters has it."""
    require_groups(context, groups)
    flow, names = context.config.flow, context.config.group_names
    for group in groups or ():
        if not names.matches(group):
            raise UsageError(f"{group}: {unselected_reason(flow, group).text}")


def _errors(summary: GroupSyncSummary) -> dict[str, str]:
    failed = {
        decision.group: f"{decision.partition}: {decision.reason}"
        for decision in summary.decisions
        if decision.action in ("failed", "not-written")
    }
    return {**failed, **summary.errors}


def _render_checkpoints(console: Console, summaries: Sequence[CheckpointSummary]) -> None:
    def cells(row: CheckpointOutcome) -> tuple[object, ...]:
        place = row.upstream, row.upstream_offset, row.downstream or "-", row.downstream_offset
        return row.group, *place, row.state, row.reason

    for one in summaries:
        verb = "would be written" if one.dry_run else "written"
        done = (
            f"{amount(one.groups, 'group')}, {amount(one.written, 'checkpoint')} {verb}, "
            f"{one.unchanged} unchanged ({counts(one.states)})"
        )
        places = f"on {one.flow.source}", "offset", f"on {one.flow.target}", "continues at"
        heads = "group", *places, "state", "remark"
        _render(console, one, done, heads, [*map(cells, one.outcomes)])


def _render_offsets(console: Console, summaries: Sequence[GroupSyncSummary]) -> None:
    def cells(row: SyncDecision) -> tuple[object, ...]:
        return row.group, row.partition, row.current, row.offset, row.action, row.reason

    for one in summaries:
        done = "dry run" if one.dry_run else f"{amount(one.applied, 'offset')} written"
        heads = "group", f"on {one.flow.target}", "was", "translated", "action", "remark"
        done = f"{done} ({counts(one.actions)})"
        _render(console, one, done, heads, [*map(cells, one.decisions)])


def _render(
    console: Console,
    summary: CheckpointSummary | GroupSyncSummary,
    done: str,
    heads: Sequence[str],
    rows: Sequence[tuple[object, ...]],
) -> None:
    """Print what was done of a flow, and a row for each offset; the last cells are state, why."""
    if summary.skipped:
        console.print(f"{summary.flow}: nothing done, {summary.skipped}")
        return
    console.print(f"[bold]{summary.flow}[/bold]: {done}")
    if rows:
        found = (
            (*cells, Text(str(state), _COLOURS.get(str(state), "yellow")), reason)
            for *cells, state, reason in rows
        )
        print_table(console, heads, found, right=("offset", "continues at", "was", "translated"))


def translate(
    only: OneFlow,
    *,
    topic: Annotated[str, topic_option("Topic, as named on its cluster.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition.")] = 0,
    offset: Annotated[int, typer.Option(min=0, help="Next offset to read.")],
    reverse: Annotated[
        bool, typer.Option("--reverse", help="From the remote topic back to the source.")
    ] = False,
) -> None:
    with open_flow(only.settings, only.flow) as context:
        found = translate_offset(context, TopicPartition(topic, partition), offset, reverse=reverse)
    only.emit(found, lambda console: _render_translated(console, found))


def _render_translated(console: Console, found: TranslatedOffset) -> None:
    there = "-" if found.to_offset is None else str(found.to_offset)
    console.print(
        f"{found.cluster} {found.partition} offset {found.offset}  ->  "
        f"[bold]{found.to_cluster} {found.to_partition} offset {there}[/bold]"
    )
    if found.state != "translated":
        say(console, f"{found.state}: {found.reason}", "yellow")
    elif found.reason:
        say(console, found.reason)
