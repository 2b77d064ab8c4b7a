"""Figures for readers: numbers and times as text, and metrics of a time range as small charts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Annotated, Final, Literal

from fastapi import Depends, Query

from srm.clock import now_ms
from srm.domain.metrics import Statistics
from srm.domain.names.topics import Flow
from srm.domain.text import amount
from srm.engine.metrics.metrics import is_fresh
from srm.service.views.series import METRICS, Measured, touching
from srm.service.views.views import Views

PART: Final = 50
"""Rows of a long list on one page."""
NONE: Final = "\N{EN DASH}"
"""Shown for a missing or infinite value, so that tables never have empty cells."""

_STEP = 1000.0


def count(value: float | None) -> str:
    """Render a count: exact up to four digits, then three digits and a letter."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if abs(value) < 10_000 else _scale(value, ("", "k", "M", "G", "T"))


def exact(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def rate(value: float | None) -> str:
    """Render bytes per second."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{_scale(value, ('B', 'kB', 'MB', 'GB', 'TB'), ' ')}/s"


def millis(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return NONE
    if value < 1:
        return "0 ms" if value <= 0 else "< 1 ms"
    return f"{value:,.0f} ms" if value < _STEP else duration(value / _STEP)


def duration(seconds: float | None) -> str:
    """Render a duration by its two largest units."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    return amount.duration(seconds)


def lasting(begin_ms: int, now_ms: int) -> str:
    """Render the time since a moment; from ten of a unit on, the smaller unit is omitted."""
    seconds = max(0, now_ms - begin_ms) // 1000
    return f"{seconds} s" if seconds < 60 else amount.duration(seconds, brief=True)


def ago(time_ms: int, now_ms: int) -> str:
    return "now" if now_ms - time_ms < 1000 else f"{lasting(time_ms, now_ms)} ago"


def arrow(flow: str) -> str:
    return flow.replace("->", " \N{RIGHTWARDS ARROW} ")


utc = amount.utc


def iso(time_ms: int) -> str:
    return f"{amount.moment(time_ms):%Y-%m-%dT%H:%M:%SZ}"


def _scale(value: float, units: tuple[str, ...], between: str = "") -> str:
    at = 0
    while abs(value) >= 999.5 and at < len(units) - 1:
        value /= _STEP
        at += 1
    digits = 0 if at == 0 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text}{between}{units[at]}"


Span = Literal["15m", "1h", "2h"]
Statistic = Literal["avg", "min", "max"]
SPANS: Final[dict[Span, int]] = {"15m": 900_000, "1h": 3_600_000, "2h": 7_200_000}
SPAN_NAMES: Final[dict[Span, str]] = {"15m": "15 min", "1h": "1 h", "2h": "2 h"}
STATISTICS: Final[tuple[Statistic, ...]] = ("avg", "min", "max")
WIDTH: Final = 120.0
HEIGHT: Final = 28.0
_EDGE = 2.0


@dataclass(frozen=True, slots=True)
class Wish:
    """Time range and statistic of a page; ``avg`` means that of the whole (:data:`METRICS`)."""

    span: Annotated[Span, Query(alias="range")] = "15m"
    stat: Statistic = "avg"

    @property
    def milliseconds(self) -> int:
        return SPANS[self.span]

    def statistic(self, metric: str) -> str:
        return METRICS[metric].whole if self.stat == "avg" else self.stat


WishDep = Annotated[Wish, Depends()]


