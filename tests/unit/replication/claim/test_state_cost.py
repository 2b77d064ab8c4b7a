"""What 10 000 partitions on 50 slots cost those who read state and raw metrics.

Bytes are those of the record batches that the product's own reporter writes in one burst of a
slot, encoded as Kafka does and compressed by zstd as the producer does, headers included.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace

import cramjam
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from tests.seconds import Seconds, own_seconds

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    Incarnation,
    PartitionPosition,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import topic_id_text
from srm.domain.offset_map.map_records import MapEnd
from srm.domain.offset_map.offset_map import Run
from srm.domain.offset_map.runs import MOST_EPOCHS, Lineage
from srm.replication.claim import Claim
from srm.replication.mapping.starts import Start
from srm.replication.partition import PartitionCopy
from srm.replication.ports import Place, ProducerId
from srm.replication.report import Reporter
from srm_lab.testing.fake_compacted import FakeStateLog, WrittenRecord
from srm_lab.testing.flows import flow_config

logger = logging.getLogger(__name__)
SLOTS, PARTITIONS, PER_TOPIC = 50, 10_000, 8
SECONDS = 60
PATIENCE_BYTES = 1_000_000
HEADER_BYTES = 61
LINEAGE = Lineage(tuple((epoch, epoch * 10**6) for epoch in range(MOST_EPOCHS)))


@pytest.fixture(autouse=True)
def everything_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each position tell where its map ends."""
    bare = PartitionCopy.position

    def position(copy: PartitionCopy) -> PartitionPosition:
        at = copy.source_next
        assert copy.claim is not None
        claim = copy.claim.producer
        end = MapEnd(copy.target_next - 50_000, (claim.id, claim.epoch), at // 1000, at // 1000 + 7)
        return replace(bare(copy), target_lineage=LINEAGE, map_end=end)

    monkeypatch.setattr(PartitionCopy, "position", position)


@pytest.fixture
def seconds() -> Iterator[Seconds]:
    with own_seconds() as time:
        yield time


def batch_bytes(records: list[WrittenRecord]) -> int:
    """Return how large the records are as one compressed batch."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, 0, 0, 0, 1 << 30)
    for offset, record in enumerate(records):
        builder.append(offset, 1_700_000_000_000, record.key, record.value, [])
    plain = bytes(builder.build())[HEADER_BYTES:]
    return HEADER_BYTES + len(cramjam.zstd.compress(plain, level=3))


def copies_of_a_slot(numbers: random.Random) -> list[PartitionCopy]:
    """Return the share of one slot: topics with ids and names of their own, at large offsets."""
    copies = []
    for index in range(PARTITIONS // SLOTS):
        if index % PER_TOPIC == 0:
            ids = [topic_id_text(numbers.randbytes(16)) for _ in range(2)]
            name = f"payments.{numbers.randrange(10**6)}.orders"
        assigned = AssignedPartition(name, index % PER_TOPIC, ids[0], f"P.{name}", ids[1])
        at = numbers.randrange(10**9, 10**10)
        copy = PartitionCopy(assigned, Start(at, at + numbers.randrange(1000), frozenset({7})))
        producer = ProducerId(numbers.randrange(10**5), numbers.randrange(50))
        copy.claim = Claim(producer, float("inf"))
        copy.map.begin_claim(producer)
        copies.append(copy)
    return copies


def advance(copy: PartitionCopy, numbers: random.Random) -> None:
    """A second of traffic: 100 records or so in several batches."""
    for _ in range(3):
        count = numbers.randrange(20, 50)
        copy.map.add([Run(copy.source_next, copy.target_next, count)])
        copy.source_next += count
        copy.target_next += count
        copy.traffic.add(count, count * 1000, numbers.randrange(2, 40))
    copy.source_end = copy.source_next + numbers.randrange(30)


def measured(
    seconds: Seconds, traffic: Callable[[PartitionCopy, random.Random], None]
) -> dict[str, float]:
    """Return bytes per second of one slot, by topic."""
    numbers = random.Random(7)
    log = FakeStateLog()
    reporter = Reporter(
        flow_config(metrics_interval=flow_config().metrics_interval * 5),
        "17",
        log,
        FakeStateLog(),
        lambda: round(seconds.now * 1000),
    )
    reporter.begin(Incarnation(3, "0a1b2c3d"))
    copies = copies_of_a_slot(numbers)
    for _ in range(2):  # the first reports write everything that is new
        for copy in copies:
            traffic(copy, numbers)
        reporter.prepare(copies)()
    sizes = defaultdict[str, int](int)
    for _ in range(SECONDS):
        seconds.now += 1
        log.records.clear()
        for copy in copies:
            traffic(copy, numbers)
        reporter.beat(12, len(copies), 0.1, 5)
        reporter.prepare(copies)()
        bursts = defaultdict[Place, list[WrittenRecord]](list)
        for record in log.records:
            bursts[record.place].append(record)
        for (topic, _), records in bursts.items():
            sizes[topic] += batch_bytes(records)
    return {topic: size / SECONDS for topic, size in sizes.items()}


def test_state_and_metrics_of_10_000_busy_partitions_cost_their_readers_under_1_mb_a_second(
    seconds: Seconds,
) -> None:
    """The driver reads the reports and the metrics; slots read neither."""
    sizes = measured(seconds, advance)

    state = SLOTS * sizes[internal_topics.replication("P")]
    metrics = SLOTS * sizes[internal_topics.raw_metrics("P")]
    figures = f"reports {state / 1000:.0f} kB/s, raw metrics {metrics / 1000:.0f} kB/s"
    logger.info(figures)
    assert state + metrics < PATIENCE_BYTES, figures


def test_partitions_without_traffic_cost_next_to_nothing(seconds: Seconds) -> None:
    sizes = measured(seconds, lambda _copy, _numbers: None)

    idle = SLOTS * sum(sizes.values())
    figures = f"idle {idle / 1000:.1f} kB/s"
    logger.info(figures)
    assert idle < PATIENCE_BYTES / 20, figures
