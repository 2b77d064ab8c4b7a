"""``srm checkpoints emit``, ``srm groups sync``, ``srm translate``: places on the other cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import (
    ConfigOption,
    DryRunOption,
    FlowOption,
    FlowsOption,
    JsonOption,
    emit,
    topic_option,
)
from srm.cli.flows.for_flows import counts, cut, for_each_flow, raise_group_errors, require_groups
from srm.config.loader import load_config
from srm.domain.groups.checkpoints import CheckpointOutcome
from srm.domain.groups.group_sync import SyncDecision
from srm.domain.names.topics import TopicPartition
from srm.domain.text.amount import amount
from srm.engine import emission
from srm.engine.groups import group_sync
from srm.engine.groups.checkpoints import CheckpointSummary
from srm.engine.groups.group_sync import GroupSyncSummary
from srm.engine.groups.translate import TranslatedOffset
from srm.engine.groups.translate import translate as translate_offset
from srm.engine.ports import FlowContext
from srm.pages.tables import Listing
from srm.wiring import open_flow

_Row = TypeVar("_Row")

GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        "-g",
        help="Consumer group, may be given several times; without it all selected groups.",
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

    doing = "translating committed offsets"
    results = for_each_flow(config, flow, doing, call, span="checkpoints.emit")
    results.emit(as_json, lambda console: _render_checkpoints(console, results.values))
    raise_group_errors({g: why for one in results.values for g, why in one.errors.items()})


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
    results.emit(as_json, lambda console: _render_offsets(console, results.values))
    raise_group_errors({g: why for one in results.values for g, why in _errors(one).items()})


def _errors(summary: GroupSyncSummary) -> dict[str, str]:
    failed = {
        decision.group: f"{decision.partition}: {decision.reason}"
        for decision in summary.decisions
        if decision.action in ("failed", "not-written")
    }
    return {**failed, **summary.errors}


def _render_checkpoints(console: Console, summaries: Sequence[CheckpointSummary]) -> None:
    for one in summaries:
        verb = "would be written" if one.dry_run else "written"
        done = (
            f"{amount(one.groups, 'group')}, {amount(one.written, 'checkpoint')} {verb}, "
            f"{one.unchanged} unchanged ({counts(one.states)})"
        )
        places = (f"on {one.flow.source}", "offset", f"on {one.flow.target}", "continues at")
        heads = ("group", *places, "state", "remark")
        _render(console, one, done, heads, one.outcomes, _checkpoint_cells)


def _checkpoint_cells(row: CheckpointOutcome) -> tuple[object, ...]:
    offsets = _number(row.upstream_offset), _number(row.downstream_offset)
    copy = row.downstream or "-"
    return row.group, row.upstream, offsets[0], copy, offsets[1], row.state, row.reason


def _render_offsets(console: Console, summaries: Sequence[GroupSyncSummary]) -> None:
    for one in summaries:
        done = "dry run" if one.dry_run else f"{amount(one.applied, 'offset')} written"
        heads = ("group", f"on {one.flow.target}", "was", "translated", "action", "remark")
        done = f"{done} ({counts(one.actions)})"
        _render(console, one, done, heads, one.decisions, _offset_cells)


def _offset_cells(row: SyncDecision) -> tuple[object, ...]:
    offsets = _number(row.current), _number(row.offset)
    return row.group, row.partition, *offsets, row.action, row.reason


def _number(offset: int | None) -> str:
    return "-" if offset is None else f"{offset:,}"


def _render(
    console: Console,
    summary: CheckpointSummary | GroupSyncSummary,
    done: str,
    heads: Sequence[str],
    rows: Sequence[_Row],
    cells_of: Callable[[_Row], tuple[object, ...]],
) -> None:
    """Print what was done of a flow, and a row for each offset; the last cells are state, why."""
    if summary.skipped:
        console.print(f"{summary.flow}: nothing done, {summary.skipped}")
        return
    console.print(f"[bold]{summary.flow}[/bold]: {done}")
    table = Listing(*heads, right=("offset", "continues at", "was", "translated"))
    for row in cut(rows, console):
        group, *cells, state, reason = map(str, cells_of(row))
        colour = _COLOURS.get(state, "yellow")
        table.add_row(escape(group), *cells, f"[{colour}]{state}[/{colour}]", escape(reason))
    if rows:
        console.print(table)


def translate(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    topic: Annotated[str, topic_option("Topic, as named on its cluster.")],
    partition: Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition.")] = 0,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Next offset to read.")],
    reverse: Annotated[
        bool,
        typer.Option("--reverse", help="From the remote topic back to the source."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Translate one offset through the exact map of a flow.

    Exit code 0 also where the offset has no counterpart, 3 where the topic or partition is missing.
    """
    with open_flow(load_config(config), flow) as context:
        found = translate_offset(context, TopicPartition(topic, partition), offset, reverse=reverse)
    emit(found, as_json, lambda console: _render_translated(console, found))


def _render_translated(console: Console, found: TranslatedOffset) -> None:
    there = "-" if found.to_offset is None else str(found.to_offset)
    console.print(
        f"{found.cluster} {found.partition} offset {found.offset}  ->  "
        f"[bold]{found.to_cluster} {found.to_partition} offset {there}[/bold]"
    )
    if found.state != "translated":
        console.print(f"[yellow]{found.state}[/yellow]: {escape(found.reason)}")
    elif found.reason:
        console.print(escape(found.reason))
