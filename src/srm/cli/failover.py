"""``srm failover``: move consumer groups and producers to the other cluster, and back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from srm.cli.failover_view import MoveView
from srm.cli.output import ConfigOption, JsonOption, emit
from srm.config.loader import load_config
from srm.domain.move.gate import SyncStatus
from srm.domain.move.plan import MovePlan
from srm.domain.move.progress import MoveProgress, MoveStep
from srm.domain.move.request import MoveRequest
from srm.engine import move
from srm.engine.move import MoveContext, MoveStore
from srm.errors import ConflictError, UsageError
from srm.pages.html import move_page
from srm.pages.moves import plan_view, report_view
from srm.wiring import open_move

app = typer.Typer(
    help="Move consumer groups and producers to the other cluster, and back.",
    no_args_is_help=True,
)

OperationOption = Annotated[
    str, typer.Option("--operation", "-o", help="failover or failback: the same, going each way.")
]
SourceOption = Annotated[
    str | None,
    typer.Option(help="Cluster the clients leave; the first of two configured ones by default."),
]
TargetOption = Annotated[
    str | None, typer.Option(help="Cluster the clients go to; the other one by default.")
]
TopicOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic", "-t", help="Original topic, several times; all replicated ones by default."
    ),
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group", "-g", help="Consumer group, several times; all selected ones by default."
    ),
]
TimeoutOption = Annotated[
    float, typer.Option(metavar="SECONDS", help="Give up and release the hold after this time.")
]
ResidueOption = Annotated[
    float,
    typer.Option(
        "--residue-seconds",
        metavar="SECONDS",
        help="How long after go the report looks for records written to the source.",
    ),
]
MoveArgument = Annotated[str, typer.Argument(metavar="MOVE_ID")]
MoveIdOption = Annotated[
    str | None,
    typer.Option("--move-id", help="Id of the move; made up by default. Again: go on with it."),
]
AcceptSkipsOption = Annotated[
    bool, typer.Option("--accept-skips", help="Move although the target lacks unread records.")
]
AcceptOpenOption = Annotated[
    bool,
    typer.Option(
        "--accept-open-transactions",
        help="Move without the records that open transactions on the source hold back.",
    ),
]
AcceptStrayOption = Annotated[
    bool,
    typer.Option(
        "--accept-stray-offsets",
        help="Move groups without their offsets on topics that are not replicated.",
    ),
]
SlowWriterOption = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="How long a topic stands still before go, where producers follow no route.",
    ),
]
OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace later commits of consumers on the target."),
]


@app.command()
def plan(
    *,
    operation: OperationOption = "failover",
    source: SourceOption = None,
    target: TargetOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    timeout: TimeoutOption = 600.0,
    residue_seconds: ResidueOption = 300.0,
    accept_skips: AcceptSkipsOption = False,
    accept_open_transactions: AcceptOpenOption = False,
    accept_stray_offsets: AcceptStrayOption = False,
    slow_writer_seconds: SlowWriterOption = 5.0,
    overwrite: OverwriteOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a move would do; nothing is written anywhere."""
    with _opened(config, source, target) as context:
        request = _request(
            context,
            operation,
            topic,
            group,
            timeout,
            residue_seconds=residue_seconds,
            accept_skips=accept_skips,
            accept_open_transactions=accept_open_transactions,
            accept_stray_offsets=accept_stray_offsets,
            slow_writer_seconds=slow_writer_seconds,
            overwrite=overwrite,
        )
        planned = move.plan(context, request, dry_run=True)
    emit(planned, as_json, lambda console: console.print(plan_view(planned)))


