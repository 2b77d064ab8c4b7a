"""``srm restore``: a cluster that was rebuilt and is empty gets its topics back."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import (
    ConfigOption,
    DryRunOption,
    JsonOption,
    YesOption,
    emit,
    open_console,
    require_terminal,
)
from srm.cli.flows.replicate import MasterOption, replication_view
from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm.domain.recovery.restore import RestorePlan, TopicState
from srm.domain.text.amount import amount
from srm.engine.flows.supervision import operator
from srm.pages.tables import Listing
from srm.replication.restore.steps import Restored, check, plan
from srm.replication.restore.steps import restore as carry_out

if TYPE_CHECKING:
    from srm.spark.replicator import Replicator

FromOption = Annotated[
    str, typer.Option("--from", metavar="ALIAS", help="Cluster that holds the copies, B.")
]
ToOption = Annotated[
    str, typer.Option("--to", metavar="ALIAS", help="Cluster that was rebuilt and is empty, P.")
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        help="Original topic, several times; all that have a copy by default.",
        autocompletion=completing.topics,
    ),
]

_STATES: dict[TopicState, str] = {
    "missing": "is created and copied",
    "empty": "is there, and copied",
    "begun": "in progress, will resume",
    "restored": "restored already",
    "refused": "cannot be restored",
}


@dataclass(frozen=True, slots=True)
class RestoreOutcome:
    """Plan and result of a restore; ``done`` is None after a dry run."""

    plan: RestorePlan
    done: Restored | None


def restore(
    *,
    holds_copies: FromOption,
    rebuilt: ToOption,
    config: ConfigOption = None,
    topic: TopicOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy remote topics back to their original cluster, which was rebuilt and is empty.

    The flow to the cluster with the copies must be paused, as an unplanned failover leaves it. It
    resumes when all of its topics are restored, and copies nothing twice. Groups fail back by a
    planned move. An interrupted restore continues with the next run.
    """
    # Importing Spark takes longer than most other commands run.
    from srm.spark.replicator import open_restore, run_program

    def run(replicator: Replicator) -> None:
        shown = replication_view(replicator.progress, as_json=False)
        with nullcontext() if as_json else shown:
            run_program(replicator, until_caught_up=True)

    forward = Flow.parse(f"{rebuilt}->{holds_copies}")
    wanted = tuple(dict.fromkeys(topic or ()))
    if not (dry_run or yes):
        require_terminal(as_json=as_json)
    with open_restore(load_config(config), forward, operator(), run, master) as context:
        planned = plan(context, wanted)
        if dry_run:
            emit(RestoreOutcome(planned, None), as_json, lambda out: _show_plan(out, planned))
            return
        console = open_console()
        if not as_json:
            _show_plan(console, planned)
        check(planned)
        if not (yes or planned.is_over):
            typer.confirm("Restore?", abort=True)
        done = carry_out(context, wanted, (lambda _: None) if as_json else partial(_say, console))
    outcome = RestoreOutcome(planned, done)
    emit(outcome, as_json, lambda out: _show_done(out, planned, done))


def _say(console: Console, line: str) -> None:
    console.print(escape(line), soft_wrap=True)


def _show_plan(console: Console, planned: RestorePlan) -> None:
    flow, pause = planned.forward, planned.pause
    former = ", ".join(planned.former_clusters) or "unknown"
    console.print(
        f"[bold]{flow.source}[/bold] (cluster {planned.target_cluster}, before: {former}) from the "
        f"copies on [bold]{flow.target}[/bold] (cluster {planned.source_cluster})",
        soft_wrap=True,
    )
    state = "not paused" if pause is None else f"paused by {pause.by}: {pause.reason}"
    _say(console, f"{flow} is {state}")
    columns = "topic", "from", "partitions", "offsets to copy", "what"
    table = Listing(*columns, right=columns[2:4])
    for each in planned.topics:
        what = _STATES[each.state] + (f": {each.reason}" if each.reason else "")
        cells = each.topic, each.copy, str(each.partitions), f"{each.offsets:,}", what
        table.add_row(*(escape(cell) for cell in cells))
    console.print(table)
    if planned.unrestored:
        left = ", ".join(planned.unrestored)
        _say(console, f"{flow} stays paused: {left} would still be to be restored")


def _show_done(console: Console, planned: RestorePlan, done: Restored) -> None:
    flow = planned.forward
    _say(
        console,
        f"restored: {', '.join(done.topics) or 'nothing'} ({amount(done.records, 'record')} "
        f"handed over now, {amount(done.checkpoints, 'checkpoint')} rewritten)",
    )
    if done.goes_on:
        back = f"--operation failback --source {flow.target} --target {flow.source}"
        _say(console, f"{flow} resumes. Next: srm status, then srm failover plan {back}")
    else:
        left = ", ".join(done.unrestored)
        wanted = "is restored, too, or decided with srm return"
        _say(console, f"{flow} stays paused until {left} {wanted}")
