"""``srm import`` and ``srm export``: take over from MirrorMaker 2 or SRM, and go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, cast, get_args

import typer
from rich.console import Console

from srm.cli.console import (
    DOCUMENTS,
    Common,
    DryRunOption,
    FlowOption,
    FlowsOption,
    YesOption,
    open_console,
    require_terminal,
    topic_option,
)
from srm.cli.flows.config import read_documents
from srm.cli.flows.control import read_list
from srm.cli.flows.for_flows import print_table, progress, say
from srm.clock import now_ms
from srm.config.loader import build_config, load_config, understand
from srm.config.model import Config
from srm.config.new_file import render, sections_of
from srm.config.properties import parse_translated, resolve_references
from srm.domain.names.topics import Flow
from srm.domain.recovery.adoption import AdoptedCopy, AdoptionPlan
from srm.domain.text.amount import amount, some
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ControlLists, ListChange, ListName, ListPair
from srm.engine.flows.supervision import operator
from srm.errors import ConflictError, UsageError
from srm.files import read_text
from srm.replication import adoption
from srm.replication.adoption import Adopted, AdoptionContext, HandedBack
from srm.wiring import open_adoption, open_flow, open_return

_UNSEEN = "no position of MirrorMaker 2 is there: name its workers (group.id, offset.storage.topic)"


@dataclass(frozen=True, kw_only=True)
class TakeOver(Common):
    """Options of imports and exports; the file may be of Kafka Connect or Strimzi."""

    topic: Annotated[
        list[str] | None,
        topic_option("Source topic; may be repeated. Default: all that the flow copies."),
    ] = None
    dry_run: DryRunOption = False
    yes: YesOption = False

    def require_approval(self) -> None:
        if not (self.dry_run or self.yes):
            require_terminal(as_json=self.as_json)


@dataclass(frozen=True, kw_only=True)
class Import(TakeOver):
    """Options of both imports."""

    accept_differences: Annotated[
        bool,
        typer.Option(
            "--accept-differences",
            help="Also adopt copies with skipped or foreign records, which the plan lists.",
        ),
    ] = False


@dataclass(frozen=True, slots=True)
class ImportRow:
    """One partition of a plan; ``left`` are source offsets after it, ``stored`` is MM2's own."""

    topic: str
    partition: int
    remote: str
    state: str
    copied: int
    repeated: int
    skipped: int
    compacted: int
    runs: int
    source_next: int | None
    left: int | None
    stored: int | None
    reason: str

    @classmethod
    def of(cls, one: AdoptedCopy) -> ImportRow:
        assigned, found = one.assigned, one.aligned
        place = assigned.topic, assigned.partition, assigned.target_topic, one.state
        if found is None:
            return cls(*place, 0, 0, 0, 0, 0, None, None, one.stored, one.reason)
        counts = found.copied, found.repeated, found.skipped_records, found.compacted
        left = max(0, one.source_end - found.source_next)
        at = len(found.runs), found.source_next, left, one.stored
        return cls(*place, *counts, *at, one.reason)


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """Plan and result for a flow; ``running`` as in the plan; ``adopted`` is None if dry."""

    flow: Flow
    copies: tuple[ImportRow, ...]
    running: str
    adopted: Adopted | None


def mm2(options: Import, *, flow: FlowsOption = None) -> None:
    _import(_load(options.config), flow, options, ControlLists())


def srm(
    options: Import,
    *,
    flow: FlowOption,
    lists: Annotated[
        list[str] | None,
        typer.Option(
            "--list",
            metavar="NAME=FILE",
            help="Output of srm-control NAME --list: topics, groups or "
            "reverse-checkpointed-topics; may be repeated.",
        ),
    ] = None,
) -> None:
    taken = dict(_list_of(each) for each in lists or ())
    resolved = _load(options.config)
    if not options.dry_run:
        options.require_approval()
        _take_lists(resolved, flow, taken)
    by_field = {name.replace("-", "_"): pair for name, pair in taken.items()}
    _import(resolved, [flow], options, ControlLists(**by_field))


def export_mm2(options: TakeOver, *, flow: FlowOption) -> None:
    options.require_approval()
    with (
        open_return(_load(options.config), flow) as (context, logs),
        progress("reading both logs", quietly=options.as_json) as show,
    ):
        found = adoption.plan_handing_back(
            context,
            logs,
            options.topic or (),
            lambda done: show(f"{amount(done, 'partition')} walked"),
        )
        if not options.dry_run:
            if not options.yes:
                _show_back(open_console(), found)
                typer.confirm("Write these offsets?", abort=True)
            adoption.hand_back(context, found)
    options.emit(found, lambda console: _show_back(console, found))


