"""Planning a verification of a flow, and the table of its latest results."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from srm.domain import internal_topics
from srm.domain.map_wanted import Wanted
from srm.domain.partition_notes import begin_of_copy, in_force
from srm.domain.topics import Flow, TopicPartition
from srm.domain.verification import PartitionVerification, VerificationSummary
from srm.domain.verification_plan import LogBounds, RangePlan, newest, plan_partition
from srm.engine.ports import Cluster, FlowContext, FlowMaps, TopicDescription
from srm.engine.topic_sync import selected_topics
from srm.errors import NotFoundError

_FAR: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class VerificationPlan:
    """What will be compared, per partition, and what cannot be, with the reason."""

    flow: Flow
    time_ms: int
    ranges: tuple[RangePlan, ...]
    unverified: tuple[PartitionVerification, ...]


@dataclass(frozen=True)
class _Observed:
    """Everything read from both clusters, in the order that :func:`plan_partition` needs."""

    time_ms: int
    maps: FlowMaps
    source_ids: Mapping[str, str]
    target_ids: Mapping[str, str]
    source_configs: Mapping[str, Mapping[str, str]]
    target_configs: Mapping[str, Mapping[str, str]]
    source_logs: Mapping[TopicPartition, LogBounds]
    target_logs: Mapping[TopicPartition, LogBounds]
    target_ends_before: Mapping[TopicPartition, int]


def plan(
    context: FlowContext, topics: Collection[str] = (), max_records: int | None = None
) -> VerificationPlan:
    """Plan the comparison of a flow's topics with their copies, as they are now.

    Args:
        context: the flow.
        topics: source topics; without any, all that the flow selects.
        max_records: only the newest copied records of each partition; without it all of them.

    Raises:
        NotFoundError: a topic was named that the flow does not copy.
        UnavailableError, AuthorizationError: as the clusters answer.
    """
    described = context.source.topics()
    chosen = _choose(described, context, topics)
    policy, flow = context.config.policy, context.config.flow
    remotes = {name: policy.format_remote_topic(flow.source, name) for name in chosen}
    partitions = [TopicPartition(t, p) for t in chosen for p in range(described[t].partitions)]
    ids = {name: described[name].topic_id for name in chosen}
    observed = _observe(context, partitions, remotes, ids)
    planned = [_plan_one(p, remotes[p.topic], observed, max_records) for p in partitions]
    return VerificationPlan(
        flow,
        observed.time_ms,
        tuple(entry for entry in planned if isinstance(entry, RangePlan)),
        tuple(entry for entry in planned if isinstance(entry, PartitionVerification)),
    )


def record(context: FlowContext, summary: VerificationSummary) -> None:
    """Store the results as the latest ones; the topic must exist."""
    table = context.target.compacted(internal_topics.verification(summary.flow.source))
    table.write({result.key(): result.value() for result in summary.partitions})


def latest(target: Cluster, flow: Flow) -> VerificationSummary:
    """Read the latest result of each partition of a flow, from its target."""
    table = target.compacted(internal_topics.verification(flow.source)).read()
    results = [PartitionVerification.decode(value) for value in table.values()]
    return VerificationSummary(flow, tuple(sorted(results, key=lambda r: (r.topic, r.partition))))


def _choose(
    described: Mapping[str, TopicDescription], context: FlowContext, topics: Collection[str]
) -> tuple[str, ...]:
    selected = selected_topics(described, context.config)
    unknown = sorted(set(topics) - set(selected))
    if unknown:
        raise NotFoundError(
            f"flow {context.config.flow} does not copy {', '.join(unknown)}: check the names and "
            f"the flow's topics"
        )
    return tuple(name for name in selected if name in topics or not topics)


def _observe(
    context: FlowContext,
    partitions: list[TopicPartition],
    remotes: Mapping[str, str],
    ids: Mapping[str, str],
) -> _Observed:
    copies = [TopicPartition(remotes[p.topic], p.partition) for p in partitions]
    before = context.target.log_ends(copies)
    starts = context.source.log_starts(partitions)
    wanted = {p: Wanted(source_ranges=((start, _FAR),)) for p, start in starts.items()}
    maps = context.maps.load(tuple(remotes), wanted)
    target_topics = context.target.topics()
    existing = [name for name in remotes.values() if name in target_topics]
    return _Observed(
        context.now_ms(),
        maps,
        ids,
        {name: target_topics[name].topic_id for name in existing},
        context.source.topic_configs(tuple(remotes)),
        context.target.topic_configs(existing),
        _bounds(context.source, partitions),
        _bounds(context.target, copies),
        before,
    )


def _bounds(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, LogBounds]:
    ends = cluster.log_ends(partitions)
    starts = cluster.log_starts(partitions)
    # A log may be trimmed between the two calls, beyond the end seen first.
    return {
        p: LogBounds(starts[p], max(starts[p], ends[p]))
        for p in partitions
        if p in starts and p in ends
    }


def _plan_one(
    partition: TopicPartition, remote_topic: str, observed: _Observed, max_records: int | None
) -> RangePlan | PartitionVerification:
    names = (partition.topic, partition.partition, remote_topic)
    copy = TopicPartition(remote_topic, partition.partition)
    damage = observed.maps.errors.get(partition) or observed.maps.gaps.get(partition)
    if damage:
        reason = f"the offset map cannot be used: {damage}"
        return PartitionVerification(*names, "failed", observed.time_ms, reason=reason)
    reason = ""
    if partition not in observed.source_logs:
        reason = f"{partition} has gone from the source"
    elif copy not in observed.target_logs or copy not in observed.target_ends_before:
        reason = f"{copy} does not exist on the target: nothing is copied yet"
    if reason:
        return PartitionVerification(*names, "unverified", observed.time_ms, reason=reason)
    notes = observed.maps.notes.get(partition, ())
    planned = plan_partition(
        names,
        observed.maps.get(partition),
        observed.source_logs[partition],
        observed.target_logs[copy],
        observed.target_ends_before[copy],
        compacted=_is_compacted(observed.source_configs, partition.topic)
        or _is_compacted(observed.target_configs, remote_topic),
        timestamps=not _stamps_records(observed.target_configs, remote_topic),
        begins=begin_of_copy(notes),
        decided=(bounds for note in in_force(notes) if (bounds := note.left_out)),
    )
    if planned is None:
        reason = (
            "nothing that the source still holds is copied yet: is the replicator running, or has "
            "the partition stopped (srm status)?"
        )
        return PartitionVerification(*names, "unverified", observed.time_ms, reason=reason)
    planned = replace(
        planned,
        source_id=observed.source_ids[partition.topic],
        target_id=observed.target_ids.get(remote_topic, ""),
    )
    return planned if max_records is None else newest(planned, max_records)


def _is_compacted(configs: Mapping[str, Mapping[str, str]], topic: str) -> bool:
    return "compact" in configs.get(topic, {}).get("cleanup.policy", "")


def _stamps_records(configs: Mapping[str, Mapping[str, str]], topic: str) -> bool:
    return configs.get(topic, {}).get("message.timestamp.type") == "LogAppendTime"
