"""Completion in a shell: ``srm completion`` prints its script; values come from here.

Flows come from the configuration, names and move ids from the clusters, within two seconds.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain, filterfalse
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from srm.domain.names.internal_topics import is_internal
from srm.threads import start_thread

if TYPE_CHECKING:
    from srm.config.model import Config
    from srm.engine.cluster_ports import Cluster

LIMIT_S: Final = 2.0
_PLAIN: Final = re.compile(r"[\w.:@%+,/=-]+")
_BASH: Final = "# Flows are written P:B.\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//:/}"


def completion(
    shell: Annotated[
        Literal["bash", "zsh", "fish"], typer.Argument(metavar="SHELL", help="bash, zsh or fish.")
    ],
) -> None:
    from typer._completion_shared import get_completion_script

    parts = [_BASH] if shell == "bash" else []
    parts += [
        get_completion_script(prog_name=name, complete_var=_variable(name), shell=shell)
        for name in ("srm", "srm-control")
    ]
    sys.stdout.write("\n".join(parts) + "\n")


def prepare(program: str) -> None:
    """Let typer answer where a shell wants completions, and log nothing into its line."""
    if _variable(program) in os.environ:
        from typer._completion_classes import completion_init

        completion_init()
        logging.disable()


def _variable(program: str) -> str:
    return f"_{program}_COMPLETE".replace("-", "_").upper()


def flows(ctx: typer.Context) -> list[str]:
    """Return the enabled flows, all possible ones where none is enabled."""
    with suppress(Exception):
        config = _config(ctx)
        # A shell would take the > of the other notation as a redirection.
        return [f"{one.source}:{one.target}" for one in config.flows or config.flow_configs]
    return []


def clusters(ctx: typer.Context) -> list[str]:
    with suppress(Exception):
        return list(_config(ctx).clusters)
    return []


def topics(ctx: typer.Context) -> list[str]:
    """Return the topics of the flow's clusters that are not internal."""
    return _everywhere(ctx, lambda cluster: filterfalse(is_internal, cluster.topics()))


def groups(ctx: typer.Context) -> list[str]:
    return _everywhere(ctx, lambda cluster: cluster.groups())


def moves(ctx: typer.Context) -> list[str]:
    """Return the ids of moves, the newest of a cluster first."""
    from srm.engine.moves.tables import MoveRecords

    def newest(cluster: Cluster) -> Iterable[str]:
        lines = MoveRecords.read(cluster).lines.values()
        return (one.move_id for one in sorted(lines, key=lambda one: -one.created_ms))

    return _everywhere(ctx, newest)


def _config(ctx: typer.Context) -> Config:
    from srm.config.loader import load_config

    return load_config(ctx.params.get("config"))


def _everywhere(ctx: typer.Context, names: Callable[[Cluster], Iterable[str]]) -> list[str]:
    """Return the names that the clusters of the flow have, of all clusters without a flow."""
    from srm.wiring import open_cluster

    def reading(config: Config, alias: str) -> Callable[[], list[str]]:
        def read() -> list[str]:
            with open_cluster(config, alias, LIMIT_S) as cluster:
                return list(names(cluster))

        return read

    with suppress(Exception):
        config = _config(ctx)
        return _in_time([reading(config, alias) for alias in _aliases(ctx, config)])
    return []


def _aliases(ctx: typer.Context, config: Config) -> Iterable[str]:
    from srm.domain.names.topics import Flow

    given: Any = ctx.params.get("flow") or ()
    found = given if isinstance(given, list | tuple) else [given]
    flows = [one if isinstance(one, Flow) else Flow.parse(one) for one in found]
    return {alias for flow in flows for alias in (flow.source, flow.target)} or config.clusters


def _in_time(reads: list[Callable[[], list[str]]]) -> list[str]:
    """Return what the reads find that end in time; a dead cluster takes nothing from the others.

    Names with characters of a shell are left out: some shells would run what they say.
    """
    found: list[list[str]] = [[] for _ in reads]

    def run(place: int, read: Callable[[], list[str]]) -> None:
        with suppress(Exception):
            found[place] = read()

    threads = [start_thread("srm completion", partial(run, *each)) for each in enumerate(reads)]
    deadline = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [name for name in dict.fromkeys(chain(*found)) if _PLAIN.fullmatch(name)]