def _show_back(console: Console, found: HandedBack) -> None:
    rows = ((f"{one.topic}-{one.partition}", one.source_next) for one in found.positions)
    end = "MirrorMaker 2 continues at"
    print_table(console, ("partition", end), rows, right=(end,))


def _load(file: Path | None) -> Config:
    """Load a properties file, or make one of what MirrorMaker 2 has on Connect or Strimzi."""
    if file is None or file.suffix not in DOCUMENTS:
        return load_config(file)
    text = render(sections_of(read_documents(file), str(file)), str(file))
    origin = f"{file} (srm config import)"
    return build_config(understand(resolve_references(parse_translated(text), origin), origin))


def _import(config: Config, flows: list[Flow] | None, options: Import, lists: ControlLists) -> None:
    wanted = tuple(flows or config.flows)
    if not wanted:
        raise UsageError(f"no flow is enabled in {config.path}: give --flow")
    options.require_approval()
    outcomes, refused = list[ImportOutcome](), list[AdoptedCopy]()
    for flow in wanted:
        with open_adoption(config, flow, operator()) as opened:
            settings = control_lists.effective(opened.flow.config, lists)
            context = replace(opened, flow=replace(opened.flow, config=settings))
            if not context.flow.config.topics:
                raise UsageError(f"{flow} selects no topics; set {flow}.topics = .* for all")
            found, outcome = _import_flow(context, options)
        outcomes.append(outcome)
        refused += found.refusals(accepted=options.accept_differences)
    options.emit(outcomes, lambda _: None)
    if refused and not options.dry_run:
        places = some([f"{o.assigned.topic}-{o.assigned.partition}" for o in refused])
        raise ConflictError(
            f"not adopted: {places}: {refused[0].reason}",
            "srm import mm2 --accept-differences adopts what only differs; srm topics append "
            "copies after what is there",
        )


def _import_flow(context: AdoptionContext, options: Import) -> tuple[AdoptionPlan, ImportOutcome]:
    with progress("reading both logs", quietly=options.as_json) as show:
        found = adoption.plan(context, options.topic or (), show)
    rows, console = tuple(map(ImportRow.of, found.copies)), open_console()
    if any(row.copied for row in rows) and all(row.stored is None for row in rows):
        typer.echo(_UNSEEN, err=True)
    if not options.as_json:
        _show_plan(console, found, rows)
    done = None
    if not options.dry_run:
        if found.to_adopt(accepted=options.accept_differences) and not options.yes:
            typer.confirm("Adopt?", abort=True)
        with progress("reading both logs", quietly=options.as_json) as show:
            done = adoption.adopt(context, found, accepted=options.accept_differences, show=show)
        if not options.as_json:
            _show_done(console, found.flow, done)
    return found, ImportOutcome(found.flow, rows, found.running, done)


def _show_plan(console: Console, found: AdoptionPlan, rows: tuple[ImportRow, ...]) -> None:
    console.print(f"[bold]{found.flow}[/bold]", highlight=False)
    if found.running:
        say(console, f"MirrorMaker 2 still runs: {found.running}")
    numbers = "copied", "again", "continues at", "left", "MM2's last"
    shown = (
        (
            *(f"{row.remote}-{row.partition}", row.state, row.copied, row.repeated),
            *(row.source_next, row.left, row.stored, row.reason),
        )
        for row in rows
    )
    print_table(console, ("remote topic", "state", *numbers, "details"), shown, right=numbers)


def _show_done(console: Console, flow: Flow, done: Adopted) -> None:
    if not done.topics:
        console.print("nothing to adopt")
        return
    say(
        console,
        f"adopted: {', '.join(done.topics)} ({amount(done.records, 'record')} mapped); "
        f"next: srm replicate --flow '{flow}'",
    )


def _list_of(text: str) -> tuple[ListName, ListPair]:
    name, found, file = text.partition("=")
    names = get_args(ListName)
    if not found or name not in names:
        raise UsageError(f"invalid --list {text}; use NAME=FILE; names are {', '.join(names)}")
    return cast("ListName", name), read_list(read_text(Path(file)))


def _take_lists(config: Config, flow: Flow, taken: Mapping[ListName, ListPair]) -> None:
    changes = {n: ListChange(add=pair.allow, add_deny=pair.deny) for n, pair in taken.items()}
    if not changes:
        return
    with open_flow(config, flow) as context:
        replicas = context.config.internal_replication_factor
        for name, change in changes.items():
            control_lists.change(context.target, flow, name, change, now_ms(), replicas)
