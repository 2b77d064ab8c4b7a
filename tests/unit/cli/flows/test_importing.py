"""``srm import`` takes the workers of MirrorMaker 2 and the lists of SRM from files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from srm.cli.flows import importing
from srm.cli.main import app
from srm.config.model import Config
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REPORTS,
    AssignedPartition,
    DriverHeartbeat,
    Incarnation,
    PartitionPosition,
)
from srm.domain.flow_state.slot_records import PositionGroup
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.alignment import AlignedCopy
from srm.domain.offset_map.offset_map import Position
from srm.domain.offset_map.runs import Runs
from srm.domain.recovery.adoption import AdoptedCopy, AdoptionPlan
from srm.engine.ports import FlowContext
from srm.errors import ConflictError
from srm.replication import adoption
from srm.replication.adoption import AdoptionContext
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.flows import FakeClock

IDS = "A" * 22, "B" * 21 + "A"
PROPERTIES = """\
clusters = P, B
P.bootstrap.servers = p:9092
B.bootstrap.servers = b:9092
P->B.enabled = true
"""


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Put two clusters in memory behind the command; no remote topic exists."""
    source, target = FakeCluster("P"), FakeCluster("B")
    source.add_topic("Payments")
    unused: Any = object()

    @contextmanager
    def open_adoption(config: Config, flow: Flow, by: str) -> Iterator[AdoptionContext]:
        maps = FakeMapReader()
        given = config.flow(flow), source, target, maps, maps, FakeClock()
        context = FlowContext(*given, switch=unused)
        starts: Any = SimpleNamespace(load=lambda _: {})
        yield AdoptionContext(context, unused, starts, unused, by)

    monkeypatch.setattr(importing, "open_adoption", open_adoption)
    return target


def run(path: Path, *command: str, lines: str = "", mode: str = "--dry-run") -> Result:
    file = path / "srm.properties"
    file.write_text(PROPERTIES + lines)
    options = "--config", str(file), mode, "--json"
    return CliRunner().invoke(app, ["import", *command, *options])


def copied(stored: int | None) -> AdoptedCopy:
    found = AlignedCopy(Runs(), 50, 50, 0, (), 0, (), (), 0, ())
    return AdoptedCopy(AssignedPartition("T", 0, IDS[0], "P.T", IDS[1]), 50, 50, found, stored)


def test_lists_of_srm_count_in_a_dry_run_and_are_not_written(
    target: FakeCluster, tmp_path: Path
) -> None:
    lists = tmp_path / "topics.txt"
    lists.write_text("Current whitelist:\nPay.*\nCurrent blacklist:\nDone.\n")

    refused = run(tmp_path, "srm", "--flow", "P->B")
    result = run(tmp_path, "srm", "--flow", "P->B", "--list", f"topics={lists}")

    assert "P->B selects no topics" in str(refused.exception)
    assert result.exit_code == 0, result.exception
    assert target.topics() == {}


def test_the_workers_that_the_file_names_keep_a_copy(target: FakeCluster, tmp_path: Path) -> None:
    lines = "P->B.topics = Payments\nB.group.id = connect\noffset.storage.topic = offsets\n"
    target.join("connect", "worker")

    [outcome] = json.loads(run(tmp_path, "mm2", lines=lines).stdout)

    assert outcome["running"] == "group connect on B has members worker@127.0.0.1"


def test_positions_are_read_from_the_topic_of_the_file(
    target: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def read(cluster: FakeCluster, topic: str, _flow: Flow) -> dict[TopicPartition, int]:
        assert cluster is target
        asked.append(topic)
        return {}

    monkeypatch.setattr("srm.engine.groups.offsets_export.read_mm2_positions", read)
    lines = "P->B.topics = Payments\n"
    run(tmp_path, "mm2", lines=lines)
    run(tmp_path, "mm2", lines=f"{lines}B.offset.storage.topic = offsets\n")
    assert list(dict.fromkeys(asked)) == ["mm2-offsets.P.internal", "offsets"]


def test_workers_that_a_disabled_flow_keeps_for_its_heartbeats_are_explained(
    target: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = AdoptionPlan(Flow("P", "B"), (copied(49),), "group P-mm2 on B has members worker")
    monkeypatch.setattr(adoption, "plan", lambda *_: found)

    error = run(tmp_path, "mm2", lines="P->B.topics = T\n", mode="--yes").exception

    assert isinstance(error, ConflictError)
    assert str(error).startswith("MirrorMaker 2 still runs: group P-mm2 on B has members worker")
    assert "set its emit.heartbeats.enabled = false, too" in error.action
    assert target.topics() == {}


@pytest.mark.parametrize("stored", [None, 49])
def test_copies_without_a_position_of_mirror_maker_are_a_warning(
    target: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: int | None
) -> None:
    found = AdoptionPlan(Flow("P", "B"), (copied(stored),))
    monkeypatch.setattr(adoption, "plan", lambda *_: found)

    result = run(tmp_path, "mm2", lines="P->B.topics = T\n")

    assert ("no position of MirrorMaker 2 is there" in result.stderr) == (stored is None)
    assert json.loads(result.stdout)[0]["copies"][0]["state"] == "adopt"
    assert target.topics() == {}


@pytest.mark.parametrize("sign", ["growth", "position"])
def test_what_srms_own_replicator_copies_now_is_not_ascribed_to_mirror_maker(
    target: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str
) -> None:
    async def walked(*_: object) -> list[AdoptedCopy]:
        return [copied(None)]

    monkeypatch.setattr("srm.replication.adoption._Walks.all", walked)
    for name in ("P.Payments", "P.T"):
        target.add_topic(name)
    target.produce("P.T", records=60 if sign == "growth" else 50)
    state, now_ms = internal_topics.replication("P"), FakeClock().time_ms
    beat = DriverHeartbeat("d", "app", "host", 1, now_ms)
    target.add_topic(state, 2)
    target.compacted_topic(state).write({DRIVER_KEY: beat.value()})
    if sign == "position":
        entry = PartitionPosition(IDS[0], 0, IDS[1], Position(40, 41, 50), 7, 1)
        group = PositionGroup("0", Incarnation(1, "aa"), "0", (entry,))
        target.compacted_topic(state, REPORTS).write({group.key(): group.value()})

    error = run(tmp_path, "mm2", lines="P->B.topics = Payments\n").exception

    assert isinstance(error, ConflictError)
    assert str(error) == ("srm replicates P->B already, on host; srm replicator stop --flow 'P->B'")
