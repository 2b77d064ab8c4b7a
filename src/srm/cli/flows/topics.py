"""``srm topics``: keep remote topics like their sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import ConfigOption, FlowOption, FlowsOption, JsonOption, emit
from srm.cli.flows.checkpoints import DryRunOption
from srm.cli.flows.for_flows import for_each_flow
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.engine.control import topic_sync
from srm.engine.control.topic_sync import TopicSyncPlan
from srm.engine.flows.operator import operator
from srm.engine.ports import FlowContext
from srm.pages.tables import Listing


@dataclass(frozen=True)
class FlowTopicSync:
    """The plan of one flow; done already unless it was a dry run."""

    flow: Flow
    dry_run: bool
    plan: TopicSyncPlan


def sync(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Create missing remote topics, add partitions, copy settings; nothing is ever deleted."""

    def call(context: FlowContext) -> FlowTopicSync:
        plan = topic_sync.sync(context, dry_run=dry_run)
        return FlowTopicSync(context.config.flow, dry_run, plan)

    results = for_each_flow(config, flow, "comparing topics", call, span="topics.sync")
    results.emit(as_json, lambda console: _render(console, results.values))


def append(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC",
            help="A topic of the source, may be given several times.",
            autocompletion=completing.topics,
        ),
    ],
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Copy topics after the records that others wrote to their remote topics.

    The replicator stops before it copies into such a topic: it would hold the records twice. This
    decision lets it copy everything that the source holds, and holds for the remote topic of now.
    """

    def call(context: FlowContext) -> tuple[AssignedPartition, ...]:
        return topic_sync.append(context, topic, operator(), dry_run=dry_run)

    results = for_each_flow(config, [flow], "deciding", call, span="topics.append")
    results.raise_failures()
    [decided] = results.values
    emit(decided, as_json, lambda console: _render_decided(console, decided, dry_run=dry_run))


def _render_decided(
    console: Console, decided: tuple[AssignedPartition, ...], *, dry_run: bool
) -> None:
    if not decided:
        console.print("nothing to decide: each copy has begun, or its remote topic is empty")
    for one in decided:
        state = "would be copied" if dry_run else "is copied"
        console.print(
            escape(f"{one.topic}-{one.partition} {state} after what {one.target_topic} holds"),
            soft_wrap=True,
        )


def _render(console: Console, done: list[FlowTopicSync]) -> None:
    for one in done:
        plan = one.plan
        state = "nothing to do" if plan.is_empty else "would be done" if one.dry_run else "done"
        if plan.skipped:
            console.print(escape(plan.skipped), soft_wrap=True)
            continue
        console.print(
            f"[bold]{one.flow}[/bold]: {amount(plan.selected, 'topic')} selected, {state}"
        )
        rows = _rows(plan)
        if rows:
            table = Listing()
            for name in ("remote topic", "change", "details"):
                table.add_column(name)
            for row in rows:
                table.add_row(*(escape(cell) for cell in row))
            console.print(table)


def _rows(plan: TopicSyncPlan) -> list[tuple[str, str, str]]:
    rows = [
        (
            spec.name,
            "create",
            f"{spec.partitions} partitions, replication factor {spec.replication_factor}"
            + "".join(f", {name}={value}" for name, value in spec.configs.items()),
        )
        for spec in plan.create
    ]
    rows += [(name, "grow", f"to {count} partitions") for name, count in plan.grow.items()]
    rows += [
        (
            name,
            "settings",
            ", ".join(
                f"{key} removed" if value is None else f"{key}={value}"
                for key, value in changes.items()
            ),
        )
        for name, changes in plan.configs.items()
    ]
    rows += [
        (name, "left alone", f"has {there} partitions, its source has {here}")
        for name, (here, there) in plan.surplus.items()
    ]
    return rows
