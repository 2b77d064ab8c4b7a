"""Find out what is there of the originals, of their copies and of restores, broken off or not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from srm.domain.flow_state.pause import Pause, read_pause
from srm.domain.flow_state.replication_records import CopyId, PartitionPosition
from srm.domain.flow_state.replication_state import ReplicationState, decode_state
from srm.domain.flow_state.reported_positions import newest_position, positions_by_copy
from srm.domain.names.filters import NameFilter
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.recovery.restore import (
    RESTORE_KEY,
    RestoredPartition,
    RestorePlan,
    RestoreRecord,
    TopicFacts,
    copies_of,
    plan_topic,
    restore_flow,
)
from srm.engine.flows.state_topic import StateTopic
from srm.engine.ports import Cluster, FlowContext, TopicDescription
from srm.errors import IntegrityError, NotFoundError, UsageError
from srm.replication.restore.context import RestoreContext

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class FlowState:
    """What the state topic of a flow says."""

    records: Mapping[bytes, bytes]
    state: ReplicationState

    @classmethod
    def read(cls, target: Cluster, flow: Flow) -> FlowState:
        """Read it."""
        records = StateTopic(target, flow.source).read()
        return cls(records, decode_state(records))

    def position(self, source: TopicDescription, number: int, target_id: str) -> Position | None:
        """Return how far a partition is copied, None where nobody tells."""
        newest = newest_position(self.positions.get((source.topic_id, number, target_id), ()))
        return newest.position if newest else None

    @cached_property
    def positions(self) -> Mapping[CopyId, list[PartitionPosition]]:
        """What slots have reported of each copy."""
        return positions_by_copy(self.state.reports)

    @property
    def pause(self) -> Pause | None:
        """Why nothing is copied."""
        return read_pause(self.records)

    @property
    def restoring(self) -> RestoreRecord | None:
        """What a restore has written when it began; one that is damaged is none."""
        try:
            value = self.records.get(RESTORE_KEY)
            return RestoreRecord.decode(value) if value is not None else None
        except IntegrityError as error:
            _logger.warning("passed over: %s", error)
            return None


def plan(context: RestoreContext, topics: Collection[str] = ()) -> RestorePlan:
    """Look at both clusters and say what a restore would do; changes nothing.

    Args:
        context: both flows.
        topics: originals to restore; without any, all that have a copy.

    Raises:
        SrmError: a cluster does not answer.
        NotFoundError: the flow has never copied anything.
        UsageError: a topic has no copy.
    """
    config, target, source = context.forward.config, context.forward.target, context.forward.source
    flow, copies = config.flow, target.topics()
    forward = FlowState.read(target, flow)
    if not forward.records:
        raise NotFoundError(
            f"{flow} has never copied anything: {flow.target} holds nothing to restore "
            f"{flow.source} from"
        )
    chosen = NameFilter(config.topics, config.topics_exclude)
    names = copies_of(copies, config, chosen, context.clusters)
    own, originals = FlowState.read(source, context.copying.config.flow), source.topics()
    unknown = sorted(set(topics) - set(names.values()))
    if unknown:
        known = ", ".join(sorted(names.values())) or "none"
        raise UsageError(
            f"{flow.target} holds no copy of {', '.join(unknown)} that {flow} would go on with; "
            f"it does of: {known}"
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


def unfinished(forward: FlowContext) -> tuple[str, ...]:
    """Say of which topics of a flow's source a restore was begun and not handed over.

    If the flow went on now, it would copy what is restored a second time. Where the topic on the
    source was deleted since, nothing is left of its restore.

    Raises:
        SrmError: a cluster does not answer.
    """
    flow = forward.config.flow
    own = FlowState.read(forward.source, restore_flow(flow))
    if own.restoring is None:
        return ()
    known, policy = FlowState.read(forward.target, flow), forward.config.policy
    begun = own.restoring.topics if own.restoring.is_for(known.pause) else {}
    copies, originals = forward.target.topics(), forward.source.topics()
    return tuple(
        f"the restore of topic {name} was broken off: finish it (srm restore --from {flow.target} "
        f"--to {flow.source} --topic {name}), or delete the topic on {flow.source}"
        for name, original in sorted(originals.items())
        if (copy := copies.get(policy.format_remote_topic(flow.source, name))) is not None
        and (
            begun.get(name) == original.topic_id
            or any(position for position, _ in _progress(own, known, original, copy))
        )
        and not all(
            RestoredPartition((0, 0), *both).is_handed_over
            for both in _progress(own, known, original, copy)
        )
    )


def _progress(
    own: FlowState, forward: FlowState, original: TopicDescription, copy: TopicDescription
) -> list[tuple[Position | None, Position | None]]:
    """Return how far each partition is restored, and how far the flow that goes on has copied."""
    return [
        (own.position(copy, n, original.topic_id), forward.position(original, n, copy.topic_id))
        for n in range(copy.partitions)
    ]


def _facts(
    context: RestoreContext,
    known: FlowState,
    own: FlowState,
    copy: TopicDescription,
    original: TopicDescription | None,
    name: str,
) -> TopicFacts:
    numbers = range(copy.partitions)
    copy_logs = _logs(context.forward.target, [TopicPartition(copy.name, n) for n in numbers])
    progress: Sequence[tuple[Position | None, Position | None]] = [(None, None)] * len(numbers)
    foreign = frozenset[TopicPartition]()
    if original is not None:
        progress = _progress(own, known, original, copy)
        unknown = [TopicPartition(name, n) for n in numbers if progress[n][0] is None]
        logs = _logs(context.forward.source, unknown) if unknown else {}
        # They hold something although no restore has told of it.
        filled = {place: original.topic_id for place, (start, end) in logs.items() if end > start}
        foreign = context.logs.begin_with_records(filled) if filled else foreign
    begun = own.restoring
    return TopicFacts(
        name,
        copy.name,
        tuple(
            RestoredPartition(
                copy_logs[TopicPartition(copy.name, n)],
                *progress[n],
                begins_foreign=TopicPartition(name, n) in foreign,
            )
            for n in numbers
        ),
        original is not None,
        original is not None and _is_former(known, own, original, [told for _, told in progress]),
        begun is not None and begun.is_for(known.pause),
    )


def _is_former(
    known: FlowState,
    own: FlowState,
    original: TopicDescription,
    forward: Collection[Position | None],
) -> bool:
    """Whether the flow has copied from exactly this topic: then it is not a new one."""
    if any(each.topic_id == original.topic_id for each in known.state.copied):
        return True
    return own.restoring is None and any(forward)


def _logs(
    cluster: Cluster, places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    starts, ends = cluster.log_starts(places), cluster.high_watermarks(places)
    return {place: (starts.get(place, 0), ends[place]) for place in places if place in ends}
