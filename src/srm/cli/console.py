"""Shared parts of all srm commands: options, output as text or JSON, errors as one line.

A command takes ``config: ConfigOption = None``, ``flow: FlowOption`` and ``as_json: JsonOption =
False``, calls one engine function and hands the result to :func:`emit`. This module imports
little, because help and completion do.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

from srm import logs, patience
from srm.cli import completing
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import INTERRUPTED, UNEXPECTED, SrmError, UsageError
from srm.extras import missing_extra

if TYPE_CHECKING:
    from rich.console import Console

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
    typer.Option(
        "--flow",
        "-f",
        metavar="A:B",
        parser=Flow.parse,
        help="Replication flow, A:B or 'A->B'.",
        autocompletion=completing.flows,
    ),
]

FlowsOption = Annotated[
    list[Flow] | None,
    typer.Option(
        "--flow",
        "-f",
        metavar="A:B",
        parser=Flow.parse,
        help="Replication flow, A:B or 'A->B', may be given several times; without it all enabled "
        "flows.",
        autocompletion=completing.flows,
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

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written, write nothing.")
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for approval.")]


def topic_option(text: str) -> Any:
    """Return ``--topic`` with its help."""
    return typer.Option("--topic", "-t", help=text, autocompletion=completing.topics)


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text, also of an error.")
]

_DEBUG: Final = ("--debug", "-v")
_TYPER_ERROR: Final = typer.BadParameter.__mro__[2]
"""Base of typer's usage errors, which it does not export."""
_UNWRAPPED: Final = 10_000
"""Columns of a file or pipe; rich would take 80."""


def set_timeout(context: typer.Context, seconds: float) -> None:
    """Give each cluster that the command opens some seconds for its first answer."""
    context.with_resource(patience.limit(seconds))


def set_debug(*, enabled: bool) -> None:
    """Log srm's own debug messages to stderr, and let :func:`run_cli` show stack traces."""
    logs.set_up(srm=logging.DEBUG if enabled else logging.NOTSET, again=True)


def emit(value: object, as_json: bool, render: Callable[[Console], None]) -> None:  # noqa: FBT001 -- as_json comes as the option gives it
    """Print ``value`` as JSON (:func:`document`), or call ``render`` with a console on stdout."""
    if as_json:
        write_document(document(value, indent=2) + "\n")
    else:
        render(open_console())


def document(value: object, *, indent: int | None = None) -> str:
    """Return a result as JSON, without a line end.

    Dataclasses become objects, a flow ``"P->B"``, a partition ``{"topic": "T", "partition": 0}``,
    durations ISO 8601, mapping keys their ``str()``.
    """
    from srm.domain.text.documents import encode

    return encode(_plain(value), indent=indent).decode()


def _plain(value: Any) -> Any:
    if isinstance(value, Flow):
        return str(value)
    if isinstance(value, TopicPartition):
        return value._asdict()
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    return value


def _key(key: object) -> object:
    return str(key) if isinstance(key, Flow | TopicPartition) else key


def write_document(text: str) -> None:
    """Write a JSON document, or a part of one, to stdout."""
    _Stdout.has_document = True
    sys.stdout.write(text)


class _Stdout:
    """Knows whether this process has written a document, so that an error is not another one."""

    has_document = False


def require_terminal(*, as_json: bool) -> None:
    """Make sure that an operator can approve the plan."""
    if as_json or not sys.stdin.isatty():
        raise UsageError("no terminal to confirm on: review with --dry-run, then pass --yes")


def open_console(*, stderr: bool = False) -> Console:
    """Return a console on stdout, or stderr; without a terminal, rows stay whole.

    $COLUMNS is ignored: CI systems export that of some other terminal.
    """
    from rich.console import Console

    wraps = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(width=None if wraps else _UNWRAPPED, stderr=stderr)


def run_cli(app: typer.Typer) -> NoReturn:
    """Run a typer app as a program.

    An :class:`SrmError` becomes one line on stderr and its exit code; any other exception exit
    code 1 and a hint at ``--debug``. With ``--debug`` the stack trace is printed first. With
    ``--json`` the error is a JSON object on stdout, or on stderr if stdout has a document already.
    """
    _Stdout.has_document = False
    given = sys.argv[1:]
    own = given[: given.index("--")] if "--" in given else given
    try:
        completing.prepare(Path(sys.argv[0]).name)
        command = typer.main.get_command(app)
        if {name for each in command.params for name in each.opts}.issuperset(_DEBUG):
            rest = [word for word in own if word not in _DEBUG]
            debug = _DEBUG[: len(own) > len(rest)]
            given = [*debug, *rest, *given[len(own) :]]
        code = command.main(given, Path(sys.argv[0]).name, standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(INTERRUPTED)
    except Exception as error:  # noqa: BLE001 -- the last line of defence: one line, not a trace
        _fail(error, as_json="--json" in own)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(error: Exception, *, as_json: bool) -> NoReturn:
    """Print an error, and end the program."""
    logging.getLogger(__name__).debug("failed", exc_info=error)
    name, what, action, code = _parts(error)
    if as_json:
        parts = {"type": name, "message": what, "action": action, "exit_code": code}
        text = json.dumps({"error": parts}, ensure_ascii=False) + "\n"
        if _Stdout.has_document:
            sys.stderr.write(text)
            sys.exit(code)
        sys.stdout.write(text)
    if isinstance(error, _TYPER_ERROR):
        show: Any = error
        show.show()
    else:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: {what}{'; ' if action else ''}{action}\n")
    sys.exit(code)


def _parts(error: Exception) -> tuple[str, str, str, int]:
    """Return type, message, action and exit code of an error."""
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(error) or error
    if isinstance(error, SrmError):
        what, action = (" ".join(text.split()) for text in (error.what, error.action))
        return type(error).__name__, what or str(error), action, error.exit_code
    if isinstance(error, _TYPER_ERROR):
        typed: Any = error
        text = " ".join(typed.format_message().split())
        return UsageError.__name__, text, "see --help", typed.exit_code
    text = f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
    return type(error).__name__, text, "--debug shows where", UNEXPECTED
