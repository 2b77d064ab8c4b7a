"""Failover clients on real brokers, told by routing records what to do."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from tests.acknowledgements import acks_on
from tests.integration.moving import PARTITIONS, Site, route_clients
from tests.waiting import DEADLINE_S, eventually

from srm.client import routing
from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.engine.cluster_ports import TopicSpec
from srm.engine.moves.context import ensure_topics
from srm.errors import ConflictError, UnavailableError
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def site(site: Site) -> Site:
    with site.context(site.p, site.b) as context:
        ensure_topics(context)
    return site


@pytest.fixture
def watcher(site: Site) -> Iterator[RoutingWatcher]:
    with RoutingWatcher(site.config) as started:
        yield started


def tell(site: Site, subject: str, cluster: str, state: str) -> None:
    route_clients(site, subject, cluster, state)


def values_on(site: Site, alias: str) -> Counter[bytes]:
    bootstrap = site.config.client(alias, "consumer")["bootstrap.servers"]
    return Counter(
        record.value
        for partition in range(3)
        for _, record in read_log(bootstrap, site.topic, partition)
    )


def load(site: Site, alias: str, count: int) -> None:
    producer = Producer(site.config.client(alias, "producer"))
    for number in range(count):
        producer.produce(site.topic, f"{number}", partition=0)
    assert producer.flush(DEADLINE_S) == 0


def committed(site: Site, alias: str, group: str) -> dict[str, int]:
    return {str(tp): at for tp, at in site.clusters[alias].committed_offsets(group).items()}


def reading(site: Site, group: str, watcher: RoutingWatcher, **conf: object) -> FailoverConsumer:
    consumer = FailoverConsumer({"group.id": group, **conf}, watcher=watcher)
    consumer.subscribe([site.topic])
    return consumer


def acks(site: Site, alias: str, subject: str) -> dict[str, str]:
    return {
        ack.client: ack.state for ack in acks_on(site.clusters[alias]) if ack.subject == subject
    }


def test_a_hold_flushes_what_was_handed_over_and_the_rest_goes_to_the_other_cluster(
    site: Site, watcher: RoutingWatcher
) -> None:
    subject = f"topic:{site.topic}"
    properties = {"linger.ms": "60000"}  # nothing is sent by itself
    with FailoverProducer(
        {**properties, "client.id": "writer"}, topics=[site.topic], watcher=watcher
    ) as producer:
        for number in range(200):
            producer.produce(site.topic, f"old-{number}")
        tell(site, subject, site.p, "hold")
        eventually(lambda: acks(site, site.p, subject) == {"writer": "held"}, "acknowledged")
        assert values_on(site, site.p).total() == 200

        waiting = threading.Thread(target=producer.produce, args=(site.topic, "new"), daemon=True)
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        assert producer.cluster(site.topic) is None
        tell(site, subject, site.b, "go")
        waiting.join(DEADLINE_S)
        assert not waiting.is_alive()
        assert producer.flush(DEADLINE_S) == 0

    assert values_on(site, site.p) == Counter(f"old-{n}".encode() for n in range(200))
    assert values_on(site, site.b) == Counter([b"new"])


def test_a_hold_that_lasts_too_long_is_an_error_and_the_record_is_not_handed_over(
    site: Site, watcher: RoutingWatcher
) -> None:
    subject = f"topic:{site.topic}"
    tell(site, subject, site.p, "hold")
    eventually(lambda: watcher.route(subject).state == "hold", "hold is known")
    properties = {"delivery.timeout.ms": "1000", "linger.ms": "0"}
    with (
        FailoverProducer(properties, watcher=watcher) as producer,
        pytest.raises(UnavailableError, match="nothing was handed over"),
    ):
        producer.produce(site.topic, "never")

    with pytest.raises(ConflictError, match="closed"):
        producer.produce(site.topic, "never")
    assert values_on(site, site.p).total() == 0


def test_a_record_for_a_partition_that_its_topic_does_not_have_fails_at_once(
    site: Site, watcher: RoutingWatcher
) -> None:
    cluster, name = site.clusters[site.p], f"One{site.unique}"
    cluster.create_topics([TopicSpec(name, 1, 1, {})])
    failed: list[object] = []
    with FailoverProducer({}, watcher=watcher) as producer:
        began = time.monotonic()
        producer.produce(name, b"0", partition=9, on_delivery=lambda error, _: failed.append(error))
        producer.flush()
        with pytest.raises(KafkaException, match="_UNKNOWN_PARTITION"):
            producer.produce(name, b"1", partition=9)
        producer.produce(name, b"2", partition=0)

    assert time.monotonic() - began < DEADLINE_S / 2
    assert "_UNKNOWN_PARTITION" in str(failed)
    assert [record.value for _, record in read_log(site.servers[site.p], name, 0)] == [b"2"]


def test_a_failed_record_without_a_callback_is_raised_by_flush(
    site: Site, watcher: RoutingWatcher
) -> None:
    larger_than_the_broker_takes = {"message.max.bytes": "3000000"}
    with FailoverProducer(larger_than_the_broker_takes, watcher=watcher) as producer:
        producer.produce(site.topic, b"x" * 2_000_000, partition=0)
        with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
            producer.flush(DEADLINE_S)


@pytest.mark.parametrize("partition", [-1, 0])
def test_records_of_a_deleted_topic_wait_until_it_exists_again(
    site: Site, watcher: RoutingWatcher, partition: int
) -> None:
    """Without a retry they fail at once: librdkafka waits only for a topic that is new to it."""
    cluster, name = site.clusters[site.p], f"Deleted{site.unique}{partition + 1}"
    spec = TopicSpec(name, 1, 1, {})
    admin = AdminClient({"bootstrap.servers": site.servers[site.p]})
    cluster.create_topics([spec])
    failed: list[object] = []
    conf = {"topic.metadata.propagation.max.ms": 0}
    with FailoverProducer(conf, watcher=watcher) as producer:

        def write() -> None:
            for number in range(9):
                on_delivery = lambda error, _: failed.append(error)  # noqa: E731 -- one line
                producer.produce(name, f"{number}", partition=partition, on_delivery=on_delivery)

        producer.produce(spec.name, b"old")
        producer.flush()
        admin.delete_topics([spec.name])[spec.name].result(DEADLINE_S)
        eventually(lambda: spec.name not in cluster.topics(), "deleted")
        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        eventually(lambda: producer.count_unwritten(spec.name) > 0, "counted")
        cluster.create_topics([spec])
        writing.join(DEADLINE_S)

    assert failed == [None] * 9
    written = [record.value for _, record in read_log(site.servers[site.p], spec.name, 0)]
    assert written == [b"%d" % number for number in range(9)]


def test_a_message_is_processed_when_the_next_one_is_asked_for_or_when_it_is_done(
    site: Site, watcher: RoutingWatcher
) -> None:
    load(site, site.p, 10)
    group = site.group("g")
    with reading(site, group, watcher) as consumer:
        for count, _ in enumerate(consumer, start=1):
            if count == 4:
                break
    assert committed(site, site.p, group) == {f"{site.topic}-0": 3}

    with reading(site, group, watcher) as consumer:
        message = next(iter(consumer))
        assert message.value() == b"3"
        consumer.done(message)
    assert committed(site, site.p, group) == {f"{site.topic}-0": 4}


def is_empty(site: Site, group: str) -> bool:
    """Whether the broker has taken note that all members have left, for which no client waits."""
    return site.clusters[site.p].groups([group])[group].state == "empty"


def test_a_held_group_commits_what_is_processed_leaves_and_goes_on_there_after_a_release(
    site: Site, watcher: RoutingWatcher
) -> None:
    load(site, site.p, 10)
    group = site.group("g")
    subject = f"group:{group}"
    seen: list[bytes] = []
    with reading(site, group, watcher, **{"client.id": "reader"}) as consumer:
        for message in consumer:
            seen.append(message.value())
            if len(seen) == 5:
                break
        tell(site, subject, site.p, "hold")
        eventually(lambda: watcher.route(subject).state == "hold", "hold is known")

        assert consumer.poll(0.2) is None
        assert consumer.cluster is None
        eventually(lambda: is_empty(site, group), "it has left")
        assert committed(site, site.p, group) == {f"{site.topic}-0": 5}
        eventually(lambda: acks(site, site.p, subject) == {"reader": "held"}, "acknowledged")

        tell(site, subject, site.p, "go")
        while len(seen) < 10:
            message = consumer.poll(1.0)
            if message is not None:
                seen.append(message.value())
        eventually(lambda: acks(site, site.p, subject) == {"reader": "processed"}, "resumed")

    assert seen == [f"{number}".encode() for number in range(10)]


def test_members_that_leave_one_by_one_process_each_record_once(
    site: Site, watcher: RoutingWatcher
) -> None:
    load(site, site.p, 2_000)
    group = site.group("g")
    stop = threading.Event()
    seen: list[list[bytes]] = [[], [], []]

    def work(mine: list[bytes]) -> None:
        with reading(site, group, watcher) as consumer:
            while not stop.is_set():
                message = consumer.poll(0.2)
                if message is not None:
                    mine.append(message.value())

    threads = [threading.Thread(target=work, args=(mine,), daemon=True) for mine in seen]
    threads[0].start()
    eventually(lambda: len(seen[0]) > 100, "the first member reads")
    for thread in threads[1:]:
        thread.start()
    tell(site, f"group:{group}", site.p, "hold")
    eventually(lambda: is_empty(site, group), "all have left")
    tell(site, f"group:{group}", site.p, "go")
    eventually(lambda: sum(map(len, seen)) >= 2_000, "everything is read")
    stop.set()
    for thread in threads:
        thread.join(DEADLINE_S)

    assert not any(thread.is_alive() for thread in threads)
    assert Counter(value for mine in seen for value in mine) == Counter(
        f"{number}".encode() for number in range(2_000)
    )


def has_started(watcher: RoutingWatcher) -> bool:
    """Start a watcher; on a busy machine the cluster that is up may not answer in time either."""
    try:
        watcher.start(3.0)
    except UnavailableError:
        return False
    return True


def test_a_cluster_that_is_down_does_not_keep_clients_from_starting(site: Site) -> None:
    down = {"bootstrap.servers": "127.0.0.1:1"}
    clients = {
        place: down if place[0] == site.b else props for place, props in site.config.clients.items()
    }
    config = replace(site.config, clients=MappingProxyType(clients))
    tell(site, "group:x" + site.unique, site.b, "hold")

    watcher = RoutingWatcher(config)
    try:
        eventually(lambda: has_started(watcher), "the other cluster is followed")
        assert watcher.route("group:x" + site.unique).state == "hold"
    finally:
        watcher.close()


def test_without_any_cluster_clients_say_so(site: Site) -> None:
    clients = {key: {"bootstrap.servers": "127.0.0.1:1"} for key in site.config.clients}
    watcher = RoutingWatcher(replace(site.config, clients=MappingProxyType(clients)))
    try:
        with pytest.raises(UnavailableError, match="none of the clusters"):
            watcher.start(1.0)
    finally:
        watcher.close()


def test_a_topic_that_comes_into_being_is_read_too_and_the_others_are_read_on(
    site: Site, watcher: RoutingWatcher
) -> None:
    """The group rebalances then: what is committed in the callback must not wait for itself."""
    pattern, late = f"^Payments{site.unique}.*", f"Payments{site.unique}late"
    group = site.group("watching")
    load(site, site.p, 10)
    with FailoverConsumer(
        {"group.id": group, "topic.metadata.refresh.interval.ms": 500}, watcher=watcher
    ) as consumer:
        consumer.subscribe([pattern])
        seen: list[str] = []

        def read(topic: str) -> bool:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                seen.append(message.topic())
            return topic in seen

        eventually(lambda: read(site.topic) and len(seen) == 10, "the first records")
        site.clusters[site.p].create_topics([TopicSpec(late, 1, 1, {})])
        producer = Producer(site.config.client(site.p, "producer"))
        producer.produce(late, b"late")
        assert producer.flush(DEADLINE_S) == 0
        eventually(lambda: read(late), "the record of the new topic")
    assert committed(site, site.p, group)[f"{site.topic}-0"] == 10


def test_replicas_with_one_client_id_announce_the_member_ids_that_the_broker_lists(
    site: Site, watcher: RoutingWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has three partitions: one of the four members waits without any."""
    monkeypatch.setattr(routing, "REPEAT_S", 0.5)
    group, cluster = f"replicas-{site.unique}", site.clusters[site.p]

    def said() -> list[str]:
        ours = (ack for ack in acks_on(cluster) if ack.subject == f"group:{group}")
        return sorted(ack.members.get(site.p, "") for ack in ours)

    with ExitStack() as stack:
        consumers = [
            stack.enter_context(reading(site, group, watcher, **{"client.id": "shop"}))
            for _ in range(PARTITIONS + 1)
        ]

        def have_said_their_ids() -> bool:
            for consumer in consumers:
                consumer.poll(0.05)
            ids = site.clusters[site.p].groups([group])[group].ids
            said = [
                one for one in acks_on(site.clusters[site.p]) if one.subject == f"group:{group}"
            ]
            known = sorted(one.members.get(site.p, "") for one in said)
            return len(ids) == len(consumers) and known == sorted(ids)

        eventually(have_said_their_ids, "all members")
    eventually(lambda: said() == [], "each takes back its own")
