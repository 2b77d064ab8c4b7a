"""The whole application as a process of its own: Spark, slots and driver on real brokers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.processes import slot_workers

from srm.stack.kafka import KafkaBroker
from srm.testing.logs import first_difference, read_log

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.faults, pytest.mark.timeout(300)]

START_S = 200.0


def eventually(condition: Callable[[], object], what: str, deadline_s: float = 60.0) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s: {what}"
        time.sleep(0.1)


class Site:
    """One flow under aliases of its own, with one topic of two partitions."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], folder: Path) -> None:
        unique = uuid.uuid4().hex[:6]
        self.source, self.target = clusters["P"].bootstrap, clusters["B"].bootstrap
        self.aliases = f"P{unique}", f"B{unique}"
        self.flow = "->".join(self.aliases)
        self.topic = f"payments{unique}"
        self.remote = f"{self.aliases[0]}.{self.topic}"
        self.config = folder / "srm.properties"
        self.log = folder / "replicator.log"
        self.config.write_text(
            f"clusters = {', '.join(self.aliases)}\n"
            f"{self.aliases[0]}.bootstrap.servers = {self.source}\n"
            f"{self.aliases[1]}.bootstrap.servers = {self.target}\n"
            f"{self.flow}.enabled = true\n"
            f"topics = payments{unique}\n"
            "heartbeats.replication.enabled = false\n"
            "replication.factor = 1\n"
            "offset-syncs.topic.replication.factor = 1\n"
            "checkpoints.topic.replication.factor = 1\n"
            "heartbeats.topic.replication.factor = 1\n"
        )
        admin = AdminClient({"bootstrap.servers": self.source})
        admin.create_topics([NewTopic(self.topic, 2, 1)])[self.topic].result()

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.source, "linger.ms": 5})
        for number in range(count):
            producer.produce(self.topic, f"payment {number}".encode(), partition=number % 2)
        assert producer.flush(30) == 0

    def copied(self) -> int:
        admin = AdminClient({"bootstrap.servers": self.target})
        if self.remote not in admin.list_topics(timeout=10).topics:
            return 0
        return sum(len(read_log(self.target, self.remote, number)) for number in range(2))

    def differences(self) -> list[str | None]:
        return [
            first_difference(
                read_log(self.source, self.topic, number),
                read_log(self.target, self.remote, number),
            )
            for number in range(2)
        ]

    def command(self, *options: str) -> list[str]:
        program = [sys.executable, "-m", "srm.cli.main", "replicate"]
        return [*program, "--config", str(self.config), "--flow", self.flow, *options]


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Site:
    return Site(clusters, tmp_path)


@pytest.fixture
def application(site: Site) -> Iterator[psutil.Process]:
    with site.log.open("wb") as log:
        child = subprocess.Popen(
            site.command(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield psutil.Process(child.pid)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(30)


def test_a_killed_worker_is_replaced_and_sigterm_ends_everything(site, application):
    """Kill -9 of the slot's worker loses and repeats nothing; a clean end leaves no process."""
    site.produce(5_000)
    eventually(lambda: site.copied() == 5_000, f"first copy, see {site.log}", START_S)
    (worker,) = slot_workers(application)
    everything = [application, *application.children(recursive=True)]

    worker.kill()
    site.produce(5_000)
    eventually(lambda: site.copied() >= 10_000, "copy by the new worker")
    (successor,) = slot_workers(application)
    everything.append(successor)
    application.terminate()
    code = application.wait(20)
    _, left = psutil.wait_procs(everything, timeout=10)

    assert site.differences() == [None, None]
    assert successor.pid != worker.pid
    assert (code, left) == (0, [])
    assert "Python worker exited unexpectedly" in site.log.read_text()


def test_until_caught_up_ends_with_everything_copied_and_says_so_in_json(site):
    site.produce(3_000)

    done = subprocess.run(
        site.command("--until-caught-up", "--json"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert site.differences() == [None, None]
    last = json.loads(done.stdout.splitlines()[-1])
    assert (last["flow"], last["partitions"], last["lag"]) == (site.flow, 2, 0)
