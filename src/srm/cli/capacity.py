"""``srm capacity``: what copying a flow's topics takes, from the traffic of the running source."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli.each_flow import cut, watch_each_flow
from srm.cli.output import ConfigOption, FlowsOption, JsonOption, emit
from srm.domain.amount import amount
from srm.domain.capacity import BUSY, CODECS, Capacity, Cores, TopicLoad
from srm.engine.capacity import (
    DescribedCapacity,
    FlowCapacity,
    TopicCapacity,
    described_capacity,
    flow_capacity,
)
from srm.errors import UsageError
from srm.pages.tables import Listing
from srm.wiring import PATIENCE_S

_SMALLEST_BATCH_BYTES: Final = 70
_LARGEST_BATCH_BYTES: Final = 100e6
_SIZE: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>|[KMG])B?(?:/s)?", re.IGNORECASE)
_UNITS: Final = {"": 1, "K": 1e3, "M": 1e6, "G": 1e9}
_CORES: Final = ("replicator", "source", "target")
_COLUMNS: Final = ("partitions", "MB/s", "records/s", "batch KB", *_CORES, "codec", "peak")
_IF_WIDE: Final = ("records/s", "codec", "peak")
_WIDE: Final = 110
_WINDOW_S: Final = 10.0


def register(app: typer.Typer) -> None:
    """Add ``srm capacity``."""
    app.command("capacity")(capacity_of)


def parse_size(text: str) -> float:
    """Read bytes, e.g. ``16KB``, ``1.5 MB`` or ``100MB/s``; a KB has 1000.

    Raises:
        UsageError: it is something else, or nothing.
    """
    found = _SIZE.fullmatch(text.strip())
    size = float(found["number"]) * _UNITS[found["unit"].upper()] if found else 0.0
    if not size:
        raise UsageError(f"{text!r} is no size: give e.g. 16KB, 100MB or 1.5GB, each of 1000")
    return size


def capacity_of(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    window: Annotated[
        float | None,
        typer.Option(min=1, max=3600, help="Seconds to watch the logs grow; without it 10."),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Ask no cluster: bytes a second on the wire, 100MB."),
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="SIZE", help="With --rate: bytes of a batch, 16KB.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="With --rate: partitions that share it.")
    ] = None,
    codec: Annotated[
        str | None, typer.Option(help=f"With --rate: one of {', '.join(CODECS)}.")
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(min=1, help="With --rate: tasks.max, if that is more than is needed."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many slots and cores copying takes: of a flow's own topics, or of such a topic.

    Reads rates (now, over the last hour and the last day), batch sizes and codecs of the topics
    that the flow selects from the source, and changes nothing. Each topic counts with its highest
    rate of the three: ask at the busiest time of the day, or ask what if with --rate.
    """
    if rate is not None:
        if config is not None or flow or window is not None:
            raise UsageError("--rate asks no cluster: leave --config, --flow and --window out")
        found = described_capacity(_described(rate, batch, partitions, codec), slots or 1)
        emit(found, as_json, lambda console: _render_described(console, found))
        return
    if any(given is not None for given in (batch, partitions, codec, slots)):
        raise UsageError("--batch, --partitions, --codec and --slots go with --rate")
    results = watch_each_flow(
        *(config, flow, "reading the traffic"),
        lambda context, tell: flow_capacity(context, window or _WINDOW_S, tell),
        patience_s=PATIENCE_S,
    )
    emit(results.values, as_json, lambda console: _render(console, results.values))
    results.raise_failures()


def _described(
    rate: str, batch: str | None, partitions: int | None, codec: str | None
) -> TopicLoad:
    megabytes = parse_size(rate) / 1e6
    if batch is None or partitions is None:
        raise UsageError("--rate needs --batch and --partitions: what copying costs follows them")
    named = (codec or "none").lower()
    if named not in CODECS:
        raise UsageError(f"{codec!r} is no codec: give one of {', '.join(CODECS)}")
    size = parse_size(batch)
    if not _SMALLEST_BATCH_BYTES <= size <= _LARGEST_BATCH_BYTES:
        raise UsageError(f"--batch {batch}: no broker has batches of less than 70 B or over 100 MB")
    return TopicLoad(partitions, megabytes, size, codec=named)


