"""Tables and lines about drills: one result, and the history of a pair of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from srm.domain.moves.disaster import Drill
from srm.domain.text.amount import amount, duration
from srm.pages.tables import Listing

_SHOWN: Final = 20


def drill_line(drill: Drill) -> str:
    """Return the result of a drill in one line."""
    if drill.state != "done":
        return f"drill {drill.drill_id} of {drill.flow}: {drill.state}"
    return (
        f"drill {drill.drill_id} of {drill.flow}: {_verdict(drill)}, {drill.proven} of "
        f"{amount(len(drill.groups), 'group')} proven; {_rpo(drill)} lost if the source had died "
        f"then, {drill.rto_seconds:.1f} s to carry out"
    )


def drill_view(drill: Drill) -> RenderableType:
    """Show the result of one drill: groups, steps and problems."""
    table = Listing(*("group", "partitions", "proven", "read", ""))
    for group in drill.groups:
        table.add_row(
            escape(group.group),
            *(str(group.partitions), str(group.proven), str(group.read)),
            "[green]ok[/green]" if group.ok else "[red]not proven[/red]",
        )
    steps = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in drill.steps.items())
    problems = drill.all_problems
    more = len(problems) - _SHOWN
    return Group(
        Text(drill_line(drill), style="green" if drill.ok else "red"),
        table,
        Text(f"steps: {steps}"),
        *(Text(f"problem: {problem}", style="red") for problem in problems[:_SHOWN]),
        *([Text(f"and {more} more, --json shows all")] if more > 0 else []),
    )


def history_view(drills: Sequence[Drill]) -> RenderableType:
    """Show drills, the newest last: RPO, RTO and proof over time."""
    if not drills:
        return Text("No drill was run yet: srm failover drill")
    table = Listing(
        *("time (UTC)", "flow", "groups proven", "RPO", "RTO", "result", "drill"),
    )
    for drill in drills:
        at = datetime.fromtimestamp(drill.time_ms / 1000, UTC)
        done = drill.state == "done"
        table.add_row(
            f"{at:%Y-%m-%d %H:%M}",
            drill.flow,
            f"{drill.proven} of {len(drill.groups)}" if done else "-",
            _rpo(drill) if done else "-",
            f"{drill.rto_seconds:.1f} s" if done else "-",
            f"[{'green' if drill.ok else 'red'}]{_verdict(drill)}[/]",
            drill.drill_id,
        )
    return table


def _verdict(drill: Drill) -> str:
    if drill.state != "done":
        return drill.state
    return "everything proven" if drill.ok else "NOT proven"


def _rpo(drill: Drill) -> str:
    forecast = drill.forecast
    if forecast is None:
        return "-"
    seconds = "" if forecast.seconds is None else f" ({duration(forecast.seconds)})"
    return f"{amount(forecast.not_copied, 'record')}{seconds}"
