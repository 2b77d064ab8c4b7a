"""How fast topics were copied of late, by the windows of their metrics."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Protocol

from srm.domain.metrics import latest
from srm.engine.metrics import stored_windows
from srm.engine.ports import FlowContext

_FRESH_MS: Final = 5 * 60_000
"""A window that is older than this says nothing of the rate now."""


def recent_rate(context: FlowContext, topics: Collection[str], now_ms: int) -> float | None:
    """Return the records a second of the newest windows of some topics together.

    None where nobody has computed windows of late (the DAG srm_metrics_aggregation does), or
    nothing was copied in them.

    Raises:
        SrmError: the target does not answer.
    """
    windows = latest(stored_windows(context.target, context.config.flow))
    return rate_of((window for window in windows if window.topic in topics), now_ms)


class Window(Protocol):
    """What was copied in a time, epoch milliseconds."""

    @property
    def start_ms(self) -> int:
        """Its begin."""
        ...

    @property
    def end_ms(self) -> int:
        """Its end."""
        ...

    @property
    def records(self) -> int:
        """So many records."""
        ...


def rate_of(windows: Iterable[Window], now_ms: int) -> float | None:
    """Return the records a second of windows together, each the newest of its topic; pure.

    None where none of them is of late, or nothing was copied in them.
    """
    rate = sum(
        window.records * 1000 / (window.end_ms - window.start_ms)
        for window in windows
        if window.end_ms > window.start_ms and now_ms - window.end_ms <= _FRESH_MS
    )
    return rate or None


def seconds_to_go(offsets: int, rate: float | None) -> float | None:
    """Return how long so many offsets take if nothing is added; None without a rate."""
    if not offsets:
        return 0.0
    return offsets / rate if rate else None
