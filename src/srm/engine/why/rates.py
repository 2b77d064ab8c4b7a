"""How fast topics were copied of late, by the windows of their metrics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final, Protocol

from srm.engine.metrics.metrics import stored_windows
from srm.engine.ports import FlowContext

_FRESH_MS: Final = 5 * 60_000
"""A window that is older than this says nothing of now."""
PACE_MS: Final = 15 * 60_000
"""What topics were copied at in so long they can be copied at now."""


def recent_rate(context: FlowContext, topics: Collection[str], now_ms: int) -> float | None:
    """Return the most records a second that some topics together were copied at of late.

    None where nobody has computed windows of late (the DAG srm_metrics_aggregation does), or
    nothing was copied in them.

    Raises:
        SrmError: the target does not answer.
    """
    windows = stored_windows(context.target, context.config.flow)
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
    """Return the most records a second of windows of late, those of one time together; pure.

    A window of a copy that was caught up has what arrived, not what copying can do: that is at
    least the best of them. None where none of them is of late, or nothing was copied in them.
    """
    rates: defaultdict[int, float] = defaultdict(float)
    for window in windows:
        if window.end_ms > window.start_ms and abs(now_ms - window.end_ms) <= PACE_MS:
            seconds = (window.end_ms - window.start_ms) / 1000
            rates[window.start_ms] += window.records / seconds
    return max(rates.values(), default=0.0) or None


def is_fresh(window: Window, now_ms: int) -> bool:
    """Whether a window says something of now; one of a time to come was measured by no clock."""
    return abs(now_ms - window.end_ms) <= _FRESH_MS


def seconds_to_go(offsets: int, rate: float | None) -> float | None:
    """Return how long so many offsets take at most, about, if nothing is added; None: no rate."""
    if not offsets:
        return 0.0
    return offsets / rate if rate else None
