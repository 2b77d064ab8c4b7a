"""Tables in memory follow their topics: what is written is seen soon, what is gone is gone."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka.admin import AdminClient
from tests.conftest import BrokerFactory
from tests.faults.campaign.truncation import cut
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.engine.control.control_topics import ensure_compacted
from srm.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka


@pytest.fixture
def following(props: dict[str, str]) -> Iterator[KafkaCluster]:
    with KafkaCluster("P", ClusterClients.alike(props), follow=True) as opened:
        yield opened


# A broker that is busy may not list a topic yet, which reads as one that does not exist: so all
# that a table reads first is waited for.


@pytest.fixture
def state_topic(cluster, unique) -> str:
    ensure_compacted(cluster, unique, partitions=2)
    return unique


def test_what_was_there_is_read_first_and_what_comes_is_seen(
    cluster, following, state_topic
) -> None:
    written, table = cluster.compacted_topic(state_topic), following.compacted_topic(state_topic)
    written.write({b"a": b"1", b"b": b"1"})
    eventually(lambda: table.read() == {b"a": b"1", b"b": b"1"}, "what was there is read")

    written.write({b"a": None, b"b": b"2", b"c": b"3"})

    eventually(lambda: list(table.read().items()) == [(b"b", b"2"), (b"c", b"3")], "it is seen")


def test_a_table_that_is_read_later_is_followed_from_then_on(
    cluster, following, state_topic
) -> None:
    assert following.compacted_topic(state_topic, 0).read() == {}
    cluster.compacted_topic(state_topic, 1).write({b"k": b"v"})

    table = following.compacted_topic(state_topic, 1)
    eventually(lambda: table.read() == {b"k": b"v"}, "what was there is read")


def test_a_topic_that_does_not_exist_reads_empty_until_it_does(cluster, following, unique) -> None:
    table = following.compacted_topic(unique)
    assert table.read() == {}

    ensure_compacted(cluster, unique)
    cluster.compacted_topic(unique).write({b"k": b"v"})

    eventually(lambda: table.read() == {b"k": b"v"}, "it is seen")


def test_a_topic_that_was_made_anew_shows_only_what_it_has_now(
    cluster, following, state_topic, props
) -> None:
    cluster.compacted_topic(state_topic).write({b"old": b"1", b"older": b"1"})
    table = following.compacted_topic(state_topic)
    eventually(lambda: table.read().keys() == {b"old", b"older"}, "what was there is read")

    admin = AdminClient(props)
    admin.delete_topics([state_topic])[state_topic].result()
    eventually(lambda: table.read() == {}, "what is gone is not shown")
    ensure_compacted(cluster, state_topic, partitions=2)
    cluster.compacted_topic(state_topic).write({b"new": b"2"})

    eventually(lambda: table.read() == {b"new": b"2"}, "only what it has now")


@pytest.mark.parametrize("more", [0, 3, 20])
def test_what_a_log_has_lost_is_lost_in_the_table_whatever_was_written_since(
    broker_factory: BrokerFactory, unique: str, more: int
) -> None:
    """No tombstone ever comes for a key that only the lost end had; 20: more than was lost."""
    broker = broker_factory("P")
    props = {"bootstrap.servers": broker.bootstrap}
    opened = partial(KafkaCluster, "P", ClusterClients.alike(props))
    with opened(follow=True) as following:
        with opened() as cluster:
            ensure_compacted(cluster, unique)
            for number in range(10):
                cluster.compacted_topic(unique).write({b"%d" % number: b"before"})
        table = following.compacted_topic(unique)
        eventually(lambda: len(table.read()) == 10, "what was there is read")

        end = cut(broker, unique, 0, share=0.5)
        broker.start()
        broker.wait_ready()
        with opened() as cluster:
            for number in range(more):
                cluster.compacted_topic(unique).write({b"later %d" % number: b"since"})
            there = cluster.compacted_topic(unique).read()

        assert end == 5
        assert len(there) == 5 + more
        eventually(lambda: table.read() == there, "the table is the log as it is now")
