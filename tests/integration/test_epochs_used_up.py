"""A producer id has 32 767 epochs: the claim after the last one shuts nobody out by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.conftest import BrokerFactory
from tests.integration.copying import CopyLab

from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATUS_PREFIX,
    AssignedPartition,
    PartitionStatus,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.kafka.wire.cluster import WireCluster
from srm.replication.claim import LAST_EPOCH, transactional_id
from srm.replication.ports import ProducerId
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration, pytest.mark.timeout(2400)]


def _copy_one(lab: CopyLab, p: AssignedPartition) -> None:
    producer = lab.producer()
    producer.produce(p.topic, b"v", partition=0)
    assert producer.flush(120) == 0
    lab.wait_until_copied([p])


def _reasons(lab: CopyLab, p: AssignedPartition) -> list[str]:
    """Return why a partition has waited, all that its slots have ever said."""
    key = f"{STATUS_PREFIX.decode()}{p.topic}-{p.partition}".encode()
    log = read_log(lab.target_props, internal_topics.replication(lab.flow.source), REPORTS)
    told = [record.value for _, record in log if record.key == key]
    return [PartitionStatus.decode(value).reason for value in told if value]


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
        _copy_one(lab, p)

    assert any("its claim has a new producer id" in reason for reason in _reasons(lab, p))
    assert lab.reports()[0].positions[0].producer_id != old.id
    lab.assert_equal([p])
