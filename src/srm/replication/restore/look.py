"""Find out what is there of the originals, of their copies and of earlier restores."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.restore import (
    RestoredPartition,
    RestoreFacts,
    RestorePlan,
    copies_of,
    plan_topic,
)
from srm.engine.cluster_ports import Cluster, TopicDescription
from srm.errors import NotFoundError, UsageError
from srm.replication.restore.context import RestoreContext
from srm.replication.restore.flow_state import RestoreState, progress


def plan(context: RestoreContext, topics: Collection[str] = ()) -> RestorePlan:
    """Return what a restore of some originals, by default of all with a copy, would do.

    NotFoundError: the flow has never copied anything. UsageError: a topic has no copy.
    """
    config, target, source = context.forward.config, context.forward.target, context.forward.source
    flow, copies = config.flow, target.topics()
    forward = RestoreState.read(target, flow)
    if not forward.records:
        raise NotFoundError(
            f"{flow} has never copied anything: {flow.target} holds nothing to restore "
            f"{flow.source} from"
        )
    if config.both_ways:
        raise UsageError(
            f"{flow} and {flow.reverse} keep names of topics, so the copies on {flow.target} hold "
            f"records of {flow.target}, too; restoring {flow.source} from them is not supported",
            f"run {flow.reverse} for the records of {flow.target}",
        )
    names = copies_of(copies, config.names, context.clusters)
    own, originals = RestoreState.read(source, context.copying.config.flow), source.topics()
    unknown = sorted(set(topics) - set(names.values()))
    if unknown:
        known = ", ".join(sorted(names.values())) or "none"
        raise UsageError(
            f"{flow.target} holds no copy of {', '.join(unknown)} for {flow} to resume; "
            f"it holds copies of: {known}"
        )
    plans = {}
    for copy, name in names.items():
        facts = _facts(context, forward, own, copies[copy], originals.get(name), name)
        plans[name] = plan_topic(facts, flow.target, flow.source)
    wanted = tuple(each for name, each in plans.items() if name in topics or not topics)
    done = {each.topic for each in wanted}
    return RestorePlan(
        flow,
        forward.pause,
        wanted,
        tuple(n for n, each in plans.items() if n not in done and each.state != "restored"),
        target.cluster_id(),
        source.cluster_id(),
        tuple(sorted({each.source_cluster for each in forward.state.copied})),
    )


def _facts(
    context: RestoreContext,
    known: RestoreState,
    own: RestoreState,
    copy: TopicDescription,
    original: TopicDescription | None,
    name: str,
) -> RestoreFacts:
    numbers = range(copy.partitions)
    copy_logs = _logs(context.forward.target, [TopicPartition(copy.name, n) for n in numbers])
    known_ends: Sequence[tuple[Position | None, Position | None]] = [(None, None)] * len(numbers)
    foreign = frozenset[TopicPartition]()
    if original is not None:
        known_ends = progress(own, known, original, copy)
        unknown = [TopicPartition(name, n) for n in numbers if known_ends[n][0] is None]
        logs = _logs(context.forward.source, unknown) if unknown else {}
        # They hold records although no restore has reported them.
        filled = {place: original.topic_id for place, (start, end) in logs.items() if end > start}
        foreign = context.logs.begin_with_records(filled) if filled else foreign
    begun = own.restoring
    return RestoreFacts(
        name,
        copy.name,
        tuple(
            RestoredPartition(
                copy_logs[TopicPartition(copy.name, n)],
                *known_ends[n],
                begins_foreign=TopicPartition(name, n) in foreign,
            )
            for n in numbers
        ),
        original is not None,
        original is not None and _is_former(known, own, original, [told for _, told in known_ends]),
        begun is not None and begun.is_for(known.pause),
    )


def _is_former(
    known: RestoreState,
    own: RestoreState,
    original: TopicDescription,
    forward: Collection[Position | None],
) -> bool:
    """Return whether the flow has copied from exactly this topic, so it is not a new one."""
    if any(each.topic_id == original.topic_id for each in known.state.copied):
        return True
    return own.restoring is None and any(forward)


def _logs(
    cluster: Cluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    starts, ends = cluster.log_starts(places), cluster.high_watermarks(places)
    return {place: (starts.get(place, 0), ends[place]) for place in places if place in ends}
