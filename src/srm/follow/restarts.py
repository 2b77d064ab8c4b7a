"""Restarts, and their back-off, of a program that has ended by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Restart = Literal["on-failure", "always", "never"]

FIRST_S: Final = 0.5
LONGEST_S: Final = 30.0
SETTLED_S: Final = 60.0
"""A run of this length resets the back-off."""


@dataclass
class Restarts:
    """Back-off: 0.5 s, doubled by each short run, to 30 s; ``limit`` of short runs, 0: none."""

    policy: Restart = "on-failure"
    limit: int = 10
    in_a_row: int = 0

    def forget(self) -> None:
        """Reset the back-off: the program was ended on purpose."""
        self.in_a_row = 0

    def pause_after(self, code: int, ran_s: float) -> float | None:
        """Return the seconds until the next start, None for no restart."""
        if self.policy == "never" or (self.policy == "on-failure" and code == 0):
            return None
        if ran_s >= SETTLED_S:
            self.in_a_row = 0
        if self.limit and self.in_a_row >= self.limit:
            return None
        self.in_a_row += 1
        return float(min(LONGEST_S, FIRST_S * 2.0 ** min(self.in_a_row - 1, 10)))
