"""The ``srm`` command: lists the command groups, one module each."""

from __future__ import annotations

from typing import Annotated

import typer

from srm import __version__, patience
from srm.cli.console import TimeoutOption, run_cli, set_debug, set_timeout
from srm.cli.flows import (
    checkpoints,
    client_file,
    config,
    doctor,
    groups,
    listing,
    metrics,
    new_config,
    replicate,
    replicator,
    status,
    topics,
    translate,
    verify,
    why,
)
from srm.cli.interrupts import end_soon_after_interrupt
from srm.cli.lab import add_lab
from srm.cli.moves import (
    drill,
    failover,
    failover_report,
    failover_status,
    follow,
    redirecting,
    residue,
    restore,
    source_return,
)

EXIT_CODES = (
    "Exit codes: 0 done, 1 unexpected, 2 bad input or configuration, 3 not found, "
    "4 conflict, 5 gate closed, 6 cluster unavailable, 7 data loss, 8 integrity, "
    "9 not authorized, 10 embedded stack, 130 interrupted."
)

app = typer.Typer(
    name="srm",
    help="Streams replication manager for Apache Kafka.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

add_lab(app)
replicate.register(app)
app.add_typer(replicator.app, name="replicator")
app.add_typer(config.app, name="config")
client_file.register(config.app)
new_config.register_import(config.app)
new_config.register_init(app)
app.add_typer(metrics.app, name="metrics")
verify.register(app)
app.add_typer(checkpoints.app, name="checkpoints")
listing.register_groups(groups.app)
app.add_typer(groups.app, name="groups")
listing.register_topics(topics.app)
app.add_typer(topics.app, name="topics")
translate.register(app)
status.register(app)
doctor.register(app)
why.register(app)
failover_status.register(failover.app)
redirecting.register(failover.app)
drill.register(failover.app)
failover.app.add_typer(failover_report.app, name="report")
app.add_typer(failover.app, name="failover")
app.add_typer(source_return.app, name="return")
app.add_typer(residue.app, name="residue")
restore.register(app)
follow.register(app)


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
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="SRM_DEBUG", help="Log details, show stack traces."),
    ] = False,
    timeout: TimeoutOption = patience.DEFAULT_S,
) -> None:
    """Streams replication manager for Apache Kafka."""
    set_debug(enabled=debug)
    set_timeout(context, timeout)


def main() -> None:
    """Entry point of the ``srm`` program."""
    end_soon_after_interrupt()
    run_cli(app)


if __name__ == "__main__":
    main()
