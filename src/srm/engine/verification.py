"""Verification of a flow: plan, comparison in waves, and the table of the latest results.

Ranges that an earlier verification has proven are not planned again while the proof is valid
(:mod:`srm.domain.verification.verification`). After each wave the results of its partitions are
stored, so an interrupted run keeps its proofs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from srm.config.model import IsolationLevel
from srm.domain.flow_state.replication_records import begin_of_copy, in_force
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_loader import Wanted
from srm.domain.text.amount import amount
from srm.domain.text.documents import decode_or_none
from srm.domain.verification.verification import (
    PartitionVerification,
    Proven,
    RangeResult,
    VerificationSummary,
    found_equal,
    join_stretches,
    last_marks,
    merge,
    still_proven,
    unproven,
)
from srm.domain.verification.verification_plan import RangePlan, clip, cut, newest, plan_partition
from srm.engine.cluster_ports import Cluster, Topics, TopicSetting, cluster_ids
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.ports import FlowContext
from srm.errors import NotFoundError

RANGE_RECORDS: Final = 250_000
_FAR: Final = 2**63 - 1
_Places = Collection[TopicPartition]


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """Scope of a verification; empty ``topics``: all that the flow selects.

    ``max_records``: newest copied records per partition. ``full``: proven ranges, too.
    ``by_records``: read all records with ordinary consumers, which takes longer.
    """

    topics: tuple[str, ...] = ()
    max_records: int | None = None
    range_records: int = RANGE_RECORDS
    full: bool = False
    by_records: bool = False


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """Ranges to compare of one partition, ranges validly proven, and the last result, if any."""

    whole: RangePlan
    ranges: tuple[RangePlan, ...]
    proven: tuple[Proven, ...] = ()
    former: PartitionVerification | None = None

    @property
    def earlier_records(self) -> int:
        """Number of copied records in scope that were proven before."""
        start, end = self.whole.source_start, self.whole.source_end
        spans = ((max(start, s.source_start), min(end, s.source_end)) for s in self.proven)
        return sum(clip(self.whole.runs, *span).records for span in spans)


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """Ranges to compare by partition, and partitions that cannot be compared, with reasons."""

    flow: Flow
    time_ms: int
    partitions: tuple[PartitionPlan, ...]
    unverified: tuple[PartitionVerification, ...]

    @property
    def ranges(self) -> tuple[RangePlan, ...]:
        return tuple(part for partition in self.partitions for part in partition.ranges)


def plan(context: FlowContext, request: VerificationRequest | None = None) -> VerificationPlan:
    request = request or VerificationRequest()
    described = context.source.topics()
    chosen = _choose(described, context, request.topics)
    flow, names = context.config.flow, context.config.names
    remotes = {name: names.remote(name) for name in chosen}
    partitions = [TopicPartition(t, p) for t in chosen for p in range(described[t].partitions)]
    former = _former(context.target, flow)
    facts = _Facts(context, partitions, remotes, described)
    planned = [facts.plan(p) for p in partitions]
    wholes = [entry for entry in planned if isinstance(entry, RangePlan)]
    proven = {} if request.full else _proven(context, wholes, former)

    def plan_ranges(whole: RangePlan) -> PartitionPlan:
        known, most = proven.get(whole.place, ()), request.max_records
        scope = whole if most is None else newest(whole, most)
        left = unproven(scope, known)
        ranges = tuple(part for piece in left for part in cut(piece, request.range_records))
        return PartitionPlan(scope, ranges, known, former.get(whole.place))

    return VerificationPlan(
        flow,
        facts.time_ms,
        tuple(map(plan_ranges, wholes)),
        tuple(
            # Its proofs are kept, as a map may be unreadable now.
            replace(entry, source_id=of.source_id, target_id=of.target_id, proven=of.proven)
            if (of := former.get(TopicPartition(entry.topic, entry.partition)))
            else entry
            for entry in planned
            if isinstance(entry, PartitionVerification)
        ),
    )


def _former(target: Cluster, flow: Flow) -> dict[TopicPartition, PartitionVerification]:
    """Return the latest results; a damaged one is skipped, so it proves nothing."""
    found = {}
    rows = target.compacted_topic(internal_topics.verification(flow.source)).read()
    for key, value in rows.items():
        where = f"{key.decode(errors='replace')}, to be verified again: "
        if (result := decode_or_none(value, PartitionVerification.decode, where)) is not None:
            found[TopicPartition(result.topic, result.partition)] = result
    return found


_Former = Mapping[TopicPartition, PartitionVerification]


def _proven(
    context: FlowContext, wholes: Collection[RangePlan], former: _Former
) -> dict[TopicPartition, tuple[Proven, ...]]:
    candidates = {
        place: (whole, known.proven)
        for whole in wholes
        if (known := former.get(place := whole.place))
        and known.proven
        and (known.source_id, known.target_id) == (whole.source_id, whole.target_id)
    }
    source_epochs, target_epochs = dict[TopicPartition, int](), dict[TopicPartition, int]()
    for place, (whole, stretches) in candidates.items():
        (source_epoch, _), (target_epoch, _) = last_marks(stretches)
        source_epochs |= {place: source_epoch} if source_epoch >= 0 else {}
        target_epochs |= {whole.copy: target_epoch} if target_epoch >= 0 else {}
    sources = context.source.epoch_ends(source_epochs)
    targets = context.target.epoch_ends(target_epochs)
    return {
        place: still_proven(stretches, whole, (sources.get(place, -1), targets.get(whole.copy, -1)))
        for place, (whole, stretches) in candidates.items()
    }


_Stretches = Mapping[tuple[TopicPartition, TopicPartition], Collection[Proven]]


def not_held(context: FlowContext, stretches: _Stretches) -> set[TopicPartition]:
    """Return the source partitions whose source or target log has lost proven records.

    Call it after the reads: joined stretches keep only the last leader epoch.
    """
    sources = {place: [s.source_mark for s in found] for (place, _), found in stretches.items()}
    targets = {copy: [s.target_mark for s in found] for (_, copy), found in stretches.items()}
    cut_sources = _cut(context.source, sources)
    cut_copies = _cut(context.target, targets)
    return {place for place, copy in stretches if place in cut_sources or copy in cut_copies}


def _cut(
    cluster: Cluster, marks: Mapping[TopicPartition, Collection[tuple[int, int]]]
) -> set[TopicPartition]:
    """Return the partitions whose logs end before a mark in its leader epoch."""
    left = {
        partition: sorted({epoch: reached for epoch, reached in sorted(of) if epoch >= 0}.items())
        for partition, of in marks.items()
    }
    found = set()
    while left := {partition: of for partition, of in left.items() if of}:
        highest = {partition: of.pop() for partition, of in left.items()}
        ends = cluster.epoch_ends({partition: epoch for partition, (epoch, _) in highest.items()})
        found |= {p for p, (_, reached) in highest.items() if reached > ends.get(p, -1)}
    return found


def record(context: FlowContext, results: Collection[PartitionVerification]) -> None:
    """Store the latest results; the topic must exist."""
    table = context.target.compacted_topic(internal_topics.verification(context.config.flow.source))
    table.write({result.key(): result.value() for result in results})


def latest(target: Cluster, flow: Flow) -> VerificationSummary:
    table = target.compacted_topic(internal_topics.verification(flow.source)).read()
    results = [PartitionVerification.decode(value) for value in table.values()]
    return VerificationSummary(flow, tuple(sorted(results, key=lambda r: (r.topic, r.partition))))


def _choose(described: Topics, context: FlowContext, topics: Collection[str]) -> tuple[str, ...]:
    selected = context.config.names.select(described)
    unknown = sorted(set(topics) - set(selected))
    if unknown:
        raise NotFoundError(
            f"flow {context.config.flow} does not copy {', '.join(unknown)}: check the names and "
            f"the flow's topics"
        )
    return tuple(name for name in selected if name in topics or not topics)


def _bounds(
    cluster: Cluster, partitions: _Places, isolation: IsolationLevel = "read_committed"
) -> dict[TopicPartition, tuple[int, int]]:
    committed = isolation == "read_committed"
    ends = cluster.log_ends(partitions) if committed else cluster.high_watermarks(partitions)
    starts = cluster.log_starts(partitions)
    # Between the two calls, retention may delete records beyond the first end.
    return {p: (start, max(start, ends[p])) for p, start in starts.items() if p in ends}


class _Facts:
    """Facts read from both clusters, in the order that :func:`plan_partition` needs."""

    def __init__(
        self, context: FlowContext, partitions: _Places, remotes: Mapping[str, str], sources: Topics
    ) -> None:
        source, target = context.source, context.target
        copies = [TopicPartition(remotes[p.topic], p.partition) for p in partitions]
        self._remotes, self._sources, self._config = remotes, sources, context.config
        self._clusters = cluster_ids(context.config.records, source, target)
        self._target_ends_before = target.log_ends(copies)
        starts = source.log_starts(partitions)
        wanted = {p: Wanted(source_ranges=((start, _FAR),)) for p, start in starts.items()}
        self._maps = context.maps.load(tuple(remotes), wanted)
        topics = target.topics()
        existing = [name for name in remotes.values() if name in topics]
        self.time_ms = context.now_ms()
        self._target_ids = {name: topics[name].topic_id for name in existing}
        self._source_settings = source.topic_settings(tuple(remotes))
        self._target_settings = target.topic_settings(existing)
        self._source_logs = _bounds(source, partitions, context.config.isolation_level)
        names, joins = context.config.names, context.config.joins
        self._shared = set[str]()
        if context.config.records.provenance:  # else nothing tells the records of others
            self._shared = {name for name in remotes if names.is_shared(name) or joins(name)}
        # Copies do not wait for the transactions of others: they may be behind one that is open.
        shared = {TopicPartition(remotes[t], n) for t, n in partitions if t in self._shared}
        self._target_logs = _bounds(target, set(copies) - shared)
        self._target_logs |= _bounds(target, shared, "read_uncommitted")
        decided = {p: [n for n in in_force(of) if n.left_out] for p, of in self._maps.notes.items()}
        marks = {p: [(n.epoch, n.lost_to or 0) for n in of] for p, of in decided.items()}
        overtaken = _cut(source, marks)  # truncated there since
        self._decided = {p: of for p, of in decided.items() if p not in overtaken}

    def plan(self, partition: TopicPartition) -> RangePlan | PartitionVerification:
        remote, maps = self._remotes[partition.topic], self._maps
        names = (partition.topic, partition.partition, remote)
        copy = TopicPartition(remote, partition.partition)
        if damage := maps.errors.get(partition) or maps.gaps.get(partition):
            reason = f"the offset map is not usable: {damage}"
            return PartitionVerification(*names, "failed", self.time_ms, reason=reason)
        unverified = partial(PartitionVerification, *names, "unverified", self.time_ms)
        if partition not in self._source_logs:
            return unverified(reason=f"{partition} no longer exists on the source")
        if copy not in self._target_logs or copy not in self._target_ends_before:
            return unverified(reason=f"{copy} does not exist on the target: nothing is copied yet")
        here = self._source_settings.get(partition.topic, {})
        there = self._target_settings.get(remote, {})
        policies = [each.get("cleanup.policy", TopicSetting()).value for each in (here, there)]
        config, (topic, _) = self._config, partition
        source_start, source_end = self._source_logs[partition]
        start, end = self._target_logs[copy]
        before, notes = self._target_ends_before[copy], maps.notes.get(partition, ())
        decided = self._decided.get(partition, ())
        whole = RangePlan(
            *names,
            source_start=source_start,
            source_end=source_end,
            source_log_end=source_end,
            target_start=start,
            target_end=end,
            target_log_end=end,
            runs=(),
            compacted=any("compact" in policy for policy in policies),
            timestamps=there.get("message.timestamp.type", TopicSetting()).value != "LogAppendTime",
            decided=tuple(note.left_out for note in decided if note.left_out),
            source_id=self._sources[topic].topic_id,
            target_id=self._target_ids.get(remote, ""),
            transform=config.transform(self._clusters, topic, remote),
            shared=topic in self._shared,
            committed=config.isolation_level == "read_committed",
        )
        cuts = [(n.lost_from or 0, n.target_next or 0) for n in notes if n.decision == "cut"]
        cuts += [cut for note in notes for cut in note.cuts]
        planned = plan_partition(whole, maps.get(partition), before, begin_of_copy(notes), cuts)
        return planned or unverified(
            reason="no record in the source log is copied yet: "
            f"srm why {topic} --flow '{config.flow}' shows the cause"
        )


_LEAST_WEIGHT: Final = 1000
"""Minimum cost of a range in records; even an empty one is a task with some requests."""
_RANGES_PER_TASK: Final = 4
MOST_AT_ONCE: Final = RANGE_RECORDS
"""Maximum work of one process in records, equal to that of one Spark task."""

_INTERRUPTED: Final = "not completely compared yet: srm verify continues after the proven ranges"


class Comparer(Protocol):
    """Compares ranges, many at a time."""

    @property
    def width(self) -> int:
        """Number of ranges that are compared in parallel."""

    def __call__(self, ranges: Sequence[RangePlan]) -> Sequence[RangeResult | str]:
        """Compare ranges; return the reason for a range that cannot be read."""


@dataclass
class _Partition:
    plan: PartitionPlan
    found: list[RangeResult | str] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return len(self.found) == len(self.plan.ranges)

    def stretches(self, time_ms: int) -> list[Proven]:
        now = [
            stretch
            for plan, result in zip(self.plan.ranges, self.found, strict=False)
            if isinstance(result, RangeResult)
            and (stretch := found_equal(plan, result, time_ms)) is not None
        ]
        return [*self.plan.proven, *now]

    def result(self, time_ms: int) -> PartitionVerification:
        whole, proven = self.plan.whole, join_stretches(self.stretches(time_ms))
        if self.is_complete:
            found = self._result(time_ms)
        else:
            found = self.plan.former or PartitionVerification(
                *whole.names, "unverified", time_ms, reason=_INTERRUPTED
            )
        return replace(found, source_id=whole.source_id, target_id=whole.target_id, proven=proven)

    def _result(self, time_ms: int) -> PartitionVerification:
        whole = self.plan.whole
        failure = next((entry for entry in self.found if isinstance(entry, str)), "")
        compared = [entry for entry in self.found if isinstance(entry, RangeResult)]
        merged = merge(whole, compared, time_ms)
        if failure and merged.outcome == "different":
            merged = replace(merged, reason=f"compared only in part: {failure}")
        elif failure:
            merged = PartitionVerification(*whole.names, "failed", time_ms, reason=failure)
        return replace(
            merged,
            earlier_records=self.plan.earlier_records,
            earlier_ms=max((stretch.time_ms for stretch in self.plan.proven), default=0),
        )


def carry_out(
    context: FlowContext,
    planned: VerificationPlan,
    comparer: Callable[[], Comparer],
    progress: Callable[[int, int], None] = lambda _records, _total: None,
) -> VerificationSummary:
    """Carry out a plan and store each partition's result, failed if it cannot be read.

    ``progress`` gets the number of compared records, and their total.
    """
    topic = internal_topics.verification(planned.flow.source)
    factor = context.config.internal_replication_factor
    ensure_compacted(context.target, topic, replication_factor=factor)
    partitions = [_Partition(plan) for plan in planned.partitions]
    done = [p.result(planned.time_ms) for p in partitions if p.is_complete]
    results = [*done, *planned.unverified]
    record(context, results)
    if planned.ranges:
        compare, records, total = comparer(), 0, sum(map(_records, planned.ranges))
        for wave in _waves(partitions, compare.width):
            found = compare([plan for _, plan in wave])
            for (partition, _), outcome in zip(wave, found, strict=True):
                partition.found.append(outcome)
            # A partition's last result counts.
            results += _read_stored(context, planned, [partition for partition, _ in wave])
            records += sum(_records(plan) for _, plan in wave)
            progress(records, total)
    latest = {(result.topic, result.partition): result for result in results}
    return VerificationSummary(planned.flow, tuple(latest[place] for place in sorted(latest)))


def progress_text(records: int, total: int) -> str:
    return f"{records:,} of {amount(total, 'record')} compared"


def carry_out_little(
    context: FlowContext, planned: VerificationPlan, comparer: Callable[[], Comparer]
) -> VerificationSummary | None:
    """Carry out a plan that one process can compare in seconds; else do nothing, return None."""
    if sum(map(_weight, planned.ranges)) > MOST_AT_ONCE:
        return None
    return carry_out(context, planned, comparer)


_Wave = list[tuple[_Partition, RangePlan]]


def _waves(partitions: Collection[_Partition], width: int) -> Iterator[_Wave]:
    """Split the ranges of all partitions, in order, into waves that use all tasks."""
    wave: _Wave = []
    weight = 0
    for partition in partitions:
        for plan in partition.plan.ranges:
            wave.append((partition, plan))
            weight += _weight(plan)
            if weight >= RANGE_RECORDS * _RANGES_PER_TASK * width:
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
    lost = not_held(
        context,
        {(p.plan.whole.place, p.plan.whole.copy): p.stretches(planned.time_ms) for p in partitions},
    )
    for partition in partitions:
        whole = partition.plan.whole
        ids = (
            source[whole.topic].topic_id if whole.topic in source else "",
            target[whole.remote_topic].topic_id if whole.remote_topic in target else "",
        )
        is_same = ids == (whole.source_id, whole.target_id)
        if is_same and whole.place not in lost:
            results.append(partition.result(planned.time_ms))
        else:
            what = "lost the end of its log" if is_same else "was deleted or re-created"
            reason = f"{whole.place} or its copy {what} during the run: verify again"
            failed = PartitionVerification(*whole.names, "failed", planned.time_ms, reason=reason)
            results.append(failed)
    record(context, results)
    return results
