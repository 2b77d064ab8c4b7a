"""The example in Java follows the routing records with Kafka's client alone."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.acknowledgements import acks_on
from tests.integration.moving import Site
from tests.integration.test_clients import committed, is_empty, tell
from tests.waiting import DEADLINE_S, eventually

from srm.domain.moves.announcements import Ack
from srm.domain.moves.routing import Route
from srm.domain.names import internal_topics
from srm.engine.moves.context import SIDES, ensure_topics
from srm.engine.moves.history import ClientsHistory
from srm.engine.moves.registers import Registers
from srm.engine.moves.tables import ControlChange
from srm_lab.stack.jars import kafka_class_path
from srm_lab.stack.java import find_java

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

LEASE_S = 6
EXAMPLE = Path(__file__).parents[2] / "examples" / "java" / "FollowRoute.java"
NEEDED = ("kafka-clients", "slf4j-api", "zstd-jni", "lz4-java", "snappy-java")
"""The client and what Maven brings with it: records may be compressed in any of these ways."""


@pytest.fixture
def site(site: Site) -> Site:
    with site.context(site.p, site.b) as context:
        ensure_topics(context)
    return site


class Example:
    """The example as a process; what it prints is ``cluster value`` a line."""

    def __init__(self, site: Site, home: Path, group: str) -> None:
        jars = [
            jar for jar in kafka_class_path().split(os.pathsep) if Path(jar).name.startswith(NEEDED)
        ]
        java, self._home = str(find_java().program), home
        compiler = ["-m", "jdk.compiler/com.sun.tools.javac.Main", "-Xlint:all", "-Werror"]
        path = os.pathsep.join(jars)
        subprocess.run([java, *compiler, "-d", str(home), "-cp", path, str(EXAMPLE)], check=True)
        arguments = []
        for alias in (site.p, site.b):
            file = home / f"{alias}.properties"
            servers = site.config.client(alias, "consumer")["bootstrap.servers"]
            file.write_text(f"bootstrap.servers={servers}\n")
            arguments.append(f"{alias}={file}")
        small = ["-Xmx96m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [
                    *(java, *small, "-cp", os.pathsep.join([str(home), path])),
                    *("FollowRoute", group, site.topic, *arguments),
                ],
                stdout=out,
                stderr=err,
            )

    @property
    def printed(self) -> list[str]:
        assert self.process.poll() is None, (self._home / "err").read_text()[-2000:]
        return (self._home / "out").read_text().splitlines()


def load(site: Site, alias: str, name: str) -> None:
    producer = Producer(site.config.client(alias, "producer"))
    for number in range(5):
        producer.produce(site.topic, f"{name}{number}", partition=0)
    assert producer.flush(DEADLINE_S) == 0


def acks(site: Site, alias: str, subject: str) -> list[Ack]:
    return [ack for ack in acks_on(site.clusters[alias]) if ack.subject == subject]


def has_said(site: Site, alias: str, subject: str, state: str, generation: int) -> bool:
    """Whether a client has ever acknowledged so; it may have come to something else since."""
    acks = (one.ack for one in ClientsHistory.read_all(site.clusters[alias]).messages())
    return (subject, state, generation) in ((a.subject, a.state, a.generation) for a in acks)


def hold_shortly(site: Site, subject: str, generation: int) -> None:
    """Write a hold that nobody renews, as of a move whose runner dies; it stands for LEASE_S."""
    with site.context(site.p, site.b) as context:
        registers = Registers(context)
        route = Route(generation, site.b, "hold", "dying", lease_ms=LEASE_S * 1000, beat=1)

        def write() -> None:
            for side in SIDES:
                registers.write(side, ControlChange({subject: route}))

        registers.run("a test", write)


def test_the_example_reads_where_the_records_say_and_says_so(site: Site, tmp_path: Path) -> None:
    group = site.group("java")
    subject = f"group:{group}"
    load(site, site.p, "p")
    load(site, site.b, "b")
    example = Example(site, tmp_path, group)
    try:
        eventually(lambda: len(example.printed) == 5, "it reads on its home cluster")
        eventually(lambda: has_said(site, site.p, subject, "resumed", 0), "announced")

        tell(site, subject, site.p, "hold")
        eventually(lambda: has_said(site, site.p, subject, "held", 1), "acknowledged")
        eventually(lambda: is_empty(site, group), "it has left")
        assert committed(site, site.p, group)[f"{site.topic}-0"] == 5

        tell(site, subject, site.b, "go")
        eventually(lambda: has_said(site, site.b, subject, "resumed", 2), "counted")
        eventually(lambda: len(example.printed) == 10, "it reads on the other cluster")
        eventually(lambda: has_said(site, site.b, subject, "processed", 2), "processed")
        [ack] = acks(site, site.b, subject)
        assert (ack.home, bool(ack.host), ack.positions[f"{site.topic}-0"]) == (site.p, True, 0)

        began = time.monotonic()
        hold_shortly(site, subject, 3)
        eventually(lambda: has_said(site, site.b, subject, "held", 3), "held")
        load(site, site.b, "c")
        eventually(lambda: has_said(site, site.b, subject, "resumed", 3), "the lease is over")
        assert time.monotonic() - began >= LEASE_S
        eventually(lambda: len(example.printed) == 15, "it reads on")
        assert example.printed == [f"{site.p} p{n}" for n in range(5)] + [
            f"{site.b} {name}{n}" for name in "bc" for n in range(5)
        ]
    finally:
        example.process.send_signal(signal.SIGTERM)
        code = example.process.wait(120)

    assert code == 128 + signal.SIGTERM
    assert [acks(site, alias, subject) for alias in (site.p, site.b)] == [[], []]


def test_the_example_passes_over_old_records_of_a_cluster_and_fields_it_does_not_know(
    site: Site, tmp_path: Path
) -> None:
    group = site.group("java")
    load(site, site.b, "b")
    key = f"group:{group}".encode()
    newest = (
        f'{{"new": "x", "generation": {1 << 32}, "cluster": "{site.b}", "state": "go", '
        f'"move_id": "m", "time_ms": 1, "decided": true}}'
    )
    later = Route(9, site.p, "hold", "m", lease_ms=60_000, beat=1)
    site.clusters[site.b].compacted_topic(internal_topics.ROUTING).write({key: newest.encode()})
    site.clusters[site.p].compacted_topic(internal_topics.ROUTING).write({key: later.value()})
    example = Example(site, tmp_path, group)
    try:
        eventually(lambda: len(example.printed) == 5, "it reads on B")
    finally:
        example.process.kill()
        example.process.wait(120)
