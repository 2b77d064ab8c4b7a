"""The primary is killed in mid traffic, and returns; the harness counts for itself.

Everybody else uses the public commands only: the one on call, a deployment system that is called
by the redirector ``command``, and applications of three kinds.
"""

from __future__ import annotations

import json
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.integration.blackbox.audit import Event
from tests.integration.blackbox.programs import Client, Start, java, python
from tests.integration.blackbox.stage import Stage
from tests.integration.blackbox.test_follow import follow, followed_writer
from tests.replicating import at_work, replicating
from tests.waiting import eventually
from typer.testing import CliRunner

from srm.cli.main import app
from srm.domain.names.topics import Flow
from srm.engine.emission import emit
from srm.errors import UnavailableError
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

# Four applications, one of them a JVM, and brokers that come and go: a minute on an idle machine.
pytestmark = [pytest.mark.kafka, pytest.mark.integration]


LOST = ("--grace-lost", "2")


@pytest.fixture
def worst_day(
    primary: KafkaBroker, clusters: Mapping[str, KafkaBroker], tmp_path: Path, java_clients: str
) -> Iterator[Stage]:
    """A stage with its own primary, replicated both ways by drivers and slots."""
    made = Stage({"P": primary, "B": clusters["B"]}, tmp_path, java_clients)
    called = shlex.join([sys.executable, "-c", f"open({str(tmp_path / 'go')!r}, 'w')"])
    with made.site.path.open("a") as file:
        file.write(f"\n{made.p}->{made.b}.failover.command = {called}\n")
    there = Flow(made.p, made.b)
    try:
        with replicating(made.site.config, there, there.reverse), emitting(made, there):
            yield made
    finally:
        made.close()


@contextmanager
def emitting(stage: Stage, flow: Flow) -> Iterator[None]:
    """Emit the checkpoints of a flow, as srm's periodic DAGs do."""

    def keep_up(over: threading.Event) -> None:
        with open_flow(stage.site.config, flow) as context:
            while not over.wait(1):
                with suppress(UnavailableError):  # the primary is dead
                    emit(context)

    with at_work(keep_up):
        yield


def await_checkpoints(stage: Stage, groups: list[str]) -> None:
    """Wait until an unplanned move knows where each group is, and may start."""

    def known() -> bool:
        named = [part for group in groups for part in ("--group", group)]
        pair = ("--source", stage.p, "--target", stage.b, "--topic", stage.topic)
        plan = stage.operator.ask("plan", "--mode", "unplanned", *pair, *named)
        return all(len(group["positions"]) for group in plan["groups"]) and not plan["blocking"]

    eventually(known, "all groups have checkpoints")


def srm(stage: Stage, *arguments: str) -> tuple[int, str]:
    """Run a command of srm; return its exit code and what it prints."""
    done = CliRunner().invoke(app, [*arguments, "--config", str(stage.site.path)])
    return done.exit_code, done.stdout


def java_reader(stage: Stage) -> Client:
    """A consumer in Java that knows nothing of srm, under ``srm follow``."""
    group = stage.site.group("java")

    def command(start: Start) -> list[str]:
        program = java(
            stage._class_path,
            *("PlainClient", "consume"),
            bootstrap="{{ bootstrap_servers }}",
            cluster="{{ cluster }}",
            topics="{{ topics }}",
            group=group,
            reset="earliest",
            record=start.record,
        )
        options = ("--group", group, "--topic", stage.topic, *LOST)
        return follow(stage, *options, program=program)

    return stage._reader("java", command)


def client_reader(stage: Stage) -> Client:
    """A consumer built on srm.client."""
    group = stage.site.group("client")

    def command(start: Start) -> list[str]:
        return python(
            "failover.py",
            config=stage.site.path,
            group=group,
            topic=stage.topic,
            record=start.record,
        )

    return stage._reader("client", command)


def lost_and_twice(reader: Client, acked: list[Event]) -> tuple[set[str], int]:
    times = Counter(e.id for e in reader.events if e.kind == "processed")
    return {e.id for e in acked} - set(times), sum(n - 1 for n in times.values())


def test_the_primary_dies_in_mid_traffic_and_comes_back_with_its_data(
    worst_day: Stage, primary: KafkaBroker
) -> None:
    stage = worst_day
    writer = followed_writer(stage, *LOST, rate=150)
    plain = stage.reader("plain", reset="earliest", store=True)
    follower, own = java_reader(stage), client_reader(stage)
    readers = (plain, follower, own)
    groups = [reader.group for reader in readers]
    stage.start(stage.p, writer, *readers)
    eventually(lambda: all(r.count("processed") > 300 for r in readers), "all work on P")

    await_checkpoints(stage, groups)

    primary.kill()
    plain.kill()  # it went down with its site; the deployment system starts it elsewhere
    at_death = list(stage.acked)
    choices = ("--mode", "unplanned", "--yes", "--redirect", "command")
    with stage.run("worst", stage.p, *choices, groups=groups) as move:
        eventually((stage.home / "go").exists, "the deployment system is called")
        plain.start(stage.b, stage.bootstrap[stage.b])
        report = move.report()

    eventually(lambda: writer.events[-1].cluster == stage.b, "the writer writes on B")
    eventually(
        lambda: all(r.events and r.events[-1].cluster == stage.b for r in readers), "all read on B"
    )
    forecast: Any = report["forecast"]
    written = [event for event in stage.acked if event.cluster == stage.b]
    at_most = sum(topic["at_most"] for topic in forecast["topics"])
    bounds = {group["group"]: group["re_read"] for group in forecast["groups"]}
    for reader in readers:
        eventually(lambda r=reader: not lost_and_twice(r, written)[0], "B's are read")
        lost, twice = lost_and_twice(reader, at_death)
        assert len(lost) <= at_most, (reader.name, len(lost), forecast)
        assert twice <= bounds[reader.group], (reader.name, twice, forecast)

    primary.start()
    primary.wait_ready()
    flow = ("--flow", f"{stage.p}->{stage.b}")
    code, said = srm(stage, "return", "status", *flow, "--json")
    assert (code, json.loads(said)["shape"]) == (0, "same"), said
    assert srm(stage, "return", "settle", *flow, "--default", "merge", "--yes")[0] == 0
    stage.stop(writer)
    for reader in readers:
        stage.await_read(reader)
    stage.await_copied(stage.p)
    stage.stop(*readers)
    outcome = stage.operator.ask("report", report["move_id"])["outcome"]
    residue = sum(partition["records"] for partition in outcome["partitions"])
    already = {name: sum(g["already_read"].values()) for name, g in outcome["groups"].items()}
    for reader in readers:
        _, twice = lost_and_twice(reader, stage.acked)
        assert already.get(reader.group, 0) <= residue, outcome
        # Of what was merged each reader may have processed more than it had committed.
        bound = bounds[reader.group] + residue
        assert twice <= bound, (reader.name, twice, bound, outcome)
