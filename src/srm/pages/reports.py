"""Plans, reports and drills: lists, Markdown for approvals, notes and tickets, and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.text import Text

from srm.domain.moves.disaster import Drill, Forecast
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import DECIDED
from srm.domain.moves.report import Bounds, MoveReport, read_again_by
from srm.domain.moves.revisions import KeptReport, short
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount, duration, few, moment, reasons_text, some, utc
from srm.domain.text.documents import adapter, values_of
from srm.pages import moves
from srm.pages.html import render_page
from srm.pages.tables import Listing

_LISTED: Final = ("RPO", "outage", "RTO", "read again")


def list_view(reports: Iterable[KeptReport]) -> Listing:
    head = "time", "move", "operation", "mode", "from -> to", "groups"
    unbroken = *_LISTED, "result", "revision"
    table = moves.plain_table((*head, *unbroken), map(_list_cells, reports))
    for column in table.columns[len(head) :]:
        column.no_wrap = True
    return table


def _list_cells(kept: KeptReport) -> tuple[str | Text, ...]:
    row, figures = list_row(kept), moves.figures_of(kept.report)
    return (
        *(row[name] for name in ("time", "move_id", "operation", "mode")),
        f"{row['source']} -> {row['target']}",
        some(row["groups"]),
        *map(figures.__getitem__, _LISTED),
        Text(kept.report.result.verdict, "green" if kept.report.ok else "bold red"),
        f"{row['revision']}, {'signed' if row['key_id'] else 'not signed'}",
    )


def list_row(kept: KeptReport) -> dict[str, Any]:
    report, signature = kept.report, kept.signed.signature
    return {
        "time": f"{utc(report.created_ms)}",
        **values_of(report, "created_ms", "move_id", "operation", "mode", "source", "target"),
        "groups": sorted(report.groups),
        **values_of(report, "rto_seconds", "ok", "result"),
        "revision": report.revision,
        "sha256": kept.signed.sha256,
        "key_id": None if signature is None else signature.key_id,
    }


def signature_text(kept: KeptReport) -> str:
    signature = kept.signed.signature
    signed = f"signed with key {short(signature.key_id)}" if signature is not None else "not signed"
    return f"revision {kept.report.revision}, {signed}, sha256 {kept.signed.sha256}"


def report_markdown(report: MoveReport, signature: str = "") -> str:
    return "\n".join(_markdown(report, signature)) + "\n"


def report_summary(report: MoveReport) -> dict[str, Any]:
    """Return a report as JSON without partitions; the full report is in the moves topic."""
    groups = {name: replace(group, partitions=()) for name, group in report.groups.items()}
    return dict(adapter(MoveReport).dump_python(replace(report, groups=groups), mode="json"))


def _markdown(report: MoveReport, signature: str) -> Iterator[str]:
    found, again = moves.figures_of(report), read_again_by(report)
    verdict = report.result.verdict if report.ok else f"**{report.result.verdict}**"
    clusters = f"{escape(report.source)} → {escape(report.target)}"
    yield f"## {escape(report.operation.capitalize())} {clusters}: {verdict}"
    yield ""
    yield from bullets("Problem", report.problems)
    answer = f"last answer of {report.source} until the last group worked"
    yield from table(
        ("", "", ""),
        (
            ("RPO", found["RPO"], f"not on {report.target} at go"),
            *([("outage", found["outage"], answer)] if report.mode == "unplanned" else []),
            ("RTO", found["RTO"], "hold until the last group worked"),
            *((f"- {name}", moves.seconds(spent), "") for name, spent in report.rto_steps.items()),
            ("assigned", found["assigned after"], "hold until the last group had partitions"),
            *((name, found[name], "records") for name in ("skipped", "read again")),
            ("residue", found["residue"], moves.residue_text(report)),
        ),
    )
    yield from table(
        ("group", "members", "lag at hold", "skipped", "read again", "assigned", "working", "by"),
        (
            (
                name,
                moves.number(group.members_at_hold),
                moves.number(group.lag_at_hold),
                _with_plan(group.skipped, group.planned_skipped),
                _with_plan(again[name], None if report.forecast else group.planned_re_read),
                moves.seconds(group.assigned_seconds),
                moves.seconds(group.rto_seconds),
                group.rto_end or "-",
            )
            for name, group in sorted(report.groups.items())
        ),
    )
    yield from _costs(report)
    yield from bullets("Note", report.notes)
    yield from bullets("Known before", report.warnings)
    for approval in report.approvals:
        numbers = ", ".join(f"{name} {value}" for name, value in approval.numbers.items())
        how = f"{escape(approval.how)}, {utc(approval.time_ms)}"
        said = f": {escape(numbers)}" if numbers else ""
        yield f"- Approved by {escape(approval.by)} ({how}){said}"
    yield ""
    planned = f"{report.mode}, planned {utc(report.created_ms)}"
    yield f"Move `{report.move_id}`, {planned}; {signature or f'revision {report.revision}'}."


def _costs(report: MoveReport) -> Iterator[str]:
    found = moves.costs(report)
    if found is None:
        return
    yield from table(*moves.outcome_table(report, found, "-"))
    head = "group", "unread backlog", "read again", f"residue read on {report.source}"
    counts = ((g.group, g.backlog, g.re_read, g.read_of_residue) for g in found.groups)
    yield from table(head, ((name, *map(moves.number, row)) for name, *row in counts))


def _with_plan(count: int | Bounds, planned: int | None) -> str:
    if planned is None or count in {planned, Bounds(planned, planned)}:
        return moves.number(count)
    return f"{moves.number(count)} (planned {moves.number(planned)})"


SHOWN_ROWS: Final = 30


def approval_subject(plan: MovePlan) -> str:
    request = plan.request
    if request.is_unplanned:
        return f"Abandon {request.source} and move {_groups(plan)} to {request.target}?"
    return f"Move {_groups(plan)} from {request.source} to {request.target}?"


def approval_text(plan: MovePlan) -> str:
    return "\n".join(_text(plan)) + "\n"


def accepted_text(plan: MovePlan) -> str:
    """Say up to which loss an approval of an unplanned move is valid."""
    if plan.accepted_rpo is None:
        return "An approval accepts any loss: its bound is not known."
    most = amount(plan.accepted_rpo, "record")
    return f"An approval accepts the loss of up to {most}; beyond that the move needs another one."


def plan_page(plan: MovePlan) -> str:
    return render_page("plan.html", plan=plan, text=moves.as_text(moves.plan_view(plan)))


def _text(plan: MovePlan) -> Iterator[str]:
    request = plan.request
    topics = some([f"`{topic}`" for topic in plan.topics], SHOWN_ROWS)
    yield f"Topics: {topics}. Move `{plan.move_id}`. **Nothing has been changed yet.**"
    yield ""
    if plan.forecast is not None:
        yield (
            f"**{request.source} is abandoned:** the flow {request.flow} is paused "
            f"until an operator resumes it, {request.source} is not queried, and "
            f"groups resume on {request.target} from their last checkpoint without a wait."
        )
        yield ""
        yield f"**{escape(plan.forecast.line(request.source))}**"
        yield ""
        yield accepted_text(plan)
        yield ""
        yield from _forecast(plan.forecast, request.source)
    else:
        yield (
            f"Clients are held for at most {request.wait_seconds:g} s until all is copied, and "
            f"resume on {request.target}; nothing is lost."
        )
        yield ""
        yield from table(
            ("group", "members", "still to read", "read again", "skipped"),
            (
                (g.group, *map(moves.number, (len(g.members), g.lag, g.re_read, g.total_skipped)))
                for g in plan.groups
            ),
            SHOWN_ROWS,
        )
    yield from bullets("Warning", plan.warnings, SHOWN_ROWS)


def _forecast(forecast: Forecast, source: str) -> Iterator[str]:
    yield from table(
        ("topic", "not copied", "at most", "seconds", f"{source} last answered"),
        map(moves.topic_cells, forecast.topics),
        SHOWN_ROWS,
    )
    yield from table(
        moves.GROUP_HEAD,
        map(moves.group_cells, forecast.groups),
        SHOWN_ROWS,
    )
    yield from bullets(
        "Unknown", [line for topic in forecast.topics for line in topic.unknown], SHOWN_ROWS
    )
    yield from bullets("Known by name only", forecast.unseen, SHOWN_ROWS)
    yield from bullets("Open transaction", forecast.transactions, SHOWN_ROWS)
    yield from bullets("Note", forecast.notes, SHOWN_ROWS)


def _groups(plan: MovePlan) -> str:
    names = plan.group_names
    return f"group {names[0]}" if len(names) == 1 else amount(len(names), "group")


_MARKUP: Final = re.compile(r"([\\`*_{}\[\]<>#|~])")


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], most: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table; rows beyond ``most`` are counted."""
    lines = [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    yield f"| {' | '.join(map(escape, head))} |"
    yield f"|{'---|' * len(head)}"
    yield from lines[:most]
    yield ""
    if most is not None and len(lines) > most:
        yield f"and {len(lines) - most} more"
        yield ""


def bullets(label: str, lines: Sequence[str], most: int | None = None) -> Iterator[str]:
    for line in lines if most is None else few(lines, most):
        yield f"- {label}: {escape(line)}"
    if lines:
        yield ""


def escape(text: str) -> str:
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def report_note(report: MoveReport, reason: str = "") -> str:
    if report.ok and not reason:
        return moves.report_line(report)
    why = reason or reasons_text(report.problems)
    if report.step in DECIDED:
        return f"{why}\n\n{moves.report_line(report)}"
    return f"{why}\n\n{report.operation} {report.source}->{report.target}: clients were not moved"


_SHOWN_PROBLEMS: Final = 20


def drill_line(drill: Drill) -> str:
    if drill.state != "done":
        return f"drill {drill.drill_id} of {drill.flow}: {drill.state}"
    return (
        f"drill {drill.drill_id} of {drill.flow}: {_drill_verdict(drill)}, {drill.proven} of "
        f"{amount(len(drill.groups), 'group')} proven; {_drill_rpo(drill)} lost if the source had "
        f"died then, {duration(drill.rto_seconds)} to carry out"
    )


def drill_view(drill: Drill) -> RenderableType:
    table = Listing("group", "partitions", "proven", "read", "")
    for group in drill.groups:
        counts = map(str, (group.partitions, group.proven, group.read))
        verdict = "[green]ok[/green]" if group.ok else "[red]not proven[/red]"
        table.add_row(Text(group.group), *counts, verdict)
    steps = ", ".join(f"{name} {spent:.2f} s" for name, spent in drill.steps.items())
    return Group(
        Text(drill_line(drill), style="green" if drill.ok else "red"),
        table,
        Text(f"steps: {steps}"),
        *(Text(f"warning: {warning}", style="yellow") for warning in drill.warnings),
        *(Text(f"problem: {why}", style="red") for why in few(drill.all_problems, _SHOWN_PROBLEMS)),
    )


def history_view(drills: Sequence[Drill], flow: Flow) -> RenderableType:
    """Show drills, the newest last: RPO, RTO and proof over time."""
    if not drills:
        return Text(f"No drill was run yet: srm failover drill {flow.options}")
    table = Listing("time (UTC)", "flow", "groups proven", "RPO", "RTO", "result", "drill")
    for drill in drills:
        done = drill.state == "done"
        table.add_row(
            f"{moment(drill.time_ms):%Y-%m-%d %H:%M}",
            drill.flow,
            f"{drill.proven} of {len(drill.groups)}" if done else "-",
            _drill_rpo(drill) if done else "-",
            duration(drill.rto_seconds) if done else "-",
            f"[{'green' if drill.ok else 'red'}]{_drill_verdict(drill)}[/]",
            drill.drill_id,
        )
    return table


def _drill_verdict(drill: Drill) -> str:
    if drill.state != "done":
        return drill.state
    unproven = not all(group.ok for group in drill.groups)
    return "everything proven" if drill.ok else "NOT proven" if unproven else "PROBLEMS"


def _drill_rpo(drill: Drill) -> str:
    forecast = drill.forecast
    return "-" if forecast is None else forecast.lost_text
