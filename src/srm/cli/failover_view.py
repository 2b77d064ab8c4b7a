"""How ``srm failover`` shows a running move."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from srm.domain.move.plan import MovePlan
from srm.engine.move import RunEvent
from srm.engine.move.sequence import STEPS
from srm.pages.moves import sync_view, verify_view


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
        line, steps = Text(f"{self._plan.move_id}  "), tuple(step.name for step in STEPS)
        now = steps.index(self.event.step)
        for index, step in enumerate(steps):
            style = "green" if index < now else "bold cyan" if index == now else "dim"
            line.append(f"{step}", style=style)
            line.append(" > " if step != steps[-1] else "", style="dim")
        return line
