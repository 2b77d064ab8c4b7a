"""``srm replicate``, ``srm replicator``, ``srm config reload``: run and stop the replicator."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from srm.cli.console import open_console, write_document, write_line
from srm.cli.flows.for_flows import LINE_EVERY_S, Flows, print_table
from srm.clock import now_ms
from srm.config.model import OF_APPLICATION, SettingsRecord, differences, key_of, plain_settings
from srm.domain.flow_state.liveness_thresholds import STARTUP_S
from srm.domain.flow_state.replication_records import DUTIES, SETTINGS_KEY, Action, parse_duties
from srm.domain.names.topics import Flow
from srm.domain.text.amount import few
from srm.domain.text.documents import encode
from srm.engine.flows import supervision
from srm.engine.flows.supervision import DriverAnswer, driver_status, operator
from srm.errors import UnavailableError
from srm.pages.tables import Listing
from srm.replication.driver.state_book import FlowProgress
from srm.threads import start_thread
from srm.wiring import open_state_topics, require_two_clusters

LIVE_EVERY_S: Final = 1.0

MasterOption = Annotated[
    str | None,
    typer.Option(
        help="Spark master; default: a local one with the fewest cores. It gets a core for each "
        "slot and one more."
    ),
]


@dataclass(frozen=True)
class FlowLine:
    """One flow in one line of the view; rates are means since the line before."""

    progress: FlowProgress
    seconds: float
    records_per_s: float
    bytes_per_s: float


class Rates:
    """Turns counters into rates between two looks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._start = self._last = clock()
        self._before: dict[str, FlowProgress] = {}

    def lines(self, flows: tuple[FlowProgress, ...]) -> list[FlowLine]:
        now, lines = self._clock(), list[FlowLine]()
        passed, seconds = max(now - self._last, 1e-3), round(now - self._start, 1)
        for progress in flows:
            before = self._before.get(progress.flow)
            if before and before.records > progress.records:
                before = None  # the counters of a flow that starts again begin at 0
            records, size = (before.records, before.bytes) if before else (0, 0)
            records_per_s = round((progress.records - records) / passed, 1)
            bytes_per_s = round((progress.bytes - size) / passed, 1)
            lines.append(FlowLine(progress, seconds, records_per_s, bytes_per_s))
        self._last, self._before = now, {progress.flow: progress for progress in flows}
        return lines


def plain(line: FlowLine) -> str:
    progress = line.progress
    stopped = ""
    if progress.stopped:
        first = progress.stopped[0]
        why = f"{first.topic}-{first.partition}: {first.why}"
        stopped = f"  STOPPED {len(progress.stopped)} ({why})"
    trouble = f"  TROUBLE: {progress.trouble}" if progress.trouble else ""
    return (
        f"{line.seconds:7.0f} s  {progress.flow}  {line.records_per_s:,.0f} rec/s  "
        f"{line.bytes_per_s / 1e6:,.1f} MB/s  lag {progress.lag:,}  "
        f"copied {progress.records:,}  topics {progress.topics}  "
        f"partitions {progress.reported}/{progress.partitions}  "
        f"slots {progress.slots_alive}/{progress.slots}{stopped}{trouble}"
    )


def overview(lines: list[FlowLine]) -> Group:
    """Draw a row for each flow, and what keeps a flow or partitions from running."""
    numbers = "rec/s", "MB/s", "lag", "copied", "topics", "partitions", "slots", "stopped"
    if not lines:
        return Group()
    table = Listing("flow", *numbers, right=numbers, pad_edge=False)
    for line in lines:
        progress = line.progress
        whole, stopped = progress.slots_alive == progress.slots, len(progress.stopped)
        table.add_row(
            Text(progress.flow),
            Text(f"{line.records_per_s:,.0f}"),
            Text(f"{line.bytes_per_s / 1e6:,.1f}"),
            Text(f"{progress.lag:,}"),
            Text(f"{progress.records:,}"),
            Text(str(progress.topics)),
            Text(f"{progress.reported}/{progress.partitions}"),
            Text(f"{progress.slots_alive}/{progress.slots}", style="" if whole else "yellow"),
            Text(str(stopped), style="red" if stopped else "dim"),
        )
    return Group(table, *(text for line in lines for text in _reasons(line.progress)))


