"""The report of a demo: what it found, as JSON for machines and as a page for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from srm.domain.text.documents import encode
from srm.files import write_atomically
from srm.pages.html import render_page
from srm_lab.demo.record import PaymentEntry

WIDTH: Final = 960
HEIGHT: Final = 90
_POINTS: Final = 240


@dataclass(frozen=True)
class Stretch:
    """A line of one colour: points are ``x,y`` of an SVG polyline."""

    cluster: str
    points: str


@dataclass(frozen=True)
class Track:
    """One application: its line, and in the background what the producers had written."""

    group: str
    produced: str
    stretches: tuple[Stretch, ...]


@dataclass(frozen=True)
class ServiceGap:
    """The time without service of one move, as a span of x."""

    label: str
    x: float
    width: float


@dataclass(frozen=True)
class Timeline:
    """The whole picture; x is time, y is the number of payments."""

    width: int
    height: int
    seconds: float
    tracks: tuple[Track, ...]
    pauses: tuple[ServiceGap, ...]


def draw(
    acknowledged: Sequence[PaymentEntry],
    processed: Mapping[str, Sequence[PaymentEntry]],
    moves: Sequence[tuple[str, int, float]],
) -> Timeline:
    """Draw the records; ``moves`` are (label, start in epoch ms, seconds without service)."""
    written = sorted(entry.time_ms for entry in acknowledged)
    ends = [entries[-1].time_ms for entries in processed.values() if entries]
    start = written[0] if written else 0
    end = max([*ends, *written[-1:], start + 1])
    scale = _Scale(start, end, max(1, len(written)))
    produced = scale.points([(time, count) for count, time in _thin_out(written)])
    tracks = tuple(
        Track(group, produced, _stretches(entries, scale)) for group, entries in processed.items()
    )
    pauses = tuple(
        ServiceGap(
            label, scale.x(began), max(1.0, scale.x(began + seconds * 1000) - scale.x(began))
        )
        for label, began, seconds in moves
    )
    return Timeline(WIDTH, HEIGHT, (end - start) / 1000, tracks, pauses)


@dataclass(frozen=True)
class _Scale:
    start: int
    end: int
    count: int

    def x(self, time_ms: float) -> float:
        return round((time_ms - self.start) / (self.end - self.start) * WIDTH, 1)

    def points(self, pairs: Sequence[tuple[int, int]]) -> str:
        return " ".join(
            f"{self.x(time)},{round(HEIGHT - count / self.count * HEIGHT, 1)}"
            for time, count in pairs
        )


def _stretches(entries: Sequence[PaymentEntry], scale: _Scale) -> tuple[Stretch, ...]:
    stretches = []
    first = 0
    for index in range(1, len(entries) + 1):
        if index == len(entries) or entries[index].cluster != entries[first].cluster:
            times = [entry.time_ms for entry in entries[first:index]]
            points = [(time, first + count) for count, time in _thin_out(times)]
            stretches.append(Stretch(entries[first].cluster, scale.points(points)))
            first = index
    return tuple(stretches)


def _thin_out(times: Sequence[int]) -> list[tuple[int, int]]:
    """Return (how many so far, time), of a few moments that are spread evenly over the time."""
    if not times:
        return []
    step = max(1, (times[-1] - times[0]) // _POINTS)
    kept = [(1, times[0])]
    for count, time in enumerate(times, 1):
        if time - kept[-1][1] >= step or count == len(times):
            kept.append((count, time))
    return kept


@dataclass(frozen=True)
class GroupResult:
    """One application over the whole demo; counts are payments by its own record.

    ``unknown`` were processed without a producer having an acknowledgement for them.
    """

    processed: int
    skipped: int
    re_read: int
    unknown: int
    processed_on: Mapping[str, int]
    says: str


@dataclass(frozen=True)
class MoveGroupResult:
    """One application around one move.

    ``lag_at_hold`` is what the move itself measured; ``skipped`` and ``re_read`` come from the
    application's record, ``pause_seconds`` too: from its last payment on the one cluster to its
    first on the other.
    """

    lag_at_hold: int
    skipped: int
    re_read: int
    pause_seconds: float | None
    rto_seconds: float | None


@dataclass(frozen=True)
class CarriedMove:
    """One move as it happened; ``steps`` are the seconds of its time without service."""

    operation: str
    source: str
    target: str
    rpo_records: int | None
    rto_seconds: float | None
    steps: Mapping[str, float]
    started_ms: int
    seconds: float
    groups: Mapping[str, MoveGroupResult]
    move_id: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class CopyResult:
    """Comparison of the two copies of one flow's topics."""

    flow: str
    equal: bool
    records: int
    partitions: int
    remark: str


@dataclass(frozen=True)
class DemoReport:
    """Everything a demo has found. ``ok`` is true only without any ``problems``.

    ``unacknowledged`` are payments that a producer numbered but got no acknowledgement for.
    """

    ok: bool
    problems: tuple[str, ...]
    produced: int
    produced_on: Mapping[str, int]
    unacknowledged: int
    groups: Mapping[str, GroupResult]
    moves: tuple[CarriedMove, ...]
    verification: tuple[CopyResult, ...]
    metrics_windows: Mapping[str, int]
    seconds: float
    phases: Mapping[str, float]
    versions: Mapping[str, str]

    def json(self) -> bytes:
        """Encode as JSON."""
        return encode(self, indent=2)


def write_report(folder: Path, report: DemoReport, timeline: Timeline) -> None:
    """Write ``report.json`` and ``report.html``.

    StackError: the folder cannot be written.
    """
    page = render_page("demo_report.html", "srm_lab.demo", report=report, timeline=timeline)
    write_atomically(folder / "report.json", report.json())
    write_atomically(folder / "report.html", page.encode())
