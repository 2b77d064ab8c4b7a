"""Verification in waves, so that an interrupted run keeps its proofs.

After each wave the results of its partitions are stored. A completely compared partition gets its
final result, another one its former result with the new proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol

from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.verification.verification import (
    PartitionVerification,
    Proven,
    RangeResult,
    VerificationSummary,
    found_equal,
    join_stretches,
    merge,
)
from srm.domain.verification.verification_plan import RangePlan
from srm.engine.control.compacted import ensure_compacted
from srm.engine.ports import FlowContext
from srm.engine.verification import verification
from srm.engine.verification.verification import PartitionPlan, VerificationPlan

_LEAST_WEIGHT: Final = 1000
"""Minimum cost of a range in records; even an empty one is a task with some requests."""
_RANGES_PER_TASK: Final = 4
MOST_AT_ONCE: Final = verification.RANGE_RECORDS
"""Maximum work of one process in records, equal to that of one Spark task."""

_INTERRUPTED: Final = "not completely compared yet: srm verify continues after the proven ranges"


class Comparer(Protocol):
    """Compares ranges, many at a time."""

    @property
    def width(self) -> int:
        """Number of ranges that are compared in parallel."""
        ...

    def __call__(self, ranges: Sequence[RangePlan]) -> Sequence[RangeResult | str]:
        """Compare ranges; return the reason for a range that cannot be read."""
        ...


class Progress(NamedTuple):
    """Progress of a verification: compared records and their total."""

    records: int
    of: int


@dataclass
class _Partition:
    plan: PartitionPlan
    found: list[RangeResult | str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return len(self.found) == len(self.plan.ranges)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.plan.whole.topic, self.plan.whole.partition)

    @property
    def copy(self) -> TopicPartition:
        return TopicPartition(self.plan.whole.remote_topic, self.plan.whole.partition)

    def stretches(self, time_ms: int) -> list[Proven]:
        """Return all stretches proven so far, in order of their proof."""
        now = [
            stretch
            for plan, result in zip(self.plan.ranges, self.found, strict=False)
            if isinstance(result, RangeResult)
            and (stretch := found_equal(plan, result, time_ms)) is not None
        ]
        return [*self.plan.proven, *now]

    def result(self, time_ms: int) -> PartitionVerification:
        whole = self.plan.whole
        return replace(
            self._result(time_ms) if self.is_complete else self._interim(time_ms),
            source_id=whole.source_id,
            target_id=whole.target_id,
            proven=join_stretches(self.stretches(time_ms)),
        )

    def _interim(self, time_ms: int) -> PartitionVerification:
        whole = self.plan.whole
        names = (whole.topic, whole.partition, whole.remote_topic)
        return self.plan.former or PartitionVerification(
            *names, "unverified", time_ms, reason=_INTERRUPTED
        )

    def _result(self, time_ms: int) -> PartitionVerification:
        whole = self.plan.whole
        failure = next((entry for entry in self.found if isinstance(entry, str)), "")
        compared = [entry for entry in self.found if isinstance(entry, RangeResult)]
        merged = merge(whole, compared, time_ms)
        if failure and merged.outcome == "different":
            merged = replace(merged, reason=f"compared only in part: {failure}")
        elif failure:
            names = (whole.topic, whole.partition, whole.remote_topic)
            merged = PartitionVerification(*names, "failed", time_ms, reason=failure)
        return replace(
            merged,
            earlier_records=self.plan.earlier_records,
            earlier_ms=max((stretch.time_ms for stretch in self.plan.proven), default=0),
        )


def carry_out(
    context: FlowContext,
    planned: VerificationPlan,
    comparer: Callable[[], Comparer],
    progress: Callable[[Progress], None] = lambda _: None,
) -> VerificationSummary:
    """Carry out a plan and store each partition's result, failed if it cannot be read."""
    ensure_compacted(
        context.target,
        internal_topics.verification(planned.flow.source),
        replication_factor=context.config.internal_replication_factor,
    )
    partitions = [_Partition(plan) for plan in planned.partitions]
    done = [p.result(planned.time_ms) for p in partitions if p.is_complete]
    results = [*done, *planned.unverified]
    verification.record(context, results)
    if planned.ranges:
        results += _compare(context, planned, partitions, comparer(), progress)
    latest = {(result.topic, result.partition): result for result in results}
    return VerificationSummary(planned.flow, tuple(latest[place] for place in sorted(latest)))


def carry_out_little(
    context: FlowContext, planned: VerificationPlan, comparer: Callable[[], Comparer]
) -> VerificationSummary | None:
    """Carry out a plan that one process can compare in seconds; else do nothing, return None."""
    if sum(map(_weight, planned.ranges)) > MOST_AT_ONCE:
        return None
    return carry_out(context, planned, comparer)


def _compare(
    context: FlowContext,
    planned: VerificationPlan,
    partitions: Collection[_Partition],
    compare: Comparer,
    progress: Callable[[Progress], None],
) -> list[PartitionVerification]:
    """Compare all ranges; return the results of all waves, of which a partition's last counts."""
    results: list[PartitionVerification] = []
    records, total = 0, sum(_records(plan) for plan in planned.ranges)
    for wave in _waves(partitions, compare.width):
        found = compare([plan for _, plan in wave])
        for (partition, _), outcome in zip(wave, found, strict=True):
            partition.found.append(outcome)
        results += _read_stored(context, planned, [partition for partition, _ in wave])
        records += sum(_records(plan) for _, plan in wave)
        progress(Progress(records, total))
    return results


_Wave = list[tuple[_Partition, RangePlan]]


def _waves(partitions: Collection[_Partition], width: int) -> Iterator[_Wave]:
    """Split the ranges of all partitions, in order, into waves that use all tasks."""
    wave: _Wave = []
    weight = 0
    for partition in partitions:
        for plan in partition.plan.ranges:
            wave.append((partition, plan))
            weight += _weight(plan)
            if weight >= verification.RANGE_RECORDS * _RANGES_PER_TASK * width:
                yield wave
                wave, weight = [], 0
    if wave:
        yield wave


def _weight(plan: RangePlan) -> int:
    return max(_LEAST_WEIGHT, _records(plan))


def _records(plan: RangePlan) -> int:
    return sum(run.count for run in plan.runs)


def _read_stored(
    context: FlowContext, planned: VerificationPlan, touched: Collection[_Partition]
) -> list[PartitionVerification]:
    source, target = context.source.topics(), context.target.topics()
    results = []
    partitions = list({id(entry): entry for entry in touched}.values())
    lost = verification.not_held(
        context, {(p.place, p.copy): p.stretches(planned.time_ms) for p in partitions}
    )
    for partition in partitions:
        whole, place = partition.plan.whole, partition.place
        ids = (
            source[whole.topic].topic_id if whole.topic in source else "",
            target[whole.remote_topic].topic_id if whole.remote_topic in target else "",
        )
        is_same = ids == (whole.source_id, whole.target_id)
        if is_same and place not in lost:
            results.append(partition.result(planned.time_ms))
        else:
            what = "lost the end of its log" if is_same else "was deleted or re-created"
            reason = f"{place} or its copy {what} during the run: verify again"
            names = (whole.topic, whole.partition, whole.remote_topic)
            results.append(PartitionVerification(*names, "failed", planned.time_ms, reason=reason))
    verification.record(context, results)
    return results
