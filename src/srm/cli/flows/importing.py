"""``srm import`` and ``srm export``: take over from MirrorMaker 2 or SRM, and go back."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli import completing
from srm.cli.console import (
    ConfigOption,
    DryRunOption,
    FlowOption,
    FlowsOption,
    JsonOption,
    YesOption,
    emit,
    open_console,
    require_terminal,
)
from srm.cli.flows.config import read_documents
from srm.cli.flows.control import read_list
from srm.cli.flows.for_flows import cut
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.config.model import Config
from srm.config.new_file import render, sections_of
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.domain.recovery.adoption import AdoptedCopy, AdoptionPlan
from srm.domain.text.amount import amount, some
from srm.engine.control import control_lists
from srm.engine.control.control_lists import ListChange, ListName
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.flows.supervision import operator
from srm.errors import ConflictError, UsageError
from srm.pages.tables import Listing
from srm.replication import adoption
from srm.replication.adoption import Adopted, AdoptionContext, HandedBack
from srm.wiring import open_adoption, open_flow, open_return

_DOCUMENTS = {".json", ".yaml", ".yml"}

TopicsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        help="Source topic, several times; all that the flow copies by default.",
        autocompletion=completing.topics,
    ),
]
OffsetsTopicOption = Annotated[
    str,
    typer.Option(
        "--offsets-topic",
        metavar="NAME",
        help="Offsets topic of the Connect workers; mm2-offsets.SOURCE.internal by default.",
    ),
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-differences",
        help="Adopt copies with skipped or foreign records, too: the plan names them.",
    ),
]


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
        """Describe one partition."""
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


def mm2(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    topic: TopicsOption = None,
    offsets_topic: OffsetsTopicOption = "",
    accept_differences: AcceptOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue after the records that MirrorMaker 2, or another tool, has copied.

    Both logs of each remote topic are walked: that proves where the copy ended, and maps what was
    copied before. Then nothing is copied again or skipped. The file may also be of Kafka Connect
    or Strimzi, as for srm config import. Stop MirrorMaker 2 before.

    Exit code 5 where a topic cannot be adopted; the others are.
    """
    asked = _Asked(tuple(topic or ()), offsets_topic, accept_differences, dry_run, yes, as_json)
    with _load(config) as resolved:
        _import(resolved, flow, asked)


