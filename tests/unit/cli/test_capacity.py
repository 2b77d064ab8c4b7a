"""``srm capacity`` as text and as JSON, of clusters in memory and of a topic that is only asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from srm.cli import each_flow
from srm.cli.capacity import parse_size
from srm.cli.main import app
from srm.config.model import Config
from srm.domain.topics import Flow
from srm.engine.ports import FlowContext
from srm.errors import UsageError
from srm.testing.clock import FakeClock
from srm.testing.fake_cluster import FakeCluster
from srm.testing.fake_maps import FakeMapReader

CORES = ("replicator", "source", "target")
PROPERTIES = """
clusters = P, B
P.bootstrap.servers = localhost:1
B.bootstrap.servers = localhost:2
P->B.enabled = true
P->B.topics = pay.*
"""
WHAT_IF = ("capacity", "--rate", "100MB", "--batch", "1KB", "--partitions", "1000")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "srm.properties"
    path.write_text(PROPERTIES)
    return path


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Put two clusters in memory behind the command."""
    clusters = {alias: FakeCluster(alias) for alias in ("P", "B")}
    clock, maps = FakeClock(), FakeMapReader()
    clusters["P"].add_topic("pay[eu]", 3)
    clusters["P"].produce("pay[eu]", 0, 7200, timestamp_ms=clock() - 1000)
    clusters["P"].add_topic("pay-none")
    clusters["P"].add_topic("other")

    @contextmanager
    def open_flow(config: Config, flow: Flow, **_access: float) -> Iterator[FlowContext]:
        yield FlowContext(
            config.flow(flow), clusters[flow.source], clusters[flow.target], maps, maps, clock
        )

    monkeypatch.setattr(each_flow, "open_flow", open_flow)
    return clusters["P"]


def run(*command: str) -> Result:
    return CliRunner().invoke(app, list(command), env={"COLUMNS": "200"})


def test_a_flows_topics_are_shown_with_what_they_cost(config: Path, source: FakeCluster) -> None:
    result = run("capacity", "--config", str(config), "--window", "1")

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == (
        "P->B: 2 topics, watched for 1 s; cores of the replicator with 1 slot and of both sides' "
        "brokers at each topic's peak"
    )
    assert lines[2].split() == ["pay[eu]", "3", "0.00", "2", "720.1", *lines[2].split()[5:8],
                                "none", "hour"]  # fmt: skip
    assert lines[3].split()[:6] == ["pay-none", "1", "0.00", "0", "-", "0.00"]
    assert "1 slot will do at this peak, tasks.max is 1" in result.stdout
    assert source.alias == "P"


def test_json_has_every_figure(config: Path, source: FakeCluster) -> None:
    result = run("capacity", "-c", str(config), "-f", "P->B", "--window", "1", "--json")

    [flow] = json.loads(result.stdout)
    assert flow["flow"] == {"source": "P", "target": "B"}
    assert flow["tasks_max"] == 1
    assert [row["topic"] for row in flow["topics"]] == ["pay[eu]", "pay-none"]
    row = flow["topics"][0]
    assert row["load"] == {
        "partitions": 3,
        "megabytes_per_s": pytest.approx(720_061 / 3600 / 1e6),
        "batch_bytes": 720_061.0,
        "records_per_s": 2.0,
        "codec": "none",
    }
    assert (row["peak"], row["sampled"]) == ("hour", True)
    assert set(flow["capacity"]) >= {"slots", "total", "shared", "catch_up_megabytes_per_s"}
    assert source.alias == "P"


def test_what_if_asks_no_cluster() -> None:
    text, data = run(*WHAT_IF), run(*WHAT_IF, "--json")

    assert text.exit_code == 0, text.output
    assert text.stdout.startswith("100 MB/s in batches of 1 KB, 1,000 partitions: ")
    assert "a backlog is copied at" in text.stdout
    found = json.loads(data.stdout)
    figures = found["capacity"]
    assert found["load"]["batch_bytes"] == 1000
    assert figures["slots"] == found["slots_needed"] >= 1
    assert figures["total"]["replicator"] > figures["shared"]["replicator"]


def test_more_slots_than_are_needed_are_reckoned_with_where_they_are_meant() -> None:
    few, many = run(*WHAT_IF), run(*WHAT_IF, "--slots", "30")

    assert few.stdout.splitlines()[0] == many.stdout.splitlines()[0]
    assert "cores with 30 slots" in many.stdout


def test_a_narrow_terminal_gets_the_columns_that_decide(
    config: Path, source: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srm.cli.output.open_console", lambda: Console(width=80))
    source.produce("pay[eu]", 1, 10)
    result = CliRunner().invoke(app, ["capacity", "-c", str(config), "--window", "1"])

    header, row = result.stdout.splitlines()[1:3]
    assert header.split()[3:] == ["partitions", "MB/s", "batch", "KB", *CORES]
    assert row.split()[0] == "pay[eu]"


def test_a_plan_that_partitions_are_too_few_for_is_none() -> None:
    command = (
        "capacity",
        "--rate",
        "50MB",
        "--batch",
        "1KB",
        "--partitions",
        "1",
        "--codec",
        "gzip",
    )
    text, data = run(*command), run(*command, "--json")

    assert "partitions are too few" in text.stdout
    assert "planned" not in text.stdout
    assert " partitions would do" in text.stdout
    figures = json.loads(data.stdout)["capacity"]
    assert figures["busy"] > 1
    assert figures["partitions_needed"] > 1


def test_compression_is_part_of_the_question() -> None:
    result = run(*WHAT_IF, "--codec", "lz4")

    assert "batches of 1 KB, lz4, 1,000 partitions" in result.stdout


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["--rate", "1MB"], "--rate needs --batch and --partitions"),
        (["--batch", "1KB"], "go with --rate"),
        ([*WHAT_IF[1:], "--codec", "brotli"], "no codec"),
        ([*WHAT_IF[1:], "--flow", "P->B"], "--rate asks no cluster"),
        ([*WHAT_IF[1:], "--window", "3"], "--rate asks no cluster"),
        (["--slots", "3"], "go with --rate"),
        (["--rate", "much"], "'much' is no size"),
        (["--rate", "1MB", "--batch", "60B", "--partitions", "1"], "less than 70 B"),
        (["--rate", "1MB", "--batch", "1GB", "--partitions", "1"], "over 100 MB"),
        (["--rate", "much", "--batch", "1KB", "--partitions", "1"], "'much' is no size"),
    ],
)
def test_half_a_question_is_refused(command: list[str], said: str) -> None:
    result = run("capacity", *command)

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)


@pytest.mark.parametrize(
    ("text", "size"),
    [("100MB", 1e8), ("16KB", 16_000), ("1.5 GB", 1.5e9), ("512", 512), ("7m", 7e6), ("1B", 1),
     ("2MB/s", 2e6)],
)  # fmt: skip
def test_sizes_are_read(text: str, size: float) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1MB", "1TB", "KB", "1,5MB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)
