"""Losses of the disaster demo: forecast and outcome, from the files of all participants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from srm.domain.moves.disaster import Forecast, Outcome
from srm.domain.moves.report import MoveReport
from srm.domain.text.documents import encode
from srm.files import write_atomically
from srm_lab.demo.record import PaymentEntry
from srm_lab.demo.verdict import audit_group


@dataclass(frozen=True)
class GroupDisaster:
    """One application; counts are payments by its own file.

    ``lacked`` had been acknowledged by P and had not reached the application when P came back.
    ``re_read`` were processed twice. ``re_read_at_most`` is what the forecast said of the copy, and
    what the application had processed of the residue, which was merged; ``already_read`` is the
    part of that it had committed on P.
    ``working_seconds`` is the time from the trigger until its first payment on B.
    """

    processed: int
    skipped: int
    lacked: int
    re_read: int
    re_read_at_most: int
    already_read: int
    working_seconds: float | None


@dataclass(frozen=True)
class DisasterReport:
    """Everything that was found; ``ok`` is true only without any ``problems``.

    ``forecast`` was made when the copies were sealed, ``outcome`` when P came back; ``move`` is the
    report of the move between them. ``lost`` are acknowledged payments that some group never
    processed in the end.
    """

    ok: bool
    problems: tuple[str, ...]
    produced: int
    lost: int
    forecast: Forecast
    outcome: Outcome
    move: MoveReport
    groups: Mapping[str, GroupDisaster]
    seconds: float
    phases: Mapping[str, float]
    versions: Mapping[str, str]

    def json(self) -> bytes:
        """Encode as JSON."""
        return encode(self, indent=2)


@dataclass(frozen=True)
class DisasterFindings:
    """Everything a disaster has collected; ``at_return`` are payments processed when P came back.

    ``acknowledged_at_death`` are those that P had acknowledged when it died.
    """

    acknowledged: Sequence[PaymentEntry]
    processed: Mapping[str, Sequence[PaymentEntry]]
    at_return: Mapping[str, int]
    acknowledged_at_death: Sequence[PaymentEntry]
    triggered_ms: int
    forecast: Forecast
    outcome: Outcome
    move: MoveReport


def judge(
    found: DisasterFindings,
    seconds: float,
    phases: Mapping[str, float],
    versions: Mapping[str, str],
) -> DisasterReport:
    """Compute the report; pure."""
    groups = {group: _group(group, found) for group in sorted(found.processed)}
    problems = tuple(_problems(found, groups))
    return DisasterReport(
        ok=not problems,
        problems=problems,
        produced=len(found.acknowledged),
        lost=max((group.skipped for group in groups.values()), default=0),
        forecast=found.forecast,
        outcome=found.outcome,
        move=found.move,
        groups=groups,
        seconds=round(seconds, 1),
        phases=dict(phases),
        versions=dict(versions),
    )


def _group(group: str, found: DisasterFindings) -> GroupDisaster:
    entries = found.processed[group]
    audit = audit_group(group, found.acknowledged, entries)
    there = {entry.payment for entry in entries[: found.at_return[group]]}
    on_b = [e.time_ms for e in entries if e.cluster == "B" and e.time_ms >= found.triggered_ms]
    bounds = {one.group: one.re_read for one in found.forecast.groups}
    read = found.outcome.groups.get(group)
    lacked = sum(entry.payment not in there for entry in found.acknowledged_at_death)
    # Merged, also what it had processed on P and not committed there comes again.
    already = read.records if read else 0
    again = max(already, found.outcome.records - lacked)
    return GroupDisaster(
        processed=audit.processed,
        skipped=audit.skipped,
        lacked=lacked,
        re_read=audit.re_read,
        re_read_at_most=bounds.get(group, 0) + again,
        already_read=already,
        working_seconds=(min(on_b) - found.triggered_ms) / 1000 if on_b else None,
    )


def _problems(found: DisasterFindings, groups: Mapping[str, GroupDisaster]) -> Iterator[str]:
    yield from (f"move {found.move.move_id}: {problem}" for problem in found.move.problems)
    forecast, records = found.forecast, found.outcome.records
    if not records:
        yield "P died when all its records were copied: run the demo on a quieter machine"
    if forecast.at_most is None or records > forecast.at_most:
        yield f"{records:,} records were not copied, the forecast said at most {forecast.at_most}"
    for name, group in groups.items():
        if group.skipped:
            yield f"{name} has never processed {group.skipped:,} payments"
        if group.re_read > group.re_read_at_most:
            yield (
                f"{name} processed {group.re_read:,} payments again, the forecast said at most "
                f"{group.re_read_at_most:,}"
            )
        if group.working_seconds is None:
            yield f"{name} never worked on B"


def write_disaster_report(folder: Path, report: DisasterReport) -> None:
    """Write ``report.json``.

    StackError: the folder cannot be written.
    """
    write_atomically(folder / "report.json", report.json())


def render_disaster(console: Console, report: DisasterReport, folder: str) -> None:
    """Print forecast and outcome side by side, then the verdict."""
    console.print(_sides(report))
    console.print(_groups(report))
    for problem in report.problems:
        console.print(f"[bold red]problem[/] {escape(problem)}")
    console.print(
        f"{report.lost:,} of {report.produced:,} acknowledged payments are lost in the end; what P "
        f"still held was copied when it came back."
    )
    verdict = "[bold green]OK[/]" if report.ok else "[bold red]NOT OK[/]"
    console.print(f"{verdict} after {report.seconds:.0f} s. Report: {folder}/report.json")


def _sides(report: DisasterReport) -> Table:
    forecast, outcome = report.forecast, report.outcome
    at_most = "not known" if forecast.at_most is None else f"{forecast.at_most:,}"
    table = _table("", "forecast", "at most", "outcome")
    table.add_row(
        "records of P not copied", f"{forecast.not_copied:,}", at_most, f"{outcome.records:,}"
    )
    read = sum(group.re_read for group in report.groups.values())
    bound = sum(group.re_read_at_most for group in report.groups.values())
    table.add_row("payments read again", "", f"{bound:,}", f"{read:,}")
    return table


def _groups(report: DisasterReport) -> Table:
    table = _table("group", "working after s", "lacked on B", "re-read", "at most", "lost")
    for name, group in report.groups.items():
        after = "-" if group.working_seconds is None else f"{group.working_seconds:.1f}"
        counts = (group.lacked, group.re_read, group.re_read_at_most, group.skipped)
        table.add_row(name, after, *(f"{count:,}" for count in counts))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table
