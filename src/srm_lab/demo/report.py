"""The report of a demo: what it found, as JSON for machines and as a page for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srm.disk import write_atomically
from srm.domain.text.documents import encode
from srm.pages.html import render_page
from srm_lab.demo.timeline import Timeline


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
class MoveResult:
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
    moves: tuple[MoveResult, ...]
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

    Raises:
        StackError: the folder cannot be written.
    """
    page = render_page("demo_report.html", "srm_lab.demo", report=report, timeline=timeline)
    write_atomically(folder / "report.json", report.json())
    write_atomically(folder / "report.html", page.encode())
