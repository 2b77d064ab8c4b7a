"""Find out what is there of the originals, of their copies and of earlier restores."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.restore import (
    PartitionFacts,
    RestorePlan,
    TopicFacts,
    copies_of,
    plan_topic,
)
from srm.engine.ports import Cluster, TopicDescription
from srm.errors import NotFoundError, UsageError
from srm.replication.restore.context import RestoreContext, RestoreLogs
from srm.replication.restore.flow_state import FlowState

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Looked:
    """All that a plan is made of."""

    forward: FlowState
    copying: FlowState
    copies: Mapping[str, TopicDescription]
    originals: Mapping[str, TopicDescription]
    names: Mapping[str, str] = field(default_factory=dict)
    """Originals by the names of their copies."""


def look(context: RestoreContext) -> Looked:
    """Read both clusters.

    Raises:
        UnavailableError: one of them does not answer.
        NotFoundError: the flow has never copied anything.
    """
    flow, target, source = (
        context.forward.config.flow,
        context.forward.target,
        context.forward.source,
    )
    copies = target.topics()
    forward = FlowState.read(target, flow)
    if not forward.records:
        raise NotFoundError(
            f"{flow} has never copied anything: {flow.target} holds nothing to restore "
            f"{flow.source} from"
        )
    names = copies_of(copies, context.forward.config, context.chosen, context.clusters)
    own = FlowState.read(source, context.copying.config.flow)
    return Looked(forward, own, copies, source.topics(), names)


def plan(context: RestoreContext, topics: Collection[str] = ()) -> RestorePlan:
    """Say what a restore would do; changes nothing.

    Args:
        context: both flows.
        topics: originals to restore; without any, all that have a copy.

    Raises:
        SrmError: a cluster does not answer.
        UsageError: a topic has no copy.
    """
    flow, looked = context.forward.config.flow, look(context)
    unknown = sorted(set(topics) - set(looked.names.values()))
    if unknown:
        known = ", ".join(sorted(looked.names.values())) or "none"
        raise UsageError(
            f"{flow.target} holds no copy of {', '.join(unknown)} that {flow} would go on with; "
            f"it does of: {known}"
        )
    plans = {
        original: plan_topic(_facts(context, looked, copy, original), flow.target, flow.source)
        for copy, original in looked.names.items()
    }
    chosen = tuple(each for name, each in plans.items() if name in topics or not topics)
    done = {each.topic for each in chosen}
    return RestorePlan(
        flow,
        looked.forward.pause,
        chosen,
        tuple(n for n, each in plans.items() if n not in done and each.state != "restored"),
        context.forward.target.cluster_id(),
        context.forward.source.cluster_id(),
        tuple(sorted({each.source_cluster for each in looked.forward.state.copied})),
    )


def _facts(context: RestoreContext, looked: Looked, copy: str, original: str) -> TopicFacts:
    here, there = looked.copies[copy], looked.originals.get(original)
    numbers = range(here.partitions)
    copy_logs = _logs(context.forward.target, [TopicPartition(copy, n) for n in numbers])
    names = [TopicPartition(original, n) for n in numbers]
    original_logs = _logs(context.forward.source, names) if there else {}
    restored = {}
    forward = {}
    if there is not None:
        restored = {n: looked.copying.position(here, n, there.topic_id) for n in numbers}
        forward = {n: looked.forward.position(there, n, here.topic_id) for n in numbers}
    foreign = _begin_foreign(context.logs, there, restored, original_logs)
    pause, begun = looked.forward.pause, looked.copying.restoring
    return TopicFacts(
        original,
        copy,
        tuple(
            PartitionFacts(
                copy_logs[TopicPartition(copy, n)],
                original_logs.get(names[n]),
                restored.get(n),
                forward.get(n),
                names[n] in foreign,
            )
            for n in numbers
        ),
        there is not None,
        there is not None and _is_former(looked, there, forward),
        begun is not None and begun.is_for(pause),
    )


def _is_former(
    looked: Looked, original: TopicDescription, forward: Mapping[int, Position | None]
) -> bool:
    """Whether the flow has copied from exactly this topic: then it is not a new one."""
    if any(each.topic_id == original.topic_id for each in looked.forward.state.copied):
        return True
    return looked.copying.restoring is None and any(forward.values())


def _begin_foreign(
    logs: RestoreLogs,
    original: TopicDescription | None,
    restored: Mapping[int, Position | None],
    original_logs: Mapping[TopicPartition, tuple[int, int]],
) -> frozenset[TopicPartition]:
    """Look at what holds something although no restore has told of it."""
    if original is None:
        return frozenset()
    unknown = {
        place: original.topic_id
        for place, (start, end) in original_logs.items()
        if end > start and restored.get(place.partition) is None
    }
    return logs.begin_with_records(unknown) if unknown else frozenset()


def _logs(
    cluster: Cluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    starts, ends = cluster.log_starts(places), cluster.high_watermarks(places)
    return {place: (starts.get(place, 0), ends[place]) for place in places if place in ends}
