"""Shared parts of all srm commands: options, output, watching, errors, interrupts.

A command takes its own options and a dataclass of shared ones such as :class:`Common`, calls one
engine function and emits the result, or with ``--watch`` shows one look after another. This module
imports little, because help and completion do.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import cache, cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TextIO

import typer

from srm import logs, patience
from srm.cli import completing
from srm.domain.names.topics import Flow, TopicPartition
from srm.errors import INTERRUPTED, UNEXPECTED, GivenUpError, SrmError, UnavailableError, UsageError
from srm.extras import missing_extra
from srm.threads import start_thread

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from srm.cli.commands import Entry
    from srm.config.model import Config

named_file = list[Path]()
"""Properties file of this command, if the operator named one."""


def remember_file(config: Path | None) -> Path | None:
    named_file[:] = [config] if config is not None else named_file
    return config


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        callback=remember_file,
        metavar="FILE",
        help="Properties file; default: $SRM_CONFIG, then ./srm.properties.",
    ),
]

ClientConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="Client file; default: $SRM_CLIENT_CONFIG, then ./srm-client.properties.",
    ),
]


def flow_option(text: str) -> Any:
    return typer.Option(
        "--flow", "-f", metavar="A:B", parser=Flow.parse, help=text, autocompletion=completing.flows
    )


FlowOption = Annotated[Flow, flow_option("Replication flow, A:B or 'A->B'.")]

FlowsOption = Annotated[
    list[Flow] | None,
    flow_option("Replication flow, A:B or 'A->B'; may be repeated. Default: all enabled flows."),
]

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be written, but write nothing.")
]

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Approve without a prompt.")]


def topic_option(text: str) -> Any:
    return typer.Option("--topic", "-t", help=text, autocompletion=completing.topics)


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text, also for errors.")
]

_DEBUG: Final = ("--debug", "-v")
_TYPER_ERROR: Final = typer.BadParameter.__mro__[2]
"""Base of typer's usage errors, which it does not export."""
_UNWRAPPED: Final = 10_000
"""Columns of a file or pipe; rich would take 80."""


@dataclass(frozen=True, kw_only=True)
class Common:
    """Options of each command that reads the properties file."""

    config: ConfigOption = None
    as_json: JsonOption = False

    @cached_property
    def settings(self) -> Config:
        from srm.config.loader import load_config

        return load_config(self.config)

    def emit(self, value: object, render: Callable[[Console], None]) -> None:
        emit(value, self.as_json, render)


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """Options of srm-control, also before a command: how the flow's target is reached."""

    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=remember_file,
            help="Properties file of srm, or client settings.",
        ),
    ] = None
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-servers",
            "--bootstrap-server",
            metavar="HOST:PORT",
            help="Address of the flow's target, instead of a properties file.",
        ),
    ] = None
    props: Annotated[
        list[str] | None,
        typer.Option(metavar="K=V", help="Setting of all clients; may be repeated."),
    ] = field(default=None, repr=False)


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
    write_exact(text, sys.stdout, _json_escape)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1]


def write_exact(text: str, out: TextIO, escape: Callable[[str], str] = logs.escape) -> None:
    """Write a text as it is to a file or pipe, with control sequences escaped to a terminal."""
    out.write(logs.printable(text, "\n\t", escape) if out.isatty() else text)


def write_line(text: str, *, stderr: bool = False) -> None:
    """Write a line of text, or several, without control sequences of names in it."""
    out = sys.stderr if stderr else sys.stdout
    out.write(logs.printable(text, "\n\t") + "\n")


class _Stdout:
    """Knows whether this process has written a document, so that an error is not another one."""

    has_document = False


def require_terminal(
    *, as_json: bool, instead: str = "review with --dry-run, then pass --yes"
) -> None:
    """Make sure that an operator can approve the plan, or answer questions."""
    if as_json or not sys.stdin.isatty():
        raise UsageError(f"no terminal to confirm on: {instead}")


def open_console(*, stderr: bool = False, quiet: bool = False, soft_wrap: bool = False) -> Console:
    """Return a console on stdout, or stderr; without a terminal, rows stay whole.

    Control sequences in names are escaped. $COLUMNS is ignored: CI systems export that of some
    other terminal.
    """
    from srm.pages.tables import SafeConsole

    wraps = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if wraps else _UNWRAPPED
    return _naming(SafeConsole(width=width, stderr=stderr, quiet=quiet, soft_wrap=soft_wrap))


