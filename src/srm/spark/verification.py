"""The comparison of two copies in Spark tasks: each reads its ranges from both clusters at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Literal

from confluent_kafka import Consumer, Message
from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.config.values import ClientProperties
from srm.domain.names.topics import Flow, topic_id_bytes
from srm.domain.offset_map.runs import OffsetRange
from srm.domain.verification.compared_record import ComparedRecord
from srm.domain.verification.comparison import compare
from srm.domain.verification.verification import RangeResult, SideResult, VerificationSummary
from srm.domain.verification.verification_plan import RangePlan
from srm.engine.ports import FlowContext
from srm.engine.verification import VerificationRequest, carry_out, plan, progress_text
from srm.errors import SrmError
from srm.kafka.tables.single_records import record_of
from srm.kafka.wire.cluster import open_wire
from srm.replication.equal_ranges import prove_equal, unmapped_copies
from srm.replication.log_reader import LogReader
from srm.replication.native.library import NativeLibrary, native_library
from srm.spark.jobs import TASKS_PER_CORE, cores, read, reader, spread

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BothClusters:
    """librdkafka consumer properties of a flow's source and target, for the tasks."""

    source: ClientProperties
    target: ClientProperties

    @classmethod
    def of(cls, config: Config, flow: Flow) -> BothClusters:
        return cls(
            config.cluster_clients(flow.source, flow).consumer,
            config.cluster_clients(flow.target, flow).consumer,
        )


class RangeComparer:
    """Compares ranges in ``width`` Spark tasks at a time; without Spark one after another.

    ``by_records``: by ordinary consumers alone.
    """

    def __init__(
        self, clusters: BothClusters, spark: SparkSession | None = None, *, by_records: bool = False
    ) -> None:
        self._spark = spark
        # With the object itself the session would go to the tasks.
        self._compare = partial(compare_all, clusters, by_records=by_records)
        self.width = 1 if spark is None else cores(spark)

    def __call__(self, ranges: Sequence[RangePlan]) -> list[RangeResult | str]:
        if self._spark is None:
            return list(self._compare(ranges))
        return spread(self._spark, ranges, self._compare, tasks=TASKS_PER_CORE * self.width)


def verify(
    spark: SparkSession,
    context: FlowContext,
    properties: BothClusters,
    request: VerificationRequest | None = None,
) -> VerificationSummary:
    request = request or VerificationRequest()
    comparer = partial(RangeComparer, properties, spark, by_records=request.by_records)
    planned = plan(context, request)
    return carry_out(context, planned, comparer, lambda *seen: logger.info(progress_text(*seen)))


def compare_all(
    properties: BothClusters, ranges: Iterable[RangePlan], *, by_records: bool = False
) -> Iterator[RangeResult | str]:
    """Compare ranges one after another: by their bytes, and what is not equal by its records."""
    plans = list(ranges)
    proven = [None] * len(plans) if by_records else prove_all(properties, plans)
    rest = [p for p, r in zip(plans, proven, strict=True) if not r]
    left = iter(_compare_records(properties, rest))
    for found in proven:
        yield found or next(left)


def _compare_records(clusters: BothClusters, plans: list[RangePlan]) -> Iterator[RangeResult | str]:
    if not plans:
        return
    with ExitStack() as stack:

        @cache
        def open_reader(side: Literal["source", "target"], *, committed: bool) -> Consumer:
            level = "read_committed" if committed else "read_uncommitted"
            return stack.enter_context(reader(getattr(clusters, side), level))

        for plan in plans:
            source = open_reader("source", committed=plan.committed)
            target = open_reader("target", committed=not plan.shared)
            try:
                found = _compare_one(plan, source, target)
                if found.foreign and plan.compacted:
                    plan = asyncio.run(_with_unmapped(clusters, plan))  # noqa: PLW2901
                    found = _compare_one(plan, source, target)
                yield found
            except SrmError as error:
                yield str(error)


async def _with_unmapped(clusters: BothClusters, plan: RangePlan) -> RangePlan:
    async with open_wire("target", clusters.target) as wire:
        log = LogReader(wire, plan.copy, topic_id_bytes(plan.target_id), read_committed=False)
        return replace(plan, unmapped=tuple(await unmapped_copies(plan, log)))


def _compare_one(plan: RangePlan, source: Consumer, target: Consumer) -> RangeResult:
    ends = min(plan.source_end, plan.source_log_end), min(plan.target_end, plan.target_log_end)
    ours = OffsetRange(plan.topic, plan.partition, plan.source_start, ends[0])
    theirs = OffsetRange(plan.remote_topic, plan.partition, plan.target_start, ends[1])
    sides = _Reading(source, ours), _Reading(target, theirs)
    found = compare(plan, *(side.records() for side in sides))
    return replace(found, source=sides[0].mark(found.source), target=sides[1].mark(found.target))


class _Reading:
    def __init__(self, consumer: Consumer, wanted: OffsetRange) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._last: Message | None = None

    def records(self) -> Iterator[ComparedRecord]:
        for messages in read(self._consumer, self._wanted):
            self._last = messages[-1]
            yield from map(record_of, messages)

    def mark(self, side: SideResult) -> SideResult:
        epoch = None if self._last is None else self._last.leader_epoch()
        if self._last is None or epoch is None:
            return side
        return replace(side, epoch=epoch, reached=self._last.offset() + 1)


def prove_all(clusters: BothClusters, ranges: Sequence[RangePlan]) -> list[RangeResult | None]:
    """Prove ranges equal in order; None for each that an ordinary consumer has to read."""
    native = native_library()
    if native is None:
        return [None] * len(ranges)
    try:
        return asyncio.run(_prove(native, clusters, ranges))
    except SrmError:
        return [None] * len(ranges)


async def _prove(
    native: NativeLibrary, clusters: BothClusters, ranges: Sequence[RangePlan]
) -> list[RangeResult | None]:
    found = list[RangeResult | None]()
    async with (
        open_wire("source", clusters.source) as source,
        open_wire("target", clusters.target) as target,
    ):
        for plan in ranges:
            if not plan.source_id or not plan.target_id:
                found.append(None)
                continue
            ids = topic_id_bytes(plan.source_id), topic_id_bytes(plan.target_id)
            ours = LogReader(source, plan.place, ids[0], read_committed=plan.committed)
            theirs = LogReader(target, plan.copy, ids[1], read_committed=not plan.shared)
            found.append(await prove_equal(plan, ours, theirs, native))
    return found
