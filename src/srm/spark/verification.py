"""The comparison of two copies in Spark tasks: each reads its ranges from both clusters at once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from confluent_kafka import Consumer, Message
from pyspark.sql import SparkSession

from srm.config.model import Config
from srm.config.secrets import ClientProperties
from srm.domain import internal_topics
from srm.domain.comparison import Record, compare
from srm.domain.offset_ranges import OffsetRange
from srm.domain.topics import Flow
from srm.domain.verification import (
    PartitionVerification,
    RangeResult,
    VerificationSummary,
    merge,
)
from srm.domain.verification_plan import RangePlan, cut
from srm.engine import verification as engine
from srm.engine.compacted import ensure_compacted
from srm.engine.ports import FlowContext
from srm.errors import SrmError
from srm.spark.ranges import read, reader
from srm.spark.raw_ranges import prove_all
from srm.spark.spread import spread

logger = logging.getLogger(__name__)

RANGE_RECORDS = 250_000


@dataclass(frozen=True, slots=True)
class BothClusters:
    """librdkafka consumer properties of a flow's source and target, for the tasks."""

    source: ClientProperties
    target: ClientProperties

    @classmethod
    def of(cls, config: Config, flow: Flow) -> BothClusters:
        """Take the properties of a flow's clusters from the configuration.

        Raises:
            ConfigError: the configuration does not list one of them.
        """
        return cls(
            config.cluster_clients(flow.source, flow).consumer,
            config.cluster_clients(flow.target, flow).consumer,
        )


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """What to verify: source topics (none: all of the flow), and how much of each partition."""

    topics: tuple[str, ...] = ()
    max_records: int | None = None
    range_records: int = RANGE_RECORDS
    by_records: bool = False
    full: bool = False


def verify(
    spark: SparkSession,
    context: FlowContext,
    properties: BothClusters,
    request: VerificationRequest | None = None,
) -> VerificationSummary:
    """Compare a flow's topics with their copies and store the result of each partition.

    A partition that cannot be read is reported as failed, with the reason.

    Raises:
        NotFoundError: a topic was named that the flow does not copy.
        UnavailableError, AuthorizationError: as the clusters answer while planning and storing.
    """
    request = request or VerificationRequest()
    planned = engine.plan(context, request.topics, request.max_records)
    parts = [cut(whole, request.range_records) for whole in planned.ranges]
    ranges = [part for cuts in parts for part in cuts]
    found = iter(compare_ranges(spark, properties, ranges, by_records=request.by_records))
    results = [
        _result(whole, [next(found) for _ in cuts], planned.time_ms)
        for whole, cuts in zip(planned.ranges, parts, strict=True)
    ]
    every = sorted([*results, *planned.unverified], key=lambda r: (r.topic, r.partition))
    summary = VerificationSummary(planned.flow, tuple(every))
    ensure_compacted(
        context.target,
        internal_topics.verification(planned.flow.source),
        replication_factor=context.config.internal_replication_factor,
    )
    engine.record(context, summary)
    return summary


def compare_ranges(
    spark: SparkSession,
    properties: BothClusters,
    ranges: Collection[RangePlan],
    *,
    by_records: bool = False,
) -> list[RangeResult | str]:
    """Compare ranges in Spark tasks; a range that cannot be read gives the reason instead.

    With ``by_records`` ordinary consumers read all of them, however much longer that takes.
    """

    def compare_part(part: Iterable[RangePlan]) -> Iterator[RangeResult | str]:
        return compare_all(properties, part, by_records=by_records)

    return spread(spark, ranges, compare_part)


def compare_all(
    properties: BothClusters, ranges: Iterable[RangePlan], *, by_records: bool = False
) -> Iterator[RangeResult | str]:
    """Compare ranges one after another: by their bytes, and what is not equal by its records."""
    plans = list(ranges)
    proven: list[RangeResult | None] = [None] * len(plans)
    if not by_records:
        proven = prove_all(properties.source, properties.target, plans)
    left = iter(
        _compare_records(properties, [p for p, r in zip(plans, proven, strict=True) if not r])
    )
    for found in proven:
        yield found or next(left)


def _compare_records(
    properties: BothClusters, plans: list[RangePlan]
) -> Iterator[RangeResult | str]:
    """Compare ranges record by record, with one consumer for each cluster."""
    if not plans:
        return
    with (
        reader(properties.source, "read_committed") as source,
        reader(properties.target, "read_committed") as target,
    ):
        for plan in plans:
            try:
                yield compare(plan, _source_records(source, plan), _target_records(target, plan))
            except SrmError as error:
                yield str(error)


def _source_records(consumer: Consumer, plan: RangePlan) -> Iterator[Record]:
    end = min(plan.source_end, plan.source_log_end)
    return _records(consumer, OffsetRange(plan.topic, plan.partition, plan.source_start, end))


def _target_records(consumer: Consumer, plan: RangePlan) -> Iterator[Record]:
    end = min(plan.target_end, plan.target_log_end)
    return _records(
        consumer, OffsetRange(plan.remote_topic, plan.partition, plan.target_start, end)
    )


def _records(consumer: Consumer, wanted: OffsetRange) -> Iterator[Record]:
    for messages in read(consumer, wanted):
        yield from map(_record, messages)


def _record(message: Message) -> Record:
    return Record(
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )


def _result(
    whole: RangePlan, found: list[RangeResult | str], time_ms: int
) -> PartitionVerification:
    reason = next((entry for entry in found if isinstance(entry, str)), "")
    merged = merge(whole, [entry for entry in found if isinstance(entry, RangeResult)], time_ms)
    if not reason:
        return merged
    if merged.outcome == "different":
        return replace(merged, reason=f"only a part was compared: {reason}")
    names = (whole.topic, whole.partition, whole.remote_topic)
    return PartitionVerification(*names, "failed", time_ms, reason=reason)
