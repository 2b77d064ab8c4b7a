"""Commands over several flows: one that fails hides no other, and the exit code says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from srm.cli.flows import for_flows, groups
from srm.cli.main import app
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position, Run
from srm.engine.cluster_ports import TopicSpec
from srm.engine.metrics import aggregation
from srm.engine.metrics.aggregation import AggregationSummary
from srm.engine.metrics.metrics import WindowBounds
from srm.engine.ports import FlowContext
from srm.errors import NotFoundError, SrmError, UnavailableError, UsageError
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

PROPERTIES = """
clusters = P, B
P.bootstrap.servers = localhost:1
B.bootstrap.servers = localhost:2
P->B.enabled = {enabled}
B->P.enabled = {enabled}
topics = Payments
groups = .*
replication.factor = 1
checkpoints.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
sync.group.offsets.enabled = true
"""
GROUP = "billing [eu]"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "srm.properties"
    path.write_text(PROPERTIES.format(enabled="true"))
    return path


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> set[Flow]:
    """Put two clusters in memory behind the commands; flows in the returned set cannot open."""
    clusters = {alias: FakeCluster(alias) for alias in ("P", "B")}
    for alias, other in (("P", "B"), ("B", "P")):
        clusters[alias].add_topic("Payments")
        clusters[other].add_topic(f"{alias}.Payments")
        clusters[alias].produce("Payments", 0, 10)
        clusters[other].produce(f"{alias}.Payments", 0, 10)
    clusters["P"].commit(GROUP, {TopicPartition("Payments", 0): 4})
    maps = FakeMapReader()
    maps.put(TopicPartition("Payments", 0), [Run(0, 0, 10)], Position(10, 10, 10))
    unavailable: set[Flow] = set()

    @contextmanager
    def open_flow(config: Config, flow: Flow, **_access: bool) -> Iterator[FlowContext]:
        if flow in unavailable:
            raise UnavailableError(f"cluster {flow.target} does not answer")
        source, target = clusters[flow.source], clusters[flow.target]
        yield FlowContext(config.flow(flow), source, target, maps, maps, FakeClock())

    monkeypatch.setattr(for_flows, "open_flow", open_flow)
    monkeypatch.setattr(groups, "open_flow", open_flow)
    return unavailable


def run(*command: str) -> Result:
    return CliRunner().invoke(app, list(command), env={"COLUMNS": "200"})


@pytest.mark.parametrize(
    "command", [["checkpoints", "emit"], ["groups", "sync"], ["topics", "sync"], ["status"]]
)
def test_without_a_flow_all_enabled_ones_are_done_as_text_and_as_json(
    config: Path, down: set[Flow], command: list[str]
) -> None:
    text = run(*command, "--config", str(config))
    data = run(*command, "--config", str(config), "--json")

    assert (text.exit_code, data.exit_code) == (0, 0), text.output + data.output
    assert "B->P" in text.stdout
    assert [one["flow"] for one in json.loads(data.stdout)] == ["B->P", "P->B"]
    assert not down


def test_a_flow_that_fails_is_named_after_the_others_were_shown(
    config: Path, down: set[Flow]
) -> None:
    down.add(Flow("B", "P"))

    result = run("checkpoints", "emit", "--config", str(config))

    assert isinstance(result.exception, UnavailableError)
    assert "B->P: cluster P does not answer" in str(result.exception)
    assert "P->B: 1 group, 1 checkpoint written" in result.stdout


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("aggregate", "P->B: 1,200 raw records, 90 windows"),
        ("show", "/srm.properties --flow 'P->B'"),
    ],
)
def test_metrics_of_the_other_flows_are_shown_where_one_flow_fails(
    config: Path, down: set[Flow], monkeypatch: pytest.MonkeyPatch, command: str, shown: str
) -> None:
    down.add(Flow("B", "P"))

    def aggregate(context: FlowContext, *_: object) -> AggregationSummary:
        return AggregationSummary(context.config.flow, WindowBounds(0, 1), 1200, 0, windows=90)

    monkeypatch.setattr(aggregation, "aggregate", aggregate)

    result = run("metrics", command, "--config", str(config))

    assert isinstance(result.exception, UnavailableError)
    assert shown in result.stdout


def test_a_group_that_was_left_out_makes_the_command_fail(config: Path, down: set[Flow]) -> None:
    config.write_text(PROPERTIES.format(enabled="true").replace("groups = .*", "groups = a.*"))

    result = run("groups", "sync", "-c", str(config), "-f", "P->B", "--group", "other")

    assert isinstance(result.exception, SrmError)
    assert "other" in str(result.exception)
    assert not down


def test_names_with_brackets_are_shown_as_they_are(config: Path, down: set[Flow]) -> None:
    result = run("checkpoints", "emit", "--config", str(config), "--flow", "P->B", "--dry-run")

    assert GROUP in result.stdout
    assert not down


def test_translate_prints_both_places(config: Path, down: set[Flow]) -> None:
    result = run("translate", "-c", str(config), "-f", "P->B", "-t", "Payments", "--offset", "4")

    assert result.exit_code == 0
    assert result.stdout.split("->") == [
        "P Payments-0 offset 4  ",
        "  B P.Payments-0 offset 4\n",
    ]
    assert not down


@pytest.mark.parametrize("command", [["checkpoints", "emit"], ["groups", "sync"]])
def test_a_named_group_that_no_cluster_has_is_not_found(
    config: Path, down: set[Flow], command: list[str]
) -> None:
    result = run(*command, "-c", str(config), "-f", "P:B", "-g", "none", "-g", GROUP)

    assert isinstance(result.exception, NotFoundError)
    assert "no group none on P or B" in str(result.exception)
    assert result.stdout == ""
    assert not down


@pytest.mark.parametrize("where", [("-t", "None"), ("-t", "Payments", "-p", "7")])
def test_a_topic_or_partition_that_does_not_exist_is_not_found(
    config: Path, down: set[Flow], where: tuple[str, ...]
) -> None:
    result = run("translate", "-c", str(config), "-f", "P:B", *where, "--offset", "4")

    assert isinstance(result.exception, NotFoundError)
    assert not down


def test_no_enabled_flow_is_bad_input(config: Path, down: set[Flow]) -> None:
    config.write_text(PROPERTIES.format(enabled="false"))

    result = run("status", "--config", str(config))

    assert isinstance(result.exception, UsageError)
    assert "--flow" in str(result.exception)
    assert not down


def test_a_plan_of_topics_is_shown_and_applied_once_it_is_approved(
    config: Path, down: set[Flow]
) -> None:
    """A program approves with --yes; nothing is left to do then."""
    flow = ("--config", str(config), "--flow", "P:B")
    config.write_text(config.read_text() + "P->B.topics = Payments, New\n")
    with for_flows.open_flow(load_config(config), Flow("P", "B")) as context:
        context.source.create_topics([TopicSpec("New", 2, 1, {})])
        target = context.target

    shown = run("topics", "plan", *flow)
    refused = run("topics", "apply", *flow, "--json")
    assert "P.New" not in target.topics()
    applied = run("topics", "apply", *flow, "--json", "--yes")
    rest = run("topics", "apply", *flow, "--yes")

    assert "P.New  + topic  2 partitions" in shown.stdout
    assert isinstance(refused.exception, UsageError)
    assert [spec["name"] for spec in json.loads(applied.stdout)[0]["plan"]["create"]] == ["P.New"]
    assert target.topics()["P.New"].partitions == 2
    assert rest.stdout.endswith("nothing to do\n")
    assert not down
