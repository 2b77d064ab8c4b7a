"""``--watch``: look again and again until Ctrl-C, with one look at a time and no drift.

A command gives :func:`show` a function that looks once. With ``--watch`` a terminal is redrawn,
and a pipe gets one look after another, each under its time; with ``--json`` one document a line.
A cluster that does not answer is reported and queried again.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import StringIO
from typing import Annotated, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from srm import patience
from srm.cli.console import document, emit, open_console, write_document
from srm.cli.tree import DEFAULT_WATCH_S
from srm.errors import SrmError

_SHORTEST_S: Final = 0.2

WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch",
        metavar="[SECONDS]",
        min=_SHORTEST_S,
        help=f"Refresh at this interval, {DEFAULT_WATCH_S:g} s without a number, until Ctrl-C.",
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
            sys.stderr.write(f"srm: {error}\n")


def _watch_plain(look: Callable[[], Looked], seconds: float, console: Console) -> None:
    for _ in beats(seconds):
        found, error = _attempt(look)
        console.print(_clock(), style="bold", highlight=False)
        if found is not None:
            found.render(console)
        if error:
            console.print(Text(error))
        console.file.flush()


def _watch_live(look: Callable[[], Looked], seconds: float, console: Console) -> None:
    shown = Text("looking")
    with Live(shown, console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
        for _ in beats(seconds):
            began = time.monotonic()
            found, error = _attempt(look)
            if found is not None:
                shown = _drawn(found, console)
            took_s = time.monotonic() - began
            foot = f"{_clock()}, took {took_s:.1f} s; every {seconds:g} s until Ctrl-C"
            parts = [shown, Text(error, style="red")] if error else [shown]
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
    out = StringIO()
    paper = Console(
        file=out,
        width=console.width,
        force_terminal=True,
        color_system="auto" if console.color_system else None,
    )
    found.render(paper)
    # Rows of tables fit already; lines of text are as long as they are, and are wrapped here.
    return Text.from_ansi(out.getvalue().rstrip("\n"), overflow="fold")


def _clock() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"
