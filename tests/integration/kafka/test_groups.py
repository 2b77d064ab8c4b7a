"""Groups as only real brokers have them: Streams, share, of 500 and more, restarted underneath."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.conftest import BrokerFactory
from tests.integration.kafka_tools import run_tool, running_tool
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import GroupDescription, TopicSpec
from srm.errors import GroupActiveError, NotFoundError, SrmError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.wire import requests as api
from srm.kafka.wire.brokers import Brokers
from srm_lab.stack.jars import KAFKA_VERSION

pytestmark = pytest.mark.kafka

SHARE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
STREAMS_MEMBER = str(Path(__file__).with_name("StreamsMember.java"))


def produce(props, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": props["bootstrap.servers"]})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def test_a_live_streams_group_is_active_listed_and_not_written_to(cluster, props, topic, unique):
    """To librdkafka it does not exist, and a gate that believes that opens under its members."""
    host, port = props["bootstrap.servers"].split(":")
    partition = TopicPartition(topic, 0)
    with running_tool(STREAMS_MEMBER, host, port, unique, topic) as member:
        eventually(lambda: cluster.committed_offsets(unique) == {partition: 10}, "its commit")

        expected = GroupDescription(unique, "active", "streams", ("streams-app@127.0.0.1",))
        found = cluster.groups([unique])[unique]
        assert len(found.ids) == 1
        assert replace(found, ids=()) == expected
        assert cluster.groups()[unique] == found
        with pytest.raises(GroupActiveError):
            cluster.commit_idle(unique, {partition: 3})

        member.communicate("leave", timeout=150)

    eventually(lambda: cluster.groups()[unique].state == "empty", "its end")
    assert cluster.groups([unique])[unique] == GroupDescription(unique, "empty", "streams")
    cluster.commit_idle(unique, {partition: 3})
    assert cluster.committed_offsets(unique) == {partition: 3}


def test_a_share_group_has_start_offsets_that_are_set_while_it_is_idle(
    cluster, props, topic, unique
):
    produce(props, topic, 20)
    partition = TopicPartition(topic, 0)
    assert cluster.commits_of([unique]) == ({unique: {}}, {})
    assert unique not in cluster.share_groups()
    assert "share" in cluster.group_kinds()

    cluster.set_share_starts(unique, {partition: 5})

    assert cluster.groups([unique]) == {unique: GroupDescription(unique, "empty", "share")}
    assert unique in cluster.share_groups()
    assert cluster.commits_of([unique]) == ({unique: {partition: 5}}, {})
    assert cluster.share_lags([unique]) == ({unique: {partition: 15}}, {})
    assert cluster.pending_commits([unique], [partition]) == ({unique: frozenset()}, {})
    assert cluster.share_resets([unique]) == {unique: "latest"}
    with pytest.raises(NotFoundError):
        cluster.set_share_starts(unique, {TopicPartition(topic, 9): 5})

    servers = ("--bootstrap-server", props["bootstrap.servers"])
    with running_tool(SHARE_CONSUMER, *servers, "--topic", topic, "--group", unique):
        eventually(lambda: cluster.groups([unique])[unique].state == "active", "its first member")
        with pytest.raises(GroupActiveError):
            cluster.set_share_starts(unique, {partition: 3})
        eventually(
            lambda: cluster.share_lags([unique])[0][unique][partition] == 0, "all acknowledged"
        )


@pytest.mark.parametrize("version", [KAFKA_VERSION, "3.9.1"], ids=["off", "not known"])
def test_groups_are_read_where_there_are_no_share_groups(
    broker_factory: BrokerFactory, version: str
) -> None:
    """Share groups are off in a cluster that came from an older Kafka."""
    broker, place = broker_factory("X", version=version), TopicPartition("T", 0)
    props = {"bootstrap.servers": broker.bootstrap}
    if version == KAFKA_VERSION:
        off = ("downgrade", "--feature", "share.version=0")
        run_tool(
            "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", *props.values(), *off
        )
    with KafkaCluster("X", ClusterClients.alike(props)) as cluster:
        cluster.create_topics([TopicSpec("T", 1, 1, {})])
        cluster.commit_idle("some", {place: 0})

        assert cluster.commits_of(["some", "none"]) == ({"some": {place: 0}, "none": {}}, {})
        assert ("share" in cluster.group_kinds(), cluster.share_groups()) == (False, frozenset())
        with pytest.raises(SrmError, match="the cluster has no share groups; use Kafka"):
            cluster.set_share_starts("none", {place: 0})


def test_many_groups_are_read_in_few_requests(cluster, topic, unique, monkeypatch):
    """More than fit into one request; a request for each would take some milliseconds each."""
    names = [f"{unique}-{number}" for number in range(600)]
    for name in names:
        cluster.commit_idle(name, {TopicPartition(topic, 0): 1})
    asked = []
    ask = Brokers._query

    async def counted(brokers, address, request, *purpose):
        asked.append(request)
        return await ask(brokers, address, request, *purpose)

    monkeypatch.setattr(Brokers, "_query", counted)

    listed = cluster.groups()
    named = cluster.groups([*names, f"{unique}-no"])
    commits = cluster.commits_of([*names, f"{unique}-no"])
    undecided = cluster.pending_commits(names, [TopicPartition(topic, 1)])

    assert 0 < len(asked) < 60
    expected = {name: {TopicPartition(topic, 0): 1} for name in names}
    assert commits == ({**expected, f"{unique}-no": {}}, {})
    assert undecided == (dict.fromkeys(names, frozenset()), {})
    assert all(listed[name] == named[name] == GroupDescription(name, "empty") for name in names)
    assert named[f"{unique}-no"].state == "dead"


@pytest.mark.parametrize(("partitions", "requests"), [(10_000, 2), (10_001, 1)])
def test_groups_are_not_queried_for_very_many_partitions_while_no_transaction_commits(
    cluster, topic, unique, monkeypatch, partitions, requests
):
    """1,200 groups and 4,400 partitions are 5 million answers, and a plan was blocked for ever."""
    cluster.commit_idle(unique, {TopicPartition(topic, 0): 1})
    asked = []
    ask = Brokers._query

    async def counted(brokers, address, request, *purpose):
        asked.append(request.message)
        return await ask(brokers, address, request, *purpose)

    monkeypatch.setattr(Brokers, "_query", counted)

    places = [TopicPartition(topic, number) for number in range(partitions)]
    undecided = cluster.pending_commits([unique], places)

    assert undecided == ({unique: frozenset()}, {})
    assert asked.count(api.FETCH_OFFSETS) == requests


def test_a_broker_that_was_started_again_is_asked_again(broker_factory, unique):
    broker = broker_factory("X")
    props = {"bootstrap.servers": broker.bootstrap}
    partition = TopicPartition(unique, 0)
    with KafkaCluster("X", ClusterClients.alike(props), timeout_s=150) as cluster:
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
        assert cluster.pending_commits([unique]) == ({unique: frozenset()}, {})


MEMBER = """
import sys
from confluent_kafka import Consumer
servers, group, topic, protocol = sys.argv[1:]
more = {} if protocol == "consumer" else {"session.timeout.ms": 1_000_000,
                                          "max.poll.interval.ms": 1_000_000}