def _naming(console: Console) -> Console:
    """Let a console name the operator's file in all commands that it prints, also in tables."""
    if file := _file():
        from srm.pages.tables import Insertion

        console.push_render_hook(Insertion(_commands(_starts()), file))
    return console


_WITHOUT_FILE: Final = (
    *("srm demo", "srm stack up", "srm stack down", "srm stack status", "srm init"),
    *("srm config import", "srm follow", "srm schema", "srm completion", "srm-service password"),
)
"""Commands that read no properties file."""
DOCUMENTS: Final = (".json", ".yaml", ".yml")
"""Ends of files of Kafka Connect or Strimzi, which only imports and exports read."""


def _starts() -> tuple[str, ...]:
    """Return how the commands begin that read the operator's file."""
    return ("srm import", "srm export") if named_file[0].suffix in DOCUMENTS else ("srm",)


@cache
def _commands(starts: tuple[str, ...]) -> re.Pattern[str]:
    from srm.cli.commands import PROGRAMS

    def paths(name: str, entry: Entry) -> Iterator[str]:
        for word, one in entry.commands.items():
            yield from paths(f"{name} {word}", one)
        if entry.target or entry.default:
            yield name

    known = (path for name, entry in PROGRAMS.items() for path in paths(name, entry))
    reading = (one for one in known if one.startswith(starts) and one not in _WITHOUT_FILE)
    words = "|".join(map(re.escape, reading))
    return re.compile(rf"(?<![\w./-])(?:{words})(?![\w-]|\s+--config\s)")


def _file() -> str:
    if not named_file:
        return ""
    from srm.config.loader import file_to_name

    file = file_to_name(str(named_file[0]))
    return file and f" --config {shlex.quote(file)}"


def name_file(text: str) -> str:
    """Let the commands in a text name the operator's properties file, if they have to."""
    file = _file()
    return _commands(_starts()).sub(lambda found: found[0] + file, text) if file else text


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
    logging.getLogger(__name__).debug("failed", exc_info=error)
    name, what, action, code = _parts(error)
    what, action = map(name_file, (what, action))
    if as_json:
        parts = {"type": name, "message": what, "action": action, "exit_code": code}
        text = json.dumps({"error": parts}, ensure_ascii=False) + "\n"
        if _Stdout.has_document:
            write_exact(text, sys.stderr, _json_escape)
            sys.exit(code)
        write_exact(text, sys.stdout, _json_escape)
    if isinstance(error, _TYPER_ERROR):
        show: Any = error
        show.show()
    else:
        name = Path(sys.argv[0]).name
        write_line(f"{name}: {what}{'; ' if action else ''}{action}", stderr=True)
    sys.exit(code)


def _parts(error: Exception) -> tuple[str, str, str, int]:
    if isinstance(error, ModuleNotFoundError):
        error = missing_extra(error) or error
    if isinstance(error, SrmError):
        what, action = (" ".join(text.split()) for text in (error.what, error.action))
        kind = UnavailableError if isinstance(error, GivenUpError) else type(error)
        return kind.__name__, what or str(error), action, error.exit_code
    if isinstance(error, _TYPER_ERROR):
        from srm.domain.text.documents import cause

        typed: Any = error
        typed.message = cause(typed.message)
        text = " ".join(typed.format_message().split())
        return UsageError.__name__, text, "see --help", typed.exit_code
    text = f"unexpected {type(error).__name__}: {' '.join(str(error).split())}"
    return type(error).__name__, text, "--debug shows where", UNEXPECTED


_SHORTEST_S: Final = 0.2
DEFAULT_WATCH_S: Final = 2.0
"""Seconds between two looks of ``--watch`` without a number."""

WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        min=_SHORTEST_S,
        help=f"Refresh until Ctrl-C, every {DEFAULT_WATCH_S:g} s without a number.",
    ),
]


@dataclass(frozen=True)
class Looked:
    """Result of one look: its value, how it is shown; ``complain`` raises partial failures."""

    value: object
    render: Callable[[Console], None]
    complain: Callable[[], None] = lambda: None


