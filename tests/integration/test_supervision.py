"""Ending a replicator by a record in Kafka: real brokers, drivers in other processes."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.replicating import configure
from tests.waiting import eventually

from srm.cli import main as cli
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import CompactedTopic
from srm.engine.flows import supervision
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(600)]

PROGRAM = [sys.executable, "-m", "tests.integration.driver_process"]
END_S = 120.0


class Lab:
    """One flow with aliases of its own and the programs that drive it."""

    def __init__(self, file: Path, flow: Flow, topic: CompactedTopic) -> None:
        self.file, self.flow, self.topic = file, flow, topic
        self.programs: list[subprocess.Popen[bytes]] = []

    def command_of(self, name: str) -> list[str]:
        return [*PROGRAM, name, str(self.file), str(self.flow)]

    def drive(self, name: str) -> subprocess.Popen[bytes]:
        """Start a driver and wait for its first heartbeat."""
        program = subprocess.Popen(self.command_of(name))
        self.programs.append(program)
        eventually(lambda: self.driver() == (name, False), f"a heartbeat of {name}", END_S)
        return program

    def signs(self) -> supervision.FlowSigns:
        return supervision.read_signs(self.flow, self.topic.read())

    def driver(self) -> tuple[str, bool] | None:
        found = self.signs().driver
        return (found.driver, found.ended) if found else None

    def command(self, *words: str) -> None:
        cli.app(["replicator", *words, "-c", str(self.file), "--json"], standalone_mode=False)


@pytest.fixture
def lab(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Lab]:
    unique = uuid.uuid4().hex[:6]
    flow = Flow(f"P{unique}", f"B{unique}")
    file = tmp_path / "srm.properties"
    config = configure(
        file,
        {flow.source: clusters["P"].bootstrap, flow.target: clusters["B"].bootstrap},
        f"topics = none-{unique}",
    )
    with open_flow(config, flow) as context:
        made = Lab(file, flow, supervision.state_topic(context))
        yield made
        for program in made.programs:
            program.kill()
            program.wait(END_S)


def test_a_driver_on_another_host_ends_by_command_and_its_successor_is_left_alone(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process id is used: all that both sides know is the flow."""
    first = lab.drive("first")

    lab.command("stop", "--wait", str(END_S))

    [answer] = json.loads(capsys.readouterr().out)
    assert (answer["outcome"], answer["host"]) == ("ended", "elsewhere")
    assert first.wait(END_S) == 0
    assert lab.driver() == ("first", True)
    assert lab.signs().stopped_by is not None

    second = lab.drive("second")
    beat = lab.signs().beat
    eventually(lambda: lab.signs().beat > beat, "another heartbeat of the second", END_S)
    assert second.poll() is None, "the request is older than this driver"
    assert lab.signs().stopped_by is None, "somebody has started it by hand"
