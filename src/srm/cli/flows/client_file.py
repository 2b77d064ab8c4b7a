"""``srm config client``: the file of applications, from the replicator's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srm.cli.console import ConfigOption
from srm.config.client_file import client_file
from srm.config.loader import read_settings
from srm.disk import write_atomically
from srm.errors import StackError, UsageError


def client(
    *,
    config: ConfigOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file, not to stdout."),
    ] = None,
    add: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Add a line, e.g. P.sasl.username=app."),
    ] = None,
) -> None:
    """Write the file that applications need: clusters, addresses, and no secrets of this one."""
    text = client_file(read_settings(config), dict(map(_assignment, add or ())))
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        write_atomically(output, text.encode())  # only its owner may read it
    except StackError as error:
        raise UsageError(str(error)) from None
    typer.echo(f"{output}: written; name it with clusters= or $SRM_CLIENT_CONFIG")


def _assignment(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key.strip():
        raise UsageError(f"--set {text}: write it as KEY=VALUE")
    return key.strip(), value.strip()
