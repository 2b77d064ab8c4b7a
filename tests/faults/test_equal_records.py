"""Records that are equal to each other, where only their places tell them apart."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.faults.campaign.brokers import delete_topics
from tests.faults.owners import Bench
from tests.integration.copying import CopyLab

from srm.engine.cluster_ports import TopicSpec
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.faults]

TIME_MS = 1_900_000_000_000


@pytest.fixture
def bench(clusters: Mapping[str, KafkaBroker]) -> Bench:
    return Bench(CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap))


def _write(bench: Bench, count: int, value: bytes = b"the same") -> None:
    """Write batches of one record, each equal to the others to the millisecond."""
    for _ in range(count):
        producer = bench.lab.producer()
        producer.produce(bench.assigned.topic, value, partition=0, timestamp=TIME_MS)
        assert producer.flush(120) == 0


async def _a_topic_created_anew_with_equal_records(bench: Bench) -> None:
    former = bench.assigned
    async with bench.connected():
        _write(bench, 6)
        owner = bench.owner()
        await owner.claim()
        await owner.copy_all()
        owner.report()
        _write(bench, 3)
        await owner.copy_all()  # and no report: the end of a topic that is deleted now
        delete_topics(bench.lab.source_props["bootstrap.servers"], [former.topic])
        bench.lab.source.create_topics([TopicSpec(former.topic, 1, 1, {})])
        [bench.assigned] = bench.lab.assignable(former.topic)
        _write(bench, 4)
        heir = bench.owner()
        await heir.claim()
        await heir.copy_all()
        heir.report()


def test_records_of_a_new_topic_are_copied_although_the_former_one_had_equal_ones(
    bench: Bench,
) -> None:
    asyncio.run(_a_topic_created_anew_with_equal_records(bench))

    assert bench.damage(former_records=9) == []
