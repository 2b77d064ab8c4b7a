"""Read from both clusters what a move decides on: one look, then pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from srm.domain import internal_topics
from srm.domain.ledger import Ledger
from srm.domain.move.gate import ReplicationFacts
from srm.domain.move.positions import Direction, PartitionFacts, PartitionMove, partition_move
from srm.domain.offset_map import OffsetMap
from srm.domain.topics import TopicPartition
from srm.engine.move.routes import RoutingTables
from srm.engine.move.store import MoveContext
from srm.engine.ports import FlowMaps, GroupDescription, GroupState, TopicDescription

# A group that a cluster did not describe may have members: it blocks.
_UNDESCRIBED: GroupState = "unknown"


@dataclass(frozen=True, slots=True)
class TopicPair:
    """A topic on X with the one on Y that holds the same records."""

    topic: str
    target_topic: str
    original: str
    direction: Direction


def topic_pairs(context: MoveContext, originals: Collection[str]) -> tuple[TopicPair, ...]:
    """Return the two pairs of each original topic: forward and reverse."""
    policy, flow = context.forward.config.policy, context.forward.config.flow
    pairs = []
    for topic in originals:
        remote_on_target = policy.format_remote_topic(flow.source, topic)
        remote_on_source = policy.format_remote_topic(flow.target, topic)
        pairs.append(TopicPair(topic, remote_on_target, topic, "forward"))
        pairs.append(TopicPair(remote_on_source, topic, topic, "reverse"))
    return tuple(pairs)


@dataclass(frozen=True)
class Offsets:
    """Log starts, last stable offsets and committed offsets by group, of one cluster."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    committed: Mapping[str, Mapping[TopicPartition, int]]


@dataclass(frozen=True)
class MoveFacts:
    """One look at both clusters, for some topics and groups."""

    topics: tuple[str, ...]
    pairs: tuple[TopicPair, ...]
    source_topics: Mapping[str, TopicDescription]
    target_topics: Mapping[str, TopicDescription]
    source_groups: Mapping[str, GroupDescription]
    target_groups: Mapping[str, GroupDescription]
    source: Offsets
    target: Offsets
    ledger: Ledger
    maps: FlowMaps
    reverse_maps: FlowMaps
    routing: RoutingTables

    def source_group(self, group: str) -> GroupDescription:
        """Describe a group on X."""
        return self.source_groups.get(group, GroupDescription(group, _UNDESCRIBED))

    def target_group(self, group: str) -> GroupDescription:
        """Describe a group on Y."""
        return self.target_groups.get(group, GroupDescription(group, _UNDESCRIBED))

    def positions(self, group: str) -> tuple[PartitionMove, ...]:
        """Decide for each partition where the group goes on."""
        return tuple(partition_move(facts) for facts in self._partitions(group))

    def stray_topics(self, group: str) -> tuple[str, ...]:
        """Topics of X the group has offsets on that do not move."""
        moving = {pair.topic for pair in self.pairs}
        topics = {tp.topic for tp in self.source.committed.get(group, {})}
        return tuple(sorted((topics - moving) & set(self.source_topics)))

    def replication(self) -> tuple[ReplicationFacts, ...]:
        """How far the original topics of X are copied to Y."""
        return tuple(
            ReplicationFacts(
                tp.topic,
                tp.partition,
                source_next(self.maps.get(tp)),
                self.source.starts.get(tp, 0),
                end,
                self._stopped(tp),
            )
            for tp, end in self.original_ends().items()
        )

    def original_ends(self) -> dict[TopicPartition, int]:
        """Last stable offsets of the original topics on X."""
        originals = set(self.topics)
        return {tp: end for tp, end in sorted(self.source.ends.items()) if tp.topic in originals}

    def report_age_ms(self, now_ms: int) -> int | None:
        """Age of the newest sign of life of the replicator X->Y."""
        newest = max((report.time_ms for report in self.maps.reports), default=None)
        return None if newest is None else max(0, now_ms - newest)

    def _stopped(self, tp: TopicPartition) -> str | None:
        status = (self.maps.statuses or {}).get(tp)
        if status is None or status.state != "stopped":
            return None
        return status.reason or "no reason given"

    def _partitions(self, group: str) -> Iterator[PartitionFacts]:
        committed = self.source.committed.get(group, {})
        on_target = self.target.committed.get(group, {})
        for pair in self.pairs:
            for tp in partitions(self.source_topics, [pair.topic]):
                original = TopicPartition(pair.original, tp.partition)
                there = TopicPartition(pair.target_topic, tp.partition)
                maps = self.maps if pair.direction == "forward" else self.reverse_maps
                yield PartitionFacts(
                    topic=tp.topic,
                    partition=tp.partition,
                    target_topic=pair.target_topic,
                    direction=pair.direction,
                    committed=committed.get(tp),
                    log_start=self.source.starts.get(tp, 0),
                    log_end=self.source.ends.get(tp, 0),
                    target_committed=on_target.get(there),
                    target_is_ours=self._is_ours(group, there, on_target.get(there)),
                    target_log_start=self.target.starts.get(there, 0),
                    target_log_end=self.target.ends.get(there),
                    offset_map=maps.get(original),
                )

    def _is_ours(self, group: str, tp: TopicPartition, offset: int | None) -> bool:
        entry = self.ledger.entry(group, tp)
        return entry is not None and offset is not None and entry.may_lower(offset)


def source_next(offset_map: OffsetMap) -> int | None:
    """Next source offset to copy, None where nothing is known."""
    if offset_map.position is not None:
        return offset_map.position.source_next
    return offset_map.runs[-1].source_end if offset_map.runs else None


def partitions(
    topics: Mapping[str, TopicDescription], names: Collection[str]
) -> list[TopicPartition]:
    """List all partitions of the named topics that exist."""
    return [
        TopicPartition(name, number)
        for name in names
        if name in topics
        for number in range(topics[name].partitions)
    ]


def read_facts(context: MoveContext, topics: tuple[str, ...], groups: Collection[str]) -> MoveFacts:
    """Take one look at both clusters.

    The order matters. Members before commits: a group seen without members commits no more. Maps
    before log ends: what is written in between counts as not copied, never the other way round.
    """
    source, target = context.source, context.target
    source_topics, target_topics = source.topics(), target.topics()
    source_groups, target_groups = source.groups(groups), target.groups(groups)
    committed = {group: source.committed(group) for group in groups}
    target_committed = {group: target.committed(group) for group in groups}
    pairs = topic_pairs(context, topics)
    maps = context.forward.maps.load(topics)
    reverse_maps = context.forward.reverse_maps.load(topics)
    here = partitions(source_topics, [pair.topic for pair in pairs])
    there = partitions(target_topics, [pair.target_topic for pair in pairs])
    return MoveFacts(
        topics=topics,
        pairs=pairs,
        source_topics=source_topics,
        target_topics=target_topics,
        source_groups=source_groups,
        target_groups=target_groups,
        source=Offsets(source.log_starts(here), source.log_ends(here), committed),
        target=Offsets(target.log_starts(there), target.log_ends(there), target_committed),
        ledger=Ledger.decode(target.compacted(internal_topics.LEDGER).read()),
        maps=maps,
        reverse_maps=reverse_maps,
        routing=RoutingTables.read(context),
    )
