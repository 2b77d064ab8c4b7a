"""Recent copy rates of topics, from the windows of their metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from srm.engine.metrics.metrics import stored_windows
from srm.engine.ports import FlowContext

_FRESH_MS: Final = 5 * 60_000
"""Maximum age of a window that counts as current."""
PACE_MS: Final = 15 * 60_000
"""Age up to which rates count as possible now."""


def recent_rate(context: FlowContext, topics: Collection[str], now_ms: int) -> float | None:
    """Return the highest recent copy rate of some topics together, in records per second.

    None without recent windows (the DAG srm_metrics_aggregation computes them) or copied records.

    Raises:
        SrmError: the target does not answer.
    """
    windows = stored_windows(context.target, context.config.flow)
    return rate_of((window for window in windows if window.topic in topics), now_ms)


class Window(Protocol):
    """Copied records in a time span, epoch milliseconds."""

    @property
    def start_ms(self) -> int:
        """Start of the window."""
        ...

    @property
    def end_ms(self) -> int:
        """End of the window."""
        ...

    @property
    def records(self) -> int:
        """Number of copied records."""
        ...


def rate_of(windows: Iterable[Window], now_ms: int) -> float | None:
    """Return the highest rate of recent windows in records per second; pure.

    Windows with the same start are added up. While a copy is caught up its rate is that of the
    producers, so the highest rate is a lower bound. None without recent windows or copied records.
    """
    rates: defaultdict[int, float] = defaultdict(float)
    for window in windows:
        if window.end_ms > window.start_ms and abs(now_ms - window.end_ms) <= PACE_MS:
            seconds = (window.end_ms - window.start_ms) / 1000
            rates[window.start_ms] += window.records / seconds
    return max(rates.values(), default=0.0) or None


def is_fresh(window: Window, now_ms: int) -> bool:
    """Return whether a window is current, neither old nor in the future."""
    return abs(now_ms - window.end_ms) <= _FRESH_MS


def seconds_to_go(offsets: int, rate: float | None) -> float | None:
    """Return the estimated seconds to copy, at most, without new records; None without a rate."""
    if not offsets:
        return 0.0
    return offsets / rate if rate else None
