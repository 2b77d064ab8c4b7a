"""A tail returns everything in the topic and then what comes."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer
from tests.waiting import eventually

from srm.domain.names.topics import TopicPartition
from srm.engine.control.control_topics import ensure_compacted
from srm.errors import SrmError
from srm.kafka.admin import clients
from srm.kafka.tables import topic_tail
from srm.kafka.tables.topic_tail import PATIENT, SELDOM, SOON, KafkaTopicTail

pytestmark = pytest.mark.kafka

DEADLINE_S = 120

_SLOWLY = {**SELDOM, "fetch.wait.max.ms": 1000}


def until_caught_up(tail):
    """Poll until the tail has returned what was there."""
    deadline = time.monotonic() + DEADLINE_S
    pairs = []
    while not tail.caught_up:
        pairs += tail.poll(1)
        assert time.monotonic() < deadline
    return pairs


def next_pairs(tail, count):
    """Poll until that many pairs came."""
    deadline = time.monotonic() + DEADLINE_S
    pairs = []
    while len(pairs) < count:
        pairs += tail.poll(1)
        assert time.monotonic() < deadline
    return pairs


@pytest.fixture
def state_topic(cluster, unique):
    ensure_compacted(cluster, unique)
    return unique


@pytest.fixture
def tail(props, state_topic):
    with KafkaTopicTail(props, state_topic) as opened:
        yield opened


def test_it_starts_at_the_beginning_and_goes_on(cluster, state_topic, tail):
    table = cluster.compacted_topic(state_topic)
    table.write({b"a": b"1", b"b": b"1"})

    assert until_caught_up(tail) == [(b"a", b"1"), (b"b", b"1")]

    table.write({b"a": None, b"c": b"2"})
    assert next_pairs(tail, 2) == [(b"a", None), (b"c", b"2")]
    assert tail.caught_up
    assert tail.poll(0) == []


def test_an_empty_topic_is_caught_up_at_once(tail):
    assert not tail.caught_up
    assert tail.poll(DEADLINE_S) == [], "it returns when it has caught up"
    assert tail.caught_up


def test_many_records_are_returned_in_order(cluster, state_topic, tail):
    rows = [(f"key-{n}".encode(), b"x") for n in range(30_000)]
    cluster.compacted_topic(state_topic).write(dict(rows))

    assert until_caught_up(tail) == rows


def commit(cluster, producer, topic, key, end):
    """Write a record in a transaction, and wait for the marker."""
    producer.begin_transaction()
    producer.produce(topic, b"1", key, partition=0)
    producer.commit_transaction(60)
    place = TopicPartition(topic, 0)
    eventually(lambda: cluster.log_ends([place]) == {place: end}, "the marker is there")


@pytest.fixture
def transactions(props, unique):
    producer = Producer({**props, "transactional.id": unique})
    producer.init_transactions(60)
    return producer


def test_it_is_caught_up_behind_a_transaction_marker(cluster, props, state_topic, transactions):
    """The position after the last record never gets to the end of the log."""
    commit(cluster, transactions, state_topic, b"a", 2)

    with KafkaTopicTail(props, state_topic) as tail:
        assert until_caught_up(tail) == [(b"a", b"1")]


def test_one_that_is_patient_once_it_has_caught_up_reads_to_the_end_as_soon_as_another(
    cluster, props, state_topic, transactions, monkeypatch
):
    """With a limit of minutes for an answer without news, only news is answered."""
    opened = []
    minutes = {"fetch.wait.max.ms": 250_000, "socket.timeout.ms": 300_000}

    def open_reader(props, settings):
        opened.append(settings)
        return clients.open_reader(props, settings)

    monkeypatch.setattr(topic_tail, "open_reader", open_reader)
    commit(cluster, transactions, state_topic, b"a", 2)

    with KafkaTopicTail(props, state_topic, later={**PATIENT, **minutes}) as tail:
        assert until_caught_up(tail) == [(b"a", b"1")]
        for number, key in enumerate((b"b", b"c")):
            commit(cluster, transactions, state_topic, key, 4 + 2 * number)
            assert next_pairs(tail, 1) == [(key, b"1")]
        waits = [one.get("fetch.wait.max.ms") for one in opened]
        assert tail.read_to_end(DEADLINE_S) == ([], True)

    assert waits == [SOON["fetch.wait.max.ms"], 250_000]
    assert opened[-1] == SOON


def test_it_may_begin_at_a_time(cluster, props, state_topic):
    producer = Producer(props)
    for second in range(5):
        producer.produce(state_topic, b"x", b"%d" % second, 0, timestamp=1_700_000_000_000 + second)
    assert producer.flush(60) == 0

    with KafkaTopicTail(props, state_topic, since_ms=1_700_000_000_003) as tail:
        assert until_caught_up(tail) == [(b"3", b"x"), (b"4", b"x")]
    with KafkaTopicTail(props, state_topic, since_ms=1_700_000_000_005) as tail:
        assert until_caught_up(tail) == []
        cluster.compacted_topic(state_topic).write({b"new": b"1"})
        assert next_pairs(tail, 1) == [(b"new", b"1")], "none was so young, this one is"


def test_one_that_asks_seldom_catches_up_too(cluster, props, state_topic):
    cluster.compacted_topic(state_topic).write({b"a": b"1"})

    with KafkaTopicTail(props, state_topic, fetching=_SLOWLY) as tail:
        assert until_caught_up(tail) == [(b"a", b"1")]
        assert not tail.rewound


def test_a_topic_that_comes_later_is_followed_then(cluster, props, unique):
    with KafkaTopicTail(props, unique) as tail:
        assert until_caught_up(tail) == [], "what does not exist has nothing to catch up with"

        ensure_compacted(cluster, unique)
        cluster.compacted_topic(unique).write({b"a": b"1"})

        assert next_pairs(tail, 1) == [(b"a", b"1")]


def test_news_wake_a_waiting_poll(cluster, state_topic, tail):
    until_caught_up(tail)
    table = cluster.compacted_topic(state_topic)
    table.write({b"warm": b"1"})
    next_pairs(tail, 1)
    table.write({b"a": b"1"})
    began = time.monotonic()

    assert tail.poll(DEADLINE_S) == [(b"a", b"1")]
    assert time.monotonic() - began < DEADLINE_S / 2


def test_a_silent_cluster_delays_and_is_not_caught_up():
    with KafkaTopicTail({"bootstrap.servers": "127.0.0.1:1"}, "topic") as tail:
        began = time.monotonic()

        assert tail.poll(0.1) == []
        assert not tail.caught_up
        assert time.monotonic() - began < 60


def test_settings_that_cannot_work_are_an_srm_error():
    tail = KafkaTopicTail({"bootstrap.servers": "127.0.0.1:1", "no.such.key": "1"}, "topic")

    with pytest.raises(SrmError, match="following topic-0"):
        tail.poll(0)
