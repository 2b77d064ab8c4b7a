"""``srm failover``: move consumer groups and producers to the other cluster, and back."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from inspect import Parameter, Signature, signature
from types import FrameType
from typing import Annotated, Any, Final, Literal, ParamSpec

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from srm import telemetry
from srm.cli import completing
from srm.cli.console import (
    Common,
    Looked,
    WatchOption,
    open_console,
    show,
    tidying_up,
    topic_option,
)
from srm.cli.flows.for_flows import print_table, say
from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.moves.line import MoveLine
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import HELD, RUN_STEPS, MoveProgress, MoveStep
from srm.domain.moves.report import Approval
from srm.domain.moves.request import FORM, SETTINGS, MoveRequest, MoveSetting, ends, read
from srm.domain.text.amount import Finding, amount, few, moment, reasons_text
from srm.domain.text.documents import adapter
from srm.engine.flows.supervision import operator, pause_in_force
from srm.engine.moves import effects, holding, planning, verification
from srm.engine.moves.attempt import InForce
from srm.engine.moves.context import MoveContext
from srm.engine.moves.steps import RunEvent, carry_out
from srm.engine.moves.steps import status as look_at
from srm.engine.moves.store import MoveStore
from srm.errors import ConflictError, StoppedError, UnavailableError, UsageError
from srm.pages.moves import plan_view, progress_line, progress_view, reasons_of, report_view
from srm.threads import start_thread
from srm.wiring import open_cluster, open_move, open_records

_P = ParamSpec("_P")
_TYPES: Final = {"switch": bool, "seconds": float, "names": list[str] | None}
_COMPLETIONS: Final = {
    "source": completing.clusters,
    "target": completing.clusters,
    "topics": completing.topics,
    "groups": completing.groups,
    "exclude_groups": completing.groups,
}


def option(name: str) -> Any:
    setting = FORM[name]
    metavars = {"seconds": "SECONDS", "list": "LIST"}
    several = " May be repeated." if setting.kind == "names" else ""
    return typer.Option(
        *(name for name in (setting.option, setting.letter) if name),
        metavar=metavars.get(setting.kind),
        help=f"{description(setting)}{several}",
        autocompletion=_COMPLETIONS.get(name),
    )


def description(setting: MoveSetting) -> str:
    meanings = "; ".join(text for value, text in setting.meanings.items() if value)
    return f"{setting.text} {meanings}." if meanings else setting.text


def with_settings(command: Callable[_P, None]) -> Callable[_P, None]:
    """Give a command each setting of a move as an option; its ``**settings`` take them."""
    *own, _ = signature(command, eval_str=True).parameters.values()
    declared = Signature([*map(_parameter, SETTINGS), *own])
    setattr(command, "__signature__", declared)  # noqa: B010 -- unknown to mypy
    return command


def _parameter(setting: MoveSetting) -> Parameter:
    is_unset = setting.kind == "list" or setting.default in ("", ())
    default = None if is_unset else setting.default
    of: Any = _TYPES.get(setting.kind, str)
    if setting.kind == "choice":
        of = Literal[tuple(value for value in setting.choices if value)] | None
    annotation: Any = Annotated[of, option(setting.name)]
    return Parameter(setting.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


@dataclass(frozen=True, kw_only=True)
class TwoClusters(Common):
    """Options of a command about moves between two clusters."""

    source: Annotated[str | None, option("source")] = None
    target: Annotated[str | None, option("target")] = None

    @contextmanager
    def open(self, *, unplanned: bool = False, only_look: bool = False) -> Iterator[MoveContext]:
        """Open the two named clusters, or the only two there are.

        ``unplanned``: the source is abandoned, and never connected to.
        ``only_look``: open only the records of moves; an unreachable cluster costs seconds.
        """
        ordered = ends(self.settings.clusters, "failover", self.source, self.target)
        with (
            open_records(self.settings, *ordered)
            if only_look
            else open_move(self.settings, *ordered, unplanned=unplanned)
        ) as context:
            yield context

    @contextmanager
    def open_for(self, move_id: str) -> Iterator[MoveContext]:
        """Open the clusters of a move in its direction; an abandoned one is not contacted."""
        with self.open(only_look=True) as context:
            request = MoveStore.read(context).view(move_id)[0].request
        pair = replace(self, source=request.source, target=request.target)
        with pair.open(unplanned=request.is_unplanned) as context:
            yield context


MoveArgument = Annotated[str, typer.Argument(metavar="MOVE_ID", autocompletion=completing.moves)]
AnyMoveArgument = Annotated[
    str | None, typer.Argument(metavar="MOVE_ID", autocompletion=completing.moves)
]
_ROWS: Final = 100
"""Rows of a table that are shown before a move begins; 'srm failover plan' shows all."""


@with_settings
def plan(*, common: Common, **settings: Any) -> None:
    with _open_move(common.settings, settings) as (context, request):
        planned = planning.plan(context, request, dry_run=True)
    _show_plan(common, replace(planned, move_id=""))


@with_settings
def run(
    *,
    common: Common,
    dry_run: Annotated[bool, option("dry_run")] = False,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="Approve warnings, or an unplanned move's forecast."),
    ] = False,
    move_id: Annotated[
        str | None,
        typer.Option(
            help="Id of the move. An existing one is continued, as planned if no setting is named. "
            "Default: a new one."
        ),
    ] = None,
    **settings: Any,
) -> None:
    if move_id is not None and not move_id.strip():
        raise UsageError("--move-id is empty: leave it out for a new move")
    with _open_move(common.settings, settings, move_id) as (context, request):
        named = move_id or ""
        move_id = move_id or planning.new_move_id(context, request)
        with _span("move", request, move_id) as opened:
            with _span("move.plan", request, move_id) as of_plan:
                planned = planning.plan(context, request, move_id, dry_run=dry_run)
                of_plan.note(groups=len(planned.groups), blocking=len(planned.blocking))
            if dry_run:
                _show_plan(common, replace(planned, move_id=named))
                return
            progress = open_console(stderr=True)
            progress.print(plan_view(planned, _ROWS))
            with _span("move.approve", request, move_id):
                _approve(context, planned, yes=yes)
            with _interrupts_between_steps() as interrupted, shown(planned, progress) as show_event:

                def show(event: RunEvent) -> None:
                    show_event(event)
                    if interrupted.is_set():
                        raise KeyboardInterrupt(move_id)

                try:
                    result = carry_out(
                        context,
                        planned.move_id,
                        show,
                        around=lambda step: _span(f"move.{step}", request, planned.move_id),
                    )
                except KeyboardInterrupt as first:
                    if not first.args:  # the second one
                        raise
                    raise StoppedError(
                        whereabouts(context, *MoveStore.read(context).view(move_id))
                    ) from None
            opened.result(result)
    made = adapter(type(result)).dump_python(result, mode="json")
    common.emit(made, lambda console: console.print(report_view(result)))
    if not result.ok:
        raise ConflictError(f"move {result.move_id} is not clean: {reasons_text(result.problems)}")


def release(move_id: MoveArgument, pair: TwoClusters) -> None:
    with pair.open_for(move_id) as context:
        progress = holding.release(context, move_id)
    pair.emit(progress, lambda console: console.print(f"{move_id}: {progress.step}"))


def _show_plan(common: Common, planned: MovePlan) -> None:
    common.emit(planned, lambda console: console.print(plan_view(planned)))
    _require_clear(planned)


def _require_clear(planned: MovePlan) -> None:
    name = f"move {planned.move_id}" if planned.move_id else "the move"
    if planned.blocking:
        raise ConflictError(f"{name} is blocked: {reasons_text(planned.blocking, 1)}")


def _span(name: str, request: MoveRequest, move_id: str) -> AbstractContextManager[telemetry.Notes]:
    return telemetry.span(
        name, move=move_id, flow=str(request.flow), operation=request.operation, mode=request.mode
    )


@contextmanager
def _interrupts_between_steps() -> Iterator[threading.Event]:
    """Let the first Ctrl-C only set the event, so that a step is never cut in the middle.

    confluent-kafka turns a KeyboardInterrupt in a callback into a SystemError of flush. The second
    Ctrl-C interrupts at once.
    """
    interrupted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield interrupted  # signals only ever reach the main thread
        return

    def first(_number: int, _frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    with tidying_up():
        before = signal.signal(signal.SIGINT, first)
        try:
            yield interrupted
        finally:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _open_move(
    config: Config, settings: Mapping[str, Any], move_id: str | None = None
) -> Iterator[tuple[MoveContext, MoveRequest]]:
    """Open the clusters of a move, as planned before if only its id, or its clusters, are named."""
    named = settings["source"], settings["target"]
    pair = ends(config.clusters, settings["operation"], *named)
    request = read(MoveRequest, {**settings, "source": pair[0], "target": pair[1]})
    if move_id is not None and request == MoveRequest("failover", *pair):
        with open_records(config, *pair) as records:
            known = MoveStore.read(records).plan(move_id)
        request = request if known is None else known.request
    pair = request.source, request.target
    with open_move(config, *pair, unplanned=request.is_unplanned) as context:
        yield context, request


def _approve(context: MoveContext, planned: MovePlan, *, yes: bool) -> None:
    """Record who runs an undecided move, unless it is blocked.

    Before a hold an operator approves an unplanned one, and one whose plan has warnings other than
    of what it waits for.
    """
    _require_clear(planned)
    progress = MoveStore.read(context).progress(planned.move_id)
    if progress.is_decided:
        return
    how = "--yes" if yes else "srm failover run"
    if not yes and progress.order_in_force != "hold":
        if planned.request.is_unplanned:
            how = f"typed {_typed_source(planned)}"
        elif warned := [one for one in planned.findings if one.id not in planning.NOT_PROMPTED]:
            how = _confirm(warned)
    by, now_ms = operator(context.host), context.now_ms()
    approval = Approval(by, how, now_ms, planned.summary(), planned.numbers())
    verification.approve(context, planned.move_id, approval)


def _typed_source(planned: MovePlan) -> str:
    source = planned.request.source
    if not sys.stdin.isatty():
        raise UsageError(f"an unplanned move abandons {source}: approve the forecast with --yes")
    typed = typer.prompt(
        f"Nothing was done yet. Type the name of the cluster to abandon ({source})",
        err=True,
    )
    if typed.strip() != source:
        raise UsageError(f"{typed.strip()!r} is not {source!r}: nothing was done")
    return source


def _confirm(warned: Sequence[Finding]) -> str:
    many, lines = amount(len(warned), "warning"), [one.line for one in warned]
    if not sys.stdin.isatty():
        raise UsageError(f"the plan has {many}, approve with --yes: {reasons_text(lines, 1)}")
    if not typer.confirm(f"Nothing was done yet. Move with {many}?", err=True):
        raise UsageError("not approved: nothing was done")
    return f"confirmed {many}"


def redirect(move_id: MoveArgument, pair: TwoClusters) -> None:
    with pair.open_for(move_id) as context:
        planned = MoveStore.read(context).load(move_id)[0]
        missing = effects.call_redirectors(context, planned)
        calls = MoveStore.read(context).progress(move_id).calls
    lines = [f"{key}: {call.state}, {call.said}" for key, call in sorted(calls.items())]
    pair.emit(dict(calls), lambda console: console.print(*lines, sep="\n", markup=False))
    if missing:
        raise UnavailableError(f"move {move_id}: {reasons_text(missing)}")


def unfence(
    cluster: Annotated[
        str,
        typer.Argument(
            metavar="CLUSTER", help="Alias of the cluster.", autocompletion=completing.clusters
        ),
    ],
    common: Common,
    *,
    topic: Annotated[
        list[str] | None,
        topic_option("Topic; may be repeated. Default: all that srm has fenced there."),
    ] = None,
) -> None:
    topics = frozenset(topic or ())
    with open_cluster(common.settings, cluster) as opened:
        lifted = effects.lift_fence(
            opened,
            now_ms(),
            lambda fence: not topics or fence.topic in topics,
            since_ms=0 if topics else None,
        )
    allowed = f"writes are allowed again to {', '.join(lifted)}" if lifted else "nothing is fenced"
    common.emit(lifted, lambda console: console.print(f"{cluster}: {allowed}"))


_FIGURES: Final = re.compile(r"(?<![\w.-])\d[\d,.]*(?![\w-])")
"""Numbers that are words of their own: those in names (``Payments-0``) say who is meant."""


_SILENCE_S: Final = 8.0
_TOO_LONG: Final = ", too long but for hundreds of groups: see srm doctor"


@contextmanager
def shown(plan: MovePlan, console: Console) -> Iterator[Callable[[RunEvent], None]]:
    """Yield the function that shows each event: a redrawn view, or lines without a terminal.

    A request to a cluster that has just died takes half a minute: that silence is shown, too.
    """
    flow, news, over = plan.request.flow, threading.Event(), threading.Event()
    why = ""
    print_line = _line_printer(plan, console)
    first = move_view(plan, RunEvent("hold"))
    live = Live(first, console=console, refresh_per_second=8) if console.is_terminal else None

    def show_event(event: RunEvent) -> None:
        nonlocal why
        why = event.trouble
        if why:
            return  # its silence is shown
        news.set()
        if live is None:
            print_line(event)
        else:
            live.update(move_view(plan, event), refresh=True)

    def watch() -> None:
        silent_s = 0.0
        while not over.is_set():
            silent_s = 0.0 if news.wait(_SILENCE_S) else silent_s + _SILENCE_S
            news.clear()
            if silent_s:
                what = f"no news from {flow.source} or {flow.target} for {silent_s:g} s"
                what += f": {why}" if why else _TOO_LONG
                console.print(Text(f"{plan.move_id}  {what}"), soft_wrap=True)

    with live or nullcontext():
        start_thread("srm-silence", watch)
        try:
            yield show_event
        finally:
            over.set()
            news.set()


def _line_printer(plan: MovePlan, console: Console) -> Callable[[RunEvent], None]:
    """Print a line of a move to a file when its step changes, or its wait, not a number."""
    last: list[str] = []

    def show(event: RunEvent) -> None:
        line, status = str(event.step), event.status
        reasons: tuple[tuple[str, ...], ...] = ()
        if status is not None:
            line = f"{line}: {progress_line(status)}"
            reasons = reasons_of(status), status.asks
        news = [_FIGURES.sub("", text) for text in (event.step, *map(reasons_text, reasons))]
        if news != last:
            last[:] = news
            console.print(Text(f"{plan.move_id}  {line}"), soft_wrap=True)

    return show


def move_view(plan: MovePlan, event: RunEvent) -> Group:
    """Return the view of a running move: its steps, its groups, and what it waits for."""
    line, steps = Text(f"{plan.move_id}  "), tuple(step.name for step in RUN_STEPS)
    now = steps.index(event.step)
    for index, step in enumerate(steps):
        style = "green" if index < now else "bold cyan" if index == now else "dim"
        line.append(f"{step}", style=style)
        line.append(" > " if step != steps[-1] else "", style="dim")
    return Group(line, *([progress_view(event.status)] if event.status else []))


_SENT: Final = "clients have been sent to {target}; "
_FINISH: Final = f"{_SENT}if no process carries it, '{{again}}' "
_HELD: Final = "after a kill '{again}' continues it, '{end}' ends it"
_UNFINISHED: Final = frozenset[MoveStep]({"gone", "verified"})
"""Steps after go that a process has to finish: a late time shows that none does."""
_NEXT: Final[Mapping[MoveStep, str]] = {
    **dict.fromkeys(HELD, _HELD),
    "planned": "no client is held; '{again}' executes it",
    "released": "clients remain on {source}; '{again}' tries again",
    "gone": f"{_FINISH}verifies and reports it; it waits until its groups work on {{target}}",
    "verified": f"{_FINISH}makes the report, which is missing",
    "reported": f"{_SENT}'{{report}}' shows how it went",
}


def status(
    move_id: AnyMoveArgument = None, *, pair: TwoClusters, watch: WatchOption = None
) -> None:
    look = partial(_all_moves, pair) if move_id is None else partial(_one_move, move_id, pair)
    show(look, watch, as_json=pair.as_json)


def _all_moves(pair: TwoClusters) -> Looked:
    with pair.open(only_look=True) as context:
        store, now_ms, plan = MoveStore.read(context), context.now_ms(), context.command("plan")
    found = store.lines()
    steps: dict[str, MoveStep] = {line.move_id: line.progress.step for line in found}
    carriers = {name: one for name in steps if (one := store.carrier(name, now_ms)) is not None}
    now = {
        name: "; ".join(
            (steps[name], *few(one.waits, 1), *(() if one.alive else [one.line(now_ms)]))
        )
        for name, one in carriers.items()
    }
    return Looked(steps, lambda console: render_moves(console, found, plan, store.missing, now))


def _one_move(move_id: str, pair: TwoClusters) -> Looked:
    with pair.open_for(move_id) as context:
        planned, progress = MoveStore.read(context).view(move_id)
        line, is_held = whereabouts(context, planned, progress), progress.step in HELD
        carrier = ""
        try:
            seen = look_at(context, move_id)
            if seen.carrier:
                carrier = seen.carrier.line(context.now_ms())
                line = "; ".join((line, *(() if is_held else seen.carrier.waits), carrier))
            if progress.is_decided:
                later = InForce.read(context, planned).moves
                line += f"; superseded by move {', '.join(later)}" if later else ""
            elif not is_held:
                line += pause_note(move_id, context)
        except UnavailableError as error:
            raise UnavailableError(f"{line}; {error}") from error
    if not is_held:
        left = progress.left_lines(planned.request, "was") if progress.is_decided else ()
        text = Text("\n".join((line, *few(left))))
        return Looked(seen, lambda console: console.print(text, soft_wrap=True))
    view = move_view(planned, RunEvent("wait", seen))
    held = _HELD.format(**_commands(context, move_id))
    notes = Text("\n".join((*few(seen.notes), carrier, held)))
    return Looked(seen, lambda console: console.print(view, notes, sep="\n", soft_wrap=True))


def pause_note(move_id: str, context: MoveContext) -> str:
    """Name the pause that an undecided move has left, and the command that ends it."""
    pause, flow = pause_in_force(context.forward), context.forward.config.flow
    end = _commands(context, move_id)["end"]
    ends = f"; {flow} is paused for it, '{end}' ends that"
    return ends if pause is not None and move_id in pause.moves else ""


def _commands(context: MoveContext, move_id: str) -> Mapping[str, str]:
    words = {"again": "run --move-id", "end": "release", "report": "report"}
    return {name: context.command(f"{each} {move_id}") for name, each in words.items()}


def whereabouts(context: MoveContext, planned: MovePlan, progress: MoveProgress) -> str:
    """Say where a move has led its clients, and what continues or ends it."""
    request, held_s = planned.request, progress.held_seconds
    said = _NEXT[progress.step].format(
        source=request.source, target=request.target, **_commands(context, planned.move_id)
    )
    held = "" if held_s is None else f" after {held_s:,.1f} s of hold"
    why = f": {progress.reason}" if progress.reason else ""
    at_ms = progress.times_ms.get(progress.step) if progress.step in _UNFINISHED else None
    since = "" if at_ms is None else f" since {moment(at_ms):%Y-%m-%d %H:%M:%S} UTC"
    return f"{planned.move_id}: {progress.step}{since}{held}{why}; {said}"


def render_moves(
    console: Console,
    found: Sequence[MoveLine],
    plan: str,
    missing: Sequence[UnavailableError] = (),
    now: Mapping[str, str] | None = None,
) -> None:
    """Show a row for each move; ``now``: step of those that have not ended, with their waits."""
    for error in missing:
        say(console, f"Moves that only this cluster knows are missing: {error}", "yellow")
    if not found:
        console.print(f"No move has been planned yet; plan one with: {plan}")
        return
    rows = (
        (
            *(line.move_id, line.request.source, line.request.target),
            *(line.groups, (now or {}).get(line.move_id, line.progress.step)),
        )
        for line in found
    )
    print_table(console, ("move", "source", "target", "groups", "step"), rows, whole=True)
