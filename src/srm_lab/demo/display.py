"""Display of the demo: live on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_LINE_EVERY_S: Final = 2.0
_SAME_LINE_EVERY_S: Final = 20.0


@dataclass
class DemoPhase:
    """One phase of the demo; ``seconds`` once it is over."""

    title: str
    began: float
    detail: str = ""
    seconds: float | None = None


class Display:
    """Shows the steps, the detail of the present one, and a line that keeps count."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._steps: list[DemoPhase] = []
        self._count = ""
        self._spinner = Spinner("dots", style="cyan")
        self._lock = threading.Lock()
        self._said = ("", float("-inf"))
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(self, console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    @property
    def seconds(self) -> dict[str, float]:
        """Duration of each finished step."""
        return {s.title: round(s.seconds, 1) for s in self._steps if s.seconds is not None}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._began

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Show a phase while it lasts; its last detail stays as the result."""
        with self._lock:
            step = DemoPhase(title, time.monotonic())
            self._steps.append(step)
            self._count = ""
        self._said = ("", float("-inf"))
        self._line(f"{title} ...")
        yield
        with self._lock:
            step.seconds = time.monotonic() - step.began
            self._count = ""
        self._line(f"{title}: {step.detail or 'done'} ({step.seconds:.1f} s)")

    def say(self, detail: str) -> None:
        """Show a new detail of the present step."""
        with self._lock:
            self._steps[-1].detail = detail
        self._now_and_then(detail)

    def count(self, text: str) -> None:
        """Show the line that keeps count."""
        with self._lock:
            self._count = text

    def _now_and_then(self, detail: str) -> None:
        said, when = self._said
        now = time.monotonic()
        pause = _LINE_EVERY_S if detail != said else _SAME_LINE_EVERY_S
        if self._live is None and now - when > pause:
            self._said = (detail, now)
            self._line(f"  {detail}" + (f"  [{self._count}]" if self._count else ""))

    def _line(self, text: str) -> None:
        if self._live is None:
            self._console.print(
                f"{self.elapsed_s:6.1f} s  {text}", markup=False, highlight=False, soft_wrap=True
            )

    def __rich__(self) -> RenderableType:
        with self._lock:
            steps, count = list(self._steps), self._count
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=2)
        table.add_column(no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(ratio=1)
        for step in steps:
            over = step.seconds is not None
            seconds = step.seconds if step.seconds is not None else time.monotonic() - step.began
            table.add_row(
                Text("✓", style="green") if over else self._spinner,
                Text(step.title, style="" if over else "bold"),
                Text(f"{seconds:.1f} s", style="dim"),
                Text(step.detail, style="dim" if over else "cyan"),
            )
        return Group(table, Padding(Text(count, style="dim"), (1, 0, 0, 3)))