def _render_described(console: Console, found: DescribedCapacity) -> None:
    load, cost = found.load, found.capacity
    codec = "" if load.codec == "none" else f", {load.codec}"
    console.print(
        f"{load.megabytes_per_s:,.4g} MB/s in batches of {load.batch_bytes / 1000:,.4g} KB{codec}, "
        f"{amount(load.partitions, 'partition')}: [bold]{amount(found.slots_needed, 'slot')} "
        "needed[/bold]"
    )
    table = Listing()
    table.add_column("")
    for column in _CORES:
        table.add_column(column, justify="right")
    table.add_row(f"cores with {amount(cost.slots, 'slot')}", *_cells(cost.total).values())
    console.print(table)
    _render_catch_up(console, cost)
    for line in found.advice:
        console.print(escape(line), soft_wrap=True)


def _render(console: Console, flows: Sequence[FlowCapacity]) -> None:
    for number, found in enumerate(flows):
        if number:
            console.print()
        console.print(
            f"[bold]{found.flow}[/bold]: {amount(len(found.topics), 'topic')}, watched for "
            f"{found.window_s:.0f} s; cores of the replicator with "
            f"{amount(found.capacity.slots, 'slot')} and of both sides' brokers at each topic's "
            "peak",
            soft_wrap=True,
        )
        if found.topics:
            console.print(_table(console, found))
            _render_catch_up(console, found.capacity)
        for line in found.advice:
            console.print(escape(line), soft_wrap=True)


def _table(console: Console, found: FlowCapacity) -> Listing:
    table = Listing()
    table.add_column(f"topic on {found.flow.source}")
    # What does not fit beside the names of topics: it does not decide what copying costs.
    shown = [column for column in _COLUMNS if console.width >= _WIDE or column not in _IF_WIDE]
    for column in shown:
        left = column in {"codec", "peak"}
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in cut(found.topics, console):
        cells = _row(row)
        table.add_row(escape(row.topic), *(cells[column] for column in shown))
    shared = _cells(found.capacity.shared)
    loads = [row.load for row in found.topics]
    sums = {
        "partitions": f"{sum(load.partitions for load in loads):,}",
        "MB/s": f"{sum(load.megabytes_per_s for load in loads):,.2f}",
        "records/s": f"{sum(load.records_per_s for load in loads):,.0f}",
        **_cells(found.capacity.total),
    }
    table.add_row("[dim]shared[/dim]", *(shared.get(column, "") for column in shown))
    table.add_row("[bold]in all[/bold]", *(sums.get(column, "") for column in shown))
    return table


def _row(row: TopicCapacity) -> dict[str, str]:
    load, mark = row.load, "" if row.sampled or not row.load.batch_bytes else "~"
    return {
        "partitions": f"{load.partitions:,}",
        "MB/s": f"{load.megabytes_per_s:,.2f}",
        "records/s": f"{load.records_per_s:,.0f}",
        "batch KB": f"{mark}{load.batch_bytes / 1000:,.1f}" if load.batch_bytes else "-",
        **_cells(row.cores),
        "codec": load.codec if load.batch_bytes else "-",
        "peak": row.peak if load.records_per_s else "-",
    }


def _cells(cores: Cores) -> dict[str, str]:
    figures = cores.replicator, cores.source_brokers, cores.target_brokers
    return {column: f"{figure:.2f}" for column, figure in zip(_CORES, figures, strict=True)}


def _render_catch_up(console: Console, found: Capacity) -> None:
    if not found.catch_up_megabytes_per_s:
        return
    if found.busy > 1:
        console.print(
            "[bold red]partitions are too few[/bold red]: a slot copies whole ones, and each would "
            f"be busy {found.busy:.0%} of the time; {amount(found.partitions_needed, 'partition')} "
            "would do",
            soft_wrap=True,
        )
        return
    after = "never" if found.outage_minutes is None else f"in {found.outage_minutes:.1f} minutes"
    console.print(
        f"{amount(found.slots, 'slot')}, busy {found.busy:.0%} of the time at the peak; up to "
        f"{BUSY:.0%} is planned with\n"
        f"a backlog is copied at {found.catch_up_megabytes_per_s:,.0f} MB/s where each slot has a "
        "core and brokers and lines\n"
        f"keep up; that of an hour {after}, while the traffic goes on",
        soft_wrap=True,
    )
