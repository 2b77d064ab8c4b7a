"""Layout of the topology picture; pure.

The arrow of a flow bends to its own right-hand side, so that a flow and its reverse never overlap.
Its label is placed where it covers nothing, or omitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.service.views.documents import FlowSummary

WIDTH: Final = 760.0
BOX: Final = (150.0, 64.0)
LABEL: Final = (172.0, 46.0)
_ROOM: Final = (190.0, 96.0)
"""Size of a box with the space around it for arrows between neighbours."""
_BEND: Final = 0.22
_STEPS: Final = 200
_GAP: Final = 6.0
_MARGIN: Final = BOX[0] / 2 + 8
_EDGE: Final = 10.0
_SHARES: Final = (0.5, 0.42, 0.58, 0.34, 0.66, 0.27, 0.73)
"""Possible positions of a label on its arrow, the best one first."""
LABELLED: Final = 8
"""Above this number of flows, only flows in trouble have a label."""

_Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A cluster; ``x`` and ``y`` are its centre."""

    alias: str
    x: float
    y: float
    note: str = ""
    away: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """A flow from box to box; ``is_labelled``: its label is in the picture, not only the title."""

    flow: FlowSummary
    path: str
    x: float
    y: float
    is_labelled: bool = False


@dataclass(frozen=True, slots=True)
class Topology:
    """The picture, with the sizes of its view box."""

    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    width: float = WIDTH

    @property
    def is_large(self) -> bool:
        return self.width > WIDTH


def topology(
    flows: Sequence[FlowSummary], notes: dict[str, str], silent: set[str], order: Sequence[str] = ()
) -> Topology:
    """Draw flows and their clusters, with a note on each; clusters in ``silent`` do not answer.

    ``order``: aliases as in the file, which keeps the primary, usually the first, on the left.
    """
    known = {alias for flow in flows for alias in (flow.source, flow.target)}
    aliases = [alias for alias in order if alias in known]
    wide, high = _axes(len(known))
    places = _places(aliases + sorted(known.difference(aliases)), wide, high)
    places, height = _fit(places, flows)
    boxes = tuple(
        Box(alias, round(x, 1), round(y, 1), notes.get(alias, ""), alias in silent)
        for alias, (x, y) in places.items()
    )
    found = Topology(height, boxes, (), 2 * (wide + _MARGIN))
    return replace(found, arrows=_arrows(flows, places, found))


def _axes(count: int) -> tuple[float, float]:
    wide, high = WIDTH / 2 - _MARGIN, min(260.0, 104.0 + 28.0 * count)
    if count <= 2:
        return wide, high
    # Minimum distance of neighbours as a fraction of the half axes.
    apart = math.sqrt(2) * math.sin(math.pi / count)
    return max(wide, _ROOM[0] / apart), max(high, _ROOM[1] / apart)


def _places(aliases: list[str], wide: float, high: float) -> dict[str, _Point]:
    """Place the boxes around the centre of the picture, at height 0."""
    middle = wide + _MARGIN
    if len(aliases) <= 2:
        return {a: (middle + x, 0.0) for a, x in zip(aliases, (-wide, wide), strict=False)}
    turn = 2 * math.pi / len(aliases)
    start = -math.pi / 2 if len(aliases) % 2 else -math.pi / 2 - turn / 2
    angles = [start + number * turn for number in range(len(aliases))]
    return {
        alias: (middle + wide * math.cos(angle), high * math.sin(angle))
        for alias, angle in zip(aliases, angles, strict=True)
    }


def _fit(
    places: dict[str, _Point], flows: Sequence[FlowSummary]
) -> tuple[dict[str, _Point], float]:
    """Move all boxes down so that nothing is cut off; return also the height of the picture."""
    ends = [(places[flow.source], places[flow.target]) for flow in flows]
    edges = [y + side * (BOX[1] / 2 + _EDGE) for _, y in places.values() for side in (-1, 1)]
    label = LABEL[1] / 2 + _EDGE
    edges += [_at(a, _bend(a, b), b, 0.5)[1] + side * label for a, b in ends for side in (-1, 1)]
    top, bottom = min(edges, default=0.0), max(edges, default=0.0)
    return {alias: (x, y - top) for alias, (x, y) in places.items()}, bottom - top


def _bend(start: _Point, end: _Point) -> _Point:
    dx, dy = end[0] - start[0], end[1] - start[1]
    return start[0] + dx / 2 + dy * _BEND * 1.2, start[1] + dy / 2 - dx * _BEND


def _arrows(
    flows: Sequence[FlowSummary], places: dict[str, _Point], picture: Topology
) -> tuple[Arrow, ...]:
    found = {flow.flow: _arrow(flow, places[flow.source], places[flow.target]) for flow in flows}
    taken: list[_Point] = []
    for flow in sorted(flows, key=_is_well):
        if len(flows) > LABELLED and _is_well(flow):
            continue
        free = _free(places[flow.source], places[flow.target], picture, places.values(), taken)
        if free is not None:
            taken.append(free)
            x, y = round(free[0], 1), round(free[1], 1)
            found[flow.flow] = replace(found[flow.flow], x=x, y=y, is_labelled=True)
    return tuple(found[flow.flow] for flow in flows)


def _is_well(flow: FlowSummary) -> bool:
    return flow.state in {"RUNNING", "OFF"}


def _free(
    start: _Point, end: _Point, picture: Topology, boxes: Iterable[_Point], labels: Sequence[_Point]
) -> _Point | None:
    """Return a position on an arrow where a label covers nothing; None if none exists."""
    over_box = ((LABEL[0] + BOX[0]) / 2, (LABEL[1] + BOX[1]) / 2)
    for share in _SHARES:
        place = x, y = _at(start, _bend(start, end), end, share)
        is_in = (
            LABEL[0] / 2 <= x <= picture.width - LABEL[0] / 2
            and LABEL[1] / 2 <= y <= picture.height - LABEL[1] / 2
        )
        if (
            is_in
            and not any(_within(place, box, over_box) for box in boxes)
            and not any(_within(place, one, (LABEL[0] + 8, LABEL[1] + 8)) for one in labels)
        ):
            return place
    return None


def _arrow(flow: FlowSummary, start: _Point, end: _Point) -> Arrow:
    bend = _bend(start, end)
    curve = [_at(start, bend, end, step / _STEPS) for step in range(_STEPS + 1)]
    reach = (BOX[0] / 2 + _GAP, BOX[1] / 2 + _GAP)
    outside = [
        place
        for place in curve
        if not _within(place, start, reach) and not _within(place, end, reach)
    ]
    # An arrow that its boxes cover completely is not cut.
    shown = outside or curve
    first, last = shown[0], shown[-1]
    middle = _at(start, bend, end, 0.5)
    # A cut quadratic curve is quadratic again; its control point follows from the middle.
    centre = shown[len(shown) // 2]
    control = (2 * centre[0] - (first[0] + last[0]) / 2, 2 * centre[1] - (first[1] + last[1]) / 2)
    path = "M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}".format(*first, *control, *last)
    return Arrow(flow, path, round(middle[0], 1), round(middle[1], 1))


def _at(start: _Point, bend: _Point, end: _Point, share: float) -> _Point:
    rest = 1 - share
    a, b, c = rest * rest, 2 * rest * share, share * share
    return (a * start[0] + b * bend[0] + c * end[0], a * start[1] + b * bend[1] + c * end[1])


def _within(place: _Point, other: _Point, reach: tuple[float, float]) -> bool:
    return abs(place[0] - other[0]) <= reach[0] and abs(place[1] - other[1]) <= reach[1]
