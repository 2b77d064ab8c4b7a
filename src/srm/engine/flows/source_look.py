"""What the source of a flow says now of how far it is: asked by whoever shows a flow, not by moves.

A move that gives the source up goes by what the target knows. While the source answers, what it has
and the copy has not is no estimate.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from srm.domain.flow_state.replication_records import AT_REST
from srm.domain.moves.gate.forecast import PartitionKnown
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.domain.verification.comparison import ComparedRecord
from srm.engine.control.topic_sync import selected_topics
from srm.engine.ports import FlowContext, FlowMaps, Place, TopicDescription
from srm.errors import SrmError

log = logging.getLogger(__name__)

MOST_READ: Final = 20
"""Records that one look reads: it is repeated every few seconds, and any flow lags a little."""


@dataclass(frozen=True)
class SourceLook:
    """What the source said at ``time_ms``, epoch milliseconds, or why it said nothing.

    ``topics`` are those that the flow copies, ``ends`` where their logs end. ``starts`` are asked
    for where nobody has told a position: all from there on is to be copied. ``oldest_ms`` is the
    timestamp of the first record that is not copied, of some partitions. ``uncounted`` are topics
    that are copied and not missed by anybody: heartbeats.
    """

    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    oldest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    uncounted: frozenset[str] = frozenset()
    time_ms: int = 0
    error: str = ""

    @classmethod
    def of_reports(
        cls, topics: Mapping[str, TopicDescription], maps: FlowMaps, error: str
    ) -> SourceLook:
        """Return the ends that slots reported last, of a source that does not answer."""
        positions = {place: maps.get(place).position for place in partitions_of(topics, topics)}
        ends = {place: at.source_end for place, at in positions.items() if at is not None}
        return cls(topics, ends, error=error)

    def brought_up_to_date(self, known: PartitionKnown) -> PartitionKnown:
        """Say of a partition how far its source is now, instead of when it last told a slot."""
        place = TopicPartition(known.topic, known.partition)
        end = self.ends.get(place)
        if end is None:  # the flow copies it no more: what it takes now is not missed
            return replace(known, heard_ms=self.time_ms)
        if known.position is None:
            return self._not_begun(place, end)
        since = self.oldest_ms.get(place, known.since_ms)
        if known.heard_ms and not known.not_copied and not known.stopped:
            since = max(since or 0, known.heard_ms)  # it was caught up then, whatever records say
        return replace(
            known,
            position=replace(known.position, source_end=end),
            heard_ms=self.time_ms,
            since_ms=since,
        )

    def without_copy(self, copied: Collection[TopicPartition]) -> Iterator[PartitionKnown]:
        """Name the partitions with records of which the target has no copy yet."""
        for place, end in sorted(self.ends.items()):
            is_missed = place not in copied and place.topic not in self.uncounted
            if is_missed and end > self.starts.get(place, end):
                yield self._not_begun(place, end)

    def _not_begun(self, place: TopicPartition, end: int) -> PartitionKnown:
        return PartitionKnown(
            place.topic,
            place.partition,
            Position(self.starts.get(place, end), 0, end),
            self.time_ms,
            0,
            "its copy has not begun",
            self.oldest_ms.get(place),
        )


def partitions_of(
    topics: Mapping[str, TopicDescription], names: Iterable[str]
) -> list[TopicPartition]:
    """Return all partitions of some topics."""
    return [TopicPartition(name, n) for name in names for n in range(topics[name].partitions)]


def partitions_with_leader(topic: TopicDescription) -> list[TopicPartition]:
    """Return the partitions of a topic that have a leader: no broker could answer for the rest."""
    numbers = (n for n in range(topic.partitions) if n not in topic.leaderless)
    return [TopicPartition(topic.name, number) for number in numbers]


def topics_of_source(context: FlowContext) -> dict[str, TopicDescription]:
    """Ask which topics are copied.

    Raises:
        SrmError: the source does not answer.
    """
    found = context.source.topics()
    return {name: found[name] for name in selected_topics(found, context.config)}


def topics_by_copies(context: FlowContext) -> dict[str, TopicDescription]:
    """Say which topics of those that are selected the source had, by the copies on the target.

    For when the source does not answer. One of which the copy was not created yet is not known.

    Raises:
        SrmError: the target does not answer.
    """
    policy, flow = context.config.policy, context.config.flow
    found: dict[str, TopicDescription] = {}
    for copy, about in context.target.topics().items():
        original = policy.upstream_topic(copy)
        if original and policy.topic_source(copy) == flow.source:
            found[original] = TopicDescription(original, "", about.partitions)
    return {name: found[name] for name in selected_topics(found, context.config)}


def look_at_source(
    context: FlowContext, topics: Mapping[str, TopicDescription], maps: FlowMaps
) -> SourceLook:
    """Ask how far the source is.

    Args:
        context: the flow.
        topics: those that it copies.
        maps: their positions, read before.

    Raises:
        SrmError: the source does not answer.
    """
    time_ms = context.now_ms()
    ends, starts = bounds(context, partitions_of(topics, sorted(topics)), maps)
    beats = frozenset(name for name in topics if context.config.policy.is_heartbeats_topic(name))
    counted = [place for place in ends if place.topic not in beats]
    oldest_ms = _oldest(context, counted, maps, ends, starts)
    return SourceLook(topics, ends, starts, oldest_ms, beats, time_ms)


def bounds(
    context: FlowContext, wanted: Collection[TopicPartition], maps: FlowMaps
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Query the ends of logs of the source, and the starts of those without a position."""
    ends = context.source.log_ends(wanted) if wanted else {}
    unknown = [place for place in wanted if maps.get(place).position is None]
    return ends, context.source.log_starts(unknown) if unknown else {}


def _oldest(
    context: FlowContext,
    places: Collection[TopicPartition],
    maps: FlowMaps,
    ends: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Read the time of the first record that is not copied, where most is: what stands first."""
    late = list[tuple[bool, int, TopicPartition, int]]()
    for place in places:
        position = maps.get(place).position
        at = starts.get(place, ends[place]) if position is None else position.source_next
        if ends[place] > at:
            late.append((_is_stuck(maps, place), ends[place] - at, place, at))
    first = sorted(late, reverse=True)[:MOST_READ]
    try:
        found = context.source.first_records([one[2:] for one in first], committed=False)
    except SrmError as error:  # without the right to read, say: then the target's times are used
        log.debug("%s: what is not copied is not read: %s", context.config.flow, error)
        return {}
    return times_of(found)


def times_of(found: Mapping[Place, ComparedRecord | None]) -> dict[TopicPartition, int]:
    """Return the timestamps of the records that were found and have one, by partition."""
    times = {place: record.timestamp_ms for (place, _), record in found.items() if record}
    return {place: time_ms for place, time_ms in times.items() if time_ms > 0}


def _is_stuck(maps: FlowMaps, place: TopicPartition) -> bool:
    status = (maps.statuses or {}).get(place)
    return status is not None and status.state in AT_REST
