"""``srm topics`` and ``srm groups list``: what a flow selects, and its remote topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from rich.console import Console

from srm.cli import completing
from srm.cli.console import DryRunOption, YesOption, open_console, require_terminal
from srm.cli.flows.for_flows import FlowResults, Flows, OneFlow, print_table, say
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import Flow
from srm.domain.text.amount import ago, amount
from srm.engine.control import topic_sync
from srm.engine.control.topic_sync import TopicSyncPlan
from srm.engine.flows.supervision import operator
from srm.engine.ports import FlowContext
from srm.engine.why.answer import ListedGroup, ListedTopic, list_groups, list_topics


@dataclass(frozen=True)
class FlowTopicSync:
    """The plan of one flow; done already unless it was a dry run."""

    flow: Flow
    dry_run: bool
    plan: TopicSyncPlan


def sync(flows: Flows, *, dry_run: DryRunOption = False) -> None:
    def call(context: FlowContext) -> FlowTopicSync:
        done = topic_sync.sync(context, dry_run=dry_run)
        return FlowTopicSync(context.config.flow, dry_run, done)

    flows.each("comparing topics", call, span="topics.sync").emit(flows.as_json, _render)


def plan(flows: Flows) -> None:
    _plan(flows).emit(flows.as_json, _render)


def apply(
    flows: Flows,
    *,
    remove_acls: Annotated[
        bool,
        typer.Option("--remove-acls", help="Also remove the surplus ACLs that the plan lists."),
    ] = False,
    yes: YesOption = False,
) -> None:
    if not yes:
        require_terminal(as_json=flows.as_json)
    planned = _plan(flows)
    planned.raise_failures()
    if not flows.as_json:
        _render(open_console(), planned.values)
    plans = {
        one.flow: one.plan
        for one in planned.values
        if not one.plan.is_empty or (remove_acls and one.plan.surplus_acls)
    }
    if not plans:
        flows.emit([], lambda console: console.print("nothing to do"))
        return
    if not yes:
        typer.confirm("Apply?", abort=True)

    def call(context: FlowContext) -> FlowTopicSync:
        wanted = plans[context.config.flow]
        topic_sync.apply(context, wanted, wanted.surplus_acls if remove_acls else ())
        return FlowTopicSync(context.config.flow, dry_run=False, plan=wanted)

    results = replace(flows, flow=list(plans)).each("changing topics", call, span="topics.apply")
    results.emit(
        flows.as_json,
        lambda console, done: say(console, f"applied: {', '.join(str(one.flow) for one in done)}"),
    )


def _plan(flows: Flows) -> FlowResults[FlowTopicSync]:
    def call(context: FlowContext) -> FlowTopicSync:
        return FlowTopicSync(context.config.flow, dry_run=True, plan=topic_sync.plan(context))

    return flows.each("comparing clusters", call, span="topics.plan")


def append(
    only: OneFlow,
    *,
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC", help="Source topic; may be repeated.", autocompletion=completing.topics
        ),
    ],
    dry_run: DryRunOption = False,
) -> None:
    def call(context: FlowContext) -> tuple[AssignedPartition, ...]:
        return topic_sync.append(context, topic, operator(), dry_run=dry_run)

    results = Flows(config=only.config, flow=[only.flow]).each(
        "deciding", call, span="topics.append"
    )
    results.raise_failures()
    [decided] = results.values
    only.emit(decided, lambda console: _render_decided(console, decided, dry_run=dry_run))


def _render_decided(
    console: Console, decided: tuple[AssignedPartition, ...], *, dry_run: bool
) -> None:
    if not decided:
        console.print("nothing to decide: each copy has begun, or its remote topic is empty")
    for one in decided:
        state = "would be copied" if dry_run else "is copied"
        say(console, f"{one.topic}-{one.partition} {state} after what {one.target_topic} holds")


def _render(console: Console, done: list[FlowTopicSync]) -> None:
    for one in done:
        plan = one.plan
        state = "nothing to do" if plan.is_empty else "would be done" if one.dry_run else "done"
        if plan.skipped:
            say(console, plan.skipped)
            continue
        console.print(
            f"[bold]{one.flow}[/bold]: {amount(plan.selected, 'topic')} selected, {state}"
        )
        if rows := tuple(_rows(plan, one.flow)):
            print_table(console, (f"on {one.flow.target}", "change", "details"), rows, whole=True)
        for note in plan.notes:
            say(console, note)


def _rows(plan: TopicSyncPlan, flow: Flow) -> Iterator[tuple[str, str, str]]:
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
        yield acl.subject, "+ ACL", acl.rule
    for finding in plan.differences(flow):
        todo = f"; to do: {finding.action}" if finding.action else ""
        yield finding.subject, "warning", finding.text + todo


SelectedOption = Annotated[
    bool, typer.Option("--selected", help="List only what the flow selects.")
]


@dataclass(frozen=True)
class ListedTopics:
    """Topics of one flow; ``note``: what they are worth while its source does not answer."""

    flow: Flow
    topics: tuple[ListedTopic, ...]
    note: str = ""


@dataclass(frozen=True)
class FlowGroups:
    """Groups of one flow; ``note`` as that of topics."""

    flow: Flow
    groups: tuple[ListedGroup, ...]
    note: str = ""


def show_topics(
    flows: Flows,
    *,
    remote: Annotated[
        bool, typer.Option("--remote", help="List only topics with a copy on the target.")
    ] = False,
    selected: SelectedOption = False,
) -> None:
    def call(context: FlowContext) -> ListedTopics:
        found, note = list_topics(context)
        kept = (one for one in found if one.selected >= selected)
        wanted = (one for one in kept if not remote or one.remote_partitions is not None)
        return ListedTopics(context.config.flow, tuple(wanted), note)

    def render(console: Console, found: list[ListedTopics]) -> None:
        for one in found:
            places = f"topic on {one.flow.source}", "partitions", f"on {one.flow.target}"
            heads = *places, "partitions", "state"
            _render_listed(console, one.flow, heads, map(_topic_cells, one.topics), one.note)

    flows.each("listing topics", call, partial=True).emit(flows.as_json, render)


def show_groups(flows: Flows, *, selected: SelectedOption = False) -> None:
    def call(context: FlowContext) -> FlowGroups:
        found, note = list_groups(context)
        kept = (one for one in found if one.selected >= selected)
        return FlowGroups(context.config.flow, tuple(kept), note)

    def render(console: Console, found: list[FlowGroups]) -> None:
        for one in found:
            places = f"on {one.flow.source}", "members", f"offsets on {one.flow.target}"
            heads = "group", *places, "checkpoint"
            _render_listed(console, one.flow, heads, map(_group_cells, one.groups), one.note)

    flows.each("listing groups", call, partial=True).emit(flows.as_json, render)


def _topic_cells(row: ListedTopic) -> tuple[object, ...]:
    remote = row.remote_topic, row.remote_partitions
    return row.topic, row.partitions, *remote, row.state, _verdict(row)


def _group_cells(row: ListedGroup) -> tuple[object, ...]:
    there = None if row.offsets_on_target is None else "yes" if row.offsets_on_target else "no"
    age = None if row.checkpoint_age_ms is None else ago(row.checkpoint_age_ms)
    return row.group, row.state, row.members, there, age, _verdict(row)


def _verdict(row: ListedTopic | ListedGroup) -> str:
    return "yes" if row.selected else f"no: {row.reason}"


def _render_listed(
    console: Console, flow: Flow, heads: Sequence[str], rows: Iterable[Sequence[object]], note: str
) -> None:
    shown = ([None if cell == "" else cell for cell in row] for row in rows)
    console.print(f"[bold]{flow}[/bold]")
    if note:
        say(console, note)
    print_table(console, (*heads, "selected"), shown)
