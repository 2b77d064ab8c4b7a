"""Text and tables about moves: plan, progress and report, and forecast next to actual costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import asdict, dataclass
from io import StringIO
from itertools import islice
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from srm.domain.moves.disaster import Forecast, GroupForecast, Outcome, TopicForecast
from srm.domain.moves.gate import SyncStatus
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.report import Bounds, MoveReport, read_again_by
from srm.domain.text.amount import amount, duration, excerpt, few, reasons_text, some, utc
from srm.domain.text.documents import values_of
from srm.engine.moves.verification import VerifyStatus
from srm.logs import printable
from srm.pages.tables import MOST_ROWS, Listing, SafeConsole

_GROUPS: Final = 20
"""Groups in the view of a wait."""


def as_text(view: RenderableType, width: int = 150) -> str:
    out = StringIO()
    SafeConsole(file=out, width=width, color_system=None).print(view)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip().splitlines())


def plan_view(plan: MovePlan, most: int = MOST_ROWS) -> RenderableType:
    """Show a plan; ``most`` limits the rows, the costly ones first; one not kept has no id."""
    request = plan.request
    what = some(plan.topics or plan.group_names)
    name = f", move {plan.move_id}" if plan.move_id else ""
    title = f"{request.operation} {request.flow}{name}: {what}"
    lag, again = ("unread backlog", ()) if request.is_unplanned else ("lag", ("re-read",))
    head = "group", f"on {request.source}", "committed", lag, f"on {request.target}"
    rows = [
        (group.group, position)
        for group in plan.groups
        for position in group.positions
        if position.state != "no-commit" or position.lag
    ]
    if len(rows) > most:
        rows.sort(key=lambda r: (r[1].state == "translated", -r[1].skipped, -r[1].re_read))
    cells = (
        (
            *(name, position.name, number(position.committed), number(position.lag)),
            f"{position.target_topic}-{position.partition}",
            number(position.resume),
            *(number(position.re_read) for _ in again),
            *(number(position.skipped), position.state),
        )
        for name, position in rows[:most]
    )
    return Group(
        plain_table((*head, "resumes at", *again, "skipped", "state"), cells, title),
        *_left_out(rows, most),
        *([forecast_view(plan.forecast, request.source, most)] if plan.forecast else []),
        *_list_names("warning", plan.warnings, "yellow", most),
        *_list_names("blocked", plan.blocking, "bold red", most),
    )


def forecast_view(forecast: Forecast, source: str, most: int = MOST_ROWS) -> RenderableType:
    topics = sorted(forecast.topics, key=lambda one: (-one.not_copied, one.topic))[:most]
    head = "topic", "not copied", "at most", "oldest", f"{source} last answered"
    groups = sorted(forecast.groups, key=lambda g: (-g.skipped, -g.re_read, g.group))[:most]
    unknown = [line for topic in forecast.topics for line in topic.unknown]
    return Group(
        Text.assemble(("if it is abandoned now: ", "bold"), forecast.line(source)),
        plain_table(head, map(topic_cells, topics)),
        *_left_out(forecast.topics, most),
        *([plain_table(GROUP_HEAD, map(group_cells, groups))] if groups else []),
        *_left_out(forecast.groups, most),
        *_list_names("unknown", unknown, "yellow", most),
        *_list_names("open transaction", forecast.transactions, "yellow", most),
        *_list_names("note", forecast.notes, "dim", most),
    )


def topic_cells(topic: TopicForecast) -> tuple[str, ...]:
    counts = number(topic.not_copied), number(topic.at_most)
    return topic.topic, *counts, seconds(topic.seconds or None), ago(topic.age_ms)


GROUP_HEAD: Final = ("group", "unread backlog", "read again", "skipped", "checkpoint written")


def group_cells(group: GroupForecast) -> tuple[str, ...]:
    backlog, again = (None, group.re_read) if group.by_commits else (group.re_read, None)
    counts = number(backlog), number(again), number(group.skipped)
    return group.group, *counts, ago(group.age_ms)


def _left_out(rows: Sized, most: int) -> list[Text]:
    left = len(rows) - most
    return [Text(f"and {left:,} more rows; --json shows all", "dim")] if left > 0 else []


def plan_summary(plan: MovePlan) -> dict[str, Any]:
    """Return a summary of a plan as JSON; the full plan is in ``__srm-moves``."""
    return {
        "move_id": plan.move_id,
        **values_of(plan.request, "operation", "mode", "source", "target", "wait_seconds"),
        "topics": list(plan.topics),
        "groups": {
            group.group: {
                "members": len(group.members),
                "lag": group.lag,
                "re_read": group.re_read,
                "skipped": group.total_skipped,
            }
            for group in plan.groups
        },
        "blocking": list(plan.blocking),
        "warnings": list(plan.warnings),
        "findings": [asdict(finding) for finding in plan.findings],
    }


def progress_line(status: SyncStatus | VerifyStatus) -> str:
    """Return one line about a look at a running move, before its go or after it."""
    head = _head(status)
    if isinstance(status, SyncStatus):
        groups = f"{_count_synchronised(status)} of {len(status.groups)} groups synchronised"
        head = f"{head}, {groups}{'; ready' if status.ready else ''}"
    waits = reasons_of(status)
    waiting = f"; waiting for: {reasons_text(waits)}" if waits else ""
    requests = f"; please: {reasons_text(status.asks)}" if status.asks else ""
    return f"{head}{waiting}{requests}"


def reasons_of(status: SyncStatus | VerifyStatus) -> tuple[str, ...]:
    """Return what a running move waits for."""
    return status.blocking if isinstance(status, SyncStatus) else status.waiting


def progress_summary(status: SyncStatus) -> dict[str, Any]:
    """Return the progress of a move as small JSON, because Airflow limits the result of a task."""
    return {
        **values_of(status, "move_id", "ready", "elapsed_seconds", "remaining_records"),
        "eta_seconds": status.eta_seconds,
        "groups": len(status.groups),
        "synchronised": _count_synchronised(status),
        "blocking": list(excerpt(status.blocking)),
        "asks": list(excerpt(status.asks)),
        "notes": list(excerpt(status.notes)),
    }


def progress_view(status: SyncStatus | VerifyStatus) -> RenderableType:
    """Show a look at a running move, with its groups until go."""
    groups = _group_view(status) if isinstance(status, SyncStatus) else ()
    asks = _list_names("please", status.asks, "bold magenta")
    waits = few([f"waits: {reason}" for reason in reasons_of(status)])
    return Group(Text(_head(status)), *groups, *(Text(line, "yellow") for line in waits), *asks)


def _group_view(status: SyncStatus) -> Iterator[RenderableType]:
    """Yield the groups that are furthest from ready, as a terminal has few lines."""
    late = sorted(status.groups, key=lambda g: (g.synchronised, g.applied))[:_GROUPS]
    cells = (
        (g.group, number(g.members_left), _tick(g.synchronised), _tick(g.applied)) for g in late
    )
    yield plain_table(("group", "members left", "synchronised", "applied"), cells)
    left = len(status.groups) - _GROUPS
    if left > 0:
        yield Text(f"and {amount(left, 'more group')}", "dim")


def report_view(report: MoveReport, most: int = MOST_ROWS) -> RenderableType:
    again, head = read_again_by(report), ("group", "lag at hold", "skipped", "read again")
    rows = (
        (
            *(name, number(group.lag_at_hold), number(group.skipped), str(again[name])),
            *(number(group.members_at_hold), seconds(group.assigned_seconds)),
            *(seconds(group.rto_seconds), group.rto_end or ""),
        )
        for name, group in sorted(report.groups.items())[:most]
    )
    verdict = Text(report.result.verdict, "bold green" if report.ok else "bold red")
    headline = Text.assemble(f"{_name(report)}: ", verdict, f"; {_figures(report)}")
    return Group(
        headline,
        *map(Text, outcome_lines(report)),
        plain_table((*head, "members at hold", "assigned after", "working after", ""), rows),
        *_left_out(report.groups, most),
        *_outcome_view(report, most),
        *_list_names("problem", report.problems, "red", most),
        *_list_names("note", report.notes, "dim", most),
    )


def _outcome_view(report: MoveReport, most: int) -> Iterator[RenderableType]:
    if (found := costs(report)) is None:
        return
    head, rows = outcome_table(report, found, "" if report.outcome else "not returned")
    yield plain_table(head, islice(rows, most))
    yield from _left_out(found.topics, most)


def outcome_table(
    report: MoveReport, found: Costs, undecided: str
) -> tuple[Sequence[str], Iterator[Sequence[str]]]:
    rows = (
        (t.topic, *map(number, (t.not_copied, t.at_most, t.residue)), t.choice or undecided)
        for t in found.topics
    )
    return ("topic", "not copied", "at most", f"found on {report.source}", "outcome"), rows


def report_line(report: MoveReport) -> str:
    reasons = "" if report.ok else f": {reasons_text(report.problems)}"
    return f"{_name(report)}: {report.result.verdict}{reasons}; {_figures(report)}"


def residue_text(report: MoveReport) -> str:
    """Return until when residue is or was watched; empty before go, and for a lost source."""
    if report.mode == "unplanned":
        return ""
    if not report.residue_over and report.residue_until_ms is not None:
        return f"watched until {utc(report.residue_until_ms)}"
    if report.residue_seen_ms is not None:
        return f"last checked {utc(report.residue_seen_ms)}"
    return ""


def number(value: int | Bounds | None) -> str:
    return "-" if value is None else str(value) if isinstance(value, Bounds) else f"{value:,}"


def ago(age_ms: int | None) -> str:
    return "not known" if age_ms is None else f"{duration(age_ms / 1000)} ago"


def seconds(value: float | None) -> str:
    return "-" if value is None else duration(value)


def _name(report: MoveReport) -> str:
    return f"{report.operation} {report.source}->{report.target}"


def figures_of(report: MoveReport) -> dict[str, str]:
    """Return by name the figures that each line, list and table of reports has."""
    found = report.result
    return {
        "RPO": found.lost_text,
        "outage": found.outage_text if report.mode == "unplanned" else "-",
        "RTO": seconds(report.rto_seconds),
        "assigned after": seconds(report.assigned_seconds),
        "skipped": number(found.skipped),
        "read again": str(found.read_again),
        "residue": number(report.residue_count),
    }


def _figures(report: MoveReport) -> str:
    """Return the figures of a summary, without those that have no value."""
    steps = (f"{name} {seconds(spent)}" for name, spent in report.rto_steps.items())
    more = {"RTO": ", ".join(steps), "residue": residue_text(report)}
    return ", ".join(
        f"{name} {value}{f' ({more[name]})' if more.get(name) else ''}"
        for name, value in figures_of(report).items()
        if value != "-"
    )


def _head(status: SyncStatus | VerifyStatus) -> str:
    since = f"{status.elapsed_seconds:.0f} s since"
    if isinstance(status, VerifyStatus):
        return f"{since} go"
    eta = "" if status.eta_seconds is None else f", about {status.eta_seconds:.0f} s"
    left = f"{amount(status.remaining_records, 'record')} to copy"
    return f"{since} the hold: {left}{eta if status.remaining_records else ''}"


def _count_synchronised(status: SyncStatus) -> int:
    return sum(group.synchronised for group in status.groups)


def plain_table(
    head: Sequence[str], rows: Iterable[Sequence[str | Text]], title: str | None = None
) -> Listing:
    """Return a compact table of plain text, because names may contain rich markup."""
    settings: dict[str, Any] = {"pad_edge": False, "collapse_padding": True}
    table = Listing(*head, title=title, title_justify="left", **settings)
    for row in rows:
        table.add_row(*(Text(printable(one)) if isinstance(one, str) else one for one in row))
    return table


def _list_names(label: str, lines: Sequence[str], style: str, most: int = MOST_ROWS) -> list[Text]:
    return [Text.assemble((label, style), f": {printable(line)}") for line in few(lines, most)]


def _tick(yes: bool) -> Text:  # noqa: FBT001 -- a cell of a table
    return Text("yes", "green") if yes else Text("not yet", "yellow")


@dataclass(frozen=True, slots=True)
class TopicCost:
    """Forecast and actual cost of one topic; None is unknown.

    ``residue``: records only on the source; ``only_copied``: copied records that it lost;
    ``gone``: by retention; ``choice``: the treatment of the residue.
    """

    topic: str
    not_copied: int | None = None
    at_most: int | None = None
    seconds: float | None = None
    age_ms: int | None = None
    residue: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    only_copied: int | None = None
    gone: int | None = None
    choice: str = ""


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Cost of one group: its backlog, records read again, and residue that it had read."""

    group: str
    backlog: int | None
    re_read: Bounds | None
    checkpoint_age_ms: int | None
    read_of_residue: int | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs by topic and group, and unknowns of the forecast."""

    topics: tuple[TopicCost, ...]
    groups: tuple[GroupCost, ...]
    unknown: tuple[str, ...]


def costs(report: MoveReport) -> Costs | None:
    """Compare forecast and outcome; None if the report has neither."""
    if report.forecast is None and report.outcome is None:
        return None
    return Costs(tuple(_topics(report)), tuple(_groups(report)), tuple(_unknown(report)))


def _topics(report: MoveReport) -> Iterator[TopicCost]:
    said = {topic.topic: topic for topic in (report.forecast.topics if report.forecast else ())}
    found = {entry.topic for entry in (report.outcome.partitions if report.outcome else ())}
    for name in sorted({*said, *found}):
        columns = ("not_copied", "at_most", "seconds", "age_ms") if name in said else ()
        forecast = values_of(said.get(name), *columns)
        yield TopicCost(name, **forecast, **_outcome_fields(name, report.outcome))


def _outcome_fields(topic: str, outcome: Outcome | None) -> dict[str, Any]:
    if outcome is None:
        return {}
    entries = [entry for entry in outcome.partitions if entry.topic == topic]
    choice = {"choice": outcome.choices.get(topic, "")}
    if outcome.source_return == "rebuilt" and not entries:
        return choice  # the records of the source are lost with it
    return {
        "residue": sum(entry.records for entry in entries),
        "first_ms": min((e.first_ms for e in entries if e.first_ms is not None), default=None),
        "last_ms": max((e.last_ms for e in entries if e.last_ms is not None), default=None),
        "only_copied": sum(entry.only_copied for entry in entries),
        "gone": sum(entry.gone for entry in entries),
        **choice,
    }


def _groups(report: MoveReport) -> Iterator[GroupCost]:
    said = {group.group: group for group in (report.forecast.groups if report.forecast else ())}
    found = report.outcome.groups if report.outcome else {}
    again = read_again_by(report)
    for name in sorted({*said, *found}):
        group = said.get(name)
        yield GroupCost(
            name,
            backlog=group.re_read if group else None,
            re_read=again.get(name),
            checkpoint_age_ms=group.age_ms if group else None,
            read_of_residue=found[name].records if name in found else None,
        )


def _unknown(report: MoveReport) -> Iterator[str]:
    forecast = report.forecast
    if forecast is None:
        return
    for topic in forecast.topics:
        yield from topic.unknown
    for group in forecast.unseen:
        yield f"group {group} is known by name only: its clients decide where it starts"
    for transaction in forecast.transactions:
        yield f"open transaction: {transaction}"


def outcome_lines(report: MoveReport) -> Iterator[str]:
    """Return forecast and outcome of a disaster as lines; none for a planned move."""
    forecast, found = report.forecast, report.outcome
    if forecast is not None:
        most = forecast.at_most
        bound = "upper bound unknown" if most is None else f"at most {most:,}"
        yield f"forecast: {amount(forecast.not_copied, 'record')} not copied, {bound}"
    if found is None:
        return
    read = [f"{name} {group.records:,}" for name, group in sorted(found.groups.items())]
    gone = sum(entry.only_copied for entry in found.partitions)
    without = f", without {gone:,} that had been copied" if gone else ""
    late = (
        f", {found.late:,} of them written after the move by producers' clocks"
        if found.late
        else ""
    )
    least = "at least " if found.unread else ""
    count = f"{least}{amount(found.records, 'record')}"
    yield (
        f"outcome: {report.source} still had {count} that had not been copied{late}; groups had "
        f"read of the residue: {some(read) or 'none'}; {report.source} returned as "
        f"'{found.source_return}'{without} (settled by {found.by})"
    )
    for unread in found.unread:
        yield f"not in the outcome: {unread}"
