"""What happens to messages, batches, transactions and callbacks when routes change under them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from tests.acknowledgements import acks_on
from tests.integration.moving import Site
from tests.integration.test_clients import (
    committed,
    load,
    reading,
    site,
    tell,
    values_on,
    watcher,
)
from tests.waiting import DEADLINE_S, eventually

from srm.client.aio import FailoverAIOConsumer, FailoverAIOProducer
from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.client.serialising import FailoverDeserializingConsumer, FailoverSerializingProducer
from srm.domain.moves.announcements import Ack
from srm.engine.cluster_ports import TopicSpec

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

__all__ = ["site", "watcher"]


def said(site: Site, alias: str, subject: str) -> dict[str, Ack]:
    return {ack.client: ack for ack in acks_on(site.clusters[alias]) if ack.subject == subject}


def take(consumer: FailoverConsumer, count: int) -> list[Any]:
    found: list[Any] = []
    eventually(
        lambda: found.extend(consumer.consume(count - len(found), 0.5)) or len(found) >= count,
        "read",
    )
    return found


def written(site: Site, alias: str, values: Mapping[bytes, int]) -> None:
    """Wait until just this can be read: a commit returns before its markers are in the logs."""
    eventually(lambda: values_on(site, alias) == values, f"{values} on {alias}")


def move(site: Site, watcher: RoutingWatcher, subject: str, target: str) -> None:
    source = watcher.route(subject).cluster
    tell(site, subject, source, "hold")
    tell(site, subject, target, "go")
    eventually(lambda: watcher.route(subject).cluster == target, "the watcher knows")


@pytest.mark.parametrize("say", ["done", "commit", "store_offsets", "offsets"])
def test_a_message_of_the_other_cluster_commits_nothing_on_this_one(
    site: Site, watcher: RoutingWatcher, say: str
) -> None:
    """The topic has the same name on both: the offset of one would skip records of the other."""
    load(site, site.p, 50)
    load(site, site.b, 100)
    group = site.group("g")
    with reading(site, group, watcher) as consumer:
        last = take(consumer, 50)[-1]
        move(site, watcher, f"group:{group}", site.b)
        first = take(consumer, 1)[0]
        assert (first.cluster, first.offset()) == (site.b, 0)
        if say == "done":
            consumer.done(last)
        elif say == "commit":
            consumer.commit(message=last, asynchronous=False)
        elif say == "store_offsets":
            consumer.store_offsets(message=last)
        else:
            consumer.commit(
                offsets=[TopicPartition(site.topic, 0, last.offset() + 1)], asynchronous=False
            )

    assert committed(site, site.b, group).get(f"{site.topic}-0", 0) == 0


def test_what_is_done_too_late_is_announced_as_uncommitted(
    site: Site, watcher: RoutingWatcher
) -> None:
    load(site, site.p, 5)
    group = site.group("g")
    subject = f"group:{group}"
    with reading(site, group, watcher, **{"enable.auto.offset.store": False}) as consumer:
        batch = take(consumer, 5)
        consumer.done(batch[1])
        move(site, watcher, subject, site.b)
        consumer.poll(0.2)
        assert committed(site, site.p, group) == {f"{site.topic}-0": 2}
        for message in batch[2:]:
            consumer.done(message)
        name = f"{site.topic}-0"
        eventually(
            lambda: (
                site.b
                and any(
                    ack.uncommitted == {name: 3}
                    for alias in (site.p, site.b)
                    for ack in said(site, alias, subject).values()
                )
            ),
            "announced",
        )


def test_a_batch_is_not_committed_before_it_is_done_in_explicit_processing(
    site: Site, watcher: RoutingWatcher
) -> None:
    load(site, site.p, 20)
    group = site.group("g")
    with reading(site, group, watcher, **{"enable.auto.offset.store": False}) as consumer:
        first = take(consumer, 10)
        second = take(consumer, 10)
        consumer.done(first[-1])
        assert consumer.processing == "explicit"
        assert len(second) == 10
        consumer.commit(asynchronous=False)
        assert committed(site, site.p, group) == {f"{site.topic}-0": 10}


def test_a_member_announces_itself_what_it_does_and_that_it_is_gone(
    site: Site, watcher: RoutingWatcher
) -> None:
    load(site, site.p, 3)
    group = site.group("g")
    subject = f"group:{group}"
    with reading(site, group, watcher, **{"client.id": "reader"}) as consumer:
        consumer.poll(0.1)
        eventually(lambda: "reader" in said(site, site.p, subject), "announced")
        [ack] = said(site, site.p, subject).values()
        assert (ack.generation, ack.kind, ack.state) == (0, "consumer", "resumed")
        assert ack.host
        take(consumer, 1)
        take(consumer, 1)
        eventually(lambda: said(site, site.p, subject)["reader"].state == "processed", "processed")
        ages = said(site, site.p, subject)["reader"].ages_ms
        assert ages["resumed"] >= ages["processed"] >= 0
    eventually(lambda: said(site, site.p, subject) == {}, "taken back")


def test_a_producer_announces_each_topic_with_its_first_record(
    site: Site, watcher: RoutingWatcher
) -> None:
    subject = f"topic:{site.topic}"
    with FailoverProducer({"client.id": "writer"}, watcher=watcher) as producer:
        producer.produce(site.topic, b"1")
        eventually(lambda: "writer" in said(site, site.p, subject), "announced")
        assert said(site, site.p, subject)["writer"].kind == "producer"


def test_an_exception_in_a_delivery_callback_is_raised_by_flush_and_ends_nothing(
    site: Site, watcher: RoutingWatcher, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(_error: object, _message: object) -> None:
        raise ValueError("the application's bug")

    delivered: list[str] = []
    subject = f"topic:{site.topic}"
    with FailoverProducer({}, watcher=watcher) as producer:
        producer.produce(site.topic, b"1", callback=wrong)
        producer.produce(site.topic, b"2", callback=lambda e, m: delivered.append(m.cluster))
        with caplog.at_level(logging.ERROR), pytest.raises(ValueError, match="bug"):
            producer.flush(DEADLINE_S)
        assert delivered == [site.p]
        move(site, watcher, subject, site.b)
        producer.produce(site.topic, b"3", callback=lambda e, m: delivered.append(m.cluster))
        assert producer.flush(DEADLINE_S) == 0
    assert "a callback of the application raised" in caplog.text
    assert delivered == [site.p, site.b]


def test_after_a_fatal_error_a_new_producer_takes_over_and_says_so(
    site: Site, watcher: RoutingWatcher, caplog: pytest.LogCaptureFixture
) -> None:
    """With a gapless guarantee librdkafka calls one refused record fatal."""
    conf = {"enable.gapless.guarantee": True, "message.max.bytes": 3_000_000}
    errors: list[object] = []
    with FailoverProducer(conf, watcher=watcher) as producer:
        producer.produce(site.topic, b"x" * 2_000_000, callback=lambda e, m: errors.append(e))
        producer.flush(DEADLINE_S)
        eventually(lambda: "a new one takes over" in caplog.text, "the fatal error is logged")
        producer.produce(site.topic, b"small", callback=lambda e, m: errors.append(e))
        assert producer.flush(DEADLINE_S) == 0
    assert errors[0] is not None
    assert errors[1] is None
    assert values_on(site, site.p) == {b"small": 1}


def test_a_held_producer_acknowledges_when_its_transaction_has_ended(
    site: Site, watcher: RoutingWatcher
) -> None:
    subject = f"topic:{site.topic}"
    conf = {"transactional.id": site.group("tx"), "client.id": "writer"}
    with FailoverProducer(conf, topics=[site.topic], watcher=watcher) as producer:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(site.topic, b"1")
        eventually(lambda: "writer" in said(site, site.p, subject), "it announced itself")
        tell(site, subject, site.p, "hold")
        eventually(lambda: watcher.route(subject).state == "hold", "hold is known")
        producer.produce(site.topic, b"2")
        assert producer.flush(DEADLINE_S) == 0
        assert said(site, site.p, subject)["writer"].state == "resumed"
        producer.commit_transaction(DEADLINE_S)
        eventually(lambda: said(site, site.p, subject)["writer"].state == "held", "acknowledged")
        written(site, site.p, {b"1": 1, b"2": 1})

        waiting = threading.Thread(target=producer.begin_transaction, daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        tell(site, subject, site.b, "go")
        waiting.join(DEADLINE_S)
        producer.produce(site.topic, b"3")
        producer.commit_transaction(DEADLINE_S)
        written(site, site.b, {b"3": 1})

        producer.begin_transaction()
        producer.produce(site.topic, b"4")
        producer.abort_transaction(DEADLINE_S)
        assert values_on(site, site.b) == {b"3": 1}


def test_one_thread_that_reads_and_writes_in_transactions_moves_without_loss_or_doubles(
    site: Site, watcher: RoutingWatcher
) -> None:
    """Its producer waits for the end of the hold, so its consumer has to leave meanwhile.

    The batch in hand is of the old cluster: its offsets are refused on the new one.
    """
    load(site, site.p, 10)
    group = site.group("g")
    conf = {"enable.auto.commit": False}
    tx = {"transactional.id": site.group("tx")}
    with (
        reading(site, group, watcher, **conf) as consumer,
        FailoverProducer(tx, topics=[site.topic], watcher=watcher) as producer,
    ):
        producer.init_transactions(DEADLINE_S)

        def work(batch: list[Any], target: str) -> None:
            producer.begin_transaction()
            for message in batch:
                producer.produce(site.topic, b"out-" + message.value(), partition=1)
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 30
            )
            producer.commit_transaction(DEADLINE_S)
            assert producer.cluster(site.topic) == target

        work(take(consumer, 10), site.p)
        place = f"{site.topic}-0"  # the broker applies them after it has answered
        eventually(lambda: committed(site, site.p, group).get(place) == 10, "offsets applied")
        stale = take(consumer, 10)
        assert [m.partition() for m in stale] == [1] * 10
        metadata = consumer.consumer_group_metadata()
        positions = consumer.position(consumer.assignment())
        for subject in (f"topic:{site.topic}", f"group:{group}"):
            tell(site, subject, site.p, "hold")

        def release() -> None:
            eventually(
                lambda: site.clusters[site.p].groups([group])[group].state == "empty", "left"
            )
            for subject in (f"topic:{site.topic}", f"group:{group}"):
                tell(site, subject, site.b, "go")

        eventually(lambda: watcher.route(f"group:{group}").state == "hold", "held")
        releasing = threading.Thread(target=release, daemon=True)
        releasing.start()
        producer.begin_transaction()  # waits, and lets the consumer of this thread leave
        releasing.join(DEADLINE_S)
        producer.produce(site.topic, b"never", partition=1)
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction(positions, metadata, 30)
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(DEADLINE_S)

    assert values_on(site, site.b) == {}
    assert committed(site, site.b, group) == {}


def test_a_static_member_follows_its_group(site: Site, watcher: RoutingWatcher) -> None:
    load(site, site.p, 3)
    load(site, site.b, 3)
    group = site.group("g")
    conf = {"group.instance.id": "one", "session.timeout.ms": 6000}
    with reading(site, group, watcher, **conf) as consumer:
        assert {m.cluster for m in take(consumer, 3)} == {site.p}
        move(site, watcher, f"group:{group}", site.b)
        assert {m.cluster for m in take(consumer, 3)} == {site.b}


def test_a_pattern_finds_the_topic_and_its_copy(site: Site, watcher: RoutingWatcher) -> None:
    load(site, site.p, 2)
    copy = f"{site.b}.{site.topic}"
    producer = Producer(site.config.client(site.p, "producer"))
    producer.produce(copy, b"copied")
    assert producer.flush(DEADLINE_S) == 0
    pattern = f"^{site.topic[:-1]}."
    with FailoverConsumer({"group.id": site.group("g")}, watcher=watcher) as consumer:
        consumer.subscribe([pattern])
        assert {m.topic() for m in take(consumer, 3)} == {site.topic, copy}


def test_asyncio_clients_follow_and_let_callbacks_call_the_consumer(
    site: Site, watcher: RoutingWatcher
) -> None:
    group = site.group("g")
    subjects = (f"topic:{site.topic}", f"group:{group}")
    assigned: list[str | None] = []

    async def on_assign(consumer: Any, partitions: list[TopicPartition]) -> None:
        await consumer.committed(partitions, timeout=60)
        assigned.append(consumer.cluster)

    async def work() -> list[Any]:
        producer = FailoverAIOProducer({}, topics=[site.topic], watcher=watcher)
        consumer = FailoverAIOConsumer({"group.id": group}, watcher=watcher)
        await consumer.subscribe([site.topic], on_assign=on_assign)
        seen = []
        for cluster in (site.p, site.b):
            if cluster != site.p:
                for subject in subjects:
                    await asyncio.to_thread(move, site, watcher, subject, cluster)
            delivered = await producer.produce(site.topic, f"on-{cluster}".encode())
            await producer.flush(DEADLINE_S)
            assert (await delivered).cluster == cluster
            while len(seen) < (1 if cluster == site.p else 2):
                seen += await consumer.consume(5, 1.0)
            await consumer.commit(asynchronous=False)
        await consumer.close()
        await producer.close()
        return seen

    seen = asyncio.run(asyncio.wait_for(work(), 240))
    assert [message.cluster for message in seen] == [site.p, site.b]
    # A group may rebalance more than once, as topics come to be known.
    assert list(dict.fromkeys(assigned)) == [site.p, site.b]
    assert committed(site, site.b, group) == {f"{site.topic}-{seen[1].partition()}": 1}


def test_cancelled_polls_lose_nothing_and_commit_nothing_that_was_not_handed_over(
    site: Site, watcher: RoutingWatcher
) -> None:
    group, written = site.group("g"), 40

    async def work() -> list[Any]:
        consumer = FailoverAIOConsumer({"group.id": group}, watcher=watcher)
        await consumer.subscribe([site.topic])
        loading = asyncio.ensure_future(asyncio.to_thread(load, site, site.p, written))
        seen: list[Any] = []
        while len(seen) < written:
            with contextlib.suppress(TimeoutError):
                seen.append(await asyncio.wait_for(consumer.poll(), 0.01))
        await loading
        await consumer.commit(asynchronous=False)
        await consumer.close()
        return seen

    seen = asyncio.run(asyncio.wait_for(work(), 240))
    assert len({(message.partition(), message.offset()) for message in seen}) == written
    assert sum(committed(site, site.p, group).values()) == written


def test_a_commit_is_done_though_an_automatic_one_came_before_it(
    site: Site, watcher: RoutingWatcher
) -> None:
    """It may come between storing and committing at any time; confluent-kafka raises then."""
    load(site, site.p, 1)
    group = site.group("g")
    with reading(site, group, watcher, **{"auto.commit.interval.ms": 100}) as consumer:
        [message] = take(consumer, 1)
        consumer.done(message)
        place, after = message.partition(), message.offset() + 1
        eventually(
            lambda: committed(site, site.p, group) == {f"{site.topic}-{place}": after},
            "committed by itself",
        )
        done = {(one.partition, one.offset) for one in consumer.commit(asynchronous=False)}
        assert done == {(place, after)}


def test_serialisers_work_across_a_move(site: Site, watcher: RoutingWatcher) -> None:
    group = site.group("g")
    out = {"key.serializer": StringSerializer(), "value.serializer": StringSerializer()}
    into = {"group.id": group, "value.deserializer": StringDeserializer()}
    with (
        FailoverSerializingProducer(out, watcher=watcher) as producer,
        FailoverDeserializingConsumer(into, watcher=watcher) as consumer,
    ):
        consumer.subscribe([site.topic])
        for cluster in (site.p, site.b):
            if cluster != site.p:
                for subject in (f"topic:{site.topic}", f"group:{group}"):
                    move(site, watcher, subject, cluster)
            producer.produce(site.topic, "key", f"v-{cluster}")
            assert producer.flush(DEADLINE_S) == 0
            [message] = take(consumer, 1)
            assert (message.key(), message.value()) == (b"key", f"v-{cluster}")


def test_a_topic_on_another_cluster_ends_a_transaction(site: Site, watcher: RoutingWatcher) -> None:
    """What is written elsewhere could not be taken back with the transaction."""
    other = f"Elsewhere{site.unique}"
    for cluster in site.clusters.values():
        cluster.create_topics([TopicSpec(other, 1, 1, {})])
    tell(site, f"topic:{other}", site.b, "go")
    eventually(lambda: watcher.route(f"topic:{other}").cluster == site.b, "the watcher knows")
    conf = {"transactional.id": site.group("tx")}
    with FailoverProducer(conf, topics=[site.topic], watcher=watcher) as producer:
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        producer.produce(site.topic, b"1")
        with pytest.raises(KafkaException) as refused:
            producer.produce(other, b"2")
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(DEADLINE_S)

    assert values_on(site, site.p) == {}


def test_a_loop_that_reads_and_writes_does_not_block_its_own_move(
    site: Site, watcher: RoutingWatcher
) -> None:
    """It waits in produce, so nobody polls its consumer, which has to leave all the same."""
    load(site, site.p, 1)
    group = site.group("g")
    with (
        reading(site, group, watcher) as consumer,
        FailoverProducer({}, topics=[site.topic], watcher=watcher) as producer,
    ):
        take(consumer, 1)
        for subject in (f"topic:{site.topic}", f"group:{group}"):
            tell(site, subject, site.p, "hold")
        eventually(lambda: watcher.route(f"group:{group}").state == "hold", "held")

        def release() -> None:
            eventually(
                lambda: site.clusters[site.p].groups([group])[group].state == "empty", "left"
            )
            for subject in (f"topic:{site.topic}", f"group:{group}"):
                tell(site, subject, site.b, "go")

        releasing = threading.Thread(target=release, daemon=True)
        releasing.start()
        producer.produce(site.topic, b"out")
        releasing.join(DEADLINE_S)
        assert producer.flush(DEADLINE_S) == 0
    assert values_on(site, site.b) == {b"out": 1}
