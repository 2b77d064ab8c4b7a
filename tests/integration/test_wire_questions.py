"""What resume asks of a cluster beside its logs: topic ids, and offsets by time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest
from tests.integration.copying import CopyLab

from srm.domain.map_records import topic_id_bytes
from srm.domain.topics import TopicPartition
from srm.kafka.wire.cluster import WireCluster
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

T = TypeVar("T")


def ask(broker: KafkaBroker, question: Callable[[WireCluster], Awaitable[T]]) -> T:
    async def asked() -> T:
        wire = WireCluster("P", {"bootstrap.servers": broker.bootstrap})
        await wire.start()
        try:
            return await question(wire)
        finally:
            await wire.close()

    return asyncio.run(asked())


def test_a_topic_is_asked_for_by_name_and_found_by_id(clusters: Mapping[str, KafkaBroker]) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    [p] = lab.topic()

    assert ask(clusters["P"], lambda wire: wire.topic_id(p.topic)) == topic_id_bytes(p.topic_id)
    assert ask(clusters["P"], lambda wire: wire.topic_id("no.such.topic")) is None


def test_an_offset_is_found_by_time_and_the_end_where_all_is_older(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    [p] = lab.topic(configs={"retention.ms": "-1"})
    producer = lab.producer()
    for time in (1000, 3000, 2000, 4000):
        producer.produce(p.topic, b"v", partition=0, timestamp=time)
    assert producer.flush(60) == 0
    place = TopicPartition(p.topic, 0)

    found = [
        ask(clusters["P"], lambda wire, time=time: wire.offset_at(place, time))
        for time in (0, 1500, 2500, 3500, 9000)
    ]

    assert found == [0, 1, 1, 3, 4]
