"""What the brokers themselves are asked, behind every kind of security and with rights missing."""

from __future__ import annotations

import gc
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from tests.cases import cases
from tests.conftest import BrokerFactory
from tests.integration.rights import Right, user_with
from tests.integration.securing import SESSION_MS, WAYS_IN, SecuredBroker
from tests.overrides import overrides
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.names.rights import write_denial
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import GroupDescription, TopicSpec
from srm.errors import AuthorizationError, ConfigError
from srm.kafka.cluster import KafkaCluster

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

ELEVEN_CONFIGS = {
    "cleanup.policy": "compact,delete",
    "delete.retention.ms": "1000",
    "flush.messages": "1000",
    "flush.ms": "1000",
    "max.message.bytes": "1000000",
    "min.cleanable.dirty.ratio": "0.4",
    "min.compaction.lag.ms": "1000",
    "retention.bytes": "1000000",
    "retention.ms": "1000000",
    "segment.bytes": "10000000",
    "segment.ms": "1000000",
}


@pytest.fixture(scope="module")
def topics(secured: SecuredBroker) -> Iterator[tuple[str, str]]:
    """Two topics with an open transaction; a group of the first one's name has offsets in it."""
    props = {"bootstrap.servers": secured.broker.bootstrap}
    first, second = f"pay-{uuid.uuid4().hex[:8]}", f"audit-{uuid.uuid4().hex[:8]}"
    with KafkaCluster("P", ClusterClients.alike(props)) as cluster:
        cluster.create_topics([TopicSpec(name, 1, 1, {}) for name in (first, second)])
        cluster.commit_idle(first, {TopicPartition(first, 0): 0})
    producer = Producer({**props, "transactional.id": first, "transaction.timeout.ms": 600_000})
    producer.init_transactions(120)
    producer.begin_transaction()
    for name in (first, second):
        producer.produce(name, b"x", partition=0)
    producer.flush(120)
    yield first, second
    producer.abort_transaction(120)


def as_user(secured: SecuredBroker, *rights: Right) -> KafkaCluster:
    return KafkaCluster("P", ClusterClients.alike(user_with(secured, rights)), timeout_s=60)


@pytest.mark.parametrize("way", cases(WAYS_IN[1::4], WAYS_IN[::4] + WAYS_IN[2::4] + WAYS_IN[3::4]))
def test_brokers_are_asked_with_every_kind_of_security(
    secured: SecuredBroker, topics: tuple[str, str], way: str
) -> None:
    first, second = topics
    partition = TopicPartition(first, 0)
    properties = secured.ways_in()[way]
    with KafkaCluster("P", ClusterClients.alike(properties)) as cluster:
        assert cluster.groups([first]) == {first: GroupDescription(first, "empty")}
        assert cluster.groups()[first].state == "empty"
        assert cluster.committed_offsets(first) == {partition: 0}
        assert cluster.pending_commits([first]) == ({first: frozenset()}, {})
        [transaction] = cluster.open_transactions([partition])[partition]
        assert transaction.transactional_id == first
        assert transaction.age_ms is not None
        assert frozenset({first, second}) in (cluster.transactional_topics() or ())


def test_a_group_that_may_not_be_described_is_unknown_and_fails_no_other(
    secured: SecuredBroker, topics: tuple[str, str]
) -> None:
    first, _ = topics
    with as_user(secured, Right("P", "Describe", "--group", first)) as cluster:
        found = cluster.groups([first, "of-others"])

        assert found[first].state == "empty"
        assert found["of-others"].state == "unknown"
        assert "grant Describe on group of-others to srm's principal" in found["of-others"].reason
        assert cluster.groups().keys() == {first}
        with pytest.raises(AuthorizationError, match="grant Describe on group of-others"):
            cluster.committed_offsets("of-others")
        for call in (cluster.commits_of, cluster.pending_commits):
            answers, errors = call([first, "of-others"])
            assert answers.keys() == {first}
            assert isinstance(errors["of-others"], AuthorizationError)
            assert "grant Describe on group of-others" in str(errors["of-others"])


def test_producers_take_read_on_the_topic(secured: SecuredBroker, topics: tuple[str, str]) -> None:
    partition = TopicPartition(topics[0], 0)
    describe = Right("P", "Describe", "--topic", topics[0])
    for rights in ((), (describe,)):
        with as_user(secured, *rights) as cluster:
            for call in (cluster.open_transactions, cluster.active_producers):
                with pytest.raises(AuthorizationError, match=f"grant Read on topic {topics[0]} "):
                    call([partition])
    with as_user(secured, replace(describe, operation="Read")) as cluster:
        assert cluster.active_producers([partition]).keys() == {partition}


