"""``srm-service``: the SRM service as a program of its own."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
import uvicorn

from srm.cli.output import ConfigOption, run_cli
from srm.config.loader import load_config
from srm.service.app import create_app
from srm.service.views import Views

app = typer.Typer(add_completion=False)


@app.command()
def serve(
    *,
    config: ConfigOption = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; default: service.host.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; default: service.port.")
    ] = None,
) -> None:
    """Serve REST API, metrics and pages of the flows in the properties file until stopped."""
    loaded = load_config(config)
    settings = loaded.service
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    uvicorn.run(
        create_app(Views(loaded)),
        host=host if host is not None else settings.host,
        port=port if port is not None else settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
    )


def main() -> None:
    """Run the program."""
    run_cli(app)
