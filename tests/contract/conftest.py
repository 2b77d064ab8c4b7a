"""The same clusters in memory and for real, with hands to play producers and consumers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient
from tests.contract.simulated_site import SimulatedWireSite
from tests.contract.wire_places import Place
from tests.contract.wire_sites import KafkaWireSite, WireSite
from tests.waiting import DEADLINE_S, eventually

from srm.clock import now_ms
from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import Cluster, TopicSpec
from srm.errors import NotFoundError
from srm.kafka.cluster import KafkaCluster
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.simulation.loop import simulated_loop


class Site(Protocol):
    """A cluster, and everybody else who uses it."""

    cluster: Cluster

    def produce(self, topic: str, partition: int, records: int) -> None: ...

    def produce_idempotently(self, topic: str, partition: int, records: int) -> None: ...

    def produce_in(self, name: str, topic: str, partition: int, records: int) -> None: ...

    def commit_in(self, name: str, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    def end_transaction(self, name: str, *, commit: bool) -> None: ...

    def trim(self, topic: str, partition: int, start: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None: ...

    def member(
        self, group: str, topic: str, kind: str, instance_id: str = ""
    ) -> AbstractContextManager[None]: ...


class FakeSite:
    """Everything in memory."""

    def __init__(self, alias: str) -> None:
        self.cluster = FakeCluster(alias, brokers=1)

    def produce(self, topic: str, partition: int, records: int) -> None:
        self.cluster.produce(topic, partition, records)

    def produce_idempotently(self, topic: str, partition: int, records: int) -> None:
        self.cluster.produce(topic, partition, records, producer_id=7, timestamp_ms=now_ms())

    def produce_in(self, name: str, topic: str, partition: int, records: int) -> None:
        self.cluster.produce_in(name, topic, partition, records)

    def commit_in(self, name: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.cluster.commit_in(name, group, offsets)

    def end_transaction(self, name: str, *, commit: bool) -> None:
        self.cluster.end_transaction(name, commit=commit)

    def trim(self, topic: str, partition: int, start: int) -> None:
        self.cluster.trim(topic, partition, start)

    def delete_topic(self, topic: str) -> None:
        self.cluster.delete_topic(topic)

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.cluster.commit(group, offsets)

    @contextmanager
    def member(self, group: str, topic: str, kind: str, instance_id: str = "") -> Iterator[None]:
        self.cluster.join(group, f"app-{topic}", kind, instance_id)
        yield
        self.cluster.leave(group, f"app-{topic}")


class KafkaSite:
    """A real broker."""

    def __init__(self, alias: str, bootstrap: str) -> None:
        self.props = {"bootstrap.servers": bootstrap}
        self.cluster = KafkaCluster(alias, ClusterClients.alike(self.props))
        self._admin = AdminClient(self.props)
        self._transactional: dict[str, Producer] = {}

    def produce(self, topic: str, partition: int, records: int) -> None:
        self._produce(Producer(self.props), topic, partition, records)

    def produce_idempotently(self, topic: str, partition: int, records: int) -> None:
        producer = Producer({**self.props, "enable.idempotence": True})
        self._produce(producer, topic, partition, records)

    def produce_in(self, name: str, topic: str, partition: int, records: int) -> None:
        self._produce(self._in_transaction(name), topic, partition, records)

    def commit_in(self, name: str, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        consumer = Consumer({**self.props, "group.id": group})
        places = [KafkaTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        producer = self._in_transaction(name)
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), DEADLINE_S)
        consumer.close()

    def end_transaction(self, name: str, *, commit: bool) -> None:
        producer = self._transactional.pop(name)
        (producer.commit_transaction if commit else producer.abort_transaction)(DEADLINE_S)

    def _in_transaction(self, name: str) -> Producer:
        if name not in self._transactional:
            settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
            producer = Producer({**self.props, **settings})
            producer.init_transactions(DEADLINE_S)
            producer.begin_transaction()
            self._transactional[name] = producer
        return self._transactional[name]

    def _produce(self, producer: Producer, topic: str, partition: int, records: int) -> None:
        for _ in range(records):
            producer.produce(topic, b"value", b"key", partition=partition)
        assert producer.flush(DEADLINE_S) == 0

    def trim(self, topic: str, partition: int, start: int) -> None:
        place = KafkaTopicPartition(topic, partition, start)

        def is_trimmed() -> bool:
            for future in self._admin.delete_records([place]).values():
                try:
                    future.result(DEADLINE_S)
                except KafkaException as error:
                    # The log has not heard yet that its topic's policy was changed.
                    if error.args[0].code() != KafkaError.POLICY_VIOLATION:
                        raise
                    return False
            return True

        eventually(is_trimmed, f"{topic}-{partition} begins at {start}")

    def delete_topic(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(DEADLINE_S)
        eventually(lambda: topic not in self.cluster.topics(), f"{topic} is gone")

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        consumer = Consumer({**self.props, "group.id": group})
        places = [KafkaTopicPartition(p.topic, p.partition, o) for p, o in offsets.items()]
        eventually(lambda: _committed(consumer, places), f"a commit in group {group}")
        consumer.close()

    @contextmanager
    def member(self, group: str, topic: str, kind: str, instance_id: str = "") -> Iterator[None]:
        consumer = Consumer(
            {
                **({"group.instance.id": instance_id} if instance_id else {}),
                **self.props,
                "group.id": group,
                "group.protocol": kind,
                "client.id": f"app-{topic}",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        eventually(
            lambda: consumer.poll(0.1) or consumer.assignment(), f"an assignment in group {group}"
        )
        yield
        consumer.close()
        if not instance_id:  # a static member keeps its place
            eventually(
                lambda: self.cluster.groups([group])[group].state != "active",
                f"the coordinator has heard that the member leaves group {group}",
            )


def _committed(consumer: Consumer, places: list[KafkaTopicPartition]) -> bool:
    """Commit; False while the broker's first coordinator is still loading."""
    try:
        consumer.commit(offsets=places, asynchronous=False)
    except KafkaException:
        return False
    return True


