"""Programs that know nothing of srm follow a move by themselves, under ``srm follow``."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.acknowledgements import acks_on
from tests.integration.blackbox.programs import Client, Start, java, python
from tests.integration.blackbox.stage import Stage
from tests.integration.moving import Site
from tests.waiting import eventually

from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.engine.moves.context import ensure_topics

# Three supervisors, and a JVM among their programs: half a minute on an idle machine.
pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def free_port() -> Iterator[int]:
    """A port of which nobody answers, for as long as the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def follow(stage: Stage, *options: str, program: Sequence[str]) -> list[str]:
    """Command line of a program under ``srm follow``."""
    command = [sys.executable, "-m", "srm.cli.main", "follow", "--config", str(stage.site.path)]
    return [*command, *options, "--", *program]


def followed_writer(stage: Stage, *options: str, rate: int = 100) -> Client:
    """A producer that knows nothing of srm, under ``srm follow``."""

    def command(start: Start) -> list[str]:
        program = python(
            "produce.py",
            bootstrap="{{ bootstrap_servers }}",
            cluster="{{ cluster }}",
            topic="{{ topics }}",
            record=start.record,
            prefix=f"shop{start.number}x{{{{ generation }}}}",
            rate=rate,
        )
        return follow(stage, "--producer", "--topic", stage.topic, *options, program=program)

    return stage._writer("shop", command)


def reader(stage: Stage) -> Client:
    """A consumer that does not go by the name it is given, and subscribes to a pattern."""

    def command(start: Start) -> list[str]:
        program = python(
            "consume.py",
            bootstrap="{{ bootstrap_servers }}",
            cluster="{{ cluster }}",
            topic="{{ topic_pattern }}",
            group="{{ group }}",
            record=start.record,
            reset="earliest",
            store=True,
        )
        group = stage.site.group("plain")
        return follow(stage, "--group", group, "--topic", stage.topic, program=program)

    return stage._reader("plain", command)


class Console:
    """Kafka's own console consumer: its settings come from a file, with the name it is given."""

    def __init__(self, stage: Stage) -> None:
        self.group = stage.site.group("console")
        self._printed = stage.home / "console.out"
        settings = str(stage.home / "console.properties")
        program = java(
            stage._class_path,
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", "{{ bootstrap_servers }}"),
            *("--include", "{{ topic_pattern }}"),
            *("--command-config", settings, "--from-beginning"),
        )
        options = ("--group", self.group, "--topic", stage.topic, "--properties", settings)
        command = follow(stage, *options, program=program)
        # It keeps no record of its own, so the stage only has to end it.
        self.client = stage._writer("console", lambda _start: command)

    @property
    def printed(self) -> Counter[str]:
        out = self._printed
        lines = out.read_text(errors="replace").splitlines() if out.exists() else []
        return Counter(line for line in lines if line.startswith("shop"))


def said(stage: Stage, alias: str) -> list[Ack]:
    return list(acks_on(stage.site.clusters[alias]))


def test_any_programs_move_there_and_back_and_nothing_is_lost_or_read_twice(stage: Stage) -> None:
    with stage.site.context(stage.p, stage.b) as context:
        ensure_topics(context)  # as the first move does
    shop, plain, console = followed_writer(stage), reader(stage), Console(stage)
    groups = [plain.group, console.group]
    stage.start(stage.p, shop, plain, console.client)
    eventually(lambda: plain.count("processed") > 100 and console.printed, "all work on P")
    plans: list[Any] = []

    def ready() -> bool:
        plans.append(stage.operator.plan(stage.p, stage.b, stage.topic, groups))
        pending = f"group {console.group} has committed nothing: "
        return not (plans[-1]["blocking"] or pending in "; ".join(plans[-1]["warnings"]))

    eventually(ready, "nothing is in the way, and the console has committed")
    assert not [line for line in plans[-1]["warnings"] if console.group in line], plans[-1]
    with stage.run("there", stage.p, groups=groups) as move:
        there = move.report()
    eventually(lambda: shop.events[-1].cluster == stage.b, "the writer writes on B")

    held_on_b = f"held on {stage.b}"
    with stage.run("back", stage.b, groups=groups) as move:
        for client in (shop, plain):
            eventually(
                lambda log=stage.home / f"{client.name}.log": held_on_b in log.read_text(), "held"
            )
            client.kill()
            client.start(stage.b, "")
        back = move.report()
    eventually(lambda: shop.events[-1].cluster == stage.p, "the writer writes on P again")
    stage.stop(shop)
    expected = {event.id for event in stage.acked}
    eventually(lambda: set(console.printed) >= expected, "the console has it all")
    stage.await_read(plain)
    stage.stop(plain, console.client)

    assert stage.count(plain).clean, stage.count(plain)
    assert console.printed == Counter(expected)
    for report in (there, back):
        for group in groups:
            found = report["groups"][group]
            assert (found["skipped"], found["re_read"]) == (0, 0), report
            assert found["resumed"], report
        assert report["ok"], report["problems"]
    # Whoever has ended in order has taken back what it said; a killed supervisor could not.
    left = {ack.subject for alias in (stage.p, stage.b) for ack in said(stage, alias)}
    assert not [subject for subject in left if console.group in subject]


def test_a_program_starts_where_the_living_cluster_says_while_its_home_is_dead(
    site: Site, tmp_path: Path, free_port: int
) -> None:
    """An unplanned move has sent the group away: its generation is beyond 32 bits."""
    with site.context(site.p, site.b) as context:
        ensure_topics(context)
    group = site.group("g")
    route = Route(1 << 33, "Living", "go", "m", decided=True)
    key = f"group:{group}".encode()
    site.clusters[site.b].compacted_topic(internal_topics.ROUTING).write({key: route.value()})
    file = tmp_path / "srm-client.properties"
    file.write_text(
        f"""
        clusters = Dead, Living
        Dead.bootstrap.servers = 127.0.0.1:{free_port}
        Living.bootstrap.servers = {site.servers[site.b]}
        """
    )
    command = [sys.executable, "-m", "srm.cli.main", "follow", "--config", str(file)]
    options = ["--group", group, "--topic", "T", "--json-logs", "--restart", "never"]
    program = ["sh", "-c", 'echo "$SRM_CLUSTER $SRM_GENERATION $SRM_TOPICS"; exit 3']
    done = subprocess.run(
        [*command, *options, "--", *program],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.stdout == f"Living {1 << 33} T,Dead.T\n"
    assert done.returncode == 3
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert [e["event"] for e in events if e["event"] != "log"] == [
        "reading",
        "go",
        "started",
        "ended",
    ]
