"""Note of a run with a move: first the required action, then the figures."""

from __future__ import annotations

from srm.domain.moves.records.progress import DECIDED
from srm.domain.moves.report.report import MoveReport
from srm.pages.moves import reasons_text, report_line


def report_note(report: MoveReport, reason: str = "") -> str:
    """Return the note of a run that has reached its report.

    Args:
        report: report of the move.
        reason: message of a failed step; empty if none failed.
    """
    if report.ok and not reason:
        return report_line(report)
    why = reason or reasons_text(report.problems)
    if report.step in DECIDED:
        return f"{why}\n\n{report_line(report)}"
    return f"{why}\n\n{report.operation} {report.source}->{report.target}: clients were not moved"
