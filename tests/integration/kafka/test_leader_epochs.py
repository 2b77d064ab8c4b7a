"""Offsets on another cluster, where leader epochs are counted from the start again (KIP-320)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tests.faults.campaign.brokers import delete_topics
from tests.integration.kafka_tools import run_tool
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition, topic_id_bytes
from srm.engine.cluster_ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire.cluster import WireCluster, open_wire
from srm.replication import codes
from srm.replication.ports import EpochEnd, FetchFrom, Leader
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(900)]

_FENCED_LEADER_EPOCH = 74
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def test_a_group_resumes_where_its_leader_epoch_is_of_the_future_there_and_back(
    clusters, broker_factory
):
    """A consumer that finds an epoch above the leader's refreshes its metadata for ever."""
    name = f"epochs-{uuid.uuid4().hex[:8]}"
    partition = TopicPartition(name, 0)
    old, new = broker_factory("X"), clusters["B"]
    source_props = {"bootstrap.servers": old.bootstrap}
    target_props = {"bootstrap.servers": new.bootstrap}
    with (
        KafkaCluster("X", ClusterClients.alike(source_props), timeout_s=150) as source,
        KafkaCluster("B", ClusterClients.alike(target_props), timeout_s=150) as target,
    ):
        for cluster, props in ((source, source_props), (target, target_props)):
            cluster.create_topics([TopicSpec(name, 1, 1, {})])
            _produce(props, name, range(2))
        for _ in range(2):  # each time the partition gets a leader of a higher epoch
            old.kill()
            old.start()
            old.wait_ready()
        _produce(source_props, name, range(2, 5))
        _produce(target_props, name, range(2, 5))
        _read_and_commit(source_props, name, 3)
        assert _leader_epoch(source_props, name) > _leader_epoch_of_log(target_props, name)

        target.commit_idle(name, source.committed_offsets(name))

        assert target.committed_offsets(name) == {partition: 3}
        assert _leader_epoch(target_props, name) is None
        assert _java_reads(new.bootstrap, name, 2) == ["3", "4"]

        source.commit_idle(name, target.committed_offsets(name))

        assert source.committed_offsets(name) == {partition: 5}
        assert _leader_epoch(source_props, name) is None
        _produce(source_props, name, range(5, 7))
        assert _java_reads(old.bootstrap, name, 2) == ["5", "6"]


def test_offsets_of_a_topic_that_was_made_anew_are_told_though_its_leader_epochs_begin_again(
    broker_factory,
):
    """A client that lives keeps the higher epoch of the former topic, and is refused for ever."""
    name = f"anew-{uuid.uuid4().hex[:8]}"
    broker = broker_factory("X")
    props = {"bootstrap.servers": broker.bootstrap}
    with (
        KafkaCluster("X", ClusterClients.alike(props), timeout_s=60) as cluster,
        KafkaCluster("X", ClusterClients.alike(props)) as somebody,
    ):
        cluster.create_topics([TopicSpec(name, 1, 1, {})])
        broker.kill()
        broker.start()
        broker.wait_ready()
        _produce(props, name, range(3))
        assert cluster.log_ends([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 3}

        delete_topics(broker.bootstrap, [name])
        somebody.create_topics([TopicSpec(name, 1, 1, {})])

        assert cluster.log_ends([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 0}


def test_a_request_that_names_a_former_epoch_of_the_leader_is_refused_and_sent_again(
    broker_factory,
):
    """So what a replaced leader still holds is never taken for the log (KIP-320)."""
    place = TopicPartition(f"fenced-{uuid.uuid4().hex[:8]}", 0)
    broker = broker_factory("X")
    props = {"bootstrap.servers": broker.bootstrap}
    with KafkaCluster("X", ClusterClients.alike(props), timeout_s=150) as cluster:
        cluster.create_topics([TopicSpec(place.topic, 1, 1, {})])
        _produce(props, place.topic, range(3))
        topic_id = topic_id_bytes(cluster.topics()[place.topic].topic_id)

    async def error_in(wire: WireCluster, leader: Leader) -> int:
        wanted = FetchFrom(topic_id, 0, 0, 1 << 20, leader_epoch=leader.epoch)
        limits = {"max_wait_ms": 0, "max_bytes": 1 << 20, "read_committed": False}
        [part] = (await wire.fetch(leader.node, [wanted], **limits)).partitions
        return part.error

    async def play() -> None:
        async with open_wire("X", props) as wire:
            former = await wire.leader(place)
            assert await error_in(wire, former) == codes.NONE
            assert await wire.log_end(place) == EpochEnd(former.epoch, 3)
            await asyncio.to_thread(_restart, broker)
            now = await wire.log_end(place)
            assert (now.epoch > former.epoch, now.end) == (True, 3)
            assert await error_in(wire, former) == _FENCED_LEADER_EPOCH
            assert await wire.leader(place) == Leader(former.node, now.epoch)
            assert await error_in(wire, await wire.leader(place)) == codes.NONE

    asyncio.run(play())


def _restart(broker: KafkaBroker) -> None:
    broker.kill()
    broker.start()
    broker.wait_ready()


def _produce(props: Mapping[str, str], topic: str, numbers: range) -> None:
    producer = Producer(props)
    for number in numbers:
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(120) == 0


def _read_and_commit(props: Mapping[str, str], name: str, records: int) -> None:
    """Read some records and commit after the last one, as an application does."""
    settings = {"group.id": name, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**props, **settings})
    consumer.subscribe([name])
    read = []

    def got() -> bool:
        message = consumer.poll(0.5)
        if message is not None and not message.error():
            read.append(message)
        return len(read) == records

    eventually(got, "the records")
    consumer.commit(message=read[-1], asynchronous=False)
    consumer.close()


def _leader_epoch(props: Mapping[str, str], group: str) -> int | None:
    """Leader epoch that a group has committed with its offset."""
    consumer = Consumer({**props, "group.id": group})
    [found] = consumer.committed([KafkaTopicPartition(group, 0)], timeout=90)
    consumer.close()
    return found.leader_epoch


def _leader_epoch_of_log(props: Mapping[str, str], topic: str) -> int:
    """Leader epoch of the newest record."""
    consumer = Consumer({**props, "group.id": "nobody"})
    consumer.assign([KafkaTopicPartition(topic, 0, 4)])
    found = []
    eventually(lambda: found.extend(filter(None, [consumer.poll(0.5)])) or found, "a record")
    consumer.close()
    return found[0].leader_epoch()


def _java_reads(bootstrap: str, name: str, records: int) -> list[str]:
    servers = ("--bootstrap-server", bootstrap, "--topic", name, "--group", name)
    limits = ("--max-messages", str(records), "--timeout-ms", "150000")
    return run_tool(CONSUMER, *servers, *limits).stdout.split()
