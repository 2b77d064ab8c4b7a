"""Small line chart as points of an SVG path; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 120.0
HEIGHT: Final = 28.0
_EDGE = 2.0


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A drawn line, in a box of :data:`WIDTH` times :data:`HEIGHT`.

    ``line`` has a gap for each missing value, and ``area`` is the area below it.
    ``last`` is the newest point; None if its value is missing.
    """

    line: str
    area: str
    last: tuple[float, float] | None


def sparkline(
    values: Sequence[tuple[float, float | None]], begin: float, end: float
) -> Sparkline | None:
    """Draw values over a time.

    Args:
        values: pairs of moment and value, by moment; None: no value.
        begin: moment at the left edge.
        end: moment at the right edge.

    Returns:
        None for fewer than two values.
    """
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
