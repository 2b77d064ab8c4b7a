"""MirrorMaker 2 itself is killed in mid copy, taken over, and continues after srm."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.integration.kafka_tools import running_tool
from tests.replicating import configure
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.groups import offsets_export
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(1200),
]

COUNT = 8_000
PARTITIONS = 2


class Site:
    """Two clusters, a topic, and one file for both programs."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], folder: Path) -> None:
        unique = uuid.uuid4().hex[:6]
        self.source, self.target = f"P{unique}", f"B{unique}"
        self.flow = Flow(self.source, self.target)
        self.topic, self.group = f"pay{unique}", f"g{unique}"
        self.remote = f"{self.source}.{self.topic}"
        self.file = folder / "mm2.properties"
        self.servers = {self.source: clusters["P"].bootstrap, self.target: clusters["B"].bootstrap}
        self.config = configure(
            self.file,
            self.servers,
            f"{self.target}->{self.source}.enabled = false",
            f"{self.target}->{self.source}.emit.heartbeats.enabled = false",
            f"topics = {self.topic}",
            f"groups = {self.group}",
            *(f"{name}.storage.replication.factor = 1" for name in ("offset", "status", "config")),
            "offset.flush.interval.ms = 2000",
            "refresh.topics.interval.seconds = 2",
            "emit.checkpoints.enabled = false",
            # Slow, so that it can be killed in mid copy.
            f"{self.source}.consumer.max.poll.records = 100",
            f"{self.target}.producer.linger.ms = 0",
        )
        props = [{"bootstrap.servers": address} for address in self.servers.values()]
        self.clusters = [
            KafkaCluster(alias, ClusterClients.alike(each))
            for alias, each in zip(self.servers, props, strict=True)
        ]
        self.made = 0

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers[self.source], "linger.ms": 20})
        for number in range(self.made, self.made + count):
            producer.produce(
                self.topic,
                f"{number} {'x' * 500}".encode(),
                key=b"%d" % (number % 7),
                partition=number % PARTITIONS,
                headers=[("n", b"%d" % number)],
            )
            producer.poll(0)
        assert producer.flush(120) == 0
        self.made += count

    def there(self, partition: int) -> int:
        """Return the end of a remote partition."""
        places = [TopicPartition(self.remote, partition)]
        return self.clusters[1].high_watermarks(places).get(places[0], 0)

    def numbers(self, cluster: int, partition: int, start: int = 0) -> list[int]:
        alias = [self.source, self.target][cluster]
        topic = [self.topic, self.remote][cluster]
        found = read_log(self.servers[alias], topic, partition)
        return [int((r.value or b"").split()[0]) for offset, r in found if offset >= start]

    @contextmanager
    def mirror_maker(self) -> Iterator[subprocess.Popen[str]]:
        """Run MirrorMaker 2; it is killed at the end."""
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        with running_tool(main, str(self.file), heap="512m") as process:
            yield process

    def until_gone(self) -> None:
        """Wait until the workers' group has noticed the kill."""
        group = offsets_export.workers_group(self.config.flow(self.flow))
        eventually(lambda: not self.clusters[1].groups([group])[group].members, "no worker is left")

    def srm(self, *arguments: str) -> Any:
        srm = Path(sys.executable).parent / "srm"
        command = [sys.executable, str(srm), *arguments, "--config", str(self.file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @property
    def flow_option(self) -> tuple[str, str]:
        return "--flow", str(self.flow)


def test_mirror_maker_is_killed_taken_over_and_continues_after_srm(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    site = Site(clusters, tmp_path)
    source, _ = site.clusters
    source.create_topics([TopicSpec(site.topic, PARTITIONS, 1, {})])
    site.produce(COUNT)
    lagging = COUNT // PARTITIONS // 10

    # Killed in mid copy, and once more after it has begun to repeat.
    with site.mirror_maker():
        eventually(lambda: site.there(0) > 1000, "MirrorMaker 2 copies")
    site.until_gone()
    killed_at = site.there(0)
    site.produce(COUNT)
    with site.mirror_maker():
        eventually(lambda: site.there(0) > killed_at, "MirrorMaker 2 continues")
    site.until_gone()
    before = [site.numbers(1, n) for n in range(PARTITIONS)]

    told = json.loads(site.srm("import", "mm2", *site.flow_option, "--yes"))
    [outcome] = told
    assert site.topic in outcome["adopted"]["topics"]
    rows = [row for row in outcome["copies"] if row["topic"] == site.topic]
    assert len(rows) == PARTITIONS
    for row in rows:
        log = before[row["partition"]]
        own = site.numbers(0, row["partition"])
        assert row["source_next"] == own.index(max(log)) + 1
        assert (row["copied"], row["repeated"]) == (len(set(log)), len(log) - len(set(log)))
    site.srm("replicate", *site.flow_option, "--until-caught-up")

    for n in range(PARTITIONS):
        own = site.numbers(0, n)
        log = site.numbers(1, n)
        assert log[: len(before[n])] == before[n]
        assert log[len(before[n]) :] == own[own.index(max(before[n])) + 1 :], "exactly once"
    place = "--topic", site.topic, "--partition", "0", "--offset", str(lagging)
    at = json.loads(site.srm("translate", *site.flow_option, *place))["to_offset"]
    rest = site.numbers(1, 0, at)
    own = site.numbers(0, 0)
    assert rest[0] == own[lagging], "the lagging group continues at its record"
    met = [number for number in dict.fromkeys(rest) if number >= own[lagging]]
    assert met == own[lagging:], "and meets each later one in order"

    # And back: MirrorMaker 2 continues after srm.
    by_srm = [site.there(n) for n in range(PARTITIONS)]
    told = json.loads(site.srm("export", "mm2", *site.flow_option, "--yes"))
    wanted = [len(site.numbers(0, n)) for n in range(PARTITIONS)]
    positions = [each for each in told["positions"] if each["topic"] == site.topic]
    assert [each["source_next"] for each in positions] == wanted
    site.produce(1000)
    with site.mirror_maker():
        for n in range(PARTITIONS):
            eventually(
                lambda n=n: len(site.numbers(1, n, by_srm[n])) >= 500,  # type: ignore[misc]
                "MirrorMaker 2 copies on",
            )
    site.until_gone()
    for n in range(PARTITIONS):
        assert site.numbers(1, n, by_srm[n]) == site.numbers(0, n)[-500:], "nothing twice"

    # Once more: srm continues after MirrorMaker 2.
    site.srm("import", "mm2", *site.flow_option, "--yes")
    site.produce(1000)
    site.srm("replicate", *site.flow_option, "--until-caught-up")
    for n in range(PARTITIONS):
        assert site.numbers(1, n, by_srm[n]) == site.numbers(0, n)[-1000:]
