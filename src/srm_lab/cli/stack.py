"""``srm stack``: embedded Kafka clusters, Airflow and Spark, left running to explore."""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from srm.cli.console import JsonOption, Looked, WatchOption, emit, show
from srm.pages.tables import Listing

if TYPE_CHECKING:
    from srm_lab.stack.stack import OnProgress, Stack, StackStatus


def entering(config: str | Path, *, venv: Path | None = None) -> str:
    """Return lines for a shell in any folder: they find ``srm``, and its properties file.

    The environment with srm, by default that of this process, is not entered if it is not one, or
    if the shell finds its ``srm`` already.
    """
    home = Path(sys.prefix) if venv is None else venv
    activate, found = home / "bin" / "activate", shutil.which("srm")
    lines = [f"  export SRM_CONFIG={shlex.quote(str(Path(config).absolute()))}\n"]
    if activate.is_file() and (found is None or Path(found).parent != home / "bin"):
        lines.insert(0, f"  source {shlex.quote(str(activate))}\n")
    return "".join(lines)


DEFAULT_HOME = Path("build/stack")

HomeOption = Annotated[
    Path, typer.Option("--home", metavar="DIR", help="Folder of the stack: data, logs, settings.")
]

_COLOURS = {"ready": "green", "starting": "yellow", "stopping": "yellow", "stopped": "dim"}


def up(
    *,
    kafka_only: Annotated[
        bool, typer.Option("--kafka-only", help="Only the two Kafka clusters.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    as_json: JsonOption = False,
) -> None:
    _stop_like_ctrl_c()
    with _progress() as report:
        status = _stack(home, kafka_only=kafka_only).up(report)
    emit(status, as_json, lambda console: _render_up(console, status))


def down(*, home: HomeOption = DEFAULT_HOME, as_json: JsonOption = False) -> None:
    with _progress() as report:
        stopped = _stack(home).down(report)
    text = f"Stopped {len(stopped)} components." if stopped else "The stack was not running."
    emit(stopped, as_json, lambda console: console.print(text))


def show_status(
    *, home: HomeOption = DEFAULT_HOME, watch: WatchOption = None, as_json: JsonOption = False
) -> None:
    def look() -> Looked:
        status = _stack(home).status()
        return Looked(status, lambda console: _render_status(console, status))

    show(look, watch, as_json=as_json)


def _stack(home: Path, *, kafka_only: bool = False) -> Stack:
    # What starts Airflow takes longer to import than most other commands run.
    from srm_lab.stack.stack import Stack, StackOptions

    return Stack(StackOptions(home=home, kafka_only=kafka_only))


def _render_up(console: Console, status: StackStatus) -> None:
    if status.already_running:
        console.print("The stack is running already.")
    table = Listing.grid("", "", padding=(0, 3, 0, 0))
    if status.service_url is not None:
        table.add_row("SRM", f"{status.service_url} (pages, REST API)")
    for alias, address in status.bootstrap.items():
        table.add_row(f"Kafka {alias}", address)
    if status.airflow_login is not None:
        name, password = status.airflow_login
        table.add_row("Airflow", f"{status.airflow_url} (login {name}, password {password})")
    table.add_row("Config", _short(status.config))
    table.add_row("Logs", _short(status.logs))
    console.print(table)
    home = _short(status.home)
    option = "" if Path(home) == DEFAULT_HOME else f" --home {home}"
    # Without Airflow nothing starts these.
    work = "  srm replicate --flow 'P->B' --flow 'B->P'\n  srm checkpoints emit\n"
    console.print(
        "\nNext:\n"
        f"{entering(status.config)}"
        f"{work if status.airflow_url is None else ''}"
        "  srm status --flow 'P->B'\n"
        f"  srm stack status{option}\n"
        f"  srm stack down{option}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _render_status(console: Console, status: StackStatus) -> None:
    table = Listing(padding=(0, 3, 0, 0))
    for heading in ("COMPONENT", "STATE", "ADDRESS", "PID", "LOG"):
        table.add_column(heading)
    for part in status.components:
        colour = _COLOURS[part.state]
        pid = str(part.pid) if part.pid is not None else ""
        state = f"[{colour}]{part.state}[/]"
        table.add_row(part.name, state, part.address, pid, _short(part.log))
    console.print(table)


def _short(path: str) -> str:
    """Return the path relative to the current folder where it is below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def _stop_like_ctrl_c() -> None:
    """Let SIGTERM end ``up`` as Ctrl-C does: with what it started stopped."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


@contextmanager
def _progress() -> Iterator[OnProgress]:
    """Show one line per component on stderr: live on a terminal, else each change."""
    console = Console(stderr=True, highlight=False)
    board = _Board(console)
    if console.is_terminal:
        with Live(board, console=console, refresh_per_second=8, transient=False):
            yield board.change
    else:
        yield board.say


class _Board:
    """The state of each component and the seconds it took to get there."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = time.monotonic()
        self._changes: dict[str, tuple[str, float]] = {}
        self._lock = threading.Lock()

    def change(self, component: str, state: str) -> None:
        with self._lock:
            self._changes[component] = (state, time.monotonic() - self._started)

    def say(self, component: str, state: str) -> None:
        self.change(component, state)
        seconds = self._changes[component][1]
        self._console.print(f"{component:<22} {state:<22} {seconds:6.1f} s")

    def __rich__(self) -> Table:
        with self._lock:
            changes = dict(self._changes)
        table = Table.grid(padding=(0, 3, 0, 0))
        now = time.monotonic() - self._started
        for component, (state, seconds) in changes.items():
            colour = _COLOURS.get(state, "default")
            shown = now if state in {"starting", "stopping"} else seconds
            table.add_row(component, f"[{colour}]{state}[/]", f"{shown:.1f} s")
        return table
