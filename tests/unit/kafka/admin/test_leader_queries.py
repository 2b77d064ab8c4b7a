"""What leaders say of their logs, and what of it can be relied on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from tests.unit.kafka.admin.asked_clients import AskedClients
from tests.unit.kafka.wire.metadata_brokers import LOG_END, Cluster

from srm.config.model import ClusterClients
from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.cluster_facts import cluster_id
from srm.kafka.admin.offsets import epoch_ends, log_ends, offsets_at
from srm.kafka.wire.messages import Request

PLACE = TopicPartition("pay", 0)
_NOT_LEADER = 6


@dataclass
class Brokers:
    """One broker that leads the partition; it answers with an error, an epoch and its end."""

    error: int
    epoch: int
    end: int

    async def look(self, topics: list[str]) -> dict[str, Any]:
        partitions = [{"partition": 0, "leader": 1, "leader_epoch": 7}]
        found = {"topic_id": bytes(16), "error_code": 0, "partitions": partitions}
        return {"topics": [{"topic": topic, **found} for topic in topics]}

    async def query(self, _node: int, request: Request) -> dict[str, Any]:
        [[_, [(number, leader_epoch, _)]]] = request.values[-1]
        assert (number, leader_epoch) == (0, 7), "the epoch of the leader is named"
        found = {"leader_epoch": self.epoch, "end_offset": self.end, "offset": self.end}
        partitions = [{"error_code": self.error, "partition": 0, **found}]
        return {"topics": [{"topic": "pay", "partitions": partitions}]}


def test_an_epoch_ends_where_the_leader_says() -> None:
    clients = AskedClients(Brokers(0, 5, 1000))

    assert epoch_ends(clients, {PLACE: 5}) == {PLACE: 1000}
    assert clients.asked_as == "consumer", "its user may read topics"


def test_offsets_are_the_leaders_and_an_absent_partition_has_none() -> None:
    absent = TopicPartition("pay", 1)

    assert log_ends(AskedClients(Brokers(0, 5, 1000)), [PLACE, absent]) == {PLACE: 1000}
    assert offsets_at(AskedClients(Brokers(0, -1, -1)), {PLACE: 5}) == {}, "no record is so young"
    assert log_ends(AskedClients(Brokers(0, 5, 0)), []) == {}


@pytest.mark.parametrize("end", [800, 1200])
def test_the_end_of_an_older_epoch_is_none_of_the_epoch_that_was_asked_for(end: int) -> None:
    """A leader that was elected uncleanly never had epoch 5, and more under epoch 4 than others."""
    assert epoch_ends(AskedClients(Brokers(0, 4, end)), {PLACE: 5}) == {PLACE: -1}


def test_an_epoch_that_the_leader_knows_nothing_of_has_no_end() -> None:
    assert epoch_ends(AskedClients(Brokers(0, -1, -1)), {PLACE: 5}) == {PLACE: -1}


def test_a_partition_that_moves_is_asked_again() -> None:
    with pytest.raises(UnavailableError, match="NOT_LEADER"):
        epoch_ends(AskedClients(Brokers(_NOT_LEADER, -1, -1)), {PLACE: 5})


def test_offsets_are_queried_at_the_leader_in_its_epoch_from_any_thread() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        brokers = [await cluster.broker(node) for node in (1, 2)]
        cluster.leader, cluster.epoch = 2, 6
        servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
        clients = Clients("P", ClusterClients.alike({"bootstrap.servers": servers}))
        try:
            assert await asyncio.to_thread(log_ends, clients, [PLACE]) == {PLACE: LOG_END}
            assert await asyncio.to_thread(cluster_id, clients) == cluster.cluster_id
        finally:
            clients.close()
            for broker in brokers:
                broker.stop()
        assert [broker.queries for broker in brokers] == [[], [1]]

    asyncio.run(scenario())
