"""The embedded broker keeps data, port and cluster id through every way of ending it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.waiting import eventually

from srm.errors import StackError
from srm.stack.kafka import KafkaBroker

pytestmark = pytest.mark.kafka


def write_one(broker: KafkaBroker, topic: str, replicas: tuple[int, ...] = (1,)) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    new = NewTopic(topic, 1, replica_assignment=[list(replicas)])
    admin.create_topics([new])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0


def read_one(broker: KafkaBroker, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_the_two_clusters_of_a_session_are_different_and_both_ready(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    ids = {
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).cluster_id
        for broker in clusters.values()
    }

    assert len(ids) == 2
    assert all(broker.ready for broker in clusters.values())


def topic_leader(broker: KafkaBroker, topic: str) -> int:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    return client.list_topics(topic, timeout=30).topics[topic].partitions[0].leader


def in_sync(broker: KafkaBroker, topic: str) -> set[int]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap})
    return set(client.list_topics(topic, timeout=30).topics[topic].partitions[0].isrs)


@pytest.mark.faults
def test_a_killed_or_stopped_broker_starts_again_with_its_data_on_its_port(
    broker_factory: Callable[..., KafkaBroker],
) -> None:
    broker = broker_factory("X", **{"log.retention.ms": "3600000"})
    bootstrap = broker.bootstrap
    write_one(broker, "kept")

    broker.kill()
    assert not broker.running
    assert not broker.ready
    broker.start()
    broker.wait_ready()
    assert broker.bootstrap == bootstrap
    assert read_one(broker, "kept") == b"value"

    broker.restart()
    assert broker.bootstrap == bootstrap
    assert broker.ready


@pytest.mark.faults
def test_another_object_on_the_same_folder_finds_and_stops_the_broker(
    broker_factory: Callable[..., KafkaBroker],
) -> None:
    broker = broker_factory("X")

    found = KafkaBroker(broker.home, "X")
    assert found.pid == broker.pid
    assert found.bootstrap == broker.bootstrap
    found.stop()

    assert not broker.running


def test_a_broker_that_cannot_start_says_why_in_one_line(
    broker_factory: Callable[..., KafkaBroker],
) -> None:
    with pytest.raises(StackError, match=r"Kafka cluster X.*num\.io\.threads"):
        broker_factory("X", **{"num.io.threads": "none"})


@pytest.mark.faults
def test_a_cluster_of_three_keeps_its_data_without_one_broker_and_takes_it_back(
    cluster_factory: Callable[..., list[KafkaBroker]],
) -> None:
    first, second, third = cluster_factory("X", 3)
    write_one(first, "kept", replicas=(2, 3, 1))
    assert topic_leader(first, "kept") == second.node_id

    second.kill()
    eventually(lambda: topic_leader(third, "kept") != second.node_id, "a leader that lives")
    assert read_one(third, "kept") == b"value"

    second.start()
    second.wait_ready()
    eventually(lambda: in_sync(third, "kept") == {1, 2, 3}, "all replicas in sync")


@pytest.mark.parametrize("version", ["3.7.2", "3.9.1"])
def test_a_broker_of_an_older_version_keeps_its_data_through_a_crash(
    version: str, broker_factory: Callable[..., KafkaBroker]
) -> None:
    broker = broker_factory("X", version=version)
    write_one(broker, "kept")

    broker.kill()
    broker.start()
    broker.wait_ready()

    assert read_one(broker, "kept") == b"value"
    assert f"Kafka version: {version}" in broker.log.read_text()


def test_a_version_without_a_lock_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"no Kafka 3\.0\.0 here"):
        KafkaBroker(tmp_path, "X", version="3.0.0").start()
