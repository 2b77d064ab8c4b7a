"""Metrics of a chosen time range: figures for tables and small charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import Depends, Query

from srm.clock import now_ms
from srm.domain.names.topics import Flow
from srm.engine.metrics.metrics import is_fresh
from srm.service.views.series import METRICS, WHOLE, Figures, Measured, touching
from srm.service.views.views import Views

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
WIDTH: Final = 120.0
HEIGHT: Final = 28.0
_EDGE = 2.0


@dataclass(frozen=True, slots=True)
class Wish:
    """Time range and statistic of a page; ``avg`` means that of the whole (:data:`WHOLE`)."""

    span: Span
    stat: Statistic

    @property
    def milliseconds(self) -> int:
        """Length of the time range."""
        return SPANS[self.span]


def wish(span: Annotated[Span, Query(alias="range")] = "15m", stat: Statistic = "avg") -> Wish:
    """Read the choice from the address."""
    return Wish(span, stat)


WishDep = Annotated[Wish, Depends(wish)]


@dataclass(frozen=True, slots=True)
class Measures:
    """The metrics of a flow or topic in a range; ``figures`` by metric, None: not measured."""

    stat: Statistic
    begin_ms: int
    end_ms: int
    windows: tuple[Measured, ...]
    figures: dict[str, Figures | None]

    def value(self, metric: str) -> float | None:
        """Return the chosen statistic of the whole range."""
        found = self.figures[metric]
        return None if found is None else float(getattr(found, self.statistic(metric)))

    def statistic(self, metric: str) -> str:
        """Return the name of the statistic that is shown for a metric."""
        return statistic(metric, self.stat)

    def latest(self, metric: str) -> float | None:
        """Return the chosen statistic of the newest window, None if it lacks it or is too old."""
        if not self.windows or not is_fresh(self.windows[-1].end_ms, self.end_ms):
            return None
        found = self.windows[-1].figures(metric)
        return float(getattr(found, self.statistic(metric))) if found.count else None

    def title(self, metric: str) -> str:
        """Return all statistics of a metric over the whole range as text."""
        found, minutes = self.figures[metric], (self.end_ms - self.begin_ms) // 60_000
        if found is None:
            return f"not measured in {minutes} min"
        whole, of = WHOLE[metric], " of a partition" if WHOLE[metric] == "sum" else ""
        extremes = f"min {found.min:,.1f}, max {found.max:,.1f}{of}"
        return f"in {minutes} min: {whole} {getattr(found, whole):,.1f}, {extremes}"

    def picture(self, metric: str) -> Sparkline | None:
        """Draw a metric, with a gap for each unmeasured period."""
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
    """Return the statistic of a metric for a choice."""
    return WHOLE[metric] if stat == "avg" else stat


def measures(views: Views, flow: Flow, topic: str, wanted: Wish) -> Measures:
    """Return the metrics of a flow (the empty topic) or of one topic."""
    end = now_ms()
    begin = end - wanted.milliseconds
    windows = tuple(touching(views.series(flow.target).between(flow, topic, begin, end)))
    return _measures(wanted, begin, end, windows)


def newest(window: Measured | None, wanted: Wish) -> Measures:
    """Return the metrics of one window if it is in the chosen range."""
    end = now_ms()
    begin = end - wanted.milliseconds
    windows = (window,) if window is not None and window.end_ms > begin else ()
    return _measures(wanted, begin, end, windows)


def _measures(wanted: Wish, begin: int, end: int, windows: tuple[Measured, ...]) -> Measures:
    figures = {metric: over(windows, metric) for metric in METRICS}
    return Measures(wanted.stat, begin, end, windows, figures)


def lately(views: Views, flow: Flow, topic: str = "") -> tuple[Measured, ...]:
    """Return all stored windows of a flow or topic, without overlaps."""
    end = now_ms()
    return tuple(touching(views.series(flow.target).between(flow, topic, end - SPANS["2h"], end)))


def over(windows: Sequence[Measured], metric: str) -> Figures | None:
    """Join the figures of windows; None without values. A sum is the mean of the windows' sums."""
    found = [figures for window in windows if (figures := window.figures(metric)).count]
    if not found:
        return None
    total, number = sum(f.sum for f in found), sum(f.count for f in found)
    if WHOLE[metric] == "sum":
        total, number = total / len(found), max(f.count for f in found)
    return Figures(
        min(f.min for f in found), max(f.max for f in found), total / number, total, number
    )


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A drawn line, in a box of :data:`WIDTH` times :data:`HEIGHT`, with the ``area`` below it.

    ``line`` has a gap for each missing value; ``last`` is the newest point, None if missing.
    """

    line: str
    area: str
    last: tuple[float, float] | None


def sparkline(
    values: Sequence[tuple[float, float | None]], begin: float, end: float
) -> Sparkline | None:
    """Draw values by moment, None: no value; None for fewer than two of them."""
    known = [value for _, value in values if value is not None]
    if len(known) < 2 or end <= begin:
        return None
    top = max(*known, 1e-9)

    def place(at: float, value: float) -> tuple[float, float]:
        x = (at - begin) / (end - begin) * WIDTH
        return round(x, 1), round(HEIGHT - _EDGE - value / top * (HEIGHT - 2 * _EDGE), 1)

    parts = [[place(at, value) for at, value in part] for part in _parts(values)]
    line = "".join(_path(part) for part in parts)
    area = "".join(
        f"{_path(part)}L{part[-1][0]} {HEIGHT:.0f}L{part[0][0]} {HEIGHT:.0f}Z" for part in parts
    )
    return Sparkline(line, area, parts[-1][-1] if values[-1][1] is not None else None)


def _parts(values: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    parts: list[list[tuple[float, float]]] = [[]]
    for at, value in values:
        if value is None:
            parts.append([])
        else:
            parts[-1].append((at, value))
    return [part for part in parts if part]


def _path(points: Sequence[tuple[float, float]]) -> str:
    first, *rest = points
    return f"M{first[0]} {first[1]}" + "".join(f"L{x} {y}" for x, y in rest or [first])
