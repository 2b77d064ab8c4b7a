"""``srm return``: the source of a paused flow answers again; find out what it holds, and go on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, get_args

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli.console import ConfigOption, FlowOption, JsonOption, emit, open_console
from srm.cli.moves.source_return_view import render_found, render_settled
from srm.config.loader import load_config
from srm.domain.moves.records.outcome import Choice
from srm.domain.recovery.settlement import read_choices
from srm.engine.flows.operator import operator
from srm.engine.flows.supervision import standing_pause
from srm.engine.recovery.look import look_at_source
from srm.engine.recovery.settle import Settled, plan_return, settle_return
from srm.errors import GateClosedError, UsageError
from srm.wiring import open_return

app = typer.Typer(
    help="The source of a paused flow answers again: find out what it holds, and go on.",
    no_args_is_help=True,
)


def _choice_option(choice: str, means: str) -> object:
    return typer.Option(f"--{choice}", metavar="TOPIC", help=f"{means}; several times.")


MergeOption = Annotated[
    list[str] | None, _choice_option("merge", "Copy this topic's residue after all")
]
KeepOption = Annotated[
    list[str] | None,
    _choice_option("keep", "Leave it on the source, for groups that go back there"),
]
DiscardOption = Annotated[
    list[str] | None,
    _choice_option("discard", "Leave it on the source; groups that go back step over it"),
]
DefaultOption = Annotated[
    str | None,
    typer.Option(
        "--default",
        metavar="CHOICE",
        help="merge, keep or discard: for all other topics, but rebuilt or missing ones.",
    ),
]


@app.command()
def status(*, config: ConfigOption = None, flow: FlowOption, as_json: JsonOption = False) -> None:
    """Say which return it is, and what the source holds that the target does not.

    Nothing is written. Both logs are walked from the last known positions, and the residue is read
    once to count its records.
    """
    with open_return(load_config(config), flow) as (context, logs), showing() as show:
        found = look_at_source(context, logs, show)
    emit(found, as_json, lambda console: render_found(console, found))


@app.command()
def settle(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    merge: MergeOption = None,
    keep: KeepOption = None,
    discard: DiscardOption = None,
    default: DefaultOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be decided; write nothing.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for approval.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Decide what becomes of the residue, topic by topic, and let the flow go on.

    The pause ends in the same transaction as the decision is written in: killed before it, the
    flow stays paused; run again after it, there is nothing left to do.

    Exit code 5 where a topic is undecided, or something cannot be settled yet.
    """
    named = read_choices(merge or (), keep or (), discard or ())
    chosen = _default(default)
    by = operator()
    with open_return(load_config(config), flow) as (context, logs), showing() as show:
        if standing_pause(context) is None:
            emit(
                {"flow": str(flow), "applied": False, "reason": "not paused"},
                as_json,
                lambda console: console.print(f"{flow} is not paused: nothing is to be settled"),
            )
            return
        if dry_run:
            done = plan_return(context, logs, named, chosen, by, show)
        else:
            approve = _approval(ask=not yes, as_json=as_json, show=show)
            done = settle_return(context, logs, named, chosen, by, show, approve)
    emit(done, as_json, lambda console: render_settled(console, done))
    if dry_run and done.settlement.blocked:
        raise GateClosedError(f"not settled: {'; '.join(done.settlement.blocked)}")


def _default(text: str | None) -> Choice | None:
    if text is None:
        return None
    for choice in get_args(Choice):
        if text == choice:
            found: Choice = choice
            return found
    raise UsageError(f"--default {text}: say merge, keep or discard")


def _approval(
    *, ask: bool, as_json: bool, show: Callable[[str], None]
) -> Callable[[Settled], bool]:
    def approve(planned: Settled) -> bool:
        if not ask:
            return True
        if as_json or not sys.stdin.isatty():
            raise UsageError("nobody can be asked here: look with --dry-run, then say --yes")
        show("")
        render_settled(open_console(stderr=True), planned)
        return typer.confirm("Settle it so?", err=True)

    return approve


@contextmanager
def showing() -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done; an empty text ends that, so that people can read."""
    with Console(stderr=True).status("") as line:

        def show(text: str) -> None:
            if text:
                line.update(escape(text))
                line.start()
            else:
                line.stop()

        yield show
