"""``srm residue``: records that only the returned source has: listed, shown, exported."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import ConfigOption, FlowOption, JsonOption, emit, write_document
from srm.cli.flows.for_flows import cut
from srm.cli.moves.source_return import showing
from srm.config.loader import load_config
from srm.domain.recovery.residue import ResidueRecord, json_row
from srm.domain.text.amount import amount
from srm.engine.recovery.residue import ResidueRange, read_residue, residue_ranges
from srm.pages.residue_files import Format, ResidueFiles
from srm.pages.tables import Listing, moment
from srm.wiring import open_return

TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        help="Source topic, several times; all of them by default.",
        autocompletion=completing.topics,
    ),
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="One partition only.")
]


def list_ranges(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    topic: TopicsOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the ranges: those to be decided while the flow is paused, and what was left."""
    with open_return(load_config(config), flow) as (context, logs), showing() as show:
        ranges = residue_ranges(context, logs, topic or (), None, show)
    emit(ranges, as_json, lambda console: _render(console, ranges))


def show(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", help="Source topic.", autocompletion=completing.topics),
    ],
    partition: PartitionOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Records to print.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Print records, oldest offset first: what is UTF-8 as text, other bytes in base64.

    With --json one object a line, as 'srm residue export' writes them.
    """
    console = Console(soft_wrap=True)
    shown = 0

    def take(_: ResidueRange, records: Sequence[ResidueRecord]) -> bool:
        nonlocal shown
        for record in records[: limit - shown]:
            _print(console, record, as_json=as_json)
        shown += len(records[: limit - shown])
        return shown < limit

    with open_return(load_config(config), flow) as (context, logs):
        with showing() as tell:
            ranges = residue_ranges(context, logs, [topic], partition, tell)
        read_residue(logs, ranges, take)
    left = sum(one.records for one in ranges) - shown
    if left > 0 and not as_json:
        console.print(f"[dim]{amount(left, 'more record')}: --limit, or srm residue export[/dim]")
    if not ranges and not as_json:
        console.print(f"No record of {topic} is on the source alone.")


def export(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    topic: TopicsOption = None,
    partition: PartitionOption = None,
    file_format: Annotated[
        Format, typer.Option("--format", help="JSON lines or Parquet.")
    ] = "jsonl",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Directory, made if missing.")
    ],
    as_json: JsonOption = False,
) -> None:
    """Write records to files, one for each partition; an existing file is complete.

    Columns: topic, partition, offset, time, key, value, headers. JSON lines hold bytes that are
    not UTF-8 as base64 under key_base64 and value_base64; Parquet holds bytes.
    """
    done = 0
    with open_return(load_config(config), flow) as (context, logs), showing() as tell:
        ranges = residue_ranges(context, logs, topic or (), partition, tell)
        total = sum(one.records for one in ranges)
        with ResidueFiles(output, file_format) as files:

            def take(_: ResidueRange, records: Sequence[ResidueRecord]) -> bool:
                nonlocal done
                files.write(records)
                done += len(records)
                tell(f"{done:,} of {total:,} records")
                return True

            read_residue(logs, ranges, take)
    written = {"records": done, "files": [str(path) for path in files.paths]}
    emit(
        written,
        as_json,
        lambda console: console.print(
            f"{amount(done, 'record')} in {amount(len(files.paths), 'file')} in "
            f"{escape(str(output))}"
        ),
    )


def _print(console: Console, record: ResidueRecord, *, as_json: bool) -> None:
    row = json_row(record)
    if as_json:
        write_document(json.dumps(row, ensure_ascii=False) + "\n")
        return
    place = f"[bold]{row['topic']}-{row['partition']}[/bold] {row['offset']}"
    parts = [f"{place}  {moment(record.timestamp)}"]
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
        console.print("No record is on the source alone.")
        return
    columns = "partition", "from", "to", "records", "first", "last", "state", ""
    table = Listing(*columns, right=columns[1:4])
    for one in cut(ranges, console):
        table.add_row(
            f"{one.topic}-{one.partition}",
            *(str(one.offset_from), str(one.offset_to - 1), f"{one.records:,}"),
            *(moment(one.first_ms), moment(one.last_ms), one.state, escape(one.note)),
        )
    console.print(table)
