"""Shared parts of all srm commands: options, output as text or JSON, errors as one line.

A command takes ``config: ConfigOption = None``, ``flow: FlowOption`` and ``as_json: JsonOption =
False``, calls one engine function and hands the result to :func:`emit`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final, NoReturn, TypeVar

import typer
from rich.console import Console

from srm import logs, patience
from srm.domain.names.topics import Flow
from srm.domain.text.documents import encode
from srm.errors import SrmError, UsageError
from srm.extras import missing_extra

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Properties file; without it $SRM_CONFIG, then ./srm.properties.",
    ),
]

ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Clients' file; without it $SRM_CLIENT_CONFIG, then ./srm-client.properties.",
    ),
]

FlowOption = Annotated[
    Flow,
    typer.Option("--flow", "-f", metavar="A->B", parser=Flow.parse, help="Replication flow."),
]

FlowsOption = Annotated[
    list[Flow] | None,
    typer.Option(
        "--flow",
        "-f",
        metavar="A->B",
        parser=Flow.parse,
        help="Replication flow, may be given several times; without it all enabled flows.",
    ),
]

TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        envvar="SRM_TIMEOUT",
        help="How long each cluster has for its first answer.",
    ),
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for approval.")]

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

_T = TypeVar("_T")
_UNWRAPPED: Final = 10_000
"""Columns of a file or pipe; rich would take 80."""


def set_timeout(context: typer.Context, seconds: float) -> None:
    """Give each cluster that the command opens some seconds for its first answer."""
    context.with_resource(patience.limit(seconds))


def set_debug(*, enabled: bool) -> None:
    """Log srm's own debug messages to stderr, and let :func:`run_cli` show stack traces."""
    logs.set_up(srm=logging.DEBUG if enabled else logging.NOTSET, again=True)


def emit(value: object, as_json: bool, render: Callable[[Console], None]) -> None:  # noqa: FBT001 -- as_json comes as the option gives it
    """Print ``value`` as JSON, or call ``render`` with a console on stdout.

    Dataclasses become objects, durations ISO 8601, mapping keys their ``str()``.
    """
    if as_json:
        sys.stdout.write(encode(value, indent=2).decode() + "\n")
    else:
        render(open_console())


def choose(option: str, text: str, choices: tuple[_T, ...]) -> _T:
    """Return the choice that an option gives.

    Raises:
        UsageError: it is none of them.
    """
    for choice in choices:
        if text == choice:
            return choice
    *some, last = map(str, choices)
    raise UsageError(f"{option} {text}: say {', '.join(some)} or {last}")


def require_terminal(*, as_json: bool) -> None:
    """Make sure that an operator can approve the plan.

    Raises:
        UsageError: stdin is not a terminal.
    """
    if as_json or not sys.stdin.isatty():
        raise UsageError("no terminal to confirm on: review with --dry-run, then pass --yes")


def open_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout, or stderr; without a terminal, rows stay whole.

    $COLUMNS is ignored: shells and CI systems export the width of some other terminal.
    """
    wraps = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(width=None if wraps else _UNWRAPPED, stderr=stderr)


def run_cli(app: typer.Typer) -> None:
    """Run a typer app as a program: the entry point of the ``srm`` and ``srm-control`` scripts.

    An :class:`SrmError` becomes one line on stderr and its exit code; any other exception exit
    code 1 and a hint at ``--debug``. With ``--debug`` the stack trace is printed first.
    """
    try:
        app()
    except SrmError as error:
        _fail(error, str(error), error.exit_code)
    except Exception as error:  # noqa: BLE001 -- the last line of defence: one line, not a trace
        known = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
        if known is not None:
            _fail(known, str(known), known.exit_code)
        _fail(error, f"unexpected {type(error).__name__}: {error} (--debug shows where)", 1)


def _fail(error: Exception, message: str, exit_code: int) -> NoReturn:
    logging.getLogger(__name__).debug("failed", exc_info=error)
    program = Path(sys.argv[0]).name
    sys.stderr.write(f"{program}: {' '.join(message.split())}\n")
    sys.exit(exit_code)
