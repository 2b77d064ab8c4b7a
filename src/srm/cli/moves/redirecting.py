"""``srm failover redirect`` and ``unfence``: what a move leaves to be done again, or by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srm.cli import completing
from srm.cli.console import ConfigOption, JsonOption, emit
from srm.cli.moves.failover import (
    MoveArgument,
    SourceOption,
    TargetOption,
    open_for,
)
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.engine import moves
from srm.engine.moves import MoveStore
from srm.engine.moves.control.fence import lift_fence
from srm.errors import UnavailableError
from srm.wiring import open_cluster


def redirect(
    move_id: MoveArgument,
    *,
    config: ConfigOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Call the redirectors that have not confirmed what is in force for the clients of a move."""
    with open_for(move_id, config, source, target) as context:
        planned = MoveStore(context).plan(move_id)
        missing = moves.call_redirectors(context, planned)
        calls = MoveStore(context).progress(move_id).calls
    emit(
        dict(calls),
        as_json,
        lambda console: console.print(
            *(f"{key}: {call.state}, {call.said}" for key, call in sorted(calls.items())),
            sep="\n",
            markup=False,
        ),
    )
    if missing:
        raise UnavailableError(f"move {move_id}: {'; '.join(missing)}")


def unfence(
    cluster: Annotated[
        str,
        typer.Argument(
            metavar="CLUSTER", help="Alias of the cluster.", autocompletion=completing.clusters
        ),
    ],
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            help="Topic, several times; all that srm has fenced there by default.",
            autocompletion=completing.topics,
        ),
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let everybody write again to topics that moves with fence = acl have closed on a cluster.

    Rules that srm did not set stay as they are.
    """
    lifted = _unfence(config, cluster, frozenset(topic or ()))
    emit(
        lifted,
        as_json,
        lambda console: console.print(
            f"{cluster}: writes are allowed again to {', '.join(lifted)}"
            if lifted
            else f"{cluster}: nothing is fenced"
        ),
    )


def _unfence(config: Path | None, alias: str, topics: frozenset[str]) -> tuple[str, ...]:
    with open_cluster(load_config(config), alias) as cluster:
        return lift_fence(
            cluster,
            now_ms(),
            lambda fence: not topics or fence.topic in topics,
            since_ms=0 if topics else None,
        )
