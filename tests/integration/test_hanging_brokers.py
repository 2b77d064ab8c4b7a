"""Brokers that say nothing, close nothing, or are suddenly somewhere else."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import pytest
from tests.conftest import BrokerFactory
from tests.integration.copying import CopyLab
from tests.integration.proxy import Proxy
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.errors import UnavailableError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire.cluster import WireCluster
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.stack.process import free_port

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(1200)]

GIVEN_UP_S = 300.0
"""On a busy machine; some requests one after the other, and back-offs between them."""
REQUEST_TIMEOUT = {"socket.timeout.ms": "10000"}
"""Called request.timeout.ms in srm's configuration; a broker on a busy machine keeps it."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy().running() as proxy:
        yield proxy


def send(lab: CopyLab, p: AssignedPartition, count: int, size: int = 100) -> None:
    producer = lab.producer(**{"linger.ms": 50})
    for _ in range(count):
        producer.produce(p.topic, os.urandom(size), partition=p.partition)
    assert producer.flush(120) == 0


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_connection_whose_packets_vanish_is_given_up(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, proxy: Proxy, side: str
) -> None:
    """The old connections never come back to life, and nobody closes them."""
    advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
    broker = broker_factory("X", **advertised)
    proxy.target_port = broker.port
    hidden = {"bootstrap.servers": proxy.address, **REQUEST_TIMEOUT}
    open_to_all = {"bootstrap.servers": clusters["P"].bootstrap}
    lab = CopyLab(*((hidden, open_to_all) if side == "source" else (open_to_all, hidden)))
    partitions = lab.topic(2)
    lab.assign("0", partitions)
    with lab.running():
        for p in partitions:
            send(lab, p, 100)
        lab.wait_until_copied(partitions)
        if side == "target":
            proxy.swallow()
        for p in partitions:
            send(lab, p, 3_000, 1_000)
        if side == "source":
            proxy.swallow()
        accepted = proxy.accepted
        eventually(lambda: proxy.accepted > accepted + 1, "they are given up", GIVEN_UP_S)
        proxy.heal()
        for p in partitions:
            send(lab, p, 100)
        eventually(lambda: lab.caught_up(partitions), "copied on new connections", GIVEN_UP_S)

    lab.assert_equal(partitions)


def test_a_table_is_written_in_time_though_a_connection_hangs(
    broker_factory: BrokerFactory, proxy: Proxy
) -> None:
    """A frozen broker closes none; another one leads its partitions well before the time is up."""
    broker = broker_factory("X", **{"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
    proxy.target_port = broker.port
    props = ClusterClients.alike({"bootstrap.servers": proxy.address})
    with KafkaCluster("X", props, timeout_s=8) as cluster:
        cluster.create_topics([TopicSpec("T", 1, 1, {"cleanup.policy": "compact"})])
        table = cluster.compacted_topic("T")
        table.write({b"a": b"1"})
        assert table.read() == {b"a": b"1"}
        proxy.swallow()
        proxy.heal()

        table.write({b"b": b"2"})
        proxy.swallow()
        proxy.heal()

        assert table.read() == {b"a": b"1", b"b": b"2"}


def test_a_frozen_target_broker_is_given_up_while_the_partitions_of_others_are_copied(
    clusters: Mapping[str, KafkaBroker], cluster_factory: Callable[..., list[KafkaBroker]]
) -> None:
    """Its partitions move to another broker; whoever still waits for it copies nothing more."""
    first, frozen = cluster_factory(
        "B", 2, **{"broker.session.timeout.ms": "3000", "replica.lag.time.max.ms": "2000"}
    )
    target = {"bootstrap.servers": f"{first.bootstrap},{frozen.bootstrap}", **REQUEST_TIMEOUT}
    lab = CopyLab(clusters["P"].bootstrap, target, target_replicas=2)
    partitions = lab.topic(4)
    led_by = asyncio.run(leaders(target, partitions))
    assert set(led_by.values()) == {1, 2}
    lab.assign("0", partitions)
    pid = frozen.pid
    assert pid is not None
    try:
        with lab.running():
            for p in partitions:
                send(lab, p, 100)
            lab.wait_until_copied(partitions)
            os.kill(pid, signal.SIGSTOP)
            for p in sorted(partitions, key=lambda p: led_by[p] == 1):
                send(lab, p, 10_000, 1_000)  # what goes to the frozen broker comes first
            eventually(
                lambda: lab.caught_up(partitions), "copied past the frozen broker", GIVEN_UP_S
            )
            os.kill(pid, signal.SIGCONT)
            frozen.wait_ready()
            for p in partitions:
                send(lab, p, 100)
            lab.wait_until_copied(partitions)
        lab.assert_equal(partitions)
    finally:
        os.kill(pid, signal.SIGCONT)


async def leaders(
    properties: Mapping[str, str], partitions: Sequence[AssignedPartition]
) -> dict[AssignedPartition, int]:
    wire = WireCluster("B", properties)
    await wire.start()
    try:
        return {p: await _leader(wire, p) for p in partitions}
    finally:
        await wire.close()


async def _leader(wire: WireCluster, p: AssignedPartition) -> int:
    """Ask until the brokers have heard of a topic that is new."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(UnavailableError):
                return (await wire.leader(TopicPartition(p.target_topic, p.partition))).node
            await asyncio.sleep(0.1)  # between two questions


def test_brokers_that_are_replaced_in_an_outage_are_found_through_the_bootstrap_servers(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, proxy: Proxy
) -> None:
    """Only the name in front of them stays; what they advertised before is gone."""
    source = broker_factory("P")
    proxy.target_port = source.port
    lab = CopyLab({"bootstrap.servers": proxy.address, **REQUEST_TIMEOUT}, clusters["B"].bootstrap)
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        send(lab, p, 100)
        lab.wait_until_copied([p])
        source.stop()
        move(source, free_port())
        source.start()
        source.wait_ready()
        proxy.target_port = source.port
        send(lab, p, 100)
        lab.wait_until_copied([p])

    lab.assert_equal([p])


def move(broker: KafkaBroker, port: int) -> None:
    """Give a stopped broker another port."""
    file = broker.home / "server.properties"
    file.write_text(file.read_text().replace(str(broker.port), str(port)))
    assert broker.port == port
