"""``srm-service``: the SRM service as a program of its own."""

from __future__ import annotations

import gc
import getpass
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvicorn

from srm import logs
from srm.config.loader import load_config
from srm.errors import UsageError
from srm.service.access.passwords import line
from srm.service.app import server_config


def serve(config: Path | None, host: str | None, port: int | None) -> None:
    logs.set_up(logging.INFO)
    server = uvicorn.Server(server_config(load_config(config), host, port))
    gc.freeze()  # what is loaded stays: each look would have it searched for garbage again
    server.run()


def password(
    name: Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")],
    *,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Group, as service.operators may name it; may be repeated."),
    ] = None,
) -> None:
    given = _twice(name) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    sys.stdout.write(line(name, given, tuple(group or ())) + "\n")


def _twice(name: str) -> str:
    given = getpass.getpass(f"password of {name}: ")
    if getpass.getpass("once more: ") != given:
        raise UsageError("the two are not the same; nothing was written")
    return given
