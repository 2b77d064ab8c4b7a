"""Leaders and their epochs: requests name them, and a broker that lags behind is not trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.kafka.wire.metadata_brokers import LOG_END, Cluster, MetadataBroker
from tests.waiting import DEADLINE_S

from srm import clock
from srm.domain.names.topics import TopicPartition
from srm.errors import UnavailableError
from srm.kafka.wire import cluster as wire_cluster
from srm.kafka.wire.cluster import WireCluster
from srm.replication.ports import EpochEnd, Leader

PLACE = TopicPartition("T", 0)


def play(scenario: Callable[[Cluster, WireCluster, list[MetadataBroker]], Awaitable[None]]) -> None:
    """Play a scenario with a cluster of two brokers; the second one leads in epoch 6."""

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            cluster = Cluster()
            brokers = [await cluster.broker(node) for node in (1, 2)]
            cluster.leader, cluster.epoch, cluster.partitions = 2, 6, 100
            servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
            wire = WireCluster("P", {"bootstrap.servers": servers})
            await wire.start()
            try:
                await scenario(cluster, wire, brokers)
            finally:
                await wire.close()
                for broker in brokers:
                    broker.stop()

    asyncio.run(bounded())


def test_a_broker_that_knows_only_an_older_leader_is_not_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It still answers requests, and lacks what was written since (KIP-320)."""
    now = 1000.0
    monkeypatch.setattr(clock, "_current", lambda: now)

    async def scenario(cluster: Cluster, wire: WireCluster, brokers: list[MetadataBroker]) -> None:
        nonlocal now
        assert await wire.leader(PLACE) == Leader(2, 6)
        for broker in brokers:
            broker.believes = Leader(1, 5)

        wire.leaders_changed()
        assert await wire.leader(PLACE) == Leader(2, 6)
        now += 61  # all were restored from a backup: its controller counts from there
        assert await wire.leader(PLACE) == Leader(1, 5)
        for broker in brokers:
            broker.believes = Leader(2, 7)
        wire.leaders_changed()
        assert await wire.leader(PLACE) == Leader(2, 7)
        cluster.topic_id = bytes(15) + b"\x01"
        for broker in brokers:
            broker.believes = Leader(1, 0)
        wire.leaders_changed()
        assert await wire.leader(PLACE) == Leader(1, 0), "a new topic under the name"

    play(scenario)


def test_a_leader_that_has_not_heard_of_its_newer_epoch_answers_for_no_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire_cluster, "_PATIENCE_S", 0.05)

    async def scenario(cluster: Cluster, wire: WireCluster, brokers: list[MetadataBroker]) -> None:
        cluster.leader = 1
        assert await wire.log_end(PLACE) == EpochEnd(6, LOG_END)
        brokers[0].believes = Leader(1, 5)
        wire.leaders_changed()

        for look in (wire.log_range(PLACE), wire.log_end(PLACE), wire.epoch_end(PLACE, 5)):
            with pytest.raises(UnavailableError, match="LEADER_EPOCH"):
                await look

    play(scenario)


def test_a_leader_in_a_newer_epoch_is_found_by_another_look_at_the_metadata() -> None:
    async def scenario(cluster: Cluster, wire: WireCluster, brokers: list[MetadataBroker]) -> None:
        assert await wire.leader(PLACE) == Leader(2, 6)
        cluster.epoch = 7

        assert await wire.log_end(PLACE) == EpochEnd(7, LOG_END)
        assert await wire.epoch_end(PLACE, 7) == EpochEnd(7, LOG_END)
        assert await wire.leader(PLACE) == Leader(2, 7)
        assert sum(broker.queries == [] for broker in brokers) == 1

    play(scenario)


def test_queries_of_all_partitions_of_a_leader_are_a_request_of_each_kind() -> None:
    places = [TopicPartition("T", n) for n in range(100)]

    async def scenario(cluster: Cluster, wire: WireCluster, brokers: list[MetadataBroker]) -> None:
        del cluster
        await asyncio.gather(*map(wire.leader, places))
        for count, look in enumerate((wire.log_end, lambda p: wire.epoch_end(p, 3)), 1):
            assert len(await asyncio.gather(*map(look, places))) == 100
            assert brokers[1].queries == [100] * count
        brokers[1].queries.clear()
        ends = await asyncio.gather(
            *(wire.epoch_end(places[0], epoch) for epoch in (3, 4, 3)),
            *(wire.epoch_end(place, 3) for place in places[1:]),
        )
        assert [end.epoch for end in ends[:3]] == [3, 4, 3]
        assert brokers[1].queries == [100, 1], "a request names a partition once"

    play(scenario)


def test_ids_of_topics_are_looked_up_together() -> None:
    """Each time: a topic may have been created again."""

    async def scenario(cluster: Cluster, wire: WireCluster, brokers: list[MetadataBroker]) -> None:
        for broker in brokers:
            broker.asked.clear()
        names = [f"T{n}" for n in range(50)]
        assert set(await asyncio.gather(*map(wire.topic_id, names))) == {cluster.topic_id}
        cluster.topic_id = bytes(15) + b"\x01"
        assert await wire.topic_id("T1") == cluster.topic_id
        assert sorted(len(asked) for one in brokers for asked in one.asked) == [1, 50]

    play(scenario)