_REASONS: Final = 3


def _reasons(progress: FlowProgress) -> Iterator[Text]:
    if progress.trouble:
        yield Text(f"{progress.flow}: {progress.trouble}", style="red")
    stopped = [f"{one.topic}-{one.partition}: {one.reason}" for one in progress.stopped]
    for line in few(stopped, _REASONS):
        yield Text(f"{progress.flow} {line}", style="red")


def replicate(
    flows: Flows,
    *,
    master: MasterOption = None,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="End once everything that existed at the start is copied. The command fails if "
            "a flow cannot be copied for 40 s, after the others have caught up.",
        ),
    ] = False,
    without: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help=f"Duties that another program, such as Airflow, has: any of {', '.join(DUTIES)}.",
        ),
    ] = "",
) -> None:
    require_two_clusters(flows.settings, flows.chosen)
    # Importing Spark takes longer than most other commands run.
    from srm.spark.replicator import Replicator, run_program

    replicator = Replicator(
        flows.settings, flows.chosen, master=master, without=parse_duties(without)
    )
    with replication_view(replicator.progress, as_json=flows.as_json):
        run_program(replicator, until_caught_up=until_caught_up)


@contextmanager
def replication_view(
    progress: Callable[[], tuple[FlowProgress, ...]], *, as_json: bool
) -> Iterator[None]:
    """Show the progress while the body runs, and once more at its end.

    Without a terminal, a flow has no line before a slot or its error does.
    """
    console = open_console()
    if console.is_terminal and not as_json:
        with _live(progress, console):
            yield
        return
    rates, ended, ready = Rates(), threading.Event(), set[str]()

    def follow() -> None:
        while not ended.wait(LINE_EVERY_S):
            lines = rates.lines(progress())
            for one in lines if not as_json else ():
                if one.progress.slots_alive and one.progress.flow not in ready:
                    ready.add(one.progress.flow)
                    sys.stdout.write(f"{one.progress.flow} is ready\n")
            begun = [p for p in lines if as_json or p.progress.trouble or p.progress.flow in ready]
            _write(begun, as_json=as_json)

    if not as_json:
        sys.stdout.write("starting Spark and the slots\n")
        sys.stdout.flush()

    thread = start_thread("srm view", follow)
    try:
        yield
    finally:
        ended.set()
        thread.join(LINE_EVERY_S)
        _write(rates.lines(progress()), as_json=as_json)
        if not as_json:
            sys.stdout.write("the replicator has ended\n")


@contextmanager
def _live(progress: Callable[[], tuple[FlowProgress, ...]], console: Console) -> Iterator[None]:
    rates, shown, due = Rates(), overview([]), 0.0

    def look() -> Group:
        """Look again once in a while: each warning redraws the view, at any moment."""
        nonlocal shown, due
        if time.monotonic() >= due:
            shown, due = overview(rates.lines(progress())), time.monotonic() + LIVE_EVERY_S * 0.9
        return shown

    live = Live(console=console, get_renderable=look, refresh_per_second=1 / LIVE_EVERY_S)
    with live:
        _log_to_stderr()  # that of now: warnings appear above the table instead of tearing it
        yield
    _log_to_stderr()


def _log_to_stderr() -> None:
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)


def _write(lines: list[FlowLine], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            flat = {**asdict(line.progress), **asdict(line)}
            del flat["progress"]
            write_document(encode(flat).decode() + "\n")
        else:
            write_line(plain(line))
    sys.stdout.flush()


WaitOption = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="Time limit of the request.")
]


def stop(flows: Flows, *, wait: WaitOption = 60.0) -> None:
    answers = _request("stop", flows, wait)
    _require(answers, f"the replicator has not ended within {wait:g} s; the request stays in force")


