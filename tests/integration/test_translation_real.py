"""A gate between real brokers: records that last stable offsets hide, and those on the target."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from tests.integration.moving import Site, pass_gate
from tests.waiting import DEADLINE_S, eventually

from srm.domain.topics import TopicPartition
from srm.engine import move
from srm.engine.move import MoveContext, MovePlan, MoveReport, MoveRequest
from srm.errors import GateClosedError
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Site]:
    """200 payments in partition 0 on P."""
    made = Site(clusters, tmp_path)
    produce(made, made.p, 200)
    yield made
    for cluster in made.clusters.values():
        cluster.close()


def produce(site: Site, alias: str, records: int) -> None:
    producer = Producer(site.config.client(alias, "producer"))
    for _ in range(records):
        producer.produce(site.topic, b"x" * 10, partition=0)
    assert producer.flush(60) == 0


@contextmanager
def transaction(site: Site, alias: str) -> Iterator[Producer]:
    """An open transaction of some application, with one record; aborted in the end."""
    settings = {"transactional.id": f"someone-{site.unique}", "transaction.timeout.ms": 600_000}
    producer = Producer({**site.config.client(alias, "producer"), **settings})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(site.topic, b"open", partition=0)
    producer.flush(60)
    try:
        yield producer
    finally:
        producer.abort_transaction(DEADLINE_S)


@contextmanager
def plain_writer(site: Site, alias: str) -> Iterator[list[int]]:
    """A producer that follows nobody; yields the offsets that were acknowledged."""
    stop, acknowledged = threading.Event(), list[int]()

    def work() -> None:
        producer = Producer(site.config.client(alias, "producer"))
        while not stop.wait(0.01):
            producer.produce(
                site.topic,
                b"plain",
                partition=0,
                on_delivery=lambda error, message: error or acknowledged.append(message.offset()),
            )
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        thread.join(90)


def start(site: Site, alias: str, name: str, commits: Mapping[str, int]) -> str:
    """A group that has committed in partition 0 of topics, and left."""
    group = site.group(name)
    offsets = {TopicPartition(topic, 0): offset for topic, offset in commits.items()}
    site.clusters[alias].commit_idle(group, offsets)
    return group


def request(site: Site, group: str) -> MoveRequest:
    return MoveRequest("failover", site.p, site.b, (site.topic,), (group,), quiet_seconds=0.5)


def move_id(context: MoveContext) -> str:
    return f"m-{context.source.alias}"


def held(context: MoveContext, wanted: MoveRequest) -> MovePlan:
    """Plan, once replication has caught up as far as it can, and hold."""
    plan = move.plan(context, wanted, move_id(context))
    move.hold(context, move_id(context))
    return plan


def finish(context: MoveContext) -> MoveReport:
    pass_gate(context, move_id(context))
    move.verify(context, move_id(context))
    return move.report(context, move_id(context))


def blocked_by(context: MoveContext, text: str) -> str:
    """Wait until a reason is the only one that is left, and return it."""
    seen: list[tuple[str, ...]] = []

    def alone() -> bool:
        seen.append(move.wait_status(context, move_id(context)).blocking)
        return seen[-1] and all(text in reason for reason in seen[-1])

    eventually(alone, f"nothing but {text!r} is in the way")
    return seen[-1][0]


def copied(context: MoveContext, site: Site, records: int) -> None:
    place = TopicPartition(site.topic, 0)
    source_next = lambda: (  # noqa: E731 - polled
        (position := context.forward.maps.load([site.topic]).get(place).position)
        and position.source_next
    )
    eventually(lambda: (source_next() or 0) >= records, "the copy has caught up")


def test_a_plain_writer_in_the_shadow_of_an_open_transaction_is_seen(site: Site) -> None:
    """All last stable offsets stand still meanwhile: the gate once opened with RPO 0."""
    group = start(site, site.p, "g", {site.topic: 200})
    with site.replicating(), site.context(site.p, site.b) as context:
        copied(context, site, 200)
        with transaction(site, site.p):
            with plain_writer(site, site.p) as acknowledged:
                held(context, request(site, group))
                eventually(
                    lambda: any(
                        "still written to" in reason
                        for reason in move.wait_status(context, move_id(context)).blocking
                    ),
                    "the writer is seen",
                )
                eventually(lambda: len(acknowledged) > 100, "it has written much")
            reason = blocked_by(context, "transaction is open from offset 200 on")
            assert f"transactional id 'someone-{site.unique}'" in reason
            assert "kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic" in reason
            with pytest.raises(GateClosedError, match="transaction is open"):
                move.go(context, move_id(context))
        report = finish(context)
        assert report.rpo_records == 0


def test_nothing_is_skipped_by_a_first_failover_with_the_default_reset_policy(site: Site) -> None:
    group = start(site, site.p, "g", {site.topic: 200})
    with site.replicating(), site.context(site.p, site.b) as context:
        copied(context, site, 200)
        held(context, request(site, group))
        finish(context)
        produce(site, site.b, 9)
        settings = {"group.id": group, "auto.offset.reset": "latest"}
        consumer = Consumer({**site.config.client(site.b, "consumer"), **settings})
        consumer.subscribe([site.topic, f"{site.p}.{site.topic}"])
        seen: list[int] = []

        def read() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                seen.append(message.offset())
            return len(seen) >= 9

        eventually(read, "what was written on B before the consumer came is read")
        consumer.close()

    assert seen == list(range(9))
