"""A clock that stops until a test advances it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeClock:
    """Epoch milliseconds under the control of a test; pass the instance as ``now_ms``."""

    time_ms: int = 1_700_000_000_000

    def __call__(self) -> int:
        """Return the current time in epoch milliseconds."""
        return self.time_ms

    def advance(self, milliseconds: int) -> None:
        """Let time go by."""
        if milliseconds < 0:
            raise ValueError(f"time goes forward only, not by {milliseconds} ms")
        self.time_ms += milliseconds
