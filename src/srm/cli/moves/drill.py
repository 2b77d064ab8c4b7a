"""``srm failover drill``: rehearse a failover, and see how earlier rehearsals went."""

from __future__ import annotations

from typing import Annotated

import typer

from srm import telemetry
from srm.cli.console import ConfigOption, JsonOption, emit, open_console
from srm.cli.interrupts import tidying_up
from srm.cli.moves.failover import SourceOption, TargetOption, open_pair, option
from srm.engine.drill import read_drills, run_drill
from srm.errors import ConflictError
from srm.pages.reports import drill_view, history_view


def drill(
    *,
    topics: Annotated[list[str] | None, option("topics")] = None,
    groups: Annotated[list[str] | None, option("groups")] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show earlier drills: RPO, RTO and proof over time.")
    ] = False,
    source: SourceOption = None,
    target: TargetOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rehearse a failover on shadow names of the groups; no client notices.

    srm plans the planned and the unplanned move; what would refuse either is a problem. It writes
    the places of the unplanned one for groups srm-drill.* on the target. A member joins each and
    reads; the records are compared with those on the source. The next drill, or the next
    emission of all checkpoints, removes what a killed drill has left.

    Exit code 0 only where everything was proven.
    """
    if history:
        with open_pair(config, source, target, only_look=True) as context:
            flow = context.forward.config.flow
            found = read_drills(context.target, str(flow))
        emit(found, as_json, lambda console: console.print(history_view(found)))
        return
    progress = open_console(stderr=True)
    with (
        tidying_up(),
        open_pair(config, source, target) as context,
        progress.status("rehearsing a failover") as status,
        telemetry.span("drill", flow=str(context.forward.config.flow)) as opened,
    ):
        result = run_drill(
            context, topics or (), groups or (), lambda step: status.update(f"drill: {step}")
        )
        opened.result(result)
    emit(result, as_json, lambda console: console.print(drill_view(result)))
    if not result.ok:
        first = next(iter(result.all_problems), "see the table")
        raise ConflictError(
            f"drill {result.drill_id}: {result.proven} of {len(result.groups)} groups proven; "
            f"{first}"
        )