def restart(flows: Flows, *, wait: WaitOption = STARTUP_S) -> None:
    answers = _request("restart", flows, wait)
    _require(
        answers,
        f"no replicator has started within {wait:g} s after the request: see the DAG "
        "srm_replication, or run srm replicate",
    )


def _request(action: Action, flows: Flows, wait: float) -> tuple[DriverAnswer, ...]:
    wanted = flows.to_open
    with (
        open_state_topics(flows.settings, wanted) as topics,
        open_console(stderr=True).status(f"{action}: waiting for the replicator"),
    ):
        answers = supervision.request_action(topics, action, operator(), now_ms(), wait)
    others = sorted(map(str, {*flows.settings.flows} - {*wanted}))
    flows.emit(answers, lambda console: _render(console, answers, others))
    return answers


def _render(console: Console, answers: tuple[DriverAnswer, ...], others: list[str]) -> None:
    rows = ((one.flow, one.application, one.host, one.outcome) for one in answers)
    print_table(console, ("flow", "replicator", "host", "outcome"), rows)
    if others and any(answer.outcome == "ended" for answer in answers):
        console.print(
            f"An application ends with all flows it copies: srm status shows whether "
            f"{', '.join(others)} still runs."
        )


def _require(answers: tuple[DriverAnswer, ...], problem: str) -> None:
    away = [str(answer.flow) for answer in answers if answer.outcome == "unreachable"]
    if away:
        problem = "the target does not answer; repeat the command when it does"
    waiting = away or [str(answer.flow) for answer in answers if not answer.done]
    if waiting:
        raise UnavailableError(f"{', '.join(waiting)}: {problem}")


_POLL_S: Final = 0.5
Effect = Literal["in force", "restart", "not taken up", "not running"]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting of a flow that has changed; ``restart``: it waits for srm replicator restart."""

    flow: str
    key: str
    before: Any
    after: Any
    effect: Effect


def reload(flows: Flows, *, wait: WaitOption = 10.0) -> None:
    written = {one: plain_settings(flows.settings.flow(one)) for one in flows.chosen}
    deadline = time.monotonic() + wait
    with open_state_topics(flows.settings, flows.chosen) as topics:
        while True:
            changes = [
                change
                for one, values in written.items()
                for change in _changes(one, topics[one].read_commands(), values)
            ]
            late = [one for one in changes if one.effect == "not taken up"]
            if not late or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
    flows.emit(changes, lambda console: _render_changes(console, changes))
    if late:
        raise UnavailableError(
            f"{late[0].flow}: the replicator has not taken up {late[0].key}: see the log and "
            "the file of its host"
        )


def _changes(
    flow: Flow, commands: Mapping[bytes, bytes], written: Mapping[str, Any]
) -> Iterator[SettingChange]:
    driver = driver_status(commands, flow, now_ms())
    if driver is None or not driver.alive or SETTINGS_KEY not in commands:
        yield SettingChange(str(flow), "", None, None, "not running")
        return
    found = SettingsRecord.decode(commands[SETTINGS_KEY])
    for name, (before, after) in differences(found.in_force, written).items():
        effect: Effect = "restart" if name in OF_APPLICATION else "not taken up"
        yield SettingChange(str(flow), key_of(name), before, after, effect)
    if found.before:
        for name, (before, after) in differences(found.before, found.in_force).items():
            yield SettingChange(str(flow), key_of(name), before, after, "in force")


def _render_changes(console: Console, changes: list[SettingChange]) -> None:
    if not changes:
        console.print("the settings in force are those of the file since the replicator's start")
        return
    rows = (
        (
            *(one.flow, one.key or "-"),
            *("-" if value is None else str(value) for value in (one.before, one.after)),
            "srm replicator restart" if one.effect == "restart" else one.effect,
        )
        for one in changes
    )
    print_table(console, ("flow", "key", "before", "after", "effect"), rows)
