"""Cases that copy at full speed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from bench.cases import Case
from bench.clusters import Site
from bench.data import batch_rounds, copies, keyed_requests
from bench.errors import BenchError, wait
from bench.memory import borrow_memory
from bench.results import Result, with_rates
from bench.session import COMPACTED, POLL_S, Meter, Session, WarmUp
from bench.tree import PeakMemory

COMPACTED_KEPT: Final = 0.5
_FIRST_S: Final = 60.0
_LEAD_IN_S: Final = 180.0
_COMPACTED_S: Final = 180.0
_EAGER: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "1000",
}
_AS_USUAL: Final = {"min.cleanable.dirty.ratio": "0.99", "segment.ms": "604800000"}


def copy(current: Session, case: Case) -> Result:
    """Fill a topic that the engine waits at, open it, and measure until all is copied."""
    topic, partitions = f"bench-{case.name}", case.partitions
    creation = current.announce(topic, partitions)
    records = case.records * (case.fast_factor if current.running.engine.fast else 1)
    before = _lead_in(current, case, topic, int(records * case.lead_in))
    rounds = batch_rounds(case.payload, partitions, records)
    # The gate's record in each partition is copied like the others.
    end = before + partitions * (1 + rounds * case.payload.batch_records)
    with PeakMemory(current.running.tree) as memory:
        with current.gate.closed(topic, partitions):
            current.source.fill(topic, copies(case.payload, partitions, rounds))
            current.settle()
            borrow_memory(current.pair.target.data, records * case.payload.size)
            meter = Meter(current)
        copied = _follow(current, case, topic, end)
        used = meter.read()
    if case.surroundings.provenance:
        check_headers(current.pair.target, current.running.route.remote(topic))
    if copied >= end:
        current.pair.source.forget(topic, partitions)
        current.pair.target.forget(current.running.route.remote(topic), partitions)
    result = _result(current, case, copied - before, copied >= end, memory, used)
    return replace(result, topic_creation_to_first_record_seconds=round(creation, 2))


def _lead_in(current: Session, case: Case, topic: str, records: int) -> int:
    """Let the engine copy some records of the case's kind; return how many its copy then holds."""
    rounds = batch_rounds(case.payload, case.partitions, records)
    current.source.fill(topic, copies(case.payload, case.partitions, rounds))
    end = sum(current.source.log_ends({topic: case.partitions}).values())
    current.wait(topic, case.partitions, end, _LEAD_IN_S, POLL_S)
    current.settle()
    return current.copied(topic, case.partitions)


def compacted(current: Session, case: Case) -> Result:
    """Measure the second part of a compacted topic that existed before the engine."""
    end = current.first.records
    begin = int(end * case.lead_in)
    current.wait(COMPACTED, case.partitions, begin, _COMPACTED_S, POLL_S)
    with PeakMemory(current.running.tree) as memory:
        meter = Meter(current)
        before = current.copied(COMPACTED, case.partitions)
        copied = _follow(current, case, COMPACTED, end)
        used = meter.read()
    current.warm_up()
    return _result(current, case, copied - before, copied >= end, memory, used)


def _follow(current: Session, case: Case, topic: str, end: int) -> int:
    """Wait for all copies, or for the case's time limit; return the number of copies."""
    deadline = time.monotonic() + case.limit_s
    while (copied := current.copied(topic, case.partitions)) < end:
        current.running.check_alive()
        if time.monotonic() > deadline:
            return copied
        time.sleep(POLL_S)
    return end


def _result(
    current: Session,
    case: Case,
    records: int,
    complete: bool,  # noqa: FBT001 -- one of the figures
    memory: PeakMemory,
    used: Mapping[str, Any],
) -> Result:
    if records <= 0:
        raise BenchError(f"{case.name}: nothing was copied while the figures ran")
    return with_rates(
        Result(
            case.name,
            current.engine,
            case.title,
            "copy",
            records=records,
            bytes=records * case.payload.size,
            first_record_seconds=current.first_record_seconds,
            resident_megabytes=round(memory.megabytes, 1),
            details={"complete": complete},
            **used,
        )
    )


def make_compacted_topic(site: Site, case: Case) -> WarmUp:
    """Create a topic with holes in each batch, as compaction leaves it.

    Then its settings become the usual ones, so that its copies are not compacted during the case.
    """
    partitions = case.partitions
    site.create(COMPACTED, partitions, _EAGER)
    rounds = batch_rounds(case.payload, partitions, case.records)
    with site.connect() as source:
        source.fill(COMPACTED, keyed_requests(case.payload, partitions, rounds, COMPACTED_KEPT))
        dirty = source.log_ends({COMPACTED: partitions})
        time.sleep(1.1)  # the next append rolls a segment older than segment.ms
        source.fill(COMPACTED, keyed_requests(case.payload, partitions, 1, 1.0))
        checkpoint = site.data / "cleaner-offset-checkpoint"
        wait(lambda: _is_clean(checkpoint, dirty), _COMPACTED_S, "compaction of a topic", 0.5)
        ends = source.log_ends({COMPACTED: partitions})
    site.configure(COMPACTED, _AS_USUAL)
    return WarmUp(COMPACTED, partitions, count_records(site, ends))


def _is_clean(checkpoint: Path, dirty: dict[tuple[str, int], int]) -> bool:
    """Return whether the cleaner's file (topic, number, offset) covers all partitions."""
    if not checkpoint.exists():
        return False
    lines = [line.split() for line in checkpoint.read_text().splitlines()[2:]]
    clean = {(topic, int(number)): int(offset) for topic, number, offset in lines}
    return all(clean.get(partition, 0) >= end for partition, end in dirty.items())


def check_headers(site: Site, topic: str) -> None:
    """Check that copies have a header; an engine that adds none would be faster.

    Raises:
        BenchError: the first record has none.
    """
    consumer = _consumer(site)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(_FIRST_S)
    consumer.close()
    if message is None or message.error() is not None or not message.headers():
        raise BenchError(f"{topic} has no headers")


def _consumer(site: Site) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": site.bootstrap,
            "group.id": "bench-reading",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )


def count_records(site: Site, ends: dict[tuple[str, int], int]) -> int:
    """Return the number of records that the partitions hold below the given ends."""
    consumer = _consumer(site)
    left = {partition for partition, end in ends.items() if end}
    consumer.assign([TopicPartition(topic, number, 0) for topic, number in left])
    count = 0
    deadline = time.monotonic() + _COMPACTED_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                count += 1
                partition = (message.topic(), message.partition())
                if message.offset() + 1 >= ends[partition]:
                    left.discard(partition)
    consumer.close()
    if left:
        raise BenchError(f"{COMPACTED} cannot be read to its end")
    return count
