"""Groups as only real brokers have them: Streams, share, of 500 and more, restarted underneath."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.kafka_tools import running_tool
from tests.waiting import eventually

from srm.domain.topics import TopicPartition
from srm.engine.ports import GroupDescription, TopicSpec
from srm.errors import GroupActiveError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire.brokers import Brokers

pytestmark = pytest.mark.kafka

STREAMS_MEMBER = str(Path(__file__).with_name("StreamsMember.java"))


def test_a_live_streams_group_is_active_listed_and_not_written_to(cluster, props, topic, unique):
    """To librdkafka it does not exist, and a gate that believes that opens under its members."""
    host, port = props["bootstrap.servers"].split(":")
    partition = TopicPartition(topic, 0)
    with running_tool(STREAMS_MEMBER, host, port, unique, topic) as member:
        eventually(lambda: cluster.committed(unique) == {partition: 10}, "its commit")

        expected = GroupDescription(unique, "active", "streams", ("streams-app@127.0.0.1",))
        assert cluster.groups([unique]) == {unique: expected}
        assert cluster.groups()[unique] == expected
        with pytest.raises(GroupActiveError):
            cluster.commit_idle(unique, {partition: 3})

        member.communicate("leave", timeout=150)

    eventually(lambda: cluster.groups()[unique].state == "empty", "its end")
    assert cluster.groups([unique])[unique] == GroupDescription(unique, "empty", "streams")
    cluster.commit_idle(unique, {partition: 3})
    assert cluster.committed(unique) == {partition: 3}


def test_a_share_group_is_listed_with_its_kind_and_has_no_offsets(cluster, props, topic, unique):
    consumer = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
    servers = ("--bootstrap-server", props["bootstrap.servers"])
    with running_tool(consumer, *servers, "--topic", topic, "--group", unique):
        eventually(lambda: unique in cluster.groups(), "its first member")

        found = cluster.groups([unique])[unique]
        assert (found.kind, found.state) == ("share", "unknown")
        assert "share group" in found.reason
        assert cluster.committed(unique) == {}
        assert cluster.pending_commits(unique, [TopicPartition(topic, 0)]) == frozenset()


def test_many_groups_are_described_in_few_requests(cluster, topic, unique, monkeypatch):
    """More than fit into one request; a request for each would take some milliseconds each."""
    names = [f"{unique}-{number}" for number in range(600)]
    for name in names:
        cluster.commit_idle(name, {TopicPartition(topic, 0): 1})
    asked = []
    ask = Brokers._ask

    async def counted(brokers, address, request, *purpose):
        asked.append(request)
        return await ask(brokers, address, request, *purpose)

    monkeypatch.setattr(Brokers, "_ask", counted)

    listed = cluster.groups()
    named = cluster.groups([*names, f"{unique}-no"])

    assert 0 < len(asked) < 30
    assert all(listed[name] == named[name] == GroupDescription(name, "empty") for name in names)
    assert named[f"{unique}-no"].state == "dead"


def test_a_broker_that_was_started_again_is_asked_again(broker_factory, unique):
    broker = broker_factory("X")
    props = {"bootstrap.servers": broker.bootstrap}
    partition = TopicPartition(unique, 0)
    with KafkaCluster("X", props, props, props, timeout_s=150) as cluster:
        cluster.create_topics([TopicSpec(unique, 1, 1, {})])
        cluster.commit_idle(unique, {partition: 1})
        producer = Producer({**props, "enable.idempotence": True})
        producer.produce(unique, b"x", partition=0)
        assert producer.flush(60) == 0
        groups, producers = cluster.groups(), cluster.active_producers([partition])
        assert producers.keys() == {partition}

        broker.kill()
        broker.start()

        assert cluster.groups([unique]) == groups
        assert cluster.groups() == groups
        assert cluster.active_producers([partition]) == producers
        assert cluster.open_transactions([partition]) == {}
        assert cluster.pending_commits(unique) == frozenset()
