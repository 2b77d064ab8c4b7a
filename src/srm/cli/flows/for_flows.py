"""Run one engine call for several flows: one that fails does not keep the others waiting."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from rich.console import Console

from srm import telemetry
from srm.cli.console import emit
from srm.config.loader import load_config
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount, some
from srm.errors import NotFoundError, SrmError, UnavailableError, UsageError
from srm.wiring import open_flow

if TYPE_CHECKING:
    from srm.engine.ports import FlowContext

T = TypeVar("T")

MOST_ROWS = 200
"""Rows a table shows; scripts read --json."""


@dataclass
class FlowResults(Generic[T]):
    """Results of the flows that went well, and errors of the others."""

    values: list[T] = field(default_factory=list)
    failures: list[tuple[Flow, SrmError]] = field(default_factory=list)

    def emit(self, as_json: bool, render: Callable[[Console], None]) -> None:  # noqa: FBT001 -- as the option gives it
        """Print what went well, if anything did, then raise what went wrong."""
        if self.values or not self.failures:
            emit(self.values, as_json, render)
        self.raise_failures()

    def report_failures(self) -> None:
        """Print what went wrong on stderr, where something else is the result, and forget it."""
        for flow, error in self.failures:
            sys.stderr.write(f"{flow}: {' '.join(str(error).split())}\n")
        self.failures.clear()

    def raise_failures(self) -> None:
        """Raise what went wrong, in the first flow's kind, once everything else was shown."""
        if not self.failures:
            return
        text = "; ".join(f"{flow}: {error.what or error}" for flow, error in self.failures)
        first = self.failures[0][1]
        raise type(first)(text, first.action)


def for_each_flow(
    config: Path | None,
    flows: Sequence[Flow] | None,
    doing: str,
    call: Callable[[FlowContext], T],
    *,
    quietly: bool = False,
    span: str = "",
    partial: bool = False,
) -> FlowResults[T]:
    """Open each flow, all enabled ones if none is named, and call.

    ``quietly``: show no progress, where something else is shown on the terminal.
    ``span``: what a trace shows it as; without it only the name of what is done.
    ``partial``: show what one cluster of a flow knows where the other does not answer.
    """
    resolved = load_config(config)
    wanted = tuple(flows or resolved.flows)
    if not wanted:
        raise UsageError(
            f"no flow is enabled in {resolved.path}: set 'A->B.enabled = true' or give --flow"
        )
    for flow in wanted:
        resolved.flow(flow)
    results = FlowResults[T]()
    with Console(stderr=True, quiet=quietly).status(doing) as status:
        for flow in wanted:
            status.update(f"{flow}: {doing}")
            try:
                with (
                    telemetry.span(span or doing, flow=str(flow)) as opened,
                    open_flow(resolved, flow, partial=partial) as context,
                ):
                    results.values.append(call(context))
                    opened.result(results.values[-1])
            except SrmError as error:
                results.failures.append((flow, error))
    return results


def raise_group_errors(errors: Mapping[str, str]) -> None:
    """Let a command fail where groups could not be handled, after it has shown the others."""
    if errors:
        text = "; ".join(f"{group}: {reason}" for group, reason in sorted(errors.items()))
        raise UnavailableError(f"{amount(len(errors), 'group')} left out: {text}")


def require_groups(context: FlowContext, groups: Collection[str] | None) -> None:
    """Make sure that a cluster of the flow has each named group."""
    missing = set(groups or ())
    for cluster in (context.source, context.target):
        try:
            found = cluster.groups(missing) if missing else {}
        except UnavailableError:
            return  # it may have them
        missing -= {name for name, group in found.items() if group.state != "dead"}
    if missing:
        where = f"{context.source.alias} or {context.target.alias}"
        raise NotFoundError(f"no group {some(sorted(missing))} on {where}")


def cut(rows: Sequence[T], console: Console) -> Sequence[T]:
    """Return the rows to show, and say so where some are left out."""
    if len(rows) > MOST_ROWS:
        console.print(f"[dim]the first {MOST_ROWS} of {len(rows)}; --json shows all[/dim]")
    return rows[:MOST_ROWS]


def counts(numbers: Mapping[str, int]) -> str:
    """Render counts by name in one line."""
    return ", ".join(f"{number} {name}" for name, number in numbers.items()) or "nothing"
