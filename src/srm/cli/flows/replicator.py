"""``srm replicator``: end the replicator application wherever it runs, by a record in Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from srm.cli.console import ConfigOption, FlowsOption, JsonOption, emit
from srm.clock import now_ms
from srm.config.loader import load_config
from srm.domain.flow_state.liveness_thresholds import STARTUP_S
from srm.domain.flow_state.replication_records import Action
from srm.domain.names.topics import Flow
from srm.engine.flows import driver_requests
from srm.engine.flows.driver_requests import DriverAnswer
from srm.engine.flows.operator import operator
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
        answers = driver_requests.ask(topics, action, operator(), now_ms(), wait)
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
