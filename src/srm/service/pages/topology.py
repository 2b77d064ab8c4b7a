"""The clusters and flows as a picture: where each box and arrow stands; pure.

Two clusters stand beside each other, more of them on an ellipse. The arrow of a flow bends to its
own right-hand side, so that a flow and its reverse never cover each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from srm.service.documents import FlowSummary

WIDTH: Final = 760.0
BOX: Final = (150.0, 64.0)
_LABEL: Final = 34.0
_BEND: Final = 0.22
_STEPS: Final = 200
_GAP: Final = 6.0
LABELLED: Final = 8
"""With more flows than this only those in trouble have their figures beside the arrow."""

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A cluster; ``x`` and ``y`` are its middle."""

    alias: str
    x: float
    y: float
    note: str = ""
    away: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """A flow: a path from box to box, and where its figures stand.

    ``is_told`` says whether they stand in the picture, or in its title alone.
    """

    flow: FlowSummary
    path: str
    x: float
    y: float
    is_told: bool


@dataclass(frozen=True, slots=True)
class Topology:
    """The picture; sizes are those of its view box."""

    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: float = WIDTH


def topology(
    flows: Sequence[FlowSummary],
    notes: dict[str, str],
    away: set[str],
    order: Sequence[str] = (),
) -> Topology:
    """Draw flows and the clusters that they join.

    Args:
        flows: the flows.
        notes: a few words for each cluster.
        away: the clusters that do not answer.
        order: aliases as the properties file has them: people name the primary first, and see it
            on the left whatever happens.
    """
    known = {alias for flow in flows for alias in (flow.source, flow.target)}
    aliases = [alias for alias in order if alias in known]
    places, height = _fitted(_places(aliases + sorted(known.difference(aliases))), flows)
    boxes = tuple(
        Box(alias, round(x, 1), round(y, 1), notes.get(alias, ""), alias in away)
        for alias, (x, y) in places.items()
    )
    arrows = tuple(
        _arrow(flow, places, is_told=len(flows) <= LABELLED or flow.state not in {"RUNNING", "OFF"})
        for flow in flows
    )
    return Topology(height, boxes, arrows)


def _places(aliases: list[str]) -> dict[str, _Point]:
    """Place the boxes around the middle of the picture, at height 0."""
    margin = BOX[0] / 2 + 8
    if len(aliases) <= 2:
        return {a: (x, 0.0) for a, x in zip(aliases, (margin, WIDTH - margin), strict=False)}
    wide, high = WIDTH / 2 - margin, min(260.0, 104.0 + 28.0 * len(aliases))
    turn = 2 * math.pi / len(aliases)
    start = -math.pi / 2 if len(aliases) % 2 else -math.pi / 2 - turn / 2
    angles = [start + number * turn for number in range(len(aliases))]
    return {
        alias: (WIDTH / 2 + wide * math.cos(angle), high * math.sin(angle))
        for alias, angle in zip(aliases, angles, strict=True)
    }


def _fitted(
    places: dict[str, _Point], flows: Sequence[FlowSummary]
) -> tuple[dict[str, _Point], float]:
    """Move all so far down that nothing is cut off; return how high the picture is then."""
    ends = [(places[flow.source], places[flow.target]) for flow in flows]
    edges = [y + side * (BOX[1] / 2 + 10) for _, y in places.values() for side in (-1, 1)]
    edges += [_at(a, _bend(a, b), b, 0.5)[1] + side * _LABEL for a, b in ends for side in (-1, 1)]
    top, bottom = min(edges, default=0.0), max(edges, default=0.0)
    return {alias: (x, y - top) for alias, (x, y) in places.items()}, bottom - top


def _bend(start: _Point, end: _Point) -> _Point:
    """Return the control point of an arrow: to its own right-hand side."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    return start[0] + dx / 2 + dy * _BEND * 1.2, start[1] + dy / 2 - dx * _BEND


def _arrow(flow: FlowSummary, places: dict[str, _Point], *, is_told: bool) -> Arrow:
    start, end = places[flow.source], places[flow.target]
    bend = _bend(start, end)
    curve = [_at(start, bend, end, step / _STEPS) for step in range(_STEPS + 1)]
    outside = [
        place
        for place in curve
        if not _inside(place, start, _GAP) and not _inside(place, end, _GAP)
    ]
    outside = outside or curve  # of very many clusters the boxes cover each other
    first, last = outside[0], outside[-1]
    middle = _at(start, bend, end, 0.5)
    # A quadratic curve cut at both ends is one again: its control point follows from the middle.
    centre = outside[len(outside) // 2]
    control = (2 * centre[0] - (first[0] + last[0]) / 2, 2 * centre[1] - (first[1] + last[1]) / 2)
    path = "M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}".format(*first, *control, *last)
    return Arrow(flow, path, round(middle[0], 1), round(middle[1], 1), is_told)


def _at(start: _Point, bend: _Point, end: _Point, share: float) -> _Point:
    rest = 1 - share
    a, b, c = rest * rest, 2 * rest * share, share * share
    return (
        a * start[0] + b * bend[0] + c * end[0],
        a * start[1] + b * bend[1] + c * end[1],
    )


def _inside(place: _Point, box: _Point, gap: float) -> bool:
    return abs(place[0] - box[0]) <= BOX[0] / 2 + gap and abs(place[1] - box[1]) <= BOX[1] / 2 + gap
