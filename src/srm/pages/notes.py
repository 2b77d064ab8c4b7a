"""The note of a run that moves something: first what a person can act on, then the figures."""

from __future__ import annotations

from srm.domain.moves.records.progress import DECIDED
from srm.domain.moves.report.report import MoveReport
from srm.pages.moves import reasons_text, report_line


def report_note(report: MoveReport, reason: str = "") -> str:
    """Return the note of a run that has come to its report.

    Args:
        report: of the move.
        reason: why a step failed, in the words of the step; empty where none did.
    """
    if report.ok and not reason:
        return report_line(report)
    why = reason or reasons_text(report.problems)
    if report.step in DECIDED:
        return f"{why}\n\n{report_line(report)}"
    return f"{why}\n\n{report.operation} {report.source}->{report.target}: clients were not moved"
