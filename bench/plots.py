"""Bar charts as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

_COLOURS: Final = {
    "srm": "#1b7837",
    "mm2-tuned": "#6a51a3",
    "mm2-default": "#bcbddc",
    "socket-copy": "#737373",
}
_BAR: Final = 0.26


@dataclass(frozen=True)
class Bars:
    """Chart with one bar for each (case, engine, figure), cases below each other."""

    name: str
    title: str
    scale: Literal["log", "linear"]
    figures: Sequence[tuple[str, str, float]]


def draw(bars: Bars, folder: Path) -> Path | None:
    """Write ``<name>.svg``, the same bytes for the same figures; None without figures."""
    figures = [figure for figure in bars.figures if figure[2] > 0]
    path = folder / f"{bars.name}.svg"
    if not figures:
        path.unlink(missing_ok=True)
        return None
    import matplotlib as mpl  # noqa: PLC0415 -- a development tool, needed here alone
    from matplotlib.figure import Figure  # noqa: PLC0415

    cases = list(dict.fromkeys(case for case, _, _ in figures))
    engines = [engine for engine in _COLOURS if engine in {e for _, e, _ in figures}]
    with mpl.rc_context({"svg.hashsalt": bars.name, "svg.fonttype": "none", "font.size": 9}):
        chart = Figure(figsize=(8, 0.9 + 0.52 * len(cases)), layout="constrained")
        axes = chart.subplots()
        for number, engine in enumerate(engines):
            mine = [(cases.index(case), value) for case, e, value in figures if e == engine]
            places = [place + (number - (len(engines) - 1) / 2) * _BAR for place, _ in mine]
            values = [value for _, value in mine]
            container = axes.barh(places, values, _BAR, label=engine, color=_COLOURS[engine])
            axes.bar_label(container, [_label(v) for v in values], padding=2, fontsize=7)
        axes.set_yticks(range(len(cases)), cases)
        axes.invert_yaxis()
        axes.set_xscale(bars.scale)
        axes.set_title(bars.title, loc="left", fontsize=10)
        axes.margins(x=0.12)
        axes.spines[["top", "right"]].set_visible(False)
        chart.legend(loc="outside lower right", ncols=len(engines), frameon=False)
        chart.savefig(path, format="svg", metadata={"Date": None})
    return path


def _label(value: float) -> str:
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
