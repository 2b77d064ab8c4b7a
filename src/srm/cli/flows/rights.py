"""``srm rights``: the kafka-acls.sh commands that give a role its rights."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated, Final

import typer
from rich.console import Console

from srm.cli import completing
from srm.cli.console import ConfigOption, FlowsOption, JsonOption, emit
from srm.config.loader import load_config
from srm.config.model import Config, FlowConfig
from srm.domain.names.rights import (
    FlowNames,
    NeededRight,
    Role,
    client_rights,
    operator_rights,
    replicator_rights,
    service_rights,
)
from srm.errors import UsageError

_TOOL: Final = "kafka-acls.sh"


@dataclass(frozen=True, slots=True)
class RightCommand:
    """A right, and the command that grants it."""

    right: NeededRight
    command: str


def rights(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    role: Annotated[
        Role,
        typer.Option(
            help="Program: replicator (also the commands that Airflow runs), operator of moves, "
            "service (reads only), or client."
        ),
    ] = "replicator",
    principal: Annotated[
        str, typer.Option(metavar="PRINCIPAL", help="Principal to grant to.")
    ] = "User:srm",
    group: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GROUP",
            help="Group of a client, may be given several times.",
            autocompletion=completing.groups,
        ),
    ] = None,
    acls: Annotated[
        bool,
        typer.Option("--acls", help="With ACL sync: the replicator may then change any ACL."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the kafka-acls.sh commands that give a role its rights.

    For the flows, topics and groups of the file; lists of srm-control are not read. A regular
    expression becomes its prefix, or all names. No cluster is contacted.
    """
    resolved = load_config(config)
    if role == "client" and not group:
        raise UsageError("the rights of a client depend on its group; give --group")
    wanted = tuple(flow or resolved.flows)
    needed: list[NeededRight] = []
    for one in wanted:
        names = flow_names(resolved.flow(one))
        if role == "client":
            needed += client_rights(names, group or ())
        elif role == "operator":
            needed += operator_rights(names)
        elif role == "service":
            needed += service_rights(names)
        else:
            needed += replicator_rights(names, acls=acls)
    commands = [
        RightCommand(right, _command(resolved, right, principal)) for right in dict.fromkeys(needed)
    ]
    if not commands:
        raise UsageError(f"no flow is enabled in {resolved.path}; give --flow")
    emit(commands, as_json, lambda console: _render(console, commands))


def _render(console: Console, commands: list[RightCommand]) -> None:
    for one in commands:
        console.print(one.command, markup=False, highlight=False, soft_wrap=True)


def flow_names(settings: FlowConfig) -> FlowNames:
    """Return the settings of a flow that its rights depend on."""
    flow = settings.flow
    location = flow.source if settings.offset_syncs_location == "source" else flow.target
    return FlowNames(flow, settings.policy, settings.topics, settings.groups, location)


def _command(config: Config, right: NeededRight, principal: str) -> str:
    servers = config.client(right.cluster, "admin")["bootstrap.servers"]
    words = (_TOOL, "--bootstrap-server", servers, "--command-config", "admin.properties")
    return shlex.join((*words, "--add", "--allow-principal", principal, *right.arguments))