@app.command()
def run(
    *,
    operation: OperationOption = "failover",
    source: SourceOption = None,
    target: TargetOption = None,
    topic: TopicOption = None,
    group: GroupOption = None,
    timeout: TimeoutOption = 600.0,
    residue_seconds: ResidueOption = 300.0,
    accept_skips: AcceptSkipsOption = False,
    accept_open_transactions: AcceptOpenOption = False,
    accept_stray_offsets: AcceptStrayOption = False,
    slow_writer_seconds: SlowWriterOption = 5.0,
    overwrite: OverwriteOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    move_id: MoveIdOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Carry out a move. Ctrl-C releases the hold, as long as clients were not sent away.

    It takes effect when the step that runs is done; a second Ctrl-C interrupts at once.

    Exit code 0 only where nothing was lost, skipped or read again and all groups resumed. Records
    written to the source later are found by srm failover report.
    """
    with _opened(config, source, target) as context:
        request = _request(
            context,
            operation,
            topic,
            group,
            timeout,
            residue_seconds=residue_seconds,
            accept_skips=accept_skips,
            accept_open_transactions=accept_open_transactions,
            accept_stray_offsets=accept_stray_offsets,
            slow_writer_seconds=slow_writer_seconds,
            overwrite=overwrite,
        )
        planned = move.plan(context, request, move_id, dry_run=dry_run)
        if dry_run:
            emit(planned, as_json, lambda console: console.print(plan_view(planned)))
            return
        progress = Console(stderr=True)
        progress.print(plan_view(planned))
        view = MoveView(planned)
        with (
            _interrupts_between_steps() as interrupted,
            Live(view, console=progress, refresh_per_second=8) as live,
        ):

            def show(event: move.RunEvent) -> None:
                view.event = event
                live.refresh()
                if interrupted.is_set():
                    raise KeyboardInterrupt

            result = move.carry_out(context, planned.move_id, show)
    emit(result, as_json, lambda console: console.print(report_view(result)))
    if not result.ok:
        raise ConflictError(f"move {result.move_id} is not clean: {'; '.join(result.problems)}")


@app.command()
def release(
    move_id: MoveArgument,
    *,
    config: ConfigOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    as_json: JsonOption = False,
) -> None:
    """End the hold of a move that was interrupted: clients go on where they were."""
    with _opened_for(move_id, config, source, target) as context:
        progress = move.release(context, move_id)
    emit(progress, as_json, lambda console: console.print(f"{move_id}: {progress.step}"))


@app.command()
def report(
    move_id: MoveArgument,
    *,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the page.")
    ] = None,
    config: ConfigOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the report of a move; while its source is watched, look there again first."""
    with _opened_for(move_id, config, source, target) as context:
        store = MoveStore(context)
        if store.progress(move_id).step == "reported":
            result = move.watch_residue(context, move_id).report
        else:
            result = move.report(context, move_id)
        if html is not None:
            page = move_page(store.plan(move_id), store.progress(move_id), result)
            html.write_text(page, encoding="utf-8")
    emit(result, as_json, lambda console: console.print(report_view(result)))


@app.command()
def status(
    move_id: Annotated[str | None, typer.Argument(metavar="MOVE_ID")] = None,
    *,
    config: ConfigOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all moves, or look how far one is and what it waits for."""
    if move_id is None:
        with _opened(config, source, target) as context:
            store = MoveStore(context)
            found = [(store.plan(known), store.progress(known)) for known in store.move_ids()]
        steps: dict[str, MoveStep] = {planned.move_id: at.step for planned, at in found}
        emit(steps, as_json, lambda console: _render_moves(console, found))
        return
    with _opened_for(move_id, config, source, target) as context:
        planned = MoveStore(context).plan(move_id)
        seen = move.status(context, move_id)
    view = MoveView(planned, move.RunEvent("wait", sync=seen))
    emit(seen, as_json, lambda console: _render_status(console, view, seen))


@contextmanager
def _interrupts_between_steps() -> Iterator[threading.Event]:
    """Let the first Ctrl-C only set the event, so that a step is never cut in the middle.

    confluent-kafka loses a KeyboardInterrupt that arrives during a delivery callback: flush then
    raises a SystemError instead. The second Ctrl-C interrupts at once, wherever that is.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # signals only ever reach the main thread
        return

    def first(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, first)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _request(
    context: MoveContext,
    operation: str,
    topics: list[str] | None,
    groups: list[str] | None,
    timeout: float,
    **choices: Any,
) -> MoveRequest:
    flow = context.forward.config.flow
    return MoveRequest.parse(
        {
            "operation": operation,
            "source": flow.source,
            "target": flow.target,
            "topics": topics or (),
            "groups": groups or (),
            "wait_seconds": timeout,
            **choices,
        }
    )


@contextmanager
def _opened(config: Path | None, source: str | None, target: str | None) -> Iterator[MoveContext]:
    resolved = load_config(config)
    if len(resolved.clusters) != 2 and not (source and target):
        raise UsageError(
            f"name --source and --target: {resolved.path} has the clusters "
            f"{', '.join(resolved.clusters)}"
        )
    first, second = resolved.clusters[0], resolved.clusters[-1]
    left = source or (first if target != first else second)
    with open_move(resolved, left, target or (second if left == first else first)) as context:
        yield context


@contextmanager
def _opened_for(
    move_id: str, config: Path | None, source: str | None, target: str | None
) -> Iterator[MoveContext]:
    """Open the clusters of a move in the direction it goes."""
    with _opened(config, source, target) as context:
        request = MoveStore(context).plan(move_id).request
        if request.flow == context.forward.config.flow:
            yield context
        else:
            yield MoveContext(context.reverse, context.forward)


def _render_moves(console: Console, found: list[tuple[MovePlan, MoveProgress]]) -> None:
    if not found:
        console.print("No move was planned yet: srm failover plan")
        return
    table = Table("move", "from", "to", "groups", "step", box=None, header_style="bold")
    for planned, progress in found:
        request = planned.request
        groups = ", ".join(planned.group_names)
        table.add_row(planned.move_id, request.source, request.target, groups, progress.step)
    console.print(table)


def _render_status(console: Console, view: MoveView, seen: SyncStatus) -> None:
    console.print(view)
    for note in seen.notes:
        console.print(note)