@dataclass(frozen=True, slots=True)
class Measures:
    """The metrics of a flow or topic in a range; ``figures`` by metric, None: not measured.

    ``is_copied``: False while source or replicator is silent; no window is of now then.
    """

    wanted: Wish
    begin_ms: int
    end_ms: int
    windows: tuple[Measured, ...]
    figures: dict[str, Statistics | None]
    is_copied: bool = True

    def value(self, metric: str) -> float | None:
        found = self.figures[metric]
        return None if found is None else float(getattr(found, self.wanted.statistic(metric)))

    def latest(self, metric: str) -> float | None:
        """Return the statistic of the newest window; None if that lacks it, or is not of now."""
        if not (self.is_copied and self.windows) or not is_fresh(
            self.windows[-1].end_ms, self.end_ms
        ):
            return None
        found = self.windows[-1].figures(metric)
        return float(getattr(found, self.wanted.statistic(metric))) if found.count else None

    def title(self, metric: str) -> str:
        found, minutes = self.figures[metric], (self.end_ms - self.begin_ms) // 60_000
        if found is None:
            return f"not measured in {minutes} min"
        whole = METRICS[metric].whole
        of = " of a partition" if whole == "sum" else ""
        extremes = f"min {found.min:,.1f}, max {found.max:,.1f}{of}"
        return f"in {minutes} min: avg {getattr(found, whole):,.1f}, {extremes}"

    def picture(self, metric: str) -> Sparkline | None:
        """Draw a metric, with a gap for each unmeasured period."""
        values: list[tuple[float, float | None]] = []
        previous, statistic = None, self.wanted.statistic(metric)
        for window in self.windows:
            if previous is not None and window.start_ms > previous.end_ms:
                values.append(((previous.end_ms + window.start_ms) / 2, None))
            figures = window.figures(metric)
            value = float(getattr(figures, statistic)) if figures.count else None
            values.append(((window.start_ms + window.end_ms) / 2, value))
            previous = window
        return sparkline(values, self.begin_ms, self.end_ms)


def measures(views: Views, flow: Flow, topic: str, wanted: Wish) -> Measures:
    """Return the metrics of a flow (the empty topic) or of one topic."""
    end = now_ms()
    begin = end - wanted.milliseconds
    windows = tuple(touching(views.series(flow.target).between(flow, topic, begin, end)))
    look = views.find(flow)
    is_copied = look is None or look.is_current
    return replace(_measures(wanted, begin, end, windows), is_copied=is_copied)


def newest(window: Measured | None, wanted: Wish) -> Measures:
    """Return the metrics of one window if it is in the chosen range."""
    end = now_ms()
    begin = end - wanted.milliseconds
    windows = (window,) if window is not None and window.end_ms > begin else ()
    return _measures(wanted, begin, end, windows)


def _measures(wanted: Wish, begin: int, end: int, windows: tuple[Measured, ...]) -> Measures:
    figures = {metric: over(windows, metric) for metric in METRICS}
    return Measures(wanted, begin, end, windows, figures)


def lately(views: Views, flow: Flow, topic: str = "") -> tuple[Measured, ...]:
    """Return all stored windows of a flow or topic, without overlaps."""
    end = now_ms()
    return tuple(touching(views.series(flow.target).between(flow, topic, end - SPANS["2h"], end)))


def over(windows: Sequence[Measured], metric: str) -> Statistics | None:
    """Join the figures of windows; None without values. A sum is the mean of the windows' sums."""
    found = [figures for window in windows if (figures := window.figures(metric)).count]
    if not found:
        return None
    total, number = sum(f.sum for f in found), sum(f.count for f in found)
    if METRICS[metric].whole == "sum":
        total, number = total / len(found), max(f.count for f in found)
    return Statistics(min(f.min for f in found), max(f.max for f in found), total, number)


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A drawn line with gaps for missing values; ``last`` is the newest point, None if missing."""

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

    stretches = groupby(values, key=lambda one: one[1] is None)
    drawn = ([place(at, value) for at, value in part if value is not None] for _, part in stretches)
    parts = [part for part in drawn if part]
    line = "".join(_path(part) for part in parts)
    area = "".join(
        f"{_path(part)}L{part[-1][0]} {HEIGHT:.0f}L{part[0][0]} {HEIGHT:.0f}Z" for part in parts
    )
    return Sparkline(line, area, parts[-1][-1] if values[-1][1] is not None else None)


def _path(points: Sequence[tuple[float, float]]) -> str:
    first, *rest = points
    return f"M{first[0]} {first[1]}" + "".join(f"L{x} {y}" for x, y in rest or [first])
