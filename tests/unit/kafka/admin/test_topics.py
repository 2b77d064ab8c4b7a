"""Topics as the brokers describe them, and rights: by one request that leaves nothing in memory."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import KafkaError
from tests.unit.kafka.wire.metadata_brokers import Cluster

from srm.config.model import ClusterClients
from srm.config.values import ClientProperties
from srm.domain.names.topics import topic_id_text
from srm.engine.cluster_ports import TopicDescription
from srm.errors import AuthorizationError
from srm.kafka.admin.acls import topic_rights
from srm.kafka.admin.clients import Clients
from srm.kafka.admin.topics import describe

NOWHERE = ClientProperties({"bootstrap.servers": "127.0.0.1:1"})
ID = uuid.UUID(int=0xFB << 120 | 0xFF).bytes


def test_topics_are_described_by_one_answer_of_a_broker() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.topic_id, cluster.partitions = ID, 2
        absent, refused = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED
        cluster.errors = {"pay": 0, "gone": absent, "pay-b": refused, "pay-a": refused}
        broker = await cluster.broker(1)
        servers = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
        clients = Clients("P", ClusterClients.alike(servers))
        pay = TopicDescription("pay", topic_id_text(ID), 2)
        try:
            assert await asyncio.to_thread(describe, clients, ["pay", "gone"]) == {"pay": pay}
            assert await asyncio.to_thread(describe, clients) == {"pay": pay}, "of those it may see"
            assert broker.asked == [["gone", "pay"], ["pay", "gone", "pay-b", "pay-a"]]
            assert await asyncio.to_thread(describe, clients, []) == {}
            named = "describing on cluster P: topic pay-a: .*; also failed: pay-b"
            with pytest.raises(AuthorizationError, match=named) as refusal:
                await asyncio.to_thread(describe, clients, ["pay", "pay-b", "pay-a"], "Read")
            assert "grant Read on topic pay-a" in str(refusal.value)
            cluster.leader = -1
            assert (await asyncio.to_thread(describe, clients, ["pay"]))["pay"].leaderless == {
                0: (1,),
                1: (1,),
            }
        finally:
            clients.close()
            broker.stop()

    asyncio.run(scenario())


def test_rights_on_topics_are_in_one_answer_to_the_client_that_would_use_them() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        cluster.operations = 1 << 3 | 1 << 8
        refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
        cluster.errors = {"hidden": refused, "gone": KafkaError.UNKNOWN_TOPIC_OR_PART}
        broker = await cluster.broker(1)
        consumer = ClientProperties({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
        clients = Clients("P", ClusterClients(NOWHERE, consumer, NOWHERE), timeout_s=5)
        wanted = ["pay", "hidden", "gone"]
        try:
            rights = await asyncio.to_thread(topic_rights, clients, wanted, "consumer")
            assert rights == {"pay": {"Read", "Describe"}, "hidden": frozenset()}
            assert broker.asked == [sorted(wanted)]
            assert await asyncio.to_thread(topic_rights, clients, []) == {}
        finally:
            clients.close()
            broker.stop()

    asyncio.run(scenario())
