"""Clusters of different Kafka versions: both planes work with each, and between any two."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tests.conftest import LASTING, owner
from tests.integration.copying import CopyLab
from tests.overrides import overrides
from tests.replicating import configure, is_copied, replicating
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control import topic_sync
from srm.engine.groups import checkpoints, group_sync
from srm.kafka.cluster import KafkaCluster
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.versions]

OLDER = {"3.7": "3.7.2", "3.9": "3.9.1"}
PAIRS = pytest.mark.parametrize(
    ("source", "target"), [("3.7", "4.3"), ("4.3", "3.9"), ("3.9", "3.7")]
)


@pytest.fixture(scope="module")
def brokers(
    clusters: Mapping[str, KafkaBroker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, KafkaBroker]]:
    """One running broker of each version, by its short name."""
    home = tmp_path_factory.mktemp("versions")
    older = {
        name: KafkaBroker(home / name, name, version=version, server_props=LASTING, environ=owner())
        for name, version in OLDER.items()
    }
    try:
        for broker in older.values():
            broker.start()
        for broker in older.values():
            broker.wait_ready()
        yield {**older, "4.3": clusters["B"]}
    finally:
        for broker in older.values():
            broker.kill()


def _fill(lab: CopyLab, topic: str) -> None:
    """Write batches of every codec, and transactions of which every third is aborted."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = lab.producer(**{"compression.type": codec})
        for i in range(400):
            value = None if i % 7 == 3 else os.urandom(i % 200)
            producer.produce(topic, value, str(i % 50), partition=i % 2, headers={"n": str(i)})
        assert producer.flush(DEADLINE_S) == 0
    producer = lab.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(DEADLINE_S)
    for number in range(6):
        producer.begin_transaction()
        for i in range(20):
            producer.produce(topic, f"{number}-{i}".encode(), partition=i % 2)
        producer.flush(DEADLINE_S)
        if number % 3 == 1:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)


@PAIRS
def test_a_copy_between_versions_is_equal_through_a_restart_and_another_owner(
    brokers: Mapping[str, KafkaBroker], source: str, target: str
) -> None:
    lab = CopyLab(brokers[source].bootstrap, brokers[target].bootstrap)
    partitions = lab.topic(2)
    topic = partitions[0].topic
    _fill(lab, topic)
    lab.assign("0", partitions)
    with lab.running("0"):
        lab.wait_until_copied(partitions)

    _fill(lab, topic)
    producer = lab.producer()

    def shut_out() -> bool:
        for p in partitions:
            producer.produce(topic, b"more", partition=p.partition)
        producer.flush(DEADLINE_S)
        return any(s is not None and s.state == "waiting" for s in map(lab.status, partitions))

    with lab.running("0"):
        lab.wait_until_copied(partitions)
        lab.assign("1", partitions)  # slot 0 is not told: the claims of slot 1 have to end it
        with lab.running("1"):
            eventually(shut_out, "slot 0 is shut out")
            lab.assign("0", [])
            lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)


@PAIRS
def test_driver_checkpoints_and_group_sync_work_between_versions(
    brokers: Mapping[str, KafkaBroker], tmp_path: Path, source: str, target: str
) -> None:
    unique = uuid.uuid4().hex[:6]
    flow, topic, group = Flow(f"P{unique}", f"B{unique}"), f"pay{unique}", f"readers{unique}"
    config = configure(
        tmp_path / "srm.properties",
        {flow.source: brokers[source].bootstrap, flow.target: brokers[target].bootstrap},
        f"topics = {topic}",
        f"groups = {group}",
        "sync.group.offsets.enabled = true",
        "heartbeats.replication.enabled = false",
    )
    remote = f"{flow.source}.{topic}"
    with open_flow(config, flow) as context:
        context.source.create_topics([TopicSpec(topic, 2, 1, {"retention.ms": "99999999"})])
        _read_half(brokers[source].bootstrap, topic, group)
        with replicating(config, flow):
            eventually(lambda: is_copied(context, topic), "everything is copied")
            topic_sync.sync(context)
            emitted = checkpoints.emit(context)
            synced = group_sync.sync(context)
        committed = context.target.committed_offsets(group)
        configs = overrides(context.target, [remote])

    assert (emitted.written, emitted.errors, synced.applied) == (2, {}, 2)
    for n in range(2):
        log = read_log(brokers[target].bootstrap, remote, n)
        unread = [r.value for offset, r in log if offset >= committed[TopicPartition(remote, n)]]
        assert unread == [str(i).encode() for i in range(50 + n, 100, 2)]
    assert configs[remote]["retention.ms"] == "99999999"


def _read_half(bootstrap: str, topic: str, group: str) -> None:
    """Write 50 records to each of two partitions, and commit after the 25th of each."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(100):
        producer.produce(topic, str(n).encode(), partition=n % 2)
    assert producer.flush(DEADLINE_S) == 0
    props = {"bootstrap.servers": bootstrap}
    with KafkaCluster("P", ClusterClients.alike(props)) as cluster:
        cluster.commit_idle(group, {TopicPartition(topic, n): 25 for n in range(2)})


@pytest.mark.parametrize("version", ["3.7", "3.9", "4.3"])
def test_groups_and_transactions_are_seen_on_each(
    brokers: Mapping[str, KafkaBroker], version: str
) -> None:
    name = f"seen{uuid.uuid4().hex[:6]}"
    partition = TopicPartition(name, 0)
    props = {"bootstrap.servers": brokers[version].bootstrap}
    with KafkaCluster("P", ClusterClients.alike(props)) as cluster:
        cluster.create_topics([TopicSpec(name, 1, 1, {})])
        cluster.commit_idle(name, {partition: 0})
        settings = {"group.id": name, "group.instance.id": "shop-1", "client.id": "app"}
        # A member that is removed joins again with its next sign of life.
        rarely = {"session.timeout.ms": 290_000, "heartbeat.interval.ms": 240_000}
        consumer = Consumer({**props, **settings, **rarely})
        consumer.subscribe([name])
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "an assignment")
        settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer({**props, **settings})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(name, b"x", partition=0)
        producer.flush(DEADLINE_S)
        producer.send_offsets_to_transaction(
            [KafkaTopicPartition(name, 0, 1)], consumer.consumer_group_metadata()
        )

        found = cluster.groups()[name]
        assert (found.state, found.kind, found.instance_ids) == ("active", "classic", ("shop-1",))
        assert cluster.groups([name, f"{name}-no"])[f"{name}-no"].state == "dead"
        [transaction] = cluster.open_transactions([partition])[partition]
        assert transaction.transactional_id == name
        assert cluster.active_producers([partition]).keys() == {partition}
        assert cluster.high_watermarks([partition]) == {partition: 1}
        assert cluster.log_ends([partition]) == {partition: 0}
        assert cluster.pending_commits([name]) == ({name: {partition}}, {})
        assert cluster.transactional_topics() is not None

        cluster.remove_static_members(name, ["shop-1"])
        assert cluster.groups([name])[name].state == "empty"
        producer.abort_transaction(DEADLINE_S)
        consumer.close()
