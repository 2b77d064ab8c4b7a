"""What only real brokers do: transactions, pending offsets, auto-creation, silence."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from threading import Timer

import pytest
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.group import JoinGroupRequest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from tests.overrides import overrides
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.errors import GroupActiveError, SrmError, UnavailableError, UsageError
from srm.kafka.admin import clients, groups
from srm.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


@contextmanager
def transaction(props, name):
    """Open a transaction of a new producer; the caller commits or aborts it."""
    producer = Producer({**props, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    yield producer


def member(props, group, topic):
    """Join a group and wait for the assignment."""
    consumer = Consumer({**props, "group.id": group, "enable.auto.commit": False})
    consumer.subscribe([topic])

    def is_member():
        consumer.poll(0.1)
        return consumer.assignment()

    eventually(is_member, "an assignment")
    return consumer


def test_the_log_ends_at_the_last_stable_offset(cluster, props, topic):
    """Records of an open transaction cannot be read yet, so nobody is behind because of them."""
    partition = TopicPartition(topic, 0)
    with transaction(props, topic) as producer:
        producer.produce(topic, b"x", b"k", partition=0)
        producer.flush(30)
        assert cluster.log_ends([partition]) == {partition: 0}
        producer.commit_transaction(30)

    eventually(lambda: cluster.log_ends([partition]) == {partition: 2}, "the marker is an offset")


def test_offsets_of_an_ending_transaction_are_waited_for(cluster, props, topic, monkeypatch):
    """The markers of a transaction are written after its commit has returned."""
    monkeypatch.setattr(groups, "_UNSTABLE_WAIT_S", 90)
    consumer = member(props, topic, topic)
    consumer.commit(offsets=[KafkaTopicPartition(topic, 0, 1)], asynchronous=False)
    with transaction(props, topic) as producer:
        producer.send_offsets_to_transaction(
            [KafkaTopicPartition(topic, 0, 5)], consumer.consumer_group_metadata()
        )
        timer = Timer(0.3, producer.commit_transaction, [60])
        timer.start()

        assert cluster.committed_offsets(topic) == {TopicPartition(topic, 0): 5}
        timer.join()
    consumer.close()


def test_offsets_of_a_transaction_that_stays_open_are_not_committed(cluster, props, topic):
    consumer = member(props, topic, topic)
    consumer.commit(offsets=[KafkaTopicPartition(topic, 0, 1)], asynchronous=False)
    with transaction(props, topic) as producer:
        producer.send_offsets_to_transaction(
            [KafkaTopicPartition(topic, 0, 5)], consumer.consumer_group_metadata()
        )
        assert cluster.committed_offsets(topic) == {TopicPartition(topic, 0): 1}
        producer.abort_transaction(30)
    consumer.close()


async def connect_worker(bootstrap, group):
    """Join a group as a Kafka Connect worker does, under another protocol type.

    The member outlives its connection by its session, which is longer than any test.
    """
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        node = await client.coordinator_lookup(CoordinationType.GROUP, group)
        member_id = ""
        for _ in range(2):  # the first answer only gives the member id
            request = JoinGroupRequest(
                group, 300_000, 300_000, member_id, None, "connect", [("v1", b"x")]
            )
            answer = await client.send(node, request)
            member_id = answer.member_id
        assert answer.error_code == 0
    finally:
        await client.close()


def test_a_group_of_another_protocol_is_listed_as_such_and_not_written_to(cluster, props, topic):
    cluster.commit_idle(topic, {TopicPartition(topic, 0): 1})
    asyncio.run(connect_worker(props["bootstrap.servers"], f"{topic}-connect"))

    listed = cluster.groups()[f"{topic}-connect"]
    assert (listed.kind, listed.state) == ("other", "unknown")
    assert "protocol type is 'connect'" in listed.reason
    found = cluster.groups([topic, f"{topic}-connect"])
    assert {name: group.state for name, group in found.items()} == {
        topic: "empty",
        f"{topic}-connect": "unknown",
    }
    with pytest.raises(GroupActiveError):
        cluster.commit_idle(f"{topic}-connect", {TopicPartition(topic, 0): 1})


def test_a_table_ends_after_transaction_markers_and_shows_only_committed_rows(
    cluster, props, unique
):
    cluster.create_topics([TopicSpec(unique, 1, 1, {"cleanup.policy": "compact"})])
    table = cluster.compacted_topic(unique)
    with transaction(props, unique) as producer:
        producer.produce(unique, b"1", b"kept", partition=0)
        producer.commit_transaction(30)
        producer.begin_transaction()
        producer.produce(unique, b"1", b"dropped", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
        place = TopicPartition(unique, 0)
        eventually(lambda: cluster.log_ends([place])[place] >= 4, "both markers are written")

        assert table.read() == {b"kept": b"1"}

        producer.begin_transaction()
        producer.produce(unique, b"2", b"kept", partition=0)
        producer.flush(30)
        assert table.read() == {b"kept": b"1"}
        producer.abort_transaction(30)


def test_a_record_that_is_too_large_is_an_error_and_the_table_stays_usable(cluster, unique):
    configs = {"cleanup.policy": "compact", "max.message.bytes": "1000"}
    cluster.create_topics([TopicSpec(unique, 1, 1, configs)])
    table = cluster.compacted_topic(unique)

    with pytest.raises(UsageError, match="MSG_SIZE_TOO_LARGE"):
        table.write({b"a": b"x" * 5000})

    table.write({b"a": b"small"})
    assert table.read() == {b"a": b"small"}


def test_many_small_reads_and_writes_are_cheap(cluster, unique, monkeypatch):
    """Clients are kept: a new one for each call would take about 100 ms."""
    made = []

    def counted(kind):
        def make(*args, **kwargs):
            made.append(kind)
            return kind(*args, **kwargs)

        return make

    for kind in (Consumer, Producer, AdminClient):
        monkeypatch.setattr(clients, kind.__name__, counted(kind))
    cluster.create_topics([TopicSpec(unique, 1, 1, {"cleanup.policy": "compact"})])
    table = cluster.compacted_topic(unique)
    table.write({b"a": b"1"})
    table.read()
    assert {Consumer, Producer} <= set(made)
    made.clear()

    for _ in range(10):
        table.write({b"a": b"1"})
        table.read()

    assert made == []


def test_nothing_creates_a_topic_where_the_broker_would(broker_factory):
    broker = broker_factory("X", **{"auto.create.topics.enable": "true"})
    props = {"bootstrap.servers": broker.bootstrap}
    with KafkaCluster("X", ClusterClients.alike(props)) as cluster:
        partition = TopicPartition("nobody", 0)

        assert cluster.log_ends([partition]) == {}
        assert overrides(cluster, ["nobody"]) == {}
        assert cluster.compacted_topic("nobody").read() == {}
        with pytest.raises(SrmError):
            cluster.compacted_topic("nobody").write({b"a": b"1"})
        with pytest.raises(SrmError):
            cluster.commit_idle("group", {partition: 1})

        assert "nobody" not in cluster.topics()


@pytest.mark.parametrize(
    "call",
    [
        KafkaCluster.cluster_id,
        KafkaCluster.topics,
        KafkaCluster.groups,
        lambda c: overrides(c, ["a"]),
        lambda c: c.log_ends([TopicPartition("a", 0)]),
        lambda c: c.high_watermarks([TopicPartition("a", 0)]),
        lambda c: c.open_transactions([TopicPartition("a", 0)]),
        lambda c: c.active_producers([TopicPartition("a", 0)]),
        KafkaCluster.transactional_topics,
        lambda c: c.groups(["g"]),
        lambda c: c.pending_commits(["g"]),
        lambda c: c.remove_static_members("g", ["i"]),
        lambda c: c.remove_members("g", ["m"]),
        lambda c: c.committed_offsets("g"),
        lambda c: c.commits_of(["f", "g"]),
        lambda c: c.commit_idle("g", {TopicPartition("a", 0): 1}),
        lambda c: c.create_topics([TopicSpec("a", 1, 1, {})]),
        lambda c: c.compacted_topic("a").read(),
        lambda c: c.compacted_topic("a").write({b"a": b"1"}),
    ],
)
def test_a_silent_cluster_is_unavailable_within_the_time_limit(call, capfd):
    with KafkaCluster("X", ClusterClients.alike(NOBODY), timeout_s=0.5) as cluster:
        began = time.monotonic()

        with pytest.raises(UnavailableError, match="cluster X"):
            call(cluster)

        assert time.monotonic() - began < 30
    # Clients that other tests have left may still speak of their brokers.
    said = capfd.readouterr().err
    assert "127.0.0.1:1/" not in said, "librdkafka's own log must not reach the terminal"


def test_building_a_cluster_connects_to_nothing():
    KafkaCluster("X", ClusterClients.alike({"bootstrap.servers": "nowhere.invalid:1"})).close()
