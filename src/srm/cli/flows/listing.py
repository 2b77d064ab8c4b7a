"""``srm topics list`` and ``srm groups list``: what a flow selects, and why not the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli.console import ConfigOption, FlowsOption, JsonOption
from srm.cli.flows.for_flows import cut, for_each_flow
from srm.domain.names.topics import Flow
from srm.domain.text.amount import ago
from srm.engine.ports import FlowContext
from srm.engine.why.answer import ListedGroup, ListedTopic, list_groups, list_topics
from srm.pages.tables import Listing

SelectedOption = Annotated[
    bool, typer.Option("--selected", help="List only what the flow selects.")
]


@dataclass(frozen=True)
class ListedTopics:
    """Topics of one flow."""

    flow: Flow
    topics: tuple[ListedTopic, ...]


@dataclass(frozen=True)
class FlowGroups:
    """Groups of one flow."""

    flow: Flow
    groups: tuple[ListedGroup, ...]


def topics(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="List only topics with a copy on the target.")
    ] = False,
    selected: SelectedOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics of a flow: partitions, copy, state, and why a topic is not selected.

    If the source does not answer, the copies on the target are listed.
    """

    def call(context: FlowContext) -> ListedTopics:
        found = list_topics(context)
        kept = (one for one in found if one.selected >= selected)
        wanted = (one for one in kept if not remote or one.remote_partitions is not None)
        return ListedTopics(context.config.flow, tuple(wanted))

    results = for_each_flow(config, flow, "listing topics", call, partial=True)
    results.emit(as_json, lambda console: _render_topics(console, results.values))


def groups(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    selected: SelectedOption = False,
    as_json: JsonOption = False,
) -> None:
    """List the groups of a flow: members, offsets on the target, age of the last checkpoint.

    If the source does not answer, the groups with checkpoints are listed.
    """

    def call(context: FlowContext) -> FlowGroups:
        found = (one for one in list_groups(context) if one.selected >= selected)
        return FlowGroups(context.config.flow, tuple(found))

    results = for_each_flow(config, flow, "listing groups", call, partial=True)
    results.emit(as_json, lambda console: _render_groups(console, results.values))


def _render_topics(console: Console, flows: Sequence[ListedTopics]) -> None:
    for one in flows:
        flow, rows = one.flow, cut(one.topics, console)
        _render(
            console,
            flow,
            (f"topic on {flow.source}", "partitions", f"on {flow.target}", "partitions", "state"),
            ((row, _topic_cells(row)) for row in rows),
        )


def _render_groups(console: Console, flows: Sequence[FlowGroups]) -> None:
    for one in flows:
        flow, rows = one.flow, cut(one.groups, console)
        heads = ("group", f"on {flow.source}", "members", f"offsets on {flow.target}", "checkpoint")
        _render(console, flow, heads, ((row, _group_cells(row)) for row in rows))


def _topic_cells(row: ListedTopic) -> tuple[object, ...]:
    return row.topic, row.partitions, row.remote_topic, row.remote_partitions, row.state


def _group_cells(row: ListedGroup) -> tuple[object, ...]:
    there = None if row.offsets_on_target is None else "yes" if row.offsets_on_target else "no"
    age = None if row.checkpoint_age_ms is None else ago(row.checkpoint_age_ms)
    return row.group, row.state, row.members, there, age


def _render(
    console: Console,
    flow: Flow,
    heads: Sequence[str],
    rows: Iterator[tuple[ListedTopic | ListedGroup, tuple[object, ...]]],
) -> None:
    console.print(f"[bold]{flow}[/bold]")
    table = Listing(*heads, "selected")
    for row, cells in rows:
        verdict = "yes" if row.selected else f"no: {row.reason}"
        table.add_row(*(escape("-" if c in {None, ""} else str(c)) for c in (*cells, verdict)))
    console.print(table)