def _site(kind: str, alias: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    if kind == "fake":
        yield FakeSite(alias)
        return
    site = KafkaSite(alias, request.getfixturevalue("clusters")[alias].bootstrap)
    with site.cluster:
        yield site


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.kafka)])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def site(kind: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Cluster P."""
    yield from _site(kind, "P", request)


@pytest.fixture
def other_site(kind: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    """Cluster B."""
    yield from _site(kind, "B", request)


@pytest.fixture(params=["simulated", pytest.param("kafka", marks=pytest.mark.kafka)])
def wire_site(request: pytest.FixtureRequest) -> Iterator[WireSite]:
    """Cluster P, as the data plane sees it."""
    if request.param == "simulated":
        with simulated_loop(1) as loop:
            yield SimulatedWireSite(loop)
        return
    site = KafkaSite("P", request.getfixturevalue("clusters")["P"].bootstrap)
    with site.cluster:
        yield KafkaWireSite(site)


@pytest.fixture
def place(wire_site: WireSite) -> Place:
    """Create a topic with one partition there."""
    return Place(*wire_site.create_topic())


@pytest.fixture
def transactional_id() -> str:
    """Make a name that nobody has claimed yet."""
    return f"x-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def unique() -> str:
    """Make a name that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(site: Site, unique: str) -> str:
    """Create a topic with two partitions on cluster P, which group coordinators know, too.

    They learn of a new topic after the brokers that describe it, and refuse its offsets till then.
    """
    site.cluster.create_topics([TopicSpec(unique, 2, 1, {})])

    def is_known() -> bool:
        try:
            site.cluster.commit_idle(f"{unique}-first", {TopicPartition(unique, 1): 0})
        except NotFoundError:
            return False
        return True

    eventually(is_known, f"the coordinator knows {unique}")
    return unique
