"""A producer id has 32 767 epochs: the claim after the last one shuts nobody out by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.conftest import BrokerFactory
from tests.integration.copying import CopyLab
from tests.waiting import eventually

from srm.domain.replication_records import AssignedPartition
from srm.domain.topics import TopicPartition
from srm.kafka.wire.cluster import WireCluster
from srm.replication.ports import ProducerId
from srm.replication.slot.claim import LAST_EPOCH, transactional_id
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(2400)]


def _copy_one(lab: CopyLab, p: AssignedPartition) -> None:
    producer = lab.producer()
    producer.produce(p.topic, b"v", partition=0)
    assert producer.flush(120) == 0
    lab.wait_until_copied([p])


async def _use_up_epochs(broker: KafkaBroker, name: str) -> ProducerId:
    wire = WireCluster("B", {"bootstrap.servers": broker.bootstrap})
    await wire.start()
    try:
        async with asyncio.timeout(1500):
            while (taken := await wire.init_producer_id(name)).epoch < LAST_EPOCH - 1:
                pass
        return taken
    finally:
        await wire.close()


def test_who_gets_a_new_producer_id_waits_until_the_last_claim_under_the_old_one_has_lapsed(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory
) -> None:
    target = broker_factory("B", **{"producer.id.expiration.ms": "160000"})  # lapses after 40 s
    lab = CopyLab(clusters["P"].bootstrap, target.bootstrap)
    [p] = lab.topic()
    lab.assign("0", [p])
    with lab.running():
        _copy_one(lab, p)
    name = transactional_id(lab.flow, TopicPartition(p.target_topic, 0))
    old = asyncio.run(_use_up_epochs(target, name))
    with lab.running():
        _copy_one(lab, p)
    assert lab.reports()[0].positions[0].producer_epoch == LAST_EPOCH

    with lab.running():
        producer = lab.producer()
        producer.produce(p.topic, b"v", partition=0)
        assert producer.flush(120) == 0
        eventually(
            lambda: (
                (s := lab.status(p)) is not None and "the producer id of its claims" in s.reason
            ),
            "it waits, and says so",
        )
        lab.wait_until_copied([p])

    assert lab.reports()[0].positions[0].producer_id != old.id
    lab.assert_equal([p])
