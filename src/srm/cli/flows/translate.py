"""``srm translate``: where the reader of an offset continues on the other cluster."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli.console import ConfigOption, FlowOption, JsonOption, emit, topic_option
from srm.config.loader import load_config
from srm.domain.names.topics import TopicPartition
from srm.engine.groups.translate import TranslatedOffset
from srm.engine.groups.translate import translate as translate_offset
from srm.wiring import open_flow


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
    emit(found, as_json, lambda console: _render(console, found))


def _render(console: Console, found: TranslatedOffset) -> None:
    there = "-" if found.to_offset is None else str(found.to_offset)
    console.print(
        f"{found.cluster} {found.partition} offset {found.offset}  ->  "
        f"[bold]{found.to_cluster} {found.to_partition} offset {there}[/bold]"
    )
    if found.state != "translated":
        console.print(f"[yellow]{found.state}[/yellow]: {escape(found.reason)}")
    elif found.reason:
        console.print(escape(found.reason))
