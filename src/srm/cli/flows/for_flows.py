"""Options of commands for flows, calls of the engine for each flow, and tables of results."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from srm import telemetry
from srm.cli.console import (
    Common,
    FlowOption,
    FlowsOption,
    emit,
    name_file,
    open_console,
    write_line,
)
from srm.domain.names.topics import Flow
from srm.domain.text.amount import amount, reasons_text, some
from srm.errors import NotFoundError, SrmError, UnavailableError, UsageError
from srm.pages.tables import MOST_ROWS, Listing
from srm.wiring import open_flow

if TYPE_CHECKING:
    from srm.engine.ports import FlowContext

T = TypeVar("T")

LINE_EVERY_S: Final = 5.0
"""Seconds between lines that show long work without a terminal."""


@dataclass
class FlowResults(Generic[T]):
    """Results of the flows that went well, and errors of the others.

    A flow that fails does not keep the others waiting.
    """

    values: list[T] = field(default_factory=list)
    failures: list[tuple[Flow, SrmError]] = field(default_factory=list)

    def emit(self, as_json: bool, render: Callable[[Console, list[T]], None]) -> None:  # noqa: FBT001 -- as the option gives it
        """Print what went well, if anything did, then raise what went wrong."""
        if self.values or not self.failures:
            emit(self.values, as_json, lambda console: render(console, self.values))
        self.raise_failures()

    def report_failures(self) -> None:
        """Print what went wrong on stderr, where something else is the result, and forget it."""
        for flow, error in self.failures:
            write_line(f"{flow}: {name_file(' '.join(str(error).split()))}", stderr=True)
        self.failures.clear()

    def raise_failures(self) -> None:
        """Raise what went wrong, in the first flow's kind, once everything else was shown."""
        if not self.failures:
            return
        flows: dict[str, list[str]] = {}
        for flow, error in self.failures:
            flows.setdefault(error.what or str(error), []).append(str(flow))
        text = "; ".join(f"{', '.join(of)}: {what}" for what, of in flows.items())
        first = self.failures[0][1]
        raise type(first)(text, first.action)


@dataclass(frozen=True, kw_only=True)
class Flows(Common):
    """Options of a command for some flows."""

    flow: FlowsOption = None

    @property
    def chosen(self) -> tuple[Flow, ...]:
        """The named flows, or all enabled ones."""
        return tuple(self.flow or self.settings.flows)

    @property
    def to_open(self) -> tuple[Flow, ...]:
        """The same flows, of which there is one at least; each is one of the file."""
        for flow in self.chosen:
            self.settings.flow(flow)
        if not self.chosen:
            raise UsageError(
                f"no flow is enabled in {self.settings.path}: set 'A->B.enabled = true' or give "
                "--flow"
            )
        return self.chosen

    def each(
        self,
        doing: str,
        call: Callable[[FlowContext], T],
        *,
        quietly: bool = False,
        span: str = "",
        partial: bool = False,
    ) -> FlowResults[T]:
        """Open each flow and call.

        ``quietly``: show no progress, where something else is shown on the terminal.
        ``span``: what a trace shows it as; without it only the name of what is done.
        ``partial``: show what one cluster of a flow knows where the other does not answer.
        """
        given, results = replace(self), FlowResults[T]()  # a watch reads the file at each look
        wanted = given.to_open
        with open_console(stderr=True, quiet=quietly).status(doing) as status:
            for flow in wanted:
                status.update(f"{flow}: {doing}")
                try:
                    with (
                        telemetry.span(span or doing, flow=str(flow)) as opened,
                        open_flow(given.settings, flow, partial=partial) as context,
                    ):
                        results.values.append(call(context))
                        opened.result(results.values[-1])
                except SrmError as error:
                    results.failures.append((flow, error))
        return results


@dataclass(frozen=True, kw_only=True)
class OneFlow(Common):
    """Options of a command for one flow."""

    flow: FlowOption


def raise_group_errors(errors: Mapping[str, str]) -> None:
    """Let a command fail where groups could not be handled, after it has shown the others."""
    if errors:
        text = reasons_text(f"{group}: {reason}" for group, reason in sorted(errors.items()))
        raise UnavailableError(f"{amount(len(errors), 'group')} skipped: {text}")


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


def print_table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Collection[str] = (),
    whole: bool = False,
) -> None:
    """Print a table with the first rows; numbers get separators, None is a dash.

    ``whole``: with all rows, where an operator approves them or looks for the last ones.
    """
    table, rows = Listing(*heads, right=right), tuple(rows)
    for row in rows if whole else cut(rows, console):
        table.add_row(*map(_cell, row))
    console.print(table)


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    return Text("-" if value is None else f"{value:,}" if type(value) is int else str(value))


def say(console: Console, text: str, style: str = "") -> None:
    """Print a line as it is; a terminal wraps it."""
    console.print(Text(text, style), soft_wrap=True)


@contextmanager
def progress(text: str = "", *, quietly: bool = False) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what is being done; an empty text ends that, so that people can read.

    Without a terminal, a line every ``LINE_EVERY_S`` shows it.
    """
    console = open_console(stderr=True, quiet=quietly)
    due = time.monotonic() + LINE_EVERY_S
    with console.status(escape(text)) as line:

        def show(text: str) -> None:
            nonlocal due
            if not text:
                line.stop()
            elif console.is_terminal:
                line.update(escape(text))
                line.start()
            elif time.monotonic() >= due:
                say(console, text)
                due = time.monotonic() + LINE_EVERY_S

        yield show


def counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in numbers.items()) or "nothing"
