"""``srm failover status``: list the moves, or show one that runs or waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from srm.cli import completing
from srm.cli.console import ConfigOption, JsonOption
from srm.cli.moves.failover import MoveView, SourceOption, TargetOption, open_for, open_pair
from srm.cli.watching import Looked, WatchOption, show
from srm.domain.moves.gate import SyncStatus
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import MoveProgress, MoveStep
from srm.domain.text.amount import some
from srm.engine import moves
from srm.engine.moves import MoveStore
from srm.pages.tables import Listing

# A move in these steps waits for nothing, so its gate says nothing to anybody.
_SENT = "clients have been sent to {target}; 'srm failover report {move}' shows how it went"
_NOT_WAITING: Final[Mapping[MoveStep, str]] = {
    "planned": "no client is held; the same 'srm failover run' with --move-id {move} executes it",
    "released": "clients were left on {source}; the same 'srm failover run' with --move-id {move} "
    "tries again",
    "reported": _SENT,
}


def status(
    move_id: Annotated[
        str | None, typer.Argument(metavar="MOVE_ID", autocompletion=completing.moves)
    ] = None,
    *,
    config: ConfigOption = None,
    source: SourceOption = None,
    target: TargetOption = None,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all moves, or look how far one is and what it waits for."""

    def look() -> Looked:
        if move_id is None:
            return _all_moves(config, source, target)
        return _one_move(move_id, config, source, target)

    show(look, watch, as_json=as_json)


def _all_moves(config: Path | None, source: str | None, target: str | None) -> Looked:
    with open_pair(config, source, target, only_look=True) as context:
        found = MoveStore(context).moves()
    steps: dict[str, MoveStep] = {planned.move_id: at.step for planned, at in found}
    return Looked(steps, lambda console: _render_moves(console, found))


def _one_move(move_id: str, config: Path | None, source: str | None, target: str | None) -> Looked:
    with open_for(move_id, config, source, target) as context:
        store = MoveStore(context)
        planned, progress = store.load(move_id)
        seen = moves.status(context, move_id)
    line = at_rest(planned, progress)
    if line is not None:
        return Looked(seen, lambda console: console.print(line, soft_wrap=True))
    view = MoveView(planned, moves.RunEvent("wait", sync=seen))
    return Looked(seen, lambda console: _render_status(console, view, seen))


def at_rest(planned: MovePlan, progress: MoveProgress) -> str | None:
    """Say what became of a move that waits for nothing, None while it does."""
    step, held_s = progress.step, progress.held_seconds
    said = _NOT_WAITING.get(step)
    if said is None:
        return None
    request = planned.request
    said = said.format(source=request.source, target=request.target, move=planned.move_id)
    held = "" if held_s is None else f" after {held_s:,.1f} s of hold"
    why = f": {progress.reason}" if progress.reason else ""
    return f"{planned.move_id}: {step}{held}{why}; {said}"


def _render_moves(console: Console, found: Sequence[tuple[MovePlan, MoveProgress]]) -> None:
    if not found:
        console.print("No move was planned yet: srm failover plan")
        return
    table = Listing("move", "source", "target", "groups", "step")
    for planned, progress in found:
        request = planned.request
        groups = some(planned.group_names)
        table.add_row(planned.move_id, request.source, request.target, groups, progress.step)
    console.print(table)


def _render_status(console: Console, view: MoveView, seen: SyncStatus) -> None:
    console.print(view)
    for note in seen.notes:
        console.print(note)
