"""Ranges of two copies compared by their bytes inside a Spark task, over connections of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import topic_id_bytes
from srm.domain.verification.verification import RangeResult
from srm.domain.verification.verification_plan import RangePlan
from srm.errors import SrmError
from srm.kafka.wire.cluster import WireCluster
from srm.replication.equal_ranges import prove_equal
from srm.replication.native.library import NativeLibrary, native_library
from srm.replication.resume.log_reader import LogReader


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
    wires = WireCluster("source", source), WireCluster("target", target)
    try:
        for wire in wires:
            await wire.start()
        return [await _prove_one(native, wires, plan) for plan in ranges]
    finally:
        for wire in wires:
            await wire.close()


async def _prove_one(
    native: NativeLibrary, wires: tuple[WireCluster, WireCluster], plan: RangePlan
) -> RangeResult | None:
    if not plan.source_id or not plan.target_id:
        return None
    source, target = (
        LogReader(
            wire,
            TopicPartition(topic, plan.partition),
            topic_id_bytes(topic_id),
            read_committed=True,
        )
        for wire, topic, topic_id in zip(
            wires,
            (plan.topic, plan.remote_topic),
            (plan.source_id, plan.target_id),
            strict=True,
        )
    )
    return await prove_equal(plan, source, target, native)
