"""What the campaign does not take from a leader that followed: which records are aborted."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import ElectionType, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.conftest import DEADLINE_S
from tests.faults.campaign.aborted import replicated_aborts
from tests.leaders import partition
from tests.waiting import eventually

from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.faults]


def test_markers_tell_aborted_records_that_a_leader_gives_as_committed(
    cluster_factory: Callable[..., list[KafkaBroker]],
) -> None:
    """Where Kafka has mended this, the campaign needs to look for markers no more."""
    settings = {"auto.leader.rebalance.enable": "false", "min.insync.replicas": "1"}
    brokers = cluster_factory("X", 2, **settings)
    [leads, follows] = brokers
    servers = f"{leads.bootstrap},{follows.bootstrap}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic("T", 1, replica_assignment=[[2, 1]])])["T"].result()
    aborting, other = _transactional(servers, "aborting"), _transactional(servers, "other")
    follows.stop()

    for number in range(20):
        aborting.begin_transaction()
        name = b"committed" if number % 2 else b"aborted"
        for _ in range(3):
            aborting.produce("T", name + b" " * 1200, partition=0)
        aborting.flush(DEADLINE_S)
        (aborting.commit_transaction if number % 2 else aborting.abort_transaction)(DEADLINE_S)
    other.begin_transaction()
    other.produce("T", b"committed", partition=0)
    other.flush(DEADLINE_S)
    follows.start()
    follows.wait_ready()
    eventually(lambda: len(partition(leads, "T").isrs) == 2, "it has all in one fetch")
    other.commit_transaction(DEADLINE_S)
    eventually(lambda: len(read_log(servers, "T", 0)) == 31, "its marker is written")
    admin.elect_leaders(ElectionType.PREFERRED).result(DEADLINE_S)
    eventually(lambda: partition(leads, "T").leader == 2, "the follower leads")

    aborted = replicated_aborts(brokers, "T", 0)
    small_fetches = {"bootstrap.servers": servers, "max.partition.fetch.bytes": "10000"}
    committed = dict(read_log(small_fetches, "T", 0))

    assert [record.value[:7] for record in aborted.values() if record.value] == [b"aborted"] * 30
    wrongly = set(committed) & set(aborted)
    assert wrongly
    assert {at: committed[at] for at in wrongly} == {at: aborted[at] for at in wrongly}
    left = [committed[at].value for at in set(committed) - wrongly]
    assert all(value is not None and value.startswith(b"committed") for value in left)
    assert len(left) == 31


def _transactional(servers: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "log_level": 0})
    producer.init_transactions(DEADLINE_S)
    return producer
