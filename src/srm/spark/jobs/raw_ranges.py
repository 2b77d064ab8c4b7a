"""Ranges of two copies compared by their bytes inside a Spark task, over connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import topic_id_bytes
from srm.domain.verification.verification import RangeResult
from srm.domain.verification.verification_plan import RangePlan
from srm.errors import SrmError
from srm.kafka.wire.cluster import open_wire
from srm.replication.equal_ranges import prove_equal
from srm.replication.log_reader import LogReader
from srm.replication.native.library import NativeLibrary, native_library
from srm.replication.ports import Wire


def prove_all(
    source: Mapping[str, str], target: Mapping[str, str], ranges: Sequence[RangePlan]
) -> list[RangeResult | None]:
    """Prove ranges equal, one after another; None for each that an ordinary consumer has to read.

    Args:
        source: librdkafka properties of the source.
        target: the same of the target.
        ranges: what to compare.
    """
    native = native_library()
    if native is None:
        return [None] * len(ranges)
    try:
        return asyncio.run(_prove(native, source, target, ranges))
    except SrmError:
        return [None] * len(ranges)


async def _prove(
    native: NativeLibrary,
    source: Mapping[str, str],
    target: Mapping[str, str],
    ranges: Sequence[RangePlan],
) -> list[RangeResult | None]:
    async with open_wire("source", source) as one, open_wire("target", target) as other:
        return [await _prove_one(native, one, other, plan) for plan in ranges]


async def _prove_one(
    native: NativeLibrary, source: Wire, target: Wire, plan: RangePlan
) -> RangeResult | None:
    if not plan.source_id or not plan.target_id:
        return None

    def reader(wire: Wire, topic: str, topic_id: str) -> LogReader:
        place = TopicPartition(topic, plan.partition)
        return LogReader(wire, place, topic_id_bytes(topic_id), read_committed=True)

    return await prove_equal(
        plan,
        reader(source, plan.topic, plan.source_id),
        reader(target, plan.remote_topic, plan.target_id),
        native,
    )
