"""Translation of one offset to the other cluster."""

from __future__ import annotations

from dataclasses import dataclass

from srm.domain.groups import translation
from srm.domain.groups.translation import UNKNOWN_LOG, Direction
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import Cluster
from srm.engine.groups.partition_facts import (
    Logs,
    Starts,
    WantedMaps,
    logs_of,
    partition_facts,
    past_markers,
    starts_of,
)
from srm.engine.ports import FlowContext, MapReader
from srm.errors import NotFoundError, UnavailableError, UsageError


@dataclass(frozen=True, slots=True)
class TranslatedOffset:
    """One offset and its counterpart, both next to read; ``to_offset`` is None unless translated.

    ``remaining``: number of offsets that the map does not cover yet.
    ``skipped``: number of unread records that ``to_cluster`` does not have.
    """

    flow: Flow
    cluster: str
    partition: TopicPartition
    offset: int
    to_cluster: str
    to_partition: TopicPartition
    state: translation.State
    to_offset: int | None = None
    remaining: int = 0
    skipped: int = 0
    reason: str = ""


def translate(
    context: FlowContext, partition: TopicPartition, offset: int, *, reverse: bool = False
) -> TranslatedOffset:
    """Translate an offset of a flow's topic exactly.

    Forward, the partition is on the flow's source: ``Payments`` on P gives ``P.Payments`` on B.
    With ``reverse`` the same map is read backwards: ``P.Payments`` on B gives ``Payments`` on P.
    Either name of the replica is accepted. A replica of the flow's target (``B.Payments`` on P, for
    P->B) uses the opposite flow's map, as the flow's reverse checkpoints do.
    """
    if offset < 0 or partition.partition < 0:
        raise UsageError(f"invalid offset {offset}, partition {partition.partition}; use 0 or more")
    if reverse:
        return _backward(context, partition, offset)
    remote = context.config.names.remote(partition.topic)
    places = partition, TopicPartition(remote, partition.partition)
    sides = context.source, context.target
    back = context.reverse_maps if context.config.names.is_shared(partition.topic) else None
    return _answer(context.config.flow, context.maps, "forward", sides, places, offset, back)


def _backward(context: FlowContext, partition: TopicPartition, offset: int) -> TranslatedOffset:
    flow, names, number = context.config.flow, context.config.names, partition.partition
    if names.is_shared(partition.topic):
        sides, places = (context.target, context.source), (partition, partition)
        readers = context.reverse_maps, context.maps
        return _answer(flow, readers[0], "forward", sides, places, offset, readers[1])
    if (origin := names.origin(partition.topic)) is not None:
        sides = context.source, context.target
        places = partition, TopicPartition(origin, number)
        return _answer(flow, context.reverse_maps, "reverse", sides, places, offset)
    topic = names.original(partition.topic) or partition.topic
    remote = TopicPartition(names.remote(topic), number)
    sides, places = (context.target, context.source), (remote, TopicPartition(topic, number))
    return _answer(flow, context.maps, "reverse", sides, places, offset)


def _answer(
    flow: Flow,
    reader: MapReader,
    direction: Direction,
    sides: tuple[Cluster, Cluster],
    places: tuple[TopicPartition, TopicPartition],
    offset: int,
    back: MapReader | None = None,
) -> TranslatedOffset:
    (own_start, unread), (other_start, unseen) = map(_starts, sides, places)
    starts = (places[0], own_start), (places[1], other_start)
    wanted, opposite = WantedMaps(), WantedMaps()
    wanted.add(direction, *starts, [offset])
    opposite.add("reverse", *starts, [offset])
    maps, back_maps = wanted.load(reader), None if back is None else opposite.load(back)
    upstream, unread = _logs(sides[0], places[0], own_start, unread)
    downstream, unseen = _logs(sides[1], places[1], other_start, unseen)
    if direction == "reverse":
        maps = past_markers(maps, sides[0], {places[1]: (places[0], offset)}, upstream)
    ends = (places[0], upstream), (places[1], downstream), sides[1].alias
    facts = partition_facts(maps, direction, *ends, back=back_maps)
    found = translation.translate(facts, offset)
    if found.state != "translated" and not unread:
        _require(sides[0], places[0])
    return TranslatedOffset(
        flow,
        sides[0].alias,
        places[0],
        offset,
        sides[1].alias,
        places[1],
        found.state,
        found.offset if found.state == "translated" else None,
        found.remaining,
        found.total_skipped,
        "; ".join(part for part in (found.reason, unread, unseen) if part),
    )


def _require(cluster: Cluster, partition: TopicPartition) -> None:
    there = cluster.partition_counts().get(partition.topic)
    if there is None:
        raise NotFoundError(f"cluster {cluster.alias} has no topic {partition.topic}")
    if partition.partition >= there:
        raise NotFoundError(
            f"cluster {cluster.alias} has no partition {partition}: {partition.topic} has {there}"
        )


def _starts(cluster: Cluster, partition: TopicPartition) -> tuple[Starts, str]:
    try:
        return starts_of(cluster, [partition]), ""
    except UnavailableError as error:
        return {}, _unseen(partition, error)


def _logs(
    cluster: Cluster, partition: TopicPartition, starts: Starts, unseen: str
) -> tuple[Logs, str]:
    """Return the log range of a partition, or a remark if its cluster is unavailable."""
    if unseen:
        return {partition: UNKNOWN_LOG}, unseen
    try:
        return logs_of(cluster, [partition], starts), ""
    except UnavailableError as error:
        return {partition: UNKNOWN_LOG}, _unseen(partition, error)


def _unseen(partition: TopicPartition, error: UnavailableError) -> str:
    return f"not compared with the log of {partition}: {error}"