def show(look: Callable[[], Looked], watch: float | None, *, as_json: bool) -> None:
    """Look and show it once, or every ``watch`` seconds until Ctrl-C, which is exit code 0.

    SrmError: something is wrong; of a watch only what no waiting ends.
    """
    if watch is None:
        found = look()
        emit(found.value, as_json, found.render)
        found.complain()
        return
    with suppress(KeyboardInterrupt):
        console = open_console()
        if as_json:
            _watch_json(look, watch)
        elif console.is_terminal:
            _watch_live(look, watch, console)
        else:
            _watch_plain(look, watch, console)


def beats(
    seconds: float,
    now: Callable[[], float] = time.monotonic,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Yield at once and then at each multiple of an interval; those that are over are left out."""
    began = now()
    while True:
        yield
        passed = now() - began
        wait(seconds - passed % seconds)


def _watch_json(look: Callable[[], Looked], seconds: float) -> None:
    for _ in beats(seconds):
        found, error = _attempt(look)
        if found is not None:
            write_document(document(found.value) + "\n")
            sys.stdout.flush()
        if error:
            write_line(f"srm: {name_file(error)}", stderr=True)


def _watch_plain(look: Callable[[], Looked], seconds: float, console: Console) -> None:
    from rich.text import Text

    for _ in beats(seconds):
        found, error = _attempt(look)
        console.print(_clock(), style="bold", highlight=False)
        if found is not None:
            found.render(console)
        if error:
            console.print(Text(error))
        console.file.flush()


def _watch_live(look: Callable[[], Looked], seconds: float, console: Console) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    shown = Text("looking")
    with Live(shown, console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for _ in beats(seconds):
            began = time.monotonic()
            found, error = _attempt(look)
            if found is not None:
                shown = _drawn(found, console)
            took_s = time.monotonic() - began
            foot = f"{_clock()}, took {took_s:.1f} s; every {seconds:g} s until Ctrl-C"
            parts = [shown, Text(name_file(error), style="red")] if error else [shown]
            live.update(Group(*parts, Text(foot, style="dim")), refresh=True)


def _attempt(look: Callable[[], Looked]) -> tuple[Looked | None, str]:
    """Look once; return what went wrong and may be over the next time."""
    found = None
    try:
        with patience.renew():
            found = look()
        found.complain()
    except SrmError as error:
        if not error.retriable:
            raise
        return found, " ".join(str(error).split())
    return found, ""


def _drawn(found: Looked, console: Console) -> Text:
    """Return as text what is shown on a console, with its width and colours."""
    from rich.text import Text

    from srm.pages.tables import SafeConsole

    out = StringIO()
    paper = SafeConsole(
        file=out,
        width=console.width,
        force_terminal=True,
        color_system="auto" if console.color_system else None,
    )
    found.render(_naming(paper))
    # Rows of tables fit already; lines of text are as long as they are, and are wrapped here.
    return Text.from_ansi(out.getvalue().rstrip("\n"), overflow="fold")


def _clock() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"


_GRACE_S: Final = 0.7
_SHOW_CURSOR: Final = "\x1b[?25h"
_tidying = threading.Event()


def end_soon_after_interrupt() -> None:
    """End this program soon after Ctrl-C, unless it handles signals or tidies up itself."""
    arrivals, wakeup = socket.socketpair()
    wakeup.settimeout(0)
    signal.set_wakeup_fd(wakeup.detach(), warn_on_full_buffer=False)
    start_thread("srm-interrupts", lambda: _watch(arrivals))


@contextmanager
def tidying_up() -> Iterator[None]:
    """Let the block end in its own time after Ctrl-C: it removes what it has made."""
    _tidying.set()
    try:
        yield
    finally:
        _tidying.clear()


def _watch(arrivals: socket.socket) -> None:
    while numbers := arrivals.recv(64):
        if signal.SIGINT in numbers and _is_unhandled():
            end = threading.Timer(_GRACE_S, _end)
            end.daemon = True
            end.start()


def _is_unhandled() -> bool:
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    return handlers == (signal.default_int_handler, signal.SIG_DFL) and not _tidying.is_set()


def _end() -> None:
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR.encode())
    os._exit(INTERRUPTED)
