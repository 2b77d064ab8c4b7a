"""What the return of a source looks like on a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rich.console import Console
from rich.markup import escape

from srm.cli.flows.for_flows import cut
from srm.domain.recovery.source_return import (
    PartitionReturn,
    SourceReturn,
    TopicReturn,
    explain_gone,
)
from srm.domain.text.amount import amount
from srm.engine.recovery.settle import Settled
from srm.pages.tables import Listing


def at(time_ms: int | None) -> str:
    """Render a record's timestamp, in UTC."""
    if time_ms is None or time_ms < 0:
        return "-"
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]


def render_found(console: Console, found: SourceReturn) -> None:
    """Say which return it is, and show the residue by partition."""
    console.print(f"[bold]{found.flow}: {found.shape}[/bold]. {escape(found.evidence)}")
    if found.pause is None:
        console.print("The flow is not paused: what is not copied yet is copied by itself.")
    else:
        console.print(
            f"Paused by {escape(found.pause.by)}, {at(found.pause.time_ms)}: "
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
        console.print(f"[yellow]Not known of group {escape(text)}[/yellow]")


def render_settled(console: Console, done: Settled) -> None:
    """Show what was, or would be, decided, and what that means."""
    if not done.applied:
        render_found(console, done.found)
    table = Listing("topic", "choice", "means")
    chosen = [row for row in done.settlement.topics if row.choice or row.open]
    told = [row for row in done.settlement.topics if not row.choice and row.shape == "shorter"]
    for row in cut([*chosen, *(row for row in told if row not in chosen)], console):
        choice = row.choice or ("[red]open[/red]" if row.open else "-")
        table.add_row(row.topic, choice, escape(row.means))
    if table.row_count:
        console.print(table)
    if not done.applied:
        console.print("Nothing was written: the flow is paused as before.")
        return
    console.print(f"Settled: {done.found.flow} goes on.")
    if done.outcome.move_id:
        console.print(f"The outcome is stored beside the forecast of {done.outcome.move_id}.")


def _topic_lines(topic: TopicReturn, flow: str) -> Iterable[str]:
    if topic.shape != "same":
        yield f"  {topic.topic}: [yellow]{topic.shape}[/yellow], {escape(topic.evidence)}"
    if topic.shape in ("rebuilt", "missing") and not topic.is_heartbeats:
        source, _, target = flow.partition("->")
        yield f"    srm restore --from {target} --to {source} --topic {topic.topic}"


def _partition_table(console: Console, partitions: Iterable[PartitionReturn]) -> None:
    table = Listing()
    table.add_column("partition")
    for name in ("from", "to", "residue"):
        table.add_column(name, justify="right")
    for name in ("first", "last", ""):
        table.add_column(name)
    rows = [entry for entry in partitions if entry.records or _remarks(entry)]
    for entry in cut(rows, console):
        first, end = entry.residue or (entry.copied_to, entry.copied_to)
        table.add_row(
            entry.name,
            *(str(first), str(end), f"{entry.records:,}"),
            *(at(entry.first_ms), at(entry.last_ms)),
            escape("; ".join(_remarks(entry))),
        )
    if rows:
        console.print(table)


def _remarks(entry: PartitionReturn) -> list[str]:
    said = [entry.error, explain_gone(entry)]
    if entry.cut_from is not None:
        only = "?" if entry.only_copied is None else f"{entry.only_copied:,}"
        said.append(f"its log ends at {entry.cut_from}: {only} records are on the copy alone")
    if entry.has_open_transaction:
        said.append(f"a transaction is open from {entry.log_end} on")
    return [text for text in said if text]
