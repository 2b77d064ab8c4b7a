"""``srm return``, ``srm residue`` and ``srm restore``: a source that is back, or was rebuilt."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from srm.cli import completing
from srm.cli.console import (
    Common,
    DryRunOption,
    YesOption,
    open_console,
    require_terminal,
    topic_option,
    write_document,
)
from srm.cli.flows.for_flows import OneFlow, print_table, progress, say
from srm.cli.flows.replicator import MasterOption, replication_view
from srm.config.restoring import with_restore
from srm.domain.flow_state.replication_records import DUTIES
from srm.domain.moves.disaster import Choice
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import RestorePlan, TopicState, restore_flow
from srm.domain.recovery.source_return import (
    PartitionReturn,
    SourceReturn,
    TopicReturn,
    explain_gone,
    read_choices,
)
from srm.domain.text.amount import amount, reasons_text
from srm.engine.flows.supervision import operator, pause_in_force
from srm.engine.moves import verification
from srm.engine.moves.effects import if_possible
from srm.engine.recovery import ResidueRange, ReturnedFlow, SettledReturn, read_residue
from srm.errors import GateClosedError
from srm.pages.files import Format, ResidueFiles, json_row
from srm.pages.tables import exact_time
from srm.replication.ports import DecodedRecord
from srm.replication.restore.steps import Restored, check, plan
from srm.replication.restore.steps import restore as carry_out
from srm.wiring import open_move, open_restore, open_return


def _choice(means: str) -> object:
    means = f"{means}; may be repeated."
    return typer.Option(metavar="TOPIC", help=means, autocompletion=completing.topics)


def status(only: OneFlow) -> None:
    with open_return(only.settings, only.flow) as (context, logs), progress() as show:
        found = ReturnedFlow(context, logs, show).inspect()
    only.emit(found, lambda console: render_found(console, found))


def settle(
    only: OneFlow,
    *,
    merge: Annotated[list[str] | None, _choice("Copy this topic's residue after all")] = None,
    keep: Annotated[
        list[str] | None, _choice("Leave it on the source, for groups that go back there")
    ] = None,
    discard: Annotated[
        list[str] | None, _choice("Leave it on the source; groups that go back skip it")
    ] = None,
    default: Annotated[
        Choice | None,
        typer.Option(help="Decision for all other topics, except rebuilt or missing ones."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    named = read_choices(merge or (), keep or (), discard or ())
    with open_return(only.settings, only.flow) as (context, logs), progress() as show:
        if (pause := pause_in_force(context)) is None:
            line = f"{only.flow} is not paused; there is nothing to settle"
            nothing = {"flow": str(only.flow), "applied": False, "reason": "not paused"}
            only.emit(nothing, lambda console: console.print(line))
            return
        returned = ReturnedFlow(context, logs, show)
        given = named, default, operator()
        approve = partial(_approve, only, show, yes=yes)
        done = returned.plan(*given) if dry_run else returned.settle(*given, approve)
    only.emit(done, lambda console: render_settled(console, done))
    if done.applied:
        if_possible(context.target, partial(_add_outcome, only, pause.moves))
    if dry_run and done.settlement.blocked:
        raise GateClosedError(f"not settled: {reasons_text(done.settlement.blocked)}")


def _add_outcome(only: OneFlow, move_ids: Iterable[str]) -> None:
    """Add what is lost to the reports of the moves; a report that cannot be written is logged."""
    with open_move(only.settings, only.flow.source, only.flow.target) as pair:
        for move_id in move_ids:
            if_possible(pair.target, partial(verification.watch_residue, pair, move_id))


def _approve(
    only: OneFlow, show: Callable[[str], None], planned: SettledReturn, *, yes: bool
) -> bool:
    if yes:
        return True
    require_terminal(as_json=only.as_json)
    show("")
    render_settled(open_console(stderr=True), planned)
    return typer.confirm("Write these decisions and resume the flow?", err=True)


def render_found(console: Console, found: SourceReturn) -> None:
    console.print(f"[bold]{found.flow}[/bold], return '{found.shape}': {escape(found.evidence)}.")
    if found.pause is None:
        console.print("The flow is not paused and copies the remaining records.")
    else:
        console.print(
            f"Paused by {escape(found.pause.by)}, {exact_time(found.pause.time_ms)}: "
            f"{escape(found.pause.reason)}"
        )
    for topic in found.topics:
        for line in _topic_lines(topic, found.flow):
            console.print(line)
    _partition_table(console, found.partitions)
    console.print(f"{amount(found.records, 'record')} only on the source.")
    for name, group in found.groups.items():
        console.print(
            f"Group {escape(name)} had read {group.records:,} of them before: "
            + ", ".join(f"{place} {count:,}" for place, count in group.already_read.items())
        )
    for text in found.unread_groups:
        console.print(f"[yellow]Unknown for group {escape(text)}[/yellow]")


def render_settled(console: Console, done: SettledReturn) -> None:
    if not done.applied:
        render_found(console, done.found)
    chosen = [row for row in done.settlement.topics if row.choice or row.open]
    cut = [row for row in done.settlement.topics if row.shape == "shorter" and row not in chosen]
    rows = [
        (row.topic, row.choice or (Text("open", "red") if row.open else "-"), row.means)
        for row in (*chosen, *cut)
    ]
    if rows:
        print_table(console, ("topic", "choice", "means"), rows)
    if not done.applied:
        console.print("Nothing was written: the flow is paused as before.")
        return
    flow = Flow.parse(done.found.flow)
    console.print(
        f"Settled: {flow} continues. Fail back when 'srm status' shows both flows as caught up: "
        f"srm failover plan --operation failback {flow.reverse.options}",
        soft_wrap=True,
    )
    if done.outcome.move_id:
        console.print(f"The outcome is stored with the forecast of {done.outcome.move_id}.")


def _topic_lines(topic: TopicReturn, flow: str) -> Iterable[str]:
    if topic.shape != "same":
        yield f"  {topic.topic}: [yellow]{topic.shape}[/yellow], {escape(topic.evidence)}"
    if topic.shape in ("rebuilt", "missing") and not topic.is_heartbeats:
        source, _, target = flow.partition("->")
        yield f"    srm restore --from {target} --to {source} --topic {topic.topic}"


def _partition_table(console: Console, partitions: Iterable[PartitionReturn]) -> None:
    columns = "partition", "from", "to", "residue", "first", "last", ""
    rows = [
        (
            *(entry.place, str(first), str(max(first, end - 1)), entry.records),
            *(exact_time(entry.first_ms), exact_time(entry.last_ms), "; ".join(_remarks(entry))),
        )
        for entry in partitions
        for first, end in [entry.residue or (entry.copied_to, entry.copied_to)]
        if entry.records or _remarks(entry)
    ]
    if rows:
        print_table(console, columns, rows, right=columns[1:4])


def _remarks(entry: PartitionReturn) -> list[str]:
    said = [entry.error, explain_gone(entry)]
    if entry.cut_from is not None:
        only = "?" if entry.only_copied is None else f"{entry.only_copied:,}"
        said.append(f"its log ends at {entry.cut_from}: {only} records exist only on the copy")
    if entry.has_open_transaction:
        said.append(f"a transaction is open from {entry.log_end} on")
    return [text for text in said if text]


TopicsOption = Annotated[
    list[str] | None, topic_option("Source topic; may be repeated. Default: all.")
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="One partition only.")
]


def list_ranges(only: OneFlow, *, topic: TopicsOption = None) -> None:
    with open_return(only.settings, only.flow) as (context, logs), progress() as show:
        ranges = ReturnedFlow(context, logs, show).residue(topic or ())
    only.emit(ranges, lambda console: _render(console, ranges))


def show(
    only: OneFlow,
    *,
    topic: Annotated[str, topic_option("Source topic.")],
    partition: PartitionOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Records to print.")] = 100,
) -> None:
    console = open_console(soft_wrap=True)
    shown = 0

    def take(one: ResidueRange, records: Sequence[DecodedRecord]) -> bool:
        nonlocal shown
        for record in records[: limit - shown]:
            _print(console, json_row(one.place, record), as_json=only.as_json)
        shown += len(records[: limit - shown])
        return shown < limit

    with open_return(only.settings, only.flow) as (context, logs):
        with progress() as report:
            ranges = ReturnedFlow(context, logs, report).residue([topic], partition)
        read_residue(logs, ranges, take)
    left = sum(one.records for one in ranges) - shown
    if left > 0 and not only.as_json:
        console.print(f"[dim]{amount(left, 'more record')}: --limit, or srm residue export[/dim]")
    if not ranges and not only.as_json:
        console.print(f"No records of {topic} exist only on the source.")


def export(
    only: OneFlow,
    *,
    topic: TopicsOption = None,
    partition: PartitionOption = None,
    file_format: Annotated[
        Format, typer.Option("--format", help="JSON lines or Parquet.")
    ] = "jsonl",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory; created if missing.")
    ],
) -> None:
    done, files = 0, ResidueFiles(output, file_format)
    with open_return(only.settings, only.flow) as (context, logs), progress() as report:
        ranges = ReturnedFlow(context, logs, report).residue(topic or (), partition)
        total = sum(one.records for one in ranges)
        with files:

            def take(one: ResidueRange, records: Sequence[DecodedRecord]) -> bool:
                nonlocal done
                files.write(one.place, records)
                done += len(records)
                report(f"{done:,} of {total:,} records")
                return True

            read_residue(logs, ranges, take)
    written = {"records": done, "files": [str(path) for path in files.paths]}
    line = f"{amount(done, 'record')} in {amount(len(files.paths), 'file')} in {output}"
    only.emit(written, lambda console: say(console, line))


def _print(console: Console, row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        write_document(json.dumps(row, ensure_ascii=False) + "\n")
        return
    place = f"[bold]{row['topic']}-{row['partition']}[/bold] {row['offset']}"
    parts = [f"{place}  {exact_time(row['time_ms'])}"]
    parts += [f"{name}={escape(_readable(row, name))}" for name in ("key", "value")]
    if row["headers"]:
        headers = (f"{one['name']}={_readable(one, 'value')}" for one in row["headers"])
        parts.append(f"headers=({escape(', '.join(headers))})")
    console.print("  ".join(parts), highlight=False)


def _readable(row: dict[str, object], name: str) -> str:
    if f"{name}_base64" in row:
        return f"base64:{row[f'{name}_base64']}"
    return "(none)" if row[name] is None else str(row[name])


def _render(console: Console, ranges: tuple[ResidueRange, ...]) -> None:
    if not ranges:
        console.print("No records exist only on the source.")
        return
    columns = "partition", "from", "to", "records", "first", "last", "state", ""
    rows = (
        (
            *(one.place, str(one.offset_from), str(one.offset_to - 1), one.records),
            *(exact_time(one.first_ms), exact_time(one.last_ms), one.state, one.note),
        )
        for one in ranges
    )
    print_table(console, columns, rows, right=columns[1:4])


_STATES: dict[TopicState, str] = {
    "missing": "will be created and copied",
    "empty": "exists, will be copied",
    "begun": "in progress, will resume",
    "restored": "restored already",
    "refused": "cannot be restored",
}


@dataclass(frozen=True, slots=True)
class RestoreOutcome:
    """Plan and result of a restore; ``done`` is None after a dry run."""

    plan: RestorePlan
    done: Restored | None


def restore(
    common: Common,
    *,
    holds_copies: Annotated[
        str, typer.Option("--from", metavar="ALIAS", help="Cluster that holds the copies, B.")
    ],
    rebuilt: Annotated[
        str, typer.Option("--to", metavar="ALIAS", help="Cluster that was rebuilt and is empty, P.")
    ],
    topic: Annotated[
        list[str] | None,
        topic_option("Original topic; may be repeated. Default: all that have a copy."),
    ] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    master: MasterOption = None,
) -> None:
    def copy(copies: Collection[str]) -> None:
        # Importing Spark takes longer than most other commands run.
        from srm.spark.replicator import Replicator, run_program

        flows = with_restore(common.settings, forward, copies), [restore_flow(forward)]
        replicator = Replicator(*flows, master=master, without=DUTIES)
        shown = replication_view(replicator.progress, as_json=False)
        with nullcontext() if common.as_json else shown:
            run_program(replicator, until_caught_up=True)

    forward = Flow.parse(f"{rebuilt}->{holds_copies}")
    wanted = tuple(dict.fromkeys(topic or ()))
    if not (dry_run or yes):
        require_terminal(as_json=common.as_json)
    with open_restore(common.settings, forward, operator(), copy) as context:
        planned = plan(context, wanted)
        if dry_run:
            common.emit(RestoreOutcome(planned, None), lambda out: _show_plan(out, planned))
            check(planned)
            return
        console = open_console()
        if not common.as_json:
            _show_plan(console, planned)
        check(planned)
        if not (yes or planned.is_over):
            typer.confirm("Restore?", abort=True)
        done = carry_out(
            context, wanted, (lambda _: None) if common.as_json else partial(say, console)
        )
    outcome = RestoreOutcome(planned, done)
    common.emit(outcome, lambda out: _show_done(out, planned, done))


def _show_plan(console: Console, planned: RestorePlan) -> None:
    flow, pause = planned.forward, planned.pause
    former = ", ".join(planned.former_clusters) or "unknown"
    console.print(
        f"[bold]{flow.source}[/bold] (cluster {planned.target_cluster}, before: {former}) from the "
        f"copies on [bold]{flow.target}[/bold] (cluster {planned.source_cluster})",
        soft_wrap=True,
    )
    state = "not paused" if pause is None else f"paused by {pause.by}: {pause.reason}"
    say(console, f"{flow} is {state}")
    columns = "topic", "from", "partitions", "offsets to copy", "what"
    rows = (
        (
            *(each.topic, each.copy, str(each.partitions), each.offsets),
            _STATES[each.state] + (f": {each.reason}" if each.reason else ""),
        )
        for each in planned.topics
    )
    print_table(console, columns, rows, right=columns[2:4], whole=True)
    if planned.unrestored:
        left = ", ".join(planned.unrestored)
        say(console, f"{flow} stays paused: {left} would remain to be restored")


def _show_done(console: Console, planned: RestorePlan, done: Restored) -> None:
    flow = planned.forward
    say(
        console,
        f"restored: {', '.join(done.topics) or 'nothing'} ({amount(done.records, 'record')} "
        f"handed over now, {amount(done.checkpoints, 'checkpoint')} rewritten)",
    )
    if done.goes_on:
        back = f"srm failover plan --operation failback {flow.reverse.options}"
        say(console, f"{flow} resumes. Next: srm status, then {back}")
    else:
        left = ", ".join(done.unrestored)
        wanted = "is restored, too, or decided with srm return"
        say(console, f"{flow} stays paused until {left} {wanted}")
