"""HTML pages: self-contained files in one style (``templates/page.css``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from srm.domain.moves.report import GroupReport, MoveReport, read_again_by
from srm.domain.moves.revisions import KeptReport
from srm.extras import library
from srm.pages import moves
from srm.pages.tables import exact_time

if TYPE_CHECKING:
    import jinja2
else:
    jinja2 = library("jinja2")

SHOWN_PARTITIONS: Final = 3_000
"""Rows of offsets on one page; beyond that it shows only deviations from the plan."""


def render_page(template: str, package: str = "srm.pages", **values: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(package), jinja2.PackageLoader("srm.pages")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clock=_clock, number=moves.number, duration=moves.seconds)
    return environment.get_template(template).render(values)


def report_page(kept: KeptReport) -> str:
    return render_page(
        "move_report.html",
        report=kept.report,
        most=SHOWN_PARTITIONS,
        signature=kept.signed.signature,
        sha256=kept.signed.sha256,
        timeline=move_timeline(kept.report),
        costs=moves.costs(kept.report),
        result=kept.report.result,
        read_again=read_again_by(kept.report),
        residue=kept.report.residue_count,
        watched=moves.residue_text(kept.report),
    )


def _clock(time_ms: int) -> str:
    return f"{exact_time(time_ms)} UTC"


LANES: Final = 40
"""Maximum number of drawn groups, the slowest ones; the table has all of them."""
_LABELLED: Final = 9.0

MarkKind = Literal["assigned", "working", "commit"]


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A period in seconds and percent; ``ended`` is False if its end is unknown."""

    name: str
    seconds: float
    left: float
    width: float
    ended: bool = True

    @property
    def fits(self) -> bool:
        return self.width >= _LABELLED


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment; ``left`` in percent, ``seconds`` from the hold."""

    kind: MarkKind
    name: str
    seconds: float
    left: float


@dataclass(frozen=True, slots=True)
class Lane:
    """One row of the picture."""

    name: str
    bars: tuple[TimelineBar, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Tick:
    """One label of the axis; ``left`` in percent."""

    text: str
    left: float


@dataclass(frozen=True, slots=True)
class MoveTimeline:
    """Steps of the move, then one lane per group; ``hidden`` counts groups not drawn."""

    steps: Lane
    groups: tuple[Lane, ...]
    ticks: tuple[Tick, ...]
    hidden: int = 0


def move_timeline(report: MoveReport) -> MoveTimeline | None:
    """Draw a move from the hold on; None if no client was held, or before go."""
    steps = list(report.rto_steps.items())
    moved = {name: group for name, group in report.groups.items() if group.members_at_hold}
    ends = [sum(seconds for _, seconds in steps)]
    ends += [seconds for group in moved.values() for _, _, seconds in _moments(group)]
    length = max(ends) * 1.02
    if not steps or length <= 0:
        return None

    def percent(seconds: float) -> float:
        return round(100 * seconds / length, 3)

    def lane(name: str) -> Lane:
        group = moved[name]
        away_s = _without_service(group, length)
        is_ended = group.rto_seconds is not None
        bar = TimelineBar("without service", away_s, 0.0, percent(away_s), is_ended)
        marks = (Mark(kind, what, at_s, percent(at_s)) for kind, what, at_s in _moments(group))
        return Lane(name, (bar,), tuple(marks))

    bars, at = [], 0.0
    for name, seconds in steps:
        bars.append(TimelineBar(name, seconds, percent(at), percent(seconds)))
        at += seconds
    slowest = sorted(moved, key=lambda name: (-_without_service(moved[name], length), name))
    return MoveTimeline(
        Lane("steps", tuple(bars)),
        tuple(map(lane, slowest[:LANES])),
        tuple(Tick(text, percent(seconds)) for seconds, text in _ticks(length)),
        max(0, len(slowest) - LANES),
    )


def _without_service(group: GroupReport, length: float) -> float:
    return length if group.rto_seconds is None else group.rto_seconds


def _moments(group: GroupReport) -> Iterator[tuple[MarkKind, str, float]]:
    if group.assigned_seconds is not None:
        yield "assigned", "assigned partitions", group.assigned_seconds
    if group.rto_seconds is not None and group.rto_end != "assigned":
        yield "working", f"{group.rto_end or 'worked'} its first record", group.rto_seconds
    if group.first_commit_seconds is not None:
        yield "commit", "first commit was seen", group.first_commit_seconds


def round_up(value: float) -> float:
    """Round a positive number up to 1, 2, 5 or 10 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= value)


def _ticks(length: float) -> Iterator[tuple[float, str]]:
    step = round_up(length / 8)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    for number in range(math.floor(length / step) + 1):
        yield number * step, f"{number * step:.{digits}f} s"
