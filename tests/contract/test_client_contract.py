"""The same calls on confluent-kafka's clients and on srm's: the same results and exceptions."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    DeserializingConsumer,
    KafkaException,
    Producer,
    SerializingProducer,
    TopicPartition,
)
from confluent_kafka.error import ConsumeError, KeySerializationError, ValueDeserializationError
from confluent_kafka.serialization import IntegerSerializer, StringDeserializer, StringSerializer
from tests.waiting import eventually

from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.client.serialising import FailoverDeserializingConsumer, FailoverSerializingProducer
from srm.client.settings import load_client_config
from srm.config.model import ClusterClients
from srm.engine.cluster_ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker

pytestmark = pytest.mark.kafka

KINDS = {
    "confluent": (Consumer, Producer, DeserializingConsumer, SerializingProducer),
    "srm": (
        FailoverConsumer,
        FailoverProducer,
        FailoverDeserializingConsumer,
        FailoverSerializingProducer,
    ),
}


class Clients:
    """Clients of one kind on one cluster, with topics of their own."""

    def __init__(self, kind: str, bootstrap: str, watcher: RoutingWatcher) -> None:
        self._classes = KINDS[kind]
        self._more: dict[str, Any] = {} if kind == "confluent" else {"watcher": watcher}
        self._connect = {"bootstrap.servers": bootstrap}
        self._made: list[Any] = []
        self.unique = uuid.uuid4().hex[:8]
        self.topic = f"contract-{self.unique}"
        self.group = f"group-{self.unique}"
        servers = dict(self._connect)
        with KafkaCluster("P", ClusterClients.alike(servers)) as cluster:
            cluster.create_topics([TopicSpec(self.topic, 2, 1, {})])

    def _make(self, number: int, conf: Mapping[str, Any]) -> Any:
        made = self._classes[number]({**self._connect, **conf}, **self._more)
        self._made.append(made)
        return made

    def consumer(self, **conf: Any) -> Any:
        plain = {"group.id": self.group, "auto.offset.reset": "earliest"}
        return self._make(0, {**plain, **_dotted(conf)})

    def producer(self, **conf: Any) -> Any:
        return self._make(1, _dotted(conf))

    def deserializing(self, conf: Mapping[str, Any]) -> Any:
        plain = {"group.id": self.group, "auto.offset.reset": "earliest"}
        return self._make(2, {**plain, **conf})

    def serializing(self, conf: Mapping[str, Any]) -> Any:
        return self._make(3, conf)

    def load(self, count: int) -> None:
        producer = Producer(self._connect)
        for number in range(count):
            producer.produce(self.topic, str(number), partition=0)
        assert producer.flush(120) == 0

    def committed(self) -> int:
        with KafkaCluster("P", ClusterClients.alike(dict(self._connect))) as cluster:
            found = {str(place): at for place, at in cluster.committed_offsets(self.group).items()}
        return found.get(f"{self.topic}-0", -1)

    def group_is_empty(self) -> bool:
        with KafkaCluster("P", ClusterClients.alike(dict(self._connect))) as cluster:
            return cluster.groups([self.group])[self.group].state == "empty"

    def close(self) -> None:
        for one in self._made:
            one.close()


def _dotted(conf: Mapping[str, Any]) -> dict[str, Any]:
    callbacks = {"on_delivery", "on_commit", "error_cb", "stats_cb"}
    return {k if k in callbacks else k.replace("_", "."): v for k, v in conf.items()}


@pytest.fixture(scope="module")
def watcher(
    clusters: Mapping[str, KafkaBroker], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RoutingWatcher]:
    file = tmp_path_factory.mktemp("clients") / "srm-client.properties"
    lines = [f"{alias}.bootstrap.servers = {b.bootstrap}" for alias, b in clusters.items()]
    file.write_text("\n".join(["clusters = P, B", *lines]))
    with RoutingWatcher(load_client_config(file)) as started:
        yield started


@pytest.fixture(params=KINDS)
def clients(
    request: pytest.FixtureRequest, clusters: Mapping[str, KafkaBroker], watcher: RoutingWatcher
) -> Iterator[Clients]:
    made = Clients(request.param, clusters["P"].bootstrap, watcher)
    yield made
    made.close()


def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    eventually(
        lambda: found.extend(consumer.consume(count - len(found), 1.0)) or len(found) >= count,
        "read",
    )
    return found


# ----- producers


def test_produce_takes_its_arguments_in_confluents_order(clients: Clients) -> None:
    delivered: list[Any] = []
    producer = clients.producer()
    producer.produce(
        clients.topic,
        b"value",
        b"key",
        1,
        lambda e, m: delivered.append((e, m)),
        None,
        1234,
        [("h", b"1")],
    )
    assert len(producer) == 1
    assert producer.flush(120) == 0
    [(error, message)] = delivered
    assert error is None
    assert (message.topic(), message.partition(), message.offset()) == (clients.topic, 1, 0)
    assert (message.value(), message.key()) == (b"value", b"key")
    assert message.timestamp() == (1, 1234)
    consumer = clients.consumer()
    consumer.subscribe([clients.topic])
    [read_back] = read(consumer, 1)
    assert read_back.headers() == [("h", b"1")]
    assert read_back.error() is None


def test_a_delivery_callback_runs_in_poll_and_poll_counts_it(clients: Clients) -> None:
    delivered: list[Any] = []
    producer = clients.producer(linger_ms=0, on_delivery=lambda e, m: delivered.append(m.value()))
    producer.produce(clients.topic, b"1")
    served = 0

    def poll() -> bool:
        nonlocal served
        served += producer.poll(0.5)
        return served >= 1

    eventually(poll, "served")
    assert (served, delivered) == (1, [b"1"])
    assert producer.poll(0) == 0
    assert len(producer) == 0


def test_an_exception_of_a_callback_comes_out_of_poll_or_flush(clients: Clients) -> None:
    producer = clients.producer()

    def wrong(_error: object, _message: object) -> None:
        raise ValueError("bug")

    producer.produce(clients.topic, b"1", callback=wrong)
    with pytest.raises(ValueError, match="bug"):
        producer.flush(120)


def test_a_full_queue_is_a_buffer_error(clients: Clients) -> None:
    producer = clients.producer(queue_buffering_max_messages=2, linger_ms=60000)
    producer.produce(clients.topic, b"1")
    producer.produce(clients.topic, b"2")
    with pytest.raises(BufferError):
        producer.produce(clients.topic, b"3")
    producer.flush(120)


def test_purged_records_are_reported(clients: Clients) -> None:
    errors: list[Any] = []
    producer = clients.producer(linger_ms=60000)
    producer.produce(clients.topic, b"1", callback=lambda e, m: errors.append(e.name()))
    producer.purge()
    producer.flush(120)
    assert errors == ["_PURGE_QUEUE"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda p, t: p.produce(), TypeError),
        (lambda p, t: p.produce(1), TypeError),
        (lambda p, t: p.produce(t, 1), TypeError),
        (lambda p, t: p.begin_transaction(), KafkaException),
        (lambda p, t: p.poll(None), TypeError),
    ],
)
def test_wrong_calls_of_a_producer_raise_the_same(
    clients: Clients, call: Callable[..., Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(clients.producer(), clients.topic)


def test_a_batch_tells_of_the_records_that_were_not_taken(clients: Clients) -> None:
    producer = clients.producer(message_max_bytes=2000)
    messages = [{"value": b"1"}, {"value": b"x" * 3000}]
    assert producer.produce_batch(clients.topic, messages) == 1
    assert messages[1]["_error"].name() == "MSG_SIZE_TOO_LARGE"
    assert "_error" not in messages[0]
    assert producer.flush(120) == 0


def test_a_transaction_commits_records_with_offsets_or_neither(clients: Clients) -> None:
    clients.load(3)
    consumer = clients.consumer(enable_auto_commit=False)
    consumer.subscribe([clients.topic])
    producer = clients.producer(transactional_id=f"tx-{clients.unique}")
    producer.init_transactions(120)
    for end in ("abort_transaction", "commit_transaction"):
        [message] = read(consumer, 1)
        producer.begin_transaction()
        producer.produce(clients.topic, end, partition=1)
        offsets = [TopicPartition(clients.topic, 0, message.offset() + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 120)
        getattr(producer, end)(120)
        eventually(
            lambda end=end: clients.committed() == (-1 if end == "abort_transaction" else 2), end
        )
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(5)
    assert refused.value.args[0].name() == "_STATE"


def test_a_producer_without_its_properties_or_after_its_end_says_so(clients: Clients) -> None:
    with pytest.raises(KafkaException) as unknown:
        clients.producer(no_such_property=1)
    assert unknown.value.args[0].name() == "_INVALID_ARG"
    producer = clients.producer()
    producer.close()
    with pytest.raises(RuntimeError):
        producer.produce(clients.topic, b"1")


# ----- consumers


def test_a_batch_is_read_and_all_of_it_committed(clients: Clients) -> None:
    clients.load(10)
    consumer = clients.consumer(enable_auto_commit=False)
    assigned: list[Any] = []
    consumer.subscribe([clients.topic], on_assign=lambda c, parts: assigned.extend([c, *parts]))
    batch = read(consumer, 10)
    assert [message.value() for message in batch] == [str(n).encode() for n in range(10)]
    assert assigned[0] is consumer
    assert {(p.topic, p.partition) for p in assigned[1:]} == {
        (clients.topic, 0),
        (clients.topic, 1),
    }
    assert {(p.topic, p.partition) for p in consumer.assignment()} == {
        (clients.topic, 0),
        (clients.topic, 1),
    }
    place = TopicPartition(clients.topic, 0)
    assert consumer.position([place])[0].offset == 10
    assert consumer.committed([place], timeout=60)[0].offset < 0
    [done] = [one for one in consumer.commit(asynchronous=False) if one.partition == 0]
    assert (done.topic, done.offset, done.error) == (clients.topic, 10, None)
    assert consumer.committed([place], timeout=60)[0].offset == 10
    assert consumer.get_watermark_offsets(place, timeout=60) == (0, 10)


@pytest.mark.parametrize("form", ["message", "offsets"])
def test_a_message_or_offsets_are_committed(clients: Clients, form: str) -> None:
    clients.load(5)
    consumer = clients.consumer(enable_auto_commit=False)
    consumer.subscribe([clients.topic])
    batch = read(consumer, 5)
    said: Any = batch[2] if form == "message" else [TopicPartition(clients.topic, 0, 3)]
    [done] = consumer.commit(**{form: said}, asynchronous=False)
    assert (done.partition, done.offset) == (0, 3)
    assert clients.committed() == 3
    assert consumer.commit(**{form: said}) is None


def test_stored_offsets_are_what_is_committed(clients: Clients) -> None:
    clients.load(5)
    consumer = clients.consumer(enable_auto_offset_store=False)
    consumer.subscribe([clients.topic])
    batch = read(consumer, 5)
    consumer.store_offsets(message=batch[1])
    consumer.commit(asynchronous=False)
    assert clients.committed() == 2
    consumer.store_offsets(offsets=[TopicPartition(clients.topic, 0, 4)])
    consumer.close()
    assert clients.committed() == 4


def test_nothing_to_commit_is_an_error_of_a_synchronous_commit(clients: Clients) -> None:
    consumer = clients.consumer()
    consumer.subscribe([clients.topic])
    eventually(lambda: consumer.poll(0.5) is None and len(consumer.assignment()) == 2, "assigned")
    with pytest.raises(KafkaException) as nothing:
        consumer.commit(asynchronous=False)
    assert nothing.value.args[0].name() == "_NO_OFFSET"


def test_a_consumer_seeks_pauses_and_resumes(clients: Clients) -> None:
    clients.load(5)
    consumer = clients.consumer()
    consumer.subscribe([clients.topic])
    read(consumer, 5)
    consumer.seek(TopicPartition(clients.topic, 0, 2))
    assert [m.offset() for m in read(consumer, 3)] == [2, 3, 4]
    consumer.pause([TopicPartition(clients.topic, 0)])
    clients.load(1)
    assert consumer.consume(1, 1.0) == []
    consumer.resume([TopicPartition(clients.topic, 0)])
    assert [m.offset() for m in read(consumer, 1)] == [5]


def test_revoked_partitions_are_reported_when_the_consumer_closes(clients: Clients) -> None:
    clients.load(3)
    consumer = clients.consumer(enable_auto_commit=False)
    revoked: list[Any] = []

    def on_revoke(one: Any, partitions: list[TopicPartition]) -> None:
        revoked.extend(partitions)
        one.commit(asynchronous=False)

    consumer.subscribe([clients.topic], on_revoke=on_revoke)
    read(consumer, 3)
    consumer.close()
    assert {p.partition for p in revoked} == {0, 1}
    assert clients.committed() == 3
    with pytest.raises(RuntimeError, match="Consumer closed"):
        consumer.poll(0)


def test_partitions_that_were_lost_are_reported_as_lost(clients: Clients) -> None:
    """A consumer that is not polled in time loses its place in the group."""
    clients.load(1)
    consumer = clients.consumer(session_timeout_ms=6000, max_poll_interval_ms=6000)
    said: list[str] = []
    consumer.subscribe(
        [clients.topic],
        on_revoke=lambda c, parts: said.append("revoked"),
        on_lost=lambda c, parts: said.append("lost"),
    )
    read(consumer, 1)
    eventually(clients.group_is_empty, "the group has given the member up")

    def reported() -> bool:
        consumer.poll(0.5)  # first an error, then what was lost
        return bool(said)

    eventually(reported, "reported")
    assert said == ["lost"]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.subscribe("topic"), TypeError),
        (lambda c: c.subscribe([]), KafkaException),
        (lambda c: c.subscribe(["t"], on_assign=1), TypeError),
        (lambda c: c.consume(-1), ValueError),
        (lambda c: c.consume(1_000_001, 0), ValueError),
        (lambda c: c.poll(None), TypeError),
        (lambda c: c.commit(message=1, offsets=[]), ValueError),
        (lambda c: c.store_offsets(), ValueError),
        (lambda c: c.seek(TopicPartition("t", 0, 0)), KafkaException),
    ],
)
def test_wrong_calls_of_a_consumer_raise_the_same(
    clients: Clients, call: Callable[..., Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        call(clients.consumer())


def test_without_a_subscription_nothing_is_read(clients: Clients) -> None:
    consumer = clients.consumer()
    assert consumer.poll(0) is None
    assert consumer.consume(1, 0) == []
    assert consumer.assignment() == []
    assert consumer.position([TopicPartition(clients.topic, 0)])[0].offset < 0
    assert consumer.memberid() is None


def test_a_consumer_without_its_properties_says_so(clients: Clients) -> None:
    with pytest.raises(KafkaException) as unknown:
        clients.consumer(no_such_property=1)
    assert unknown.value.args[0].name() == "_INVALID_ARG"
    with pytest.raises(ValueError, match=r"group\.id must be set"):
        clients._make(0, {})


# ----- serialisers


def test_objects_are_written_and_read_and_what_cannot_be_raises_the_same(clients: Clients) -> None:
    producer = clients.serializing(
        {"key.serializer": StringSerializer(), "value.serializer": StringSerializer()}
    )
    producer.produce(clients.topic, "key", "value", 0)
    producer.flush(120)
    consumer = clients.deserializing(
        {"key.deserializer": StringDeserializer(), "value.deserializer": StringDeserializer()}
    )
    consumer.subscribe([clients.topic])
    message = consumer.poll(120)
    assert (message.key(), message.value()) == ("key", "value")
    wrong = clients.serializing({"key.serializer": IntegerSerializer()})
    with pytest.raises(KeySerializationError):
        wrong.produce(clients.topic, "no number", b"")
    Producer({"bootstrap.servers": clients._connect["bootstrap.servers"]})
    plain = clients.producer()
    plain.produce(clients.topic, b"\xff", partition=0)
    plain.flush(120)
    with pytest.raises(ValueDeserializationError):
        consumer.poll(120)
    assert issubclass(ValueDeserializationError, ConsumeError)
