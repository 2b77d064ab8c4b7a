"""Cases that copy as fast as the engine can."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from bench.cases import Case
from bench.clusters import Site
from bench.data import batch_rounds, copies, keyed_requests
from bench.errors import BenchError, wait
from bench.results import Result, with_rates
from bench.session import COMPACTED, POLL_S, Meter, Session, WarmUp
from bench.tree import PeakMemory

COMPACTED_KEPT: Final = 0.5
_FIRST_S: Final = 60.0
_LEAD_IN_S: Final = 10.0
_COMPACTED_S: Final = 180.0
_EAGER: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "1000",
}
_AS_USUAL: Final = {"min.cleanable.dirty.ratio": "0.99", "segment.ms": "604800000"}


def copy(current: Session, case: Case) -> Result:
    """Fill a topic that the engine waits at, open it, and measure until all is copied."""
    topic = f"bench-{case.name}"
    creation = current.announce(topic, case.partitions)
    factor = case.fast_factor if current.running.engine.fast else 1
    rounds = batch_rounds(case.payload, case.partitions, case.records * factor)
    before = current.copied(topic, case.partitions)
    with current.gate.closed(topic, case.partitions):
        current.source.fill(topic, copies(case.payload, case.partitions, rounds))
        current.settle()
    records = case.partitions + rounds * case.partitions * case.payload.batch_records
    begin = before + int(records * case.lead_in)
    result = follow(current, case, topic, before, begin, before + records)
    if case.surroundings.provenance:
        check_headers(current.pair.target, current.running.route.remote(topic))
    return _with_start(result, current, creation)


def compacted(current: Session, case: Case) -> Result:
    """Measure the second half of a compacted topic that was there before the engine."""
    survivors = current.first.records
    result = follow(current, case, COMPACTED, 0, int(survivors * case.lead_in), survivors)
    current.warm_up()
    return _with_start(result, current, None)


def follow(current: Session, case: Case, topic: str, before: int, begin: int, end: int) -> Result:
    """Measure from the first record after ``begin`` to ``end``, or to the case's limit.

    An engine too slow to get to ``begin`` in time is measured from where it is then.
    """
    current.wait(topic, case.partitions, before + 1, _FIRST_S, POLL_S)
    lead_in_ends = time.monotonic() + _LEAD_IN_S
    while current.copied(topic, case.partitions) <= begin and time.monotonic() < lead_in_ends:
        time.sleep(POLL_S)
    with ExitStack() as stack:
        memory = stack.enter_context(PeakMemory(current.running.tree))
        meter = Meter(current)
        first = copied = current.copied(topic, case.partitions)
        deadline = time.monotonic() + case.limit_s
        while copied < end and time.monotonic() < deadline:
            current.running.check_alive()
            time.sleep(POLL_S)
            copied = current.copied(topic, case.partitions)
        used = meter.read()
    if copied <= first:
        raise BenchError(f"{topic} was copied too fast to be measured: more records are needed")
    records = min(copied, end) - first
    return with_rates(
        Result(
            case.name,
            current.engine,
            case.title,
            "copy",
            records=records,
            bytes=records * case.payload.size,
            resident_megabytes=round(memory.megabytes, 1),
            details={"complete": copied >= end},
            **used,
        )
    )


def _with_start(result: Result, current: Session, creation: float | None) -> Result:
    return replace(
        result,
        first_record_seconds=current.first_record_seconds,
        topic_creation_to_first_record_seconds=None if creation is None else round(creation, 2),
    )


def make_compacted_topic(site: Site, case: Case) -> WarmUp:
    """Make a topic with holes in each batch, as compaction leaves it.

    Afterwards its settings are usual ones, so that its copies are not compacted meanwhile.
    """
    partitions = case.partitions
    site.create(COMPACTED, partitions, _EAGER)
    rounds = batch_rounds(case.payload, partitions, case.records)
    with site.connect() as source:
        source.fill(COMPACTED, keyed_requests(case.payload, partitions, rounds, COMPACTED_KEPT))
        dirty = source.log_ends({COMPACTED: partitions})
        time.sleep(1.1)  # a segment older than segment.ms is rolled by the next append
        source.fill(COMPACTED, keyed_requests(case.payload, partitions, 1, 1.0))
        checkpoint = site.data / "cleaner-offset-checkpoint"
        wait(lambda: _is_clean(checkpoint, dirty), _COMPACTED_S, "compaction of a topic", 0.5)
        ends = source.log_ends({COMPACTED: partitions})
    site.configure(COMPACTED, _AS_USUAL)
    return WarmUp(COMPACTED, partitions, count_records(site, ends))


def _is_clean(checkpoint: Path, dirty: dict[tuple[str, int], int]) -> bool:
    """Tell from the cleaner's file (topic, number, offset) whether it has been everywhere."""
    if not checkpoint.exists():
        return False
    lines = [line.split() for line in checkpoint.read_text().splitlines()[2:]]
    clean = {(topic, int(number)): int(offset) for topic, number, offset in lines}
    return all(clean.get(partition, 0) >= end for partition, end in dirty.items())


def check_headers(site: Site, topic: str) -> None:
    """Make sure that copies have got a header: an engine without them would have an easy time.

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
    """Return how many records the partitions hold below the given ends."""
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
