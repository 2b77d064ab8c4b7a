"""Commands to a running replicator, wherever it runs: stop, restart, and what it has taken up."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.markup import escape

from srm.cli.console import ConfigOption, FlowsOption, JsonOption, emit
from srm.clock import now_ms
from srm.config.changes import RESTARTED, SettingsRecord, differences, key_of, plain_settings
from srm.config.loader import load_config
from srm.domain.flow_state.liveness_thresholds import STARTUP_S
from srm.domain.flow_state.replication_records import SETTINGS_KEY, Action
from srm.domain.names.topics import Flow
from srm.engine.flows import supervision
from srm.engine.flows.supervision import DriverAnswer, driver_status, operator
from srm.errors import UnavailableError, UsageError
from srm.pages.tables import Listing
from srm.wiring import open_state_topics

WaitOption = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for it.")
]


def stop(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    wait: WaitOption = 60.0,
    as_json: JsonOption = False,
) -> None:
    """End the applications that drive the flows, and keep srm_replication from starting another.

    An application ends with all flows it copies. It stays stopped until 'srm replicator restart'
    or 'srm replicate'.

    Exit code 6 when one has not ended in time; it ends as soon as it reads the request.
    """
    answers = _ask("stop", config, flow, wait, as_json=as_json)
    _require(answers, f"the replicator has not ended within {wait:g} s; the request stays in force")


def restart(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    wait: WaitOption = STARTUP_S,
    as_json: JsonOption = False,
) -> None:
    """End the applications that drive the flows, so that srm_replication starts another one.

    The new one reads the configuration again. One that was started with 'srm replicate' ends, too.

    Exit code 6 when no other one has started in time.
    """
    answers = _ask("restart", config, flow, wait, as_json=as_json)
    _require(
        answers,
        f"no replicator has started within {wait:g} s after the request: see the DAG "
        "srm_replication, or run srm replicate",
    )


def _ask(
    action: Action, config: Path | None, flows: list[Flow] | None, wait: float, *, as_json: bool
) -> tuple[DriverAnswer, ...]:
    resolved = load_config(config)
    wanted = tuple(flows or resolved.flows)
    if not wanted:
        raise UsageError(f"no flow is enabled in {resolved.path}: name one with --flow")
    for flow in wanted:
        resolved.flow(flow)
    with (
        open_state_topics(resolved, wanted) as topics,
        Console(stderr=True).status(f"{action}: waiting for the replicator"),
    ):
        answers = supervision.ask(topics, action, operator(), now_ms(), wait)
    others = sorted({str(flow) for flow in resolved.flows} - {str(flow) for flow in wanted})
    emit(answers, as_json, lambda console: _render(console, answers, others))
    return answers


def _render(console: Console, answers: tuple[DriverAnswer, ...], others: list[str]) -> None:
    table = Listing("flow", "replicator", "host", "outcome")
    for answer in answers:
        table.add_row(str(answer.flow), answer.application, answer.host, answer.outcome)
    console.print(table)
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


def reload(
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    wait: WaitOption = 10.0,
    as_json: JsonOption = False,
) -> None:
    """Show what the replicator has taken up from the file, and what waits for its restart.

    A replicator reads its file every three seconds, with lists and secrets. This waits until it has
    the values of the file here. Secrets and other settings of clients are not compared.

    Exit code 6 where a replicator runs and has not taken up a setting in time.
    """
    resolved = load_config(config)
    wanted = tuple(flow or resolved.flows)
    written = {one: plain_settings(resolved.flow(one)) for one in wanted}
    deadline = time.monotonic() + wait
    with open_state_topics(resolved, wanted) as topics:
        while True:
            changes = [
                change
                for one in wanted
                for change in _changes(one, topics[one].read_commands(), written[one])
            ]
            late = [one for one in changes if one.effect == "not taken up"]
            if not late or time.monotonic() > deadline:
                break
            time.sleep(_POLL_S)
    emit(changes, as_json, lambda console: _render_changes(console, changes))
    if late:
        raise UnavailableError(
            f"{late[0].flow}: {late[0].key} is not taken up: see the log and the file of the "
            "replicator's host"
        )


def _changes(
    flow: Flow, commands: Mapping[bytes, bytes], written: Mapping[str, Any]
) -> Iterator[SettingChange]:
    driver, _ = driver_status(commands, flow, now_ms())
    if driver is None or not driver.alive or SETTINGS_KEY not in commands:
        yield SettingChange(str(flow), "", None, None, "not running")
        return
    found = SettingsRecord.decode(commands[SETTINGS_KEY])
    for name, (before, after) in differences(found.in_force, written).items():
        effect: Effect = "restart" if name in RESTARTED else "not taken up"
        yield SettingChange(str(flow), key_of(name), before, after, effect)
    if found.before:
        for name, (before, after) in differences(found.before, found.in_force).items():
            yield SettingChange(str(flow), key_of(name), before, after, "in force")


def _render_changes(console: Console, changes: list[SettingChange]) -> None:
    if not changes:
        console.print("the settings in force are those of the file since the replicator's start")
        return
    table = Listing("flow", "key", "before", "after", "effect")
    for one in changes:
        values = ("-" if value is None else escape(str(value)) for value in (one.before, one.after))
        effect = "srm replicator restart" if one.effect == "restart" else one.effect
        table.add_row(one.flow, one.key or "-", *values, effect)
    console.print(table)