settings = {"bootstrap.servers": servers, "group.id": group, "group.protocol": protocol, **more}
consumers = [Consumer({**settings, "client.id": name}) for name in ("dead-1", "dead-1-x", "alive")]
for consumer in consumers:
    consumer.subscribe([topic])
while True:
    for consumer in consumers:
        consumer.poll(0.1)
"""


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_a_killed_program_leaves_in_its_group_is_taken_out(
    cluster, props, topic, unique, protocol
):
    """Or the group waits for its session: 45 seconds, where nobody has chosen otherwise."""
    arguments = [props["bootstrap.servers"], unique, topic, protocol]
    program = subprocess.Popen([sys.executable, "-c", MEMBER, *arguments])

    def names() -> list[str]:
        members = cluster.groups([unique])[unique].members
        return sorted(name.partition("@")[0] for name in members)

    try:
        eventually(lambda: names() == ["alive", "dead-1", "dead-1-x"], "its members")
    finally:
        program.kill()
        program.wait()

    members = cluster.groups([unique])[unique].by_id
    dead = [member_id for member_id, name in members if name.startswith("dead-1")]
    cluster.remove_members(unique, dead)
    assert names() == ["alive"]
    cluster.remove_members(unique, [member_id for member_id, _ in members])
    assert cluster.groups([unique])[unique].state == "empty"
    cluster.remove_members(unique, ["alive"])
