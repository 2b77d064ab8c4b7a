"""The embedded broker keeps data, port and cluster id through every way of ending it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from srm.errors import StackError
from srm.stack.kafka import KafkaBroker

pytestmark = pytest.mark.kafka


def write_one(broker: KafkaBroker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
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
