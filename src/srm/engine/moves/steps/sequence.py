"""The steps of a move as data: their order, what a failure of each does, and what to call them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

RunStep = Literal["hold", "wait", "apply", "go", "verify", "report"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a planned move; ``releases``: a failure in it ends the hold, if there is one."""

    name: RunStep
    title: str
    releases: bool


STEPS: Final = (
    Step("hold", "clients stop, finish and leave", releases=True),
    Step("wait", "replication and commits catch up", releases=True),
    Step("apply", "offsets are written on the target", releases=True),
    Step("go", "clients are sent to the target", releases=True),
    Step("verify", "groups work on the target", releases=False),
    Step("report", "what it cost", releases=False),
)
"""All steps after the plan, in their order."""
