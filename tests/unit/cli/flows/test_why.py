"""``srm why``: what it prints, in which words, and with which exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from click.testing import Result
from rich.console import Console
from tests.unit.engine.why.running_flow import RunningFlow
from typer.testing import CliRunner

from srm.cli.flows import for_flows
from srm.cli.flows.status import render_why
from srm.cli.main import app
from srm.config.model import Config
from srm.domain.names.topics import Flow
from srm.engine.ports import FlowContext
from srm.engine.why import Why
from srm.engine.why.answer import Question
from srm.errors import NotFoundError, UnavailableError

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = localhost:1
B.bootstrap.servers = localhost:2
P->B.enabled = true
B->P.enabled = true
"""
ANSWER = Why(
    Flow("P", "B"),
    "topic",
    "Payments",
    known=True,
    ok=False,
    verdict="not copied: not listed",
    steps=(
        Question("enabled", "is the flow P->B enabled?").yes(),
        Question("allowed", "does an allow list name the topic?").no("not listed", "add it"),
        Question("heard", "has P answered lately?").unknown("no slot has reported it"),
    ),
    action="add it",
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "srm.properties"
    path.write_text(PROPERTIES)
    return path


@pytest.fixture
def flow(monkeypatch: pytest.MonkeyPatch) -> RunningFlow:
    """Put a flow in memory, and the one back, behind the commands."""
    made = RunningFlow()

    @contextmanager
    def open_flow(config: Config, flow: Flow, **access: object) -> Iterator[FlowContext]:
        assert config.flow(flow)
        assert access == {"partial": True}
        yield made.context if flow == Flow("P", "B") else made.backward

    monkeypatch.setattr(for_flows, "open_flow", open_flow)
    return made


def run(config: Path, *command: str) -> Result:
    return CliRunner().invoke(app, ["why", *command], env={"SRM_CONFIG": str(config)})


def test_the_chain_ends_with_the_one_thing_to_do(flow: RunningFlow, config: Path) -> None:
    flow.settings["topics"] = ()

    shown = run(config, "Topic", "-f", "P->B")

    lines = shown.output.splitlines()
    assert shown.exit_code == 0
    assert lines[0].startswith("P->B: topic Topic: not copied: not listed")
    assert "  ✗  does an allow list name the topic?" in shown.output
    assert lines[-1] == "to do: srm-control topics --source P --target B --add Topic"


def test_the_page_shows_what_the_command_prints(flow: RunningFlow, config: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "operate.md").read_text("utf-8")
    shown = page.partition("$ srm why Orders --flow 'P->B'\n")[2].partition("```")[0]
    flow.p.add_topic("Orders", 1)

    lines = [line.rstrip() for line in run(config, "Orders", "-f", "P->B").output.splitlines()]
    assert lines == shown.splitlines()


def test_where_nothing_is_wrong_there_is_nothing_to_do(flow: RunningFlow, config: Path) -> None:
    shown = run(config, "P.Topic", "-f", "P->B")

    assert shown.output.startswith("P->B: topic Topic (P.Topic is its copy): copied, and caught up")
    assert shown.output.endswith("to do: nothing\n")
    assert flow.p.alias == "P"


def test_a_name_that_is_a_topic_and_a_group_is_answered_as_both(
    flow: RunningFlow, config: Path
) -> None:
    flow.commit("Topic", 8)

    both = run(config, "Topic", "-f", "P->B", "--json")
    one = run(config, "Topic", "-f", "P->B", "--json", "--kind", "group")

    assert [answer["kind"] for answer in json.loads(both.output)] == ["topic", "group"]
    assert [answer["kind"] for answer in json.loads(one.output)] == ["group"]


def test_without_a_flow_all_that_know_the_name_are_asked(flow: RunningFlow, config: Path) -> None:
    shown = json.loads(run(config, "P.Topic", "--json").output)

    assert [(answer["flow"], answer["subject"]) for answer in shown] == [
        ("B->P", "P.Topic"),
        ("P->B", "Topic"),
    ]
    assert flow.p.alias == "P"


def test_what_nobody_knows_is_not_found(flow: RunningFlow, config: Path) -> None:
    result = run(config, "topik")

    assert isinstance(result.exception, NotFoundError)
    assert result.exception.exit_code == 3
    assert "topic Topic of P?" in str(result.exception)
    assert flow.p.alias == "P"


def test_a_target_that_does_not_answer_is_an_error_and_not_a_name_that_is_unknown(
    flow: RunningFlow, config: Path
) -> None:
    flow.b.fail()

    result = run(config, "Topic", "-f", "P->B", "--json")

    assert isinstance(result.exception, UnavailableError)
    assert result.stdout == ""  # the error is the document


def test_a_reason_is_an_answer_even_where_another_flow_does_not_answer(
    flow: RunningFlow, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = for_flows.open_flow

    @contextmanager
    def open_flow(config: Config, flow: Flow, **access: object) -> Iterator[FlowContext]:
        if flow == Flow("B", "P"):
            raise UnavailableError("cluster P does not answer")
        with opened(config, flow, **access) as context:  # type: ignore[arg-type]
            yield context

    monkeypatch.setattr(for_flows, "open_flow", open_flow)

    shown = run(config, "Topic", "--json")

    assert shown.exit_code == 0
    assert [answer["subject"] for answer in json.loads(shown.stdout)] == ["Topic"]
    assert shown.stderr == "B->P: cluster P does not answer\n"
    assert flow.p.alias == "P"


@pytest.mark.parametrize(
    ("encoding", "marks"), [("utf-8", ["✓", "✗", "?"]), ("ascii", ["yes", "NO", "?"])]
)
def test_marks_are_words_where_they_cannot_be_printed(encoding: str, marks: list[str]) -> None:
    out = TextIOWrapper(BytesIO(), encoding=encoding)

    render_why(Console(file=out, width=200), ANSWER)

    out.seek(0)
    assert [line.split()[0] for line in out.read().splitlines()[1:4]] == marks


def test_a_narrow_terminal_folds_answers_and_loses_nothing() -> None:
    console = Console(width=60, record=True)

    with console.capture() as shown:
        render_why(console, ANSWER)

    assert "…" not in shown.get()
    assert "not listed" in shown.get()


def test_a_long_text_of_a_broker_is_shown_once_and_in_the_verdict_its_beginning() -> None:
    text = f"policy violation: {'a line of the policy ' * 24}".strip()
    steps = (Question("copy", "does B have the copy?").no(text),)
    out = StringIO()

    render_why(
        Console(file=out, width=10_000),
        replace(ANSWER, verdict=f"not copied: {text}", steps=steps),
    )

    shown = out.getvalue()
    assert shown.count(text) == 1
    assert "not copied: policy violation: a line of the policy" in shown.splitlines()[0]
    assert shown.splitlines()[0].endswith(" ...")
