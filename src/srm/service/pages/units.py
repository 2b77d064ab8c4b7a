"""Numbers and times for readers; the exact value goes into a title. Pure."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Final

from srm.domain.text import amount

NONE: Final = "\N{EN DASH}"
"""Shown for a missing or infinite value, so that tables never have empty cells."""

_STEP = 1000.0
_LAST_S = 253_402_300_799
"""The end of the year 9999, the latest time that is rendered; the earliest one is the epoch."""


def count(value: float | None) -> str:
    """Render a count: exact up to four digits, then three digits and a letter."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if abs(value) < 10_000 else _scale(value, ("", "k", "M", "G", "T"))


def exact(value: float | None) -> str:
    """Render all digits, for titles and tables of offsets."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{value:,.0f}" if value == int(value) else f"{value:,.3f}"


def span(bounds: tuple[int | None, int | None], *, exactly: bool = False) -> str:
    """Render a count between two bounds; None as the second means no upper bound."""
    least, most = bounds
    if least is None:
        return NONE
    if exactly or most is None:
        return amount.span(least, most)
    return count(least) if least == most else f"{count(least)} to {count(most)}"


def rate(value: float | None) -> str:
    """Render bytes per second."""
    if value is None or not math.isfinite(value):
        return NONE
    return f"{_scale(value, ('B', 'kB', 'MB', 'GB', 'TB'), ' ')}/s"


def millis(value: float | None) -> str:
    """Render a duration in milliseconds."""
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
    for size, unit, part, lesser in (
        (86_400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= size:
            rest = seconds % size // part if seconds < 10 * size else 0
            return f"{seconds // size} {unit}" + (f" {rest} {lesser}" if rest else "")
    return f"{seconds} s"


def ago(time_ms: int, now_ms: int) -> str:
    """Render the age of a moment."""
    return "now" if now_ms - time_ms < 1000 else f"{lasting(time_ms, now_ms)} ago"


def utc(time_ms: int) -> str:
    """Render a moment with seconds."""
    return f"{_moment(time_ms):%Y-%m-%d %H:%M:%S} UTC"


def iso(time_ms: int) -> str:
    """Render a moment for programs."""
    return f"{_moment(time_ms):%Y-%m-%dT%H:%M:%SZ}"


def _moment(time_ms: int) -> datetime:
    return datetime.fromtimestamp(min(max(time_ms / 1000, 0), _LAST_S), UTC)


def _scale(value: float, units: tuple[str, ...], between: str = "") -> str:
    at = 0
    while abs(value) >= 999.5 and at < len(units) - 1:
        value /= _STEP
        at += 1
    digits = 0 if at == 0 or abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    text = f"{value:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if digits else text}{between}{units[at]}"
