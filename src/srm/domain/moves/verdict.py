"""Result of a move: its verdict and its cost, computed once for all views, files and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from srm.domain.moves.progress import DECIDED
from srm.domain.text.amount import amount, duration, span

if TYPE_CHECKING:
    from srm.domain.moves.progress import MoveProgress
    from srm.domain.moves.report import MoveReport


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a number of records; ``most``: None without an upper bound."""

    least: int
    most: int | None

    def __str__(self) -> str:
        return span(self.least, self.most)


@dataclass(frozen=True, slots=True)
class MoveResult:
    """Result of one move, as far as it is known.

    ``verdict``: ``clean``, ``as forecast``, ``more lost than forecast``, ``not clean`` or
    ``not moved``.
    ``lost``, ``lost_seconds``: records not on the target at go, and their time span; None if
    unknown.
    ``read_again``: records read again by all groups.
    ``outage_seconds``: from the hold, or from the last answer of an abandoned source, until the
    last group that is back worked on the target; None before go, and without such an answer.
    ``not_back``: number of groups that have not worked there yet.
    """

    verdict: str
    lost: Bounds | None
    lost_seconds: float | None
    read_again: Bounds
    skipped: int
    outage_seconds: float | None
    not_back: int

    @property
    def lost_text(self) -> str:
        if self.lost is None:
            return "-"
        noun = "record" if self.lost == Bounds(1, 1) else "records"
        return f"{self.lost} {noun}" + (
            f" ({duration(self.lost_seconds)})" if self.lost_seconds else ""
        )

    @property
    def outage_text(self) -> str:
        if self.outage_seconds is None:
            return "-"
        absent = f", {amount(self.not_back, 'group')} not back" if self.not_back else ""
        return f"{duration(self.outage_seconds)}{absent}"


def result_of(report: MoveReport) -> MoveResult:
    """Compute the result of a move from its report."""
    by_group = read_again_by(report)
    bounds = [one.most for one in by_group.values() if one.most is not None]
    most = sum(bounds) if len(bounds) == len(by_group) else None
    again = Bounds(sum(one.least for one in by_group.values()), most)
    skipped = sum(group.skipped for group in report.groups.values())
    led = [g for g in report.groups.values() if g.members_at_hold or report.mode == "unplanned"]
    times = [group.rto_seconds for group in led if group.rto_seconds is not None]
    went_s = until_go(report) if report.step in DECIDED else None
    silent_s = _silent_before_hold(report)
    is_known = went_s is not None and silent_s is not None
    return MoveResult(
        verdict=_verdict(report, again, skipped),
        lost=None
        if report.rpo_at_least is None
        else Bounds(report.rpo_at_least, report.rpo_at_most),
        lost_seconds=report.rpo_seconds,
        read_again=again,
        skipped=skipped,
        outage_seconds=round((silent_s or 0) + max([went_s or 0, *times]), 3) if is_known else None,
        not_back=len(led) - len(times) if went_s is not None else 0,
    )


def until_go(move: MoveProgress | MoveReport) -> float | None:
    """Return the seconds from hold to go, by the target broker's stamps if both are known."""
    begun, gone = move.hold_stamp_ms, move.gone_stamp_ms
    if begun is None or gone is None:
        begun, gone = move.times_ms.get("holding"), move.times_ms.get("gone")
    return None if begun is None or gone is None else max(0, gone - begun) / 1000


def _silent_before_hold(report: MoveReport) -> float | None:
    """Return the seconds from the last answer of an abandoned source until the hold."""
    if report.mode != "unplanned":
        return 0.0
    begun = report.times_ms.get("holding")
    answered_ms = None if report.forecast is None else report.forecast.answered_ms
    return None if begun is None or answered_ms is None else max(0, begun - answered_ms) / 1000


def _verdict(report: MoveReport, again: Bounds, skipped: int) -> str:
    """Return a short verdict; a move that lost the forecast records is not clean."""
    if not report.ok:
        undecided = "gone" not in report.times_ms and report.step in {"planned", "released"}
        return "not moved" if undecided else "not clean"
    found = report.rpo_at_least or 0 if report.outcome else 0
    is_free = report.rpo_at_most == 0 and not found and again.most == 0 and not skipped
    if report.mode != "unplanned" or is_free:
        return "clean"
    bound = report.forecast.at_most if report.forecast else None
    return "as forecast" if bound is None or found <= bound else "more lost than forecast"


def read_again_by(report: MoveReport) -> dict[str, Bounds]:
    """Return the records read again by group; if unplanned, up to forecast and merged residue."""
    return dict(_read_again(report))


def _read_again(report: MoveReport) -> Iterator[tuple[str, Bounds]]:
    forecast = report.forecast
    foreseen = {each.group: each.re_read for each in forecast.groups} if forecast else {}
    for name, group in report.groups.items():
        is_unseen, most = forecast is not None and name in forecast.unseen, foreseen.get(name, 0)
        if report.outcome is not None:
            most += report.outcome.count_merged({place.topic for place in group.partitions})
        yield name, Bounds(group.re_read, None if is_unseen else max(group.re_read, most))