def srm(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    lists: Annotated[
        list[str] | None,
        typer.Option(
            "--list",
            metavar="NAME=FILE",
            help="Output of srm-control NAME --list: topics, groups or "
            "reverse-checkpointed-topics; several times.",
        ),
    ] = None,
    topic: TopicsOption = None,
    offsets_topic: OffsetsTopicOption = "",
    accept_differences: AcceptOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Take over the lists of SRM's srm-control, then do what srm import mm2 does.

    SRM copies with MirrorMaker 2's connectors, so its positions are found in the same way.

    Exit code 5 where a topic cannot be adopted; the others are.
    """
    changes = dict(_list_change(each) for each in lists or ())
    asked = _Asked(tuple(topic or ()), offsets_topic, accept_differences, dry_run, yes, as_json)
    with _load(config) as resolved:
        if not dry_run:
            if not yes:
                require_terminal(as_json=as_json)
            _take_lists(resolved, flow, changes)
        _import(resolved, [flow], asked)


def export_mm2(
    *,
    config: ConfigOption = None,
    flow: FlowOption,
    topic: TopicsOption = None,
    offsets_topic: OffsetsTopicOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let MirrorMaker 2 continue where srm has stopped: write the offsets of its connector.

    The position of each copy is proven by a walk of both logs. Stop the replicator before.
    """
    if not (dry_run or yes):
        require_terminal(as_json=as_json)
    with (
        _load(config) as resolved,
        open_return(resolved, flow) as (context, logs),
        _status(as_json=as_json) as tell,
    ):
        found = adoption.plan_handing_back(
            context, logs, topic or (), lambda done: tell(f"{amount(done, 'partition')} walked")
        )
        if not dry_run:
            if not yes:
                _show_back(open_console(), found)
                typer.confirm("Write these offsets?", abort=True)
            adoption.hand_back(context, found, offsets_topic)
    emit(found, as_json, lambda console: _show_back(console, found))


def _show_back(console: Console, found: HandedBack) -> None:
    table = Listing(
        "partition", "MirrorMaker 2 continues at", right=("MirrorMaker 2 continues at",)
    )
    for one in cut(found.positions, console):
        table.add_row(f"{one.topic}-{one.partition}", f"{one.source_next:,}")
    console.print(table)


@contextmanager
def _load(file: Path | None) -> Iterator[Config]:
    """Load a properties file, or make one of what MirrorMaker 2 has on Connect or Strimzi."""
    if file is None or file.suffix not in _DOCUMENTS:
        yield load_config(file)
        return
    text = render(sections_of(read_documents(file), str(file)), str(file))
    with tempfile.TemporaryDirectory(prefix="srm-import-") as folder:
        made = Path(folder) / f"{file.stem}.properties"
        made.write_text(text, "utf-8")
        yield load_config(made)


@contextmanager
def _status(*, as_json: bool) -> Iterator[Callable[[str], None]]:
    with Console(stderr=True, quiet=as_json).status("reading both logs") as status:
        yield status.update


@dataclass(frozen=True, slots=True)
class _Asked:
    """Options of both commands."""

    topics: tuple[str, ...]
    offsets_topic: str
    accepted: bool
    dry_run: bool
    yes: bool
    as_json: bool


def _import(config: Config, flows: list[Flow] | None, asked: _Asked) -> None:
    wanted = tuple(flows or config.flows)
    if not wanted:
        raise UsageError(f"no flow is enabled in {config.path}: give --flow")
    if not (asked.dry_run or asked.yes):
        require_terminal(as_json=asked.as_json)
    outcomes, refused = list[ImportOutcome](), list[AdoptedCopy]()
    for flow in wanted:
        with open_adoption(config, flow, operator()) as context:
            if not context.flow.config.topics:
                raise UsageError(f"{flow} selects no topics; set {flow}.topics = .* for all")
            found, outcome = _import_flow(context, asked)
        outcomes.append(outcome)
        refused += found.refusals(accepted=asked.accepted)
    if asked.as_json:
        emit(outcomes, as_json=True, render=lambda _: None)
    if refused and not asked.dry_run:
        places = some([f"{o.assigned.topic}-{o.assigned.partition}" for o in refused])
        raise ConflictError(
            f"not adopted: {places}: {refused[0].reason}",
            "srm import mm2 --accept-differences adopts what only differs; srm topics append "
            "copies after what is there",
        )


def _import_flow(context: AdoptionContext, asked: _Asked) -> tuple[AdoptionPlan, ImportOutcome]:
    """Plan, show, and carry out unless it is a dry run."""
    with _status(as_json=asked.as_json) as tell:
        found = adoption.plan(context, asked.topics, asked.offsets_topic, tell)
    rows, console = tuple(map(ImportRow.of, found.copies)), open_console()
    if not asked.as_json:
        _show_plan(console, found, rows)
    done = None
    if not asked.dry_run:
        if found.to_adopt(accepted=asked.accepted) and not asked.yes:
            typer.confirm("Adopt?", abort=True)
        with _status(as_json=asked.as_json) as tell:
            done = adoption.adopt(context, found, accepted=asked.accepted, tell=tell)
        if not asked.as_json:
            _show_done(console, found.flow, done)
    return found, ImportOutcome(found.flow, rows, found.running, done)


def _show_plan(console: Console, found: AdoptionPlan, rows: tuple[ImportRow, ...]) -> None:
    console.print(f"[bold]{found.flow}[/bold]", highlight=False)
    if found.running:
        console.print(escape(f"MirrorMaker 2 still runs: {found.running}"), soft_wrap=True)
    numbers = "copied", "again", "continues at", "left", "MM2's last"
    table = Listing("remote topic", "state", *numbers, "details", right=numbers)
    for row in cut(rows, console):
        cells = row.copied, row.repeated, row.source_next, row.left, row.stored
        shown = ("-" if each is None else f"{each:,}" for each in cells)
        table.add_row(f"{row.remote}-{row.partition}", row.state, *shown, escape(row.reason))
    console.print(table)


def _show_done(console: Console, flow: Flow, done: Adopted) -> None:
    if not done.topics:
        console.print("nothing to adopt")
        return
    console.print(
        escape(
            f"adopted: {', '.join(done.topics)} ({amount(done.records, 'record')} mapped); "
            f"next: srm replicate --flow '{flow}'"
        ),
        soft_wrap=True,
    )


def _list_change(text: str) -> tuple[ListName, ListChange]:
    name, found, file = text.partition("=")
    names: Mapping[str, ListName] = {
        "topics": "topics",
        "groups": "groups",
        "reverse-checkpointed-topics": "reverse-checkpointed-topics",
    }
    if not found or name not in names:
        raise UsageError(f"--list {text}: write it as NAME=FILE; names are {', '.join(names)}")
    try:
        lists = read_list(Path(file).read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    return names[name], ListChange(add=lists.allow, add_deny=lists.deny)


def _take_lists(config: Config, flow: Flow, changes: Mapping[ListName, ListChange]) -> None:
    if not changes:
        return
    with open_flow(config, flow) as context:
        topic, factor = internal_topics.control(flow.source), context.config
        ensure_compacted(
            context.target, topic, replication_factor=factor.internal_replication_factor
        )
        for name, change in changes.items():
            control_lists.change(context.target, flow, name, change, now_ms())
