"""``srm why``: why a topic is not copied, a group not translated or not able to move."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from srm.cli.console import ConfigOption, FlowsOption, JsonOption
from srm.cli.flows.for_flows import for_each_flow
from srm.cli.watching import Looked, WatchOption, show
from srm.engine.why import Kind, Why, WhyStep, ask, in_order, not_found
from srm.pages.tables import Listing

_MARKS: Final = {True: ("✓", "yes", "green"), False: ("✗", "NO", "red"), None: ("?", "?", "yellow")}
"""By answer: its mark, the substitute where that cannot be printed, its colour."""


class KindChoice(StrEnum):
    """Kind of a named object."""

    TOPIC = "topic"
    GROUP = "group"


def why(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A topic, its copy, or a group.")],
    *,
    config: ConfigOption = None,
    flow: FlowsOption = None,
    kind: Annotated[
        KindChoice | None,
        typer.Option("--kind", help="Take the name for this alone; without it for both."),
    ] = None,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a topic is (not) copied, or a group (not) translated and able to move.

    Shows the whole chain of list, filter, state and right, and the next action. Nothing is
    written. Exit code 0 for every answer, also where clusters of another flow do not answer; 3
    where neither cluster has such a topic or group.
    """
    kinds: tuple[Kind, ...] = ("topic", "group") if kind is None else (kind.value,)

    def look() -> Looked:
        results = for_each_flow(
            config,
            flow,
            f"looking for {name}",
            lambda context: ask(context, name, kinds),
            quietly=watch is not None,
            partial=True,
        )
        asked = [answer for answers in results.values for answer in answers]
        known = in_order(answer for answer in asked if answer.known)
        if not known and not results.failures:
            raise not_found(name, asked)
        if known:
            results.report_failures()
        return Looked(known, lambda console: _render(console, known), results.raise_failures)

    show(look, watch, as_json=as_json)


def _render(console: Console, answers: list[Why]) -> None:
    for number, answer in enumerate(answers):
        if number:
            console.print()
        render_why(console, answer)


def render_why(console: Console, answer: Why) -> None:
    """Print one answer: the verdict, the chain, and the one thing to do."""
    asked = f" ({answer.asked} is its copy)" if answer.asked else ""
    colour = _MARKS[answer.ok][2]
    console.print(
        Text.assemble(
            (f"{answer.flow}: {answer.kind} {answer.subject}", "bold"),
            f"{asked}: ",
            (answer.verdict, colour),
        ),
        soft_wrap=True,
    )
    table = Listing.grid("", "", "", padding=(0, 2, 0, 0))
    for step in answer.steps:
        table.add_row(_mark(step, console), Text(step.question), Text(step.answer))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    todo = answer.action or ("nothing" if answer.ok else "nothing that srm knows of")
    console.print(Text.assemble(("to do: ", "bold"), todo), soft_wrap=True)


def _mark(step: WhyStep, console: Console) -> Text:
    mark, word, colour = _MARKS[step.ok]
    try:
        mark.encode(console.encoding)
    except UnicodeEncodeError:
        mark = word
    return Text(mark, style=colour)
