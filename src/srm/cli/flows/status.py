"""``srm status`` and ``srm why``: what the flows are doing, and what to do about what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from srm.cli.console import Looked, WatchOption, show
from srm.cli.flows.for_flows import Flows, counts, print_table, say
from srm.domain.text.amount import ago, amount, few
from srm.pages.tables import Listing, exact_time

if TYPE_CHECKING:
    from srm.domain.names.topics import Flow
    from srm.domain.text.amount import Reason
    from srm.engine.ports import FlowContext
    from srm.engine.status.status import FlowForecast, FlowStatus, Health, State, TopicStatus
    from srm.engine.why import Kind, Why, WhyStep
    from srm.errors import SrmError

_COLOURS = {
    "caught-up": "green",
    "copying": "cyan",
    "waiting": "yellow",
    "not-created": "yellow",
    "stopped": "red",
}


_STATE_COLOURS: dict[State, str] = {
    "RUNNING": "green",
    "DEGRADED": "yellow",
    "STOPPED": "red",
    "PAUSED": "red",
    "IDLE": "dim",
    "OFF": "dim",
}

_UNKNOWN = 5
"""Lines about what the forecast could not know that are shown."""


def status(flows: Flows, *, watch: WatchOption = None) -> None:
    def read(context: FlowContext) -> FlowStatus:
        # What reads a status takes as long to import as a cluster to answer: that is first.
        from srm.engine.status.observing import flow_status

        return flow_status(context)

    def look() -> Looked:
        results = flows.each(
            "looking at both clusters", read, quietly=watch is not None, partial=True
        )
        if not results.values:
            results.raise_failures()
        from srm.engine.status.status import document

        return Looked(
            [{**document(found), "flow": str(found.flow)} for found in results.values]
            if flows.as_json
            else results.values,
            lambda console: _render(console, results.values, results.failures),
            results.raise_failures,
        )

    show(look, watch, as_json=flows.as_json)


def _render(
    console: Console, flows: list[FlowStatus], failures: Sequence[tuple[Flow, SrmError]] = ()
) -> None:
    from srm.engine.status.status import flow_health

    for number, flow in enumerate(flows):
        if number:
            console.print()
        _render_flow(console, flow, flow_health(flow))
    for unread, error in failures:
        known = Text.assemble((str(unread), "bold"), ": ", ("UNKNOWN", "red"), f", {error}")
        console.print("" if flows else None, known, sep="\n", soft_wrap=True)


def _render_flow(console: Console, flow: FlowStatus, health: Health) -> None:
    state = f"[{_STATE_COLOURS[health.state]}]{health.state}[/]"
    console.print(f"[bold]{flow.flow}[/bold]: {state}, {_replicator(flow)}", soft_wrap=True)
    for line in _reason_texts(flow, health):
        console.print(line, soft_wrap=True)
    if flow.standing is not None:
        _render_forecast(console, flow.standing)
    if flow.topics:
        _print_topics(console, flow)
    if flow.groups:
        _print_groups(console, flow)
    said = [reason.action for reason in health.reasons if reason.action and flow.enabled]
    for hint in flow.hints:
        # Where a reason has said what to do already, a hint says nothing new.
        if flow.pause is not None or not any(action in hint for action in said):
            console.print(f"[yellow]hint[/yellow] {escape(hint)}", soft_wrap=True)


def _reason_texts(flow: FlowStatus, health: Health) -> Iterator[Text]:
    """Yield the reasons of a state; for a paused or disabled flow only that one."""
    if flow.enabled and flow.pause is None:
        for reason in health.reasons:
            yield Text.assemble(*_reason(reason))
        return
    if flow.pause is not None:
        since = f"paused since {exact_time(flow.pause.time_ms)}, by {flow.pause.by}"
        yield Text(f"{since}: {flow.pause.reason}", style="red")
    if flow.source_error:
        yield Text(flow.source_error, style="red")
    for name, error in flow.errors.items():
        yield Text.assemble(("error ", "red"), f"{name}: {error}")


def _reason(reason: Reason) -> Iterator[str | tuple[str, str]]:
    yield ("why ", "yellow")
    yield reason.text
    if reason.action and reason.action not in reason.text:
        yield (f": {reason.action}", "bold")


def _render_forecast(console: Console, current: FlowForecast) -> None:
    proof = current.proof
    disproved = () if proof is None else proof.disproved
    say(console, current.line, "red" if disproved else "")
    unknown = [line for topic in current.forecast.topics for line in topic.unknown]
    for line in few(unknown, _UNKNOWN):
        say(console, line, "yellow")
    for wrong in disproved:
        text = f"wrong translation, not emitted: group {wrong.group}: {wrong.evidence}"
        say(console, text, "red")


def _replicator(flow: FlowStatus) -> str:
    driver = flow.driver
    if driver is None:
        text = "no replicator has ever run" if flow.never_ran else "driver unknown"
        return f"[yellow]{text}[/yellow]"
    age = f"{'ended' if driver.ended else 'last heartbeat'} {ago(driver.age_ms)}"
    if driver.alive and driver.request is not None:
        age += f", {driver.request.action} requested by {driver.request.by}"
    where = f"replicator {driver.application_id or driver.driver} on {driver.host}"
    state = f"{amount(flow.remaining, 'offset')} to copy{_as_of(flow)}"
    if not driver.ended:
        # Slots end before their driver says so, but count as alive until they have been silent.
        alive = sum(slot.alive for slot in flow.slots)
        state = f"{alive} of {len(flow.slots)} slots alive, {state}"
    colour = "green" if driver.alive else "red"
    return f"[{colour}]{where}, {age}[/{colour}], {state}"


def _as_of(flow: FlowStatus) -> str:
    """Say as of when it is known what is left to copy; nothing where the source has said so now."""
    if not flow.source_error:
        return ""
    when = f", {ago(flow.time_ms - flow.heard_ms)}" if flow.heard_ms else ""
    return f" when {flow.flow.source} last answered{when}"


def _print_topics(console: Console, flow: FlowStatus) -> None:
    from srm.engine.status.status import topic_health

    def cells(topic: TopicStatus) -> tuple[object, ...]:
        health = topic_health(topic, flow)
        return (
            *(topic.topic, topic.remote_topic, str(topic.partitions)),
            *(topic.copied, topic.remaining, Text(topic.state, _COLOURS[topic.state])),
            Text(health.state, _STATE_COLOURS[health.state]),
            "; ".join(reason.text for reason in health.reasons),
        )

    clusters = f"topic on {flow.flow.source}", f"on {flow.flow.target}"
    numbers = "partitions", "copied offsets", "to copy"
    heads = *clusters, *numbers, "state", "health", "remark"
    print_table(console, heads, map(cells, flow.topics), right=numbers)


def _print_groups(console: Console, flow: FlowStatus) -> None:
    heads = "group", f"on {flow.flow.source}", f"on {flow.flow.target}", "partitions"
    numbers = "lag", "not copied", "skipped"
    rows = (
        (
            *(group.group, group.source_state, group.target_state, counts(group.partitions)),
            *("-" if group.lag is None else group.lag, group.remaining, group.skipped),
        )
        for group in flow.groups
    )
    print_table(console, (*heads, *numbers), rows, right=numbers)


_MARKS: Final = {True: ("✓", "yes", "green"), False: ("✗", "NO", "red"), None: ("?", "?", "yellow")}
"""By answer: its mark, the substitute where that cannot be printed, its colour."""
_VERDICT: Final = 240
"""Characters of a verdict; texts of brokers can be longer, and are whole in the chain below."""


def why(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A topic, its copy, or a group.")],
    flows: Flows,
    *,
    kind: Annotated[
        Literal["topic", "group"] | None, typer.Option(help="Kind of the name; default: both.")
    ] = None,
    watch: WatchOption = None,
) -> None:
    # The answers of srm why take as long to import as half a status.
    from srm.engine.why import explain, in_order, not_found

    kinds: tuple[Kind, ...] = ("topic", "group") if kind is None else (kind,)

    def look() -> Looked:
        results = flows.each(
            f"looking for {name}",
            lambda context: explain(context, name, kinds),
            quietly=watch is not None,
            partial=True,
        )
        found = [answer for answers in results.values for answer in answers]
        known = in_order(answer for answer in found if answer.known)
        if not known:
            results.raise_failures()
            raise not_found(name, found)
        results.report_failures()
        return Looked(known, lambda console: _render_answers(console, known))

    show(look, watch, as_json=flows.as_json)


def _render_answers(console: Console, answers: list[Why]) -> None:
    for number, answer in enumerate(answers):
        if number:
            console.print()
        render_why(console, answer)


def render_why(console: Console, answer: Why) -> None:
    """Print one answer: the verdict, the chain, and the one thing to do."""
    copied_as = f" ({answer.asked} is its copy)" if answer.asked else ""
    colour = _MARKS[answer.ok][2]
    console.print(
        Text.assemble(
            (f"{answer.flow}: {answer.kind} {answer.subject}", "bold"),
            f"{copied_as}: ",
            (shorten(answer.verdict, _VERDICT, placeholder=" ..."), colour),
        ),
        soft_wrap=True,
    )
    table = Listing("", "", "", show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for step in answer.steps:
        mark = Text.assemble("  ", _mark(step, console))
        table.add_row(mark, Text(step.question), Text(step.answer))
    console.print(table)
    todo = answer.action or ("nothing" if answer.ok else "nothing that srm can do")
    console.print(Text.assemble(("to do: ", "bold"), todo), soft_wrap=True)


def _mark(step: WhyStep, console: Console) -> Text:
    mark, word, colour = _MARKS[step.ok]
    try:
        mark.encode(console.encoding)
    except UnicodeEncodeError:
        mark = word
    return Text(mark, style=colour)