def test_a_transaction_is_seen_without_its_id_where_that_may_not_be_described(
    secured: SecuredBroker, topics: tuple[str, str]
) -> None:
    partition = TopicPartition(topics[0], 0)
    read = Right("P", "Read", "--topic", topics[0])
    with as_user(secured, read) as cluster:
        [hidden] = cluster.open_transactions([partition])[partition]
        assert (hidden.transactional_id, hidden.age_ms, hidden.first_offset) == (None, None, 0)
    with as_user(secured, read, Right("P", "Describe", "--transactional-id", topics[0])) as cluster:
        [named] = cluster.open_transactions([partition])[partition]
        assert named.transactional_id == topics[0]
        assert named.age_ms is not None


def test_topics_of_one_transaction_cannot_be_known_without_the_log_of_transactions(
    secured: SecuredBroker, topics: tuple[str, str]
) -> None:
    log = Right("P", "Read", "--topic", "__transaction_state")
    for rights in ((), (replace(log, operation="Describe"),)):
        with as_user(secured, *rights) as cluster:
            assert cluster.transactional_topics() is None
    with as_user(secured, log) as cluster:
        assert frozenset(topics) in (cluster.transactional_topics() or ())


def test_removing_members_takes_read_on_the_group(
    secured: SecuredBroker, topics: tuple[str, str]
) -> None:
    group = topics[0]
    with (
        as_user(secured, Right("P", "Describe", "--group", group)) as cluster,
        pytest.raises(AuthorizationError, match=f"grant Read on group {group} "),
    ):
        cluster.remove_static_members(group, ["shop-1"])
    with as_user(secured, Right("P", "Read", "--group", group)) as cluster:
        cluster.remove_static_members(group, ["shop-1"])


def test_a_login_that_is_refused_is_said_at_once(secured: SecuredBroker) -> None:
    properties = {**secured.ways_in()["PLAIN over TLS"], "sasl.password": "guessed"}
    with (
        KafkaCluster("P", ClusterClients.alike(properties), timeout_s=60) as cluster,
        pytest.raises(AuthorizationError, match=r"cluster P.*check sasl\.username"),
    ):
        cluster.groups()


def test_sessions_that_end_are_renewed(secured: SecuredBroker, topics: tuple[str, str]) -> None:
    """The connections of one cluster are kept, longer than brokers keep their sessions."""
    session = {"bootstrap.servers": secured.broker.address("SHORT")}
    properties = {**secured.ways_in()["SCRAM-SHA-512 over TLS"], **session}
    until = time.monotonic() + 3 * SESSION_MS / 1000
    with KafkaCluster("P", ClusterClients.alike(properties), timeout_s=60) as cluster:
        while time.monotonic() < until:
            assert cluster.groups([topics[0]])[topics[0]].state == "empty"


def test_topics_that_are_described_again_and_again_leave_nothing_in_memory(
    secured: SecuredBroker, topics: tuple[str, str]
) -> None:
    """The driver of a flow describes all of them every few seconds, for months."""
    props = ClusterClients.alike({"bootstrap.servers": secured.broker.bootstrap})
    with KafkaCluster("P", props) as cluster:
        found = cluster.topics()
        assert found.keys() >= {*topics}
        rights = cluster.topic_rights(topics, "consumer")
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(100):
            assert cluster.topics() == found
            assert cluster.topic_rights(topics, "consumer") == rights
        gc.collect()
        assert sys.getallocatedblocks() - before < 100


def test_changes_larger_than_the_controller_takes_at_once_succeed_all_but_what_is_refused(
    broker_factory: BrokerFactory,
) -> None:
    """Kafka's controller refuses a request of more than 10 000 records as a whole."""
    broker = broker_factory(
        "X",
        **{
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        },
    )
    names = [f"t{number}" for number in range(1000)]
    clients = ClusterClients.alike({"bootstrap.servers": broker.bootstrap})
    with KafkaCluster("X", clients, timeout_s=120) as cluster:
        specs = [TopicSpec(name, 1, 1, ELEVEN_CONFIGS) for name in names]
        refused = [TopicSpec(f"bad-{which}", 1, 1, {"retention.ms": "long"}) for which in "ab"]
        named = r"creating on cluster X: topic bad-a: .*long.*; also failed: bad-b"
        with pytest.raises(ConfigError, match=named):
            cluster.create_topics([*refused, *specs])
        eventually(lambda: cluster.partition_counts().keys() >= set(names), "topics are there")

        cluster.alter_topic_configs({name: dict.fromkeys(ELEVEN_CONFIGS) for name in names})
        assert not any(overrides(cluster, names).values())

        rules = [write_denial(f"{name}-{copy}") for name in names for copy in range(11)]
        cluster.create_acls(rules)
        assert cluster.acls() == set(rules)
