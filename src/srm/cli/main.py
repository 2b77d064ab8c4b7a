"""The programs ``srm``, ``srm-control`` and ``srm-service``: their options, and how they start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from srm import __version__, patience
from srm.cli.commands import CONTROL, SERVICE, SRM, Entry
from srm.cli.console import ConfigOption, TimeoutOption, run_cli, set_debug, set_timeout
from srm.cli.interrupts import end_soon_after_interrupt
from srm.cli.tree import SETTINGS, LazyGroup
from srm.errors import EXIT_CODES

_EXITS: Final = ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())


def _program(entries: Mapping[str, Entry], text: str, epilog: str = "") -> typer.Typer:
    return typer.Typer(
        cls=type("Program", (LazyGroup,), {"entries": entries}),
        help=text,
        epilog=epilog,
        no_args_is_help=entries is not SERVICE,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=SETTINGS,
    )


app = _program(
    SRM,
    "Streams replication manager for Apache Kafka.",
    f"Exit codes: {_EXITS}. With --json an error is an object on stdout: "
    '{"error": {"type", "message", "action", "exit_code"}}; on stderr where a result is on stdout.',
)
control = _program(CONTROL, "Choose what replication flows copy, and export translated offsets.")
service = _program(SERVICE, "Serve REST API, metrics and pages of the flows.")

_Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        "-v",
        envvar="SRM_DEBUG",
        help="Log details, show stack traces; before or after the command.",
    ),
]


def _print_version(wanted: bool) -> None:  # noqa: FBT001 -- typer's callback signature
    if wanted:
        typer.echo(f"srm {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 -- acts in its callback
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_print_version, help="Print the version."
        ),
    ] = False,
    debug: _Debug = False,
    timeout: TimeoutOption = patience.DEFAULT_S,
) -> None:
    """Streams replication manager for Apache Kafka."""
    set_debug(enabled=debug)
    set_timeout(context, timeout)


@control.callback()
def control_root(
    context: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Properties file of srm, or client settings."
        ),
    ] = None,
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="Address of the flow's target; enough without a properties file.",
        ),
    ] = None,
    props: Annotated[
        list[str] | None,
        typer.Option("--props", metavar="K=V", help="Setting of all clients; may be repeated."),
    ] = None,
    debug: _Debug = False,
    timeout: TimeoutOption = patience.DEFAULT_S,
) -> None:
    """Choose what replication flows copy, and export translated offsets."""
    set_debug(enabled=debug)
    set_timeout(context, timeout)
    context.obj = (config, bootstrap_servers, tuple(props or ()))


@service.callback(invoke_without_command=True)
def service_root(
    context: typer.Context,
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
    if context.invoked_subcommand is None:
        from srm.cli.flows.service import serve

        serve(config, host, port)


def main() -> None:
    """Entry point of the ``srm`` program."""
    end_soon_after_interrupt()
    run_cli(app)


def control_main() -> None:
    """Entry point of the ``srm-control`` program."""
    end_soon_after_interrupt()
    run_cli(control)


def service_main() -> None:
    """Entry point of the ``srm-service`` program."""
    run_cli(service)


if __name__ == "__main__":
    main()
