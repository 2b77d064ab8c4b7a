"""``srm topics``: keep remote topics like their sources, and show what differs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

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
    YesOption,
    emit,
    open_console,
    require_terminal,
)
from srm.cli.flows.for_flows import FlowResults, for_each_flow
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount
from srm.engine.control import topic_sync
from srm.engine.control.topic_plan import TopicSyncPlan
from srm.engine.flows.supervision import operator
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
    """Create missing remote topics, add partitions, copy settings, add ACLs; nothing is deleted."""

    def call(context: FlowContext) -> FlowTopicSync:
        done = topic_sync.sync(context, dry_run=dry_run)
        return FlowTopicSync(context.config.flow, dry_run, done)

    results = for_each_flow(config, flow, "comparing topics", call, span="topics.sync")
    results.emit(as_json, lambda console: _render(console, results.values))


def plan(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what differs between source and target: topics, settings, ACLs, quotas, users.

    `srm topics apply` makes the changes. Warnings are differences that it does not remove.
    """
    results = _plan(config, flow)
    results.emit(as_json, lambda console: _render(console, results.values))


def apply(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    remove_acls: Annotated[
        bool,
        typer.Option("--remove-acls", help="Also remove the surplus ACLs that the plan lists."),
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the plan, and carry out exactly that once it is approved.

    Only ACLs are ever removed, with --remove-acls.
    """
    if not yes:
        require_terminal(as_json=as_json)
    planned = _plan(config, flow)
    planned.raise_failures()
    if not as_json:
        _render(open_console(), planned.values)
    plans = {
        one.flow: one.plan
        for one in planned.values
        if not one.plan.is_empty or (remove_acls and one.plan.surplus_acls)
    }
    if not plans:
        emit([], as_json, lambda console: console.print("nothing to do"))
        return
    if not yes:
        typer.confirm("Apply?", abort=True)

    def call(context: FlowContext) -> FlowTopicSync:
        wanted = plans[context.config.flow]
        topic_sync.apply(context, wanted, wanted.surplus_acls if remove_acls else ())
        return FlowTopicSync(context.config.flow, dry_run=False, plan=wanted)

    results = for_each_flow(config, list(plans), "changing topics", call, span="topics.apply")
    done = ", ".join(str(one.flow) for one in results.values)
    results.emit(as_json, lambda console: console.print(f"applied: {escape(done)}"))


def _plan(config: Path | None, flow: list[Flow] | None) -> FlowResults[FlowTopicSync]:
    def call(context: FlowContext) -> FlowTopicSync:
        return FlowTopicSync(context.config.flow, dry_run=True, plan=topic_sync.plan(context))

    return for_each_flow(config, flow, "comparing clusters", call, span="topics.plan")


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
            table = Listing("on " + one.flow.target, "change", "details")
            for row in rows:
                table.add_row(*(escape(cell) for cell in row))
            console.print(table)
        for note in plan.notes:
            console.print(escape(note), soft_wrap=True)


def _rows(plan: TopicSyncPlan) -> Iterator[tuple[str, str, str]]:
    for spec in plan.create:
        text = f"{spec.partitions} partitions, replication factor {spec.replication_factor}"
        settings = "".join(f", {name}={value}" for name, value in spec.configs.items())
        yield spec.name, "+ topic", text + settings
    for name, count in plan.grow.items():
        yield name, "+ partitions", f"to {count} partitions"
    for name, changes in plan.configs.items():
        words = (f"{k} removed" if v is None else f"{k}={v}" for k, v in changes.items())
        yield name, "~ settings", ", ".join(words)
    for acl in plan.acls:
        yield acl.where, "+ ACL", acl.rule
    for finding in plan.differences():
        todo = f"; to do: {finding.action}" if finding.action else ""
        yield finding.subject, "warning", finding.text + todo
