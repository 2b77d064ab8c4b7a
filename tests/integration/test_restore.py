"""P is destroyed and rebuilt empty: it gets its topics back, and nothing is copied twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests import moves
from tests.integration.moving import begin, pass_gate
from tests.replicating import configure, is_copied, replicating
from tests.waiting import DEADLINE_S, eventually

from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Translated
from srm.engine.cluster_ports import TopicSpec
from srm.engine.groups import checkpoints
from srm.engine.map_reader import KafkaMapReader
from srm.kafka.cluster import KafkaCluster
from srm.replication.copy.slot import SlotSpec
from srm.replication.driver.driver import keep_running
from srm.spark.slot import run_slot
from srm.wiring import open_flow, open_move
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(900)]

P_TO_B, B_TO_P = Flow("P", "B"), Flow("B", "P")
BOTH = (P_TO_B, B_TO_P)
PARTITIONS = 2
READ = (("P.Payments", 0, 100), ("P.Payments", 1, 0), ("Payments", 0, 3), ("Payments", 1, 7))
"""Topic on B, partition, and how many records of it the group has read."""


class Site:
    """Two clusters of this test's own, one of which is destroyed."""

    def __init__(self, brokers: Mapping[str, KafkaBroker], home: Path) -> None:
        self.brokers = brokers
        self.path = home / "srm.properties"
        self.configure()
        self.clusters = {
            alias: KafkaCluster(alias, self.config.cluster_clients(alias)) for alias in brokers
        }

    def configure(self, *lines: str) -> None:
        self.config = configure(
            self.path,
            {alias: broker.bootstrap for alias, broker in self.brokers.items()},
            f"{B_TO_P}.enabled = true",
            "topics = Payments",
            "groups = .*",
            "emit.heartbeats.enabled = false",
            "refresh.topics.interval.seconds = 1",
            *lines,
        )

    def produce(self, alias: str, values: range) -> None:
        """Write ``<alias> <number>`` and 2 kB in small batches."""
        producer = Producer(self.config.client(alias, "producer"))
        for number in values:
            value = b"%s %d %s" % (alias.encode(), number, b"x" * 2000)
            producer.produce("Payments", value, b"k%d" % number, partition=number % PARTITIONS)
            if number % 20 == 0:
                producer.flush(DEADLINE_S)
        assert producer.flush(DEADLINE_S) == 0

    def produce_and_abort(self, alias: str, name: str) -> None:
        """Leave holes in both partitions: records of a transaction that is aborted."""
        properties = {**self.config.client(alias, "producer"), "transactional.id": name}
        producer = Producer(properties)
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("Payments", b"aborted", partition=partition)
        producer.flush(DEADLINE_S)
        producer.abort_transaction(DEADLINE_S)

    def values(self, alias: str, topic: str) -> list[list[bytes]]:
        """Return what each partition of a topic holds, in order."""
        servers = self.brokers[alias].bootstrap
        return [
            [
                b" ".join((record.value or b"").split()[:2])
                for _, record in read_log(servers, topic, n)
            ]
            for n in range(PARTITIONS)
        ]

    def destroy_and_rebuild(self) -> None:
        """Lose all of P; what is there afterwards has its address, and another cluster id."""
        broker = self.brokers["P"]
        before = broker.settings["srm.cluster.id"]
        shutil.rmtree(broker.home / "data")
        file = broker.home / "server.properties"
        file.write_text(file.read_text().replace(before, before[::-1]))
        broker.start()
        broker.wait_ready()

    def fail_over(self, group: str) -> None:
        """Give P up: its flow is paused, and the group is set to where it stood on P."""
        request = MoveRequest("failover", "P", "B", ("Payments",), (group,), mode="unplanned")
        with open_move(self.config, "P", "B", unplanned=True) as context:
            assert moves.plan(context, request, "m1").blocking == ()
            moves.carry_out(context, "m1")

    def restore(self, *options: str) -> subprocess.Popen[str]:
        names = ("--from", "B", "--to", "P", "--yes", "--config", str(self.path))
        return subprocess.Popen(
            [sys.executable, "-m", "srm.cli.main", "restore", *names, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fail_back(self, group: str) -> None:
        """Move a group from B to P, as planned."""
        names = ("Payments",), (group,)
        request = MoveRequest("failback", "B", "P", *names, quiet_seconds=0.2)
        with open_move(self.config, "B", "P") as context:
            eventually(lambda: not moves.plan(context, request, "m2").warnings, "caught up")
            begin(context, request, "m2")
            pass_gate(context, "m2")

    def translates_exactly(self, flow: Flow) -> None:
        """Compare the map of a flow with both logs, record by record and both ways."""
        source, target = self.clusters[flow.source], self.clusters[flow.target]
        maps = KafkaMapReader(target, source, flow).load(["Payments"])
        copy = f"{flow.source}.Payments"
        for number in range(PARTITIONS):
            here = read_log(self.brokers[flow.source].bootstrap, "Payments", number)
            there = read_log(self.brokers[flow.target].bootstrap, copy, number)
            assert [record for _, record in here] == [record for _, record in there]
            known = maps.maps[TopicPartition("Payments", number)]
            for (mine, _), (its, _) in zip(here, there, strict=True):
                assert known.forward(mine) == Translated(its)
                assert known.backward(its + 1) == Translated(mine + 1)


def _keep_copying(spec: SlotSpec, stop: threading.Event) -> None:
    """Start a slot again when its cluster has turned into another one, as Spark does."""
    keep_running("slot", lambda: run_slot(spec, stop), stop)


def _numbers(values: list[list[bytes]]) -> list[int]:
    return sorted(int(value.split()[1]) for partition in values for value in partition)


def test_a_rebuilt_cluster_gets_its_topics_back_though_the_restore_is_killed(
    broker_factory: Callable[..., KafkaBroker], tmp_path: Path
) -> None:
    """The replicators of both flows run all the time, through the disaster, too."""
    site = Site({alias: broker_factory(alias) for alias in ("P", "B")}, tmp_path)
    p, b = site.clusters["P"], site.clusters["B"]
    for cluster in (p, b):
        cluster.create_topics([TopicSpec("Payments", PARTITIONS, 1, {"retention.ms": "-1"})])
    site.produce("P", range(300))
    site.produce_and_abort("P", "t1")
    site.produce("P", range(300, 600))
    site.produce("B", range(3000, 3020))
    with replicating(site.config, *BOTH, copying=_keep_copying):
        eventually(lambda: _copied(site, "B", "P.Payments") == 600, "P is copied")
        eventually(lambda: _copied(site, "P", "B.Payments") == 20, "B is copied")
        p.commit_idle("audit", {TopicPartition("Payments", n): 40 for n in range(PARTITIONS)})
        with open_flow(site.config, P_TO_B) as context:
            eventually(lambda: is_copied(context, "Payments"), "positions are written")
            assert checkpoints.emit(context).written == PARTITIONS
        site.brokers["P"].kill()
        site.fail_over("audit")
        site.produce("B", range(600, 700))
        copied = site.values("B", "P.Payments")
        assert b.committed_offsets("audit") == {
            TopicPartition("P.Payments", n): _offset(site, "B", "P.Payments", n, 40)
            for n in range(PARTITIONS)
        }
        stands = {
            TopicPartition(topic, n): _offset(site, "B", topic, n, read) for topic, n, read in READ
        }
        b.commit_idle("audit", stands)
        site.destroy_and_rebuild()

        _restore_twice(site)
        assert site.values("P", "Payments") == copied

        site.produce("P", range(1000, 1050))
        site.produce("B", range(2000, 2050))
        eventually(lambda: _copied(site, "B", "P.Payments") >= 650, "P goes on")
        eventually(lambda: _copied(site, "P", "B.Payments") >= 170, "B goes on")
        site.fail_back("audit")
    assert _numbers(site.values("P", "Payments")) == [*range(600), *range(1000, 1050)]
    assert _numbers(site.values("B", "P.Payments")) == [*range(600), *range(1000, 1050)]
    of_b = [*range(600, 700), *range(2000, 2050), *range(3000, 3020)]
    assert _numbers(site.values("P", "B.Payments")) == of_b
    for flow in BOTH:
        site.translates_exactly(flow)
    assert p.committed_offsets("audit") == {
        TopicPartition(on_p, n): _offset(site, "P", on_p, n, read)
        for topic, n, read in READ
        for on_p in ("Payments" if topic == "P.Payments" else "B.Payments",)
    }


def _restore_twice(site: Site) -> None:
    """Kill the first one when a part of it is copied."""
    site.configure("B->P.replicator.max.bytes.per.second = 5000")  # all of it takes minutes
    first = site.restore()
    try:
        eventually(
            lambda: first.poll() is not None or _copied(site, "P", "Payments") > 0,
            "some of it is restored",
            300.0,  # Spark starts, and on a busy machine takes its time
        )
        assert first.poll() is None, first.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGKILL)
        first.communicate()
    assert _copied(site, "P", "Payments") < 500

    site.configure()
    second = site.restore("--json")
    out, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert json.loads(out)["done"]["goes_on"]


def _copied(site: Site, alias: str, topic: str) -> int:
    if topic not in site.clusters[alias].partition_counts():
        return 0
    return sum(len(each) for each in site.values(alias, topic))


def _offset(site: Site, alias: str, topic: str, partition: int, number: int) -> int:
    """Return the offset of the record after so many."""
    return read_log(site.brokers[alias].bootstrap, topic, partition)[number][0]
