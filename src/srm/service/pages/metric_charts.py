"""What was measured in a time that somebody chose: figures for tables, small pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import Depends, Query

from srm.domain.names.topics import Flow
from srm.engine.why import is_fresh
from srm.service.pages.sparkline import Sparkline, sparkline
from srm.service.views.series import METRICS, WHOLE, Figures, Measured, touching
from srm.service.views.views import Views
from srm.wiring import now_ms

Span = Literal["15m", "1h", "2h"]
Statistic = Literal["avg", "min", "max"]
SPANS: Final[dict[Span, int]] = {"15m": 900_000, "1h": 3_600_000, "2h": 7_200_000}
SPAN_NAMES: Final[dict[Span, str]] = {"15m": "15 min", "1h": "1 h", "2h": "2 h"}
STATISTICS: Final[tuple[Statistic, ...]] = ("avg", "min", "max")
METRIC_NAMES: Final = {
    "byte-rate": "Throughput",
    "replication-latency-ms": "Replication latency",
    "replication-records-lag": "Lag",
    "checkpoint-latency-ms": "Checkpoint latency",
}


@dataclass(frozen=True, slots=True)
class Wish:
    """Time and statistic that a page shows; ``avg`` means that of the whole (:data:`WHOLE`)."""

    span: Span
    stat: Statistic

    @property
    def milliseconds(self) -> int:
        """Length of the time."""
        return SPANS[self.span]


def wish(span: Annotated[Span, Query(alias="range")] = "15m", stat: Statistic = "avg") -> Wish:
    """Read it from the address."""
    return Wish(span, stat)


WishDep = Annotated[Wish, Depends(wish)]


@dataclass(frozen=True, slots=True)
class Measures:
    """The metrics of a flow or topic in a time; ``figures`` by metric, None: not measured.

    ``windows`` are those of the time, by time, none of which overlaps another.
    """

    stat: Statistic
    begin_ms: int
    end_ms: int
    windows: tuple[Measured, ...]
    figures: dict[str, Figures | None]

    def value(self, metric: str) -> float | None:
        """Return the statistic that was asked for, of the whole time."""
        found = self.figures[metric]
        return None if found is None else float(getattr(found, self.statistic(metric)))

    def statistic(self, metric: str) -> str:
        """Return the name of the statistic that is shown of a metric."""
        return statistic(metric, self.stat)

    def latest(self, metric: str) -> float | None:
        """Return the statistic that was asked for, of the newest window, which tells how it is now.

        None where nothing was measured in that, or it is too old to say.
        """
        if not self.windows or not is_fresh(self.windows[-1], self.end_ms):
            return None
        found = self.windows[-1].figures(metric)
        return float(getattr(found, self.statistic(metric))) if found.count else None

    def title(self, metric: str) -> str:
        """Say all statistics of a metric over the whole time."""
        found, minutes = self.figures[metric], (self.end_ms - self.begin_ms) // 60_000
        if found is None:
            return f"not measured in {minutes} min"
        whole, of = WHOLE[metric], " of a partition" if WHOLE[metric] == "sum" else ""
        extremes = f"min {found.min:,.1f}, max {found.max:,.1f}{of}"
        return f"in {minutes} min: {whole} {getattr(found, whole):,.1f}, {extremes}"

    def picture(self, metric: str) -> Sparkline | None:
        """Draw a metric; what was not measured is a gap."""
        values: list[tuple[float, float | None]] = []
        previous = None
        for window in self.windows:
            if previous is not None and window.start_ms > previous.end_ms:
                values.append(((previous.end_ms + window.start_ms) / 2, None))
            figures = window.figures(metric)
            value = float(getattr(figures, self.statistic(metric))) if figures.count else None
            values.append(((window.start_ms + window.end_ms) / 2, value))
            previous = window
        return sparkline(values, self.begin_ms, self.end_ms)


def statistic(metric: str, stat: Statistic) -> str:
    """Return the statistic of a metric that a choice means."""
    return WHOLE[metric] if stat == "avg" else stat


def measures(views: Views, flow: Flow, topic: str, wanted: Wish) -> Measures:
    """Gather what was measured of a flow (the empty topic) or of one topic."""
    end = now_ms()
    begin = end - wanted.milliseconds
    windows = tuple(touching(views.series(flow.target).between(flow, topic, begin, end)))
    return _measures(wanted, begin, end, windows)


def newest(window: Measured | None, wanted: Wish) -> Measures:
    """Make of one window what was measured, if it is of the time that is wanted."""
    end = now_ms()
    begin = end - wanted.milliseconds
    windows = (window,) if window is not None and window.end_ms > begin else ()
    return _measures(wanted, begin, end, windows)


def _measures(wanted: Wish, begin: int, end: int, windows: tuple[Measured, ...]) -> Measures:
    figures = {metric: over(windows, metric) for metric in METRICS}
    return Measures(wanted.stat, begin, end, windows, figures)


def lately(views: Views, flow: Flow, topic: str = "") -> tuple[Measured, ...]:
    """Return all windows that are kept of a flow or topic, without overlaps."""
    end = now_ms()
    return tuple(touching(views.series(flow.target).between(flow, topic, end - SPANS["2h"], end)))


def over(windows: Sequence[Measured], metric: str) -> Figures | None:
    """Join the figures of windows, None where they hold no value.

    The sum of rates or lags is the mean of the windows' sums.
    """
    found = [figures for window in windows if (figures := window.figures(metric)).count]
    if not found:
        return None
    total, number = sum(f.sum for f in found), sum(f.count for f in found)
    if WHOLE[metric] == "sum":
        total, number = total / len(found), max(f.count for f in found)
    return Figures(
        min(f.min for f in found), max(f.max for f in found), total / number, total, number
    )
