"""Display of a running move for ``srm failover``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from srm.domain.moves.records.plan import MovePlan
from srm.domain.moves.records.progress import RUN_STEPS
from srm.engine.moves import RunEvent
from srm.pages.moves import progress_line, reasons_text, sync_view, verify_line, verify_view

_FIGURES: Final = re.compile(r"(?<![\w.-])\d[\d,.]*(?![\w-])")
"""Numbers that are words of their own: those in names (``Payments-0``) say who is meant."""


@contextmanager
def shown(plan: MovePlan, console: Console) -> Iterator[Callable[[RunEvent], None]]:
    """Yield the function that shows each event: a redrawn view, or lines without a terminal."""
    if not console.is_terminal:
        yield MoveLines(plan, console).show
        return
    view = MoveView(plan)
    with Live(view, console=console, refresh_per_second=8) as live:

        def show(event: RunEvent) -> None:
            view.event = event
            live.refresh()

        yield show


class MoveLines:
    """A running move in a file: a line when its step changes, or what it waits for.

    Changed numbers alone give no line, as the move is polled twice a second.
    """

    def __init__(self, plan: MovePlan, console: Console) -> None:
        self._plan = plan
        self._console = console
        self._told: tuple[str, ...] = ()

    def show(self, event: RunEvent) -> None:
        """Print the line of an event, unless it says what the one before it said."""
        news = tuple(_FIGURES.sub("", text) for text in (event.step, *_reasons(event)))
        if news == self._told:
            return
        self._told = news
        self._console.print(Text(f"{self._plan.move_id}  {_line(event)}"), soft_wrap=True)


def _reasons(event: RunEvent) -> Iterator[str]:
    """Yield the reasons an event waits, as far as its line has them."""
    if event.sync is not None:
        yield from map(reasons_text, (event.sync.blocking, event.sync.asks))
    if event.verify is not None:
        yield from map(reasons_text, (event.verify.waiting, event.verify.asks))


def _line(event: RunEvent) -> str:
    if event.sync is not None:
        return f"{event.step}: {progress_line(event.sync)}"
    if event.verify is not None:
        return f"{event.step}: {verify_line(event.verify)}"
    return event.step


class MoveView:
    """A running move: its steps, its groups, and what it waits for."""

    def __init__(self, plan: MovePlan, event: RunEvent | None = None) -> None:
        self._plan = plan
        self.event = event or RunEvent("hold")

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._steps()]
        if self.event.sync is not None:
            parts.append(sync_view(self.event.sync))
        if self.event.verify is not None:
            parts.append(verify_view(self.event.verify))
        return Group(*parts)

    def _steps(self) -> Text:
        line, steps = Text(f"{self._plan.move_id}  "), tuple(step.name for step in RUN_STEPS)
        now = steps.index(self.event.step)
        for index, step in enumerate(steps):
            style = "green" if index < now else "bold cyan" if index == now else "dim"
            line.append(f"{step}", style=style)
            line.append(" > " if step != steps[-1] else "", style="dim")
        return line
