"""Answer one question: where an offset goes on, on the other cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from srm.domain.offset_map import NoMap, NotCopiedYet
from srm.domain.topics import Flow, TopicPartition
from srm.engine.checkpoints import bounds_of
from srm.engine.ports import Cluster, FlowContext, FlowMaps
from srm.errors import UnavailableError, UsageError

TranslationState = Literal["translated", "not-copied-yet", "no-map", "no-target", "past-end"]


@dataclass(frozen=True, slots=True)
class Translation:
    """One offset and its counterpart; both are "next to read".

    Attributes:
        cluster: alias of the cluster that ``partition`` and ``offset`` belong to.
        to_cluster: alias of the other cluster; ``to_offset`` is None unless translated.
        remaining: offsets that the map does not reach yet.
        lost: records that ``to_cluster`` has already dropped.
        reason: for people, empty when translated without remarks.
    """

    flow: Flow
    cluster: str
    partition: TopicPartition
    offset: int
    to_cluster: str
    to_partition: TopicPartition
    state: TranslationState
    to_offset: int | None = None
    remaining: int = 0
    lost: int = 0
    reason: str = ""


def translate(
    context: FlowContext, partition: TopicPartition, offset: int, *, reverse: bool = False
) -> Translation:
    """Translate an offset of a flow's topic exactly.

    Forward, the partition is one of the flow's source: ``Payments`` of P gives ``P.Payments`` of B.
    With ``reverse`` the map of the same flow is read backwards: an offset in ``P.Payments`` on B
    gives one in ``Payments`` on P. The replica may be given by either name. A replica of the
    flow's target (``B.Payments`` on P, for P->B) is translated through the opposite flow's map, as
    the flow's reverse checkpoints are.

    Raises:
        UsageError: the offset or partition is negative.
        UnavailableError: the cluster that holds the map does not answer.
    """
    if offset < 0 or partition.partition < 0:
        raise UsageError(f"offset {offset} in partition {partition.partition}: give numbers from 0")
    if reverse:
        return _backward(context, partition, offset)
    config = context.config
    remote = config.policy.format_remote_topic(config.flow.source, partition.topic)
    to_partition = TopicPartition(remote, partition.partition)
    maps = context.maps.load([partition.topic])
    asked = _Asked(context.source, partition, offset, context.target, to_partition)
    return _answer(config.flow, asked, maps, partition, reverse=False)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The question: an offset of one cluster, and the partition of the other it belongs to."""

    cluster: Cluster
    partition: TopicPartition
    offset: int
    to_cluster: Cluster
    to_partition: TopicPartition


def _backward(context: FlowContext, partition: TopicPartition, offset: int) -> Translation:
    flow, policy = context.config.flow, context.config.policy
    origin, number = policy.topic_source(partition.topic), partition.partition
    upstream = policy.upstream_topic(partition.topic) or partition.topic
    if origin == flow.target:
        original = TopicPartition(upstream, number)
        asked = _Asked(context.source, partition, offset, context.target, original)
        maps = context.reverse_maps.load([upstream])
        return _answer(flow, asked, maps, original, reverse=True)
    topic = upstream if origin == flow.source else partition.topic
    remote = TopicPartition(policy.format_remote_topic(flow.source, topic), number)
    original = TopicPartition(topic, number)
    asked = _Asked(context.target, remote, offset, context.source, original)
    return _answer(flow, asked, context.maps.load([topic]), original, reverse=True)


def _answer(
    flow: Flow, asked: _Asked, maps: FlowMaps, mapped: TopicPartition, *, reverse: bool
) -> Translation:
    blank = Translation(
        flow,
        asked.cluster.alias,
        asked.partition,
        asked.offset,
        asked.to_cluster.alias,
        asked.to_partition,
        "no-map",
    )
    if (error := maps.errors.get(mapped)) is not None:
        return replace(blank, reason=f"the offset map cannot be used: {error}")
    offsets = maps.get(mapped)
    found = offsets.backward(asked.offset) if reverse else offsets.forward(asked.offset)
    if isinstance(found, NoMap):
        return replace(blank, reason=f"{mapped} was never copied, as far as the map knows")
    if isinstance(found, NotCopiedYet):
        reason = f"the map ends {found.remaining} offsets before"
        return replace(blank, state="not-copied-yet", remaining=found.remaining, reason=reason)
    lost_between = offsets.source_records_between if reverse else offsets.records_between
    return _within_log(asked, blank, found.offset, lost_between)


def _within_log(
    asked: _Asked, blank: Translation, offset: int, records_between: Callable[[int, int], int]
) -> Translation:
    partition = asked.to_partition
    try:
        bounds = bounds_of(asked.to_cluster, [partition]).get(partition)
    except UnavailableError as error:
        reason = f"not compared with the log of {partition}: {error}"
        return replace(blank, state="translated", to_offset=offset, reason=reason)
    if bounds is None:
        reason = f"{partition} does not exist on {asked.to_cluster.alias}"
        return replace(blank, state="no-target", reason=reason)
    if offset > bounds.end:
        reason = f"the map says {offset}, but {partition} ends at {bounds.end}"
        return replace(blank, state="past-end", reason=reason)
    start = max(offset, bounds.start)
    lost = records_between(offset, start)
    reason = f"{lost} records were already deleted by retention" if lost else ""
    return replace(blank, state="translated", to_offset=start, lost=lost, reason=reason)
