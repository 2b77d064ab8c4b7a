"""``srm topics``: keep remote topics like their sources."""

from __future__ import annotations

from dataclasses import dataclass

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli.checkpoints import DryRunOption
from srm.cli.each_flow import for_each_flow
from srm.cli.output import ConfigOption, FlowsOption, JsonOption, emit
from srm.domain.amount import amount
from srm.domain.topics import Flow
from srm.engine import topic_sync
from srm.engine.ports import FlowContext
from srm.engine.topic_sync import TopicSyncPlan
from srm.pages.tables import Listing

app = typer.Typer(help="Remote topics on the target.", no_args_is_help=True)


@dataclass(frozen=True)
class FlowTopicSync:
    """The plan of one flow; done already unless it was a dry run."""

    flow: Flow
    dry_run: bool
    plan: TopicSyncPlan


@app.callback()
def topics_group() -> None:
    """Remote topics on the target."""


@app.command()
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
    emit(results.values, as_json, lambda console: _render(console, results.values))
    results.raise_failures()


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
