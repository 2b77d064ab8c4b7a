"""Current log end offsets of a flow's source, for displays and forecasts."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from srm.domain.flow_state.replication_records import AT_REST
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.moves.disaster import PartitionKnown
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import Position
from srm.engine.cluster_ports import Cluster, Place, TopicDescription, Topics
from srm.engine.flows.supervision import state_topic
from srm.engine.ports import FlowContext, FlowMaps
from srm.errors import SrmError, UnavailableError

log = logging.getLogger(__name__)

MOST_READ: Final = 20
"""Records that one look reads; looks repeat every few seconds, and any flow lags a little."""


@dataclass(frozen=True)
class SourceLook:
    """State of the source at ``time_ms``, epoch milliseconds, or ``error``.

    ``ends`` are log end offsets of the copied ``topics``, ``starts`` the starts of logs without a
    position. ``oldest_ms``: timestamp of the first record that is not copied, of some partitions.
    Losses of ``uncounted`` topics do not count: heartbeats.
    """

    topics: Topics = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    oldest_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    uncounted: frozenset[str] = frozenset()
    time_ms: int = 0
    error: str = ""

    @classmethod
    def of_reports(cls, topics: Topics, maps: FlowMaps, error: str) -> SourceLook:
        positions = {place: maps.get(place).position for place in partitions_of(topics, topics)}
        ends = {place: at.source_end for place, at in positions.items() if at is not None}
        return cls(topics, ends, error=error)

    def lacks(self, place: TopicPartition) -> bool:
        """Return True for a partition of a copy whose topic was created again with fewer."""
        topic = self.topics.get(place.topic)
        return topic is not None and place.partition >= topic.partitions

    def brought_up_to_date(self, known: PartitionKnown, held_to: int) -> PartitionKnown:
        """Return a partition with the current source end instead of the last reported one.

        ``held_to``: end of what an open transaction held back then; 0 for nothing.
        """
        place, end = known.place, self.ends.get(known.place)
        if end is None:  # no longer copied: its new records do not count
            return replace(known, heard_ms=self.time_ms)
        if known.position is None:
            return self._not_begun(place, end)
        since = self.oldest_ms.get(place, known.since_ms)
        waits = known.not_copied or held_to > known.position.source_end
        if known.heard_ms and not waits and not known.stopped:
            since = max(since or 0, known.heard_ms)  # it was caught up then
        return replace(
            known,
            position=replace(known.position, source_end=end),
            heard_ms=self.time_ms,
            since_ms=since,
        )

    def without_copy(self, copied: Collection[TopicPartition]) -> Iterator[PartitionKnown]:
        """Yield the partitions with records that have no copy on the target yet."""
        for place, end in sorted(self.ends.items()):
            is_missed = place not in copied and place.topic not in self.uncounted
            if is_missed and end > self.starts.get(place, end):
                yield self._not_begun(place, end)

    def _not_begun(self, place: TopicPartition, end: int) -> PartitionKnown:
        return PartitionKnown(
            place,
            Position(self.starts.get(place, end), 0, end),
            self.time_ms,
            0,
            "its copy has not begun",
            self.oldest_ms.get(place),
        )


def partitions_of(topics: Topics, names: Iterable[str]) -> list[TopicPartition]:
    there = [topics[name] for name in names if name in topics]
    return [TopicPartition(topic.name, n) for topic in there for n in range(topic.partitions)]


def partitions_with_leader(topic: TopicDescription) -> list[TopicPartition]:
    """Return the partitions of a topic that have a leader; requests for others would fail."""
    numbers = (n for n in range(topic.partitions) if n not in topic.leaderless)
    return [TopicPartition(topic.name, number) for number in numbers]


def selected_topics(context: FlowContext) -> tuple[dict[str, TopicDescription], str]:
    """Return the selected topics; if the source does not answer, those with copies, and why."""
    error = ""
    try:
        found = context.source.topics()
    except UnavailableError as unavailable:
        error, copies = unavailable.what, context.target.topics()
        found = {
            original: TopicDescription(original, "", copies[copy].partitions)
            for copy, original in originals_of(context, copies).items()
        }
    return {name: found[name] for name in context.config.names.select(found)}, error


def originals_of(context: FlowContext, on_target: Topics) -> dict[str, str]:
    """Return the source topic of each copy on the target, by name.

    A record of the pair answers, if it is about the present topic; else the policy's names. A
    former copy counts only without an active one.
    """
    names = context.config.names
    found = {copy: original for copy in on_target if (original := names.original(copy)) is not None}
    pairs = [
        pair
        for pair in decode_state(state_topic(context).read_commands()).copied
        if (about := on_target.get(pair.target_topic)) and about.topic_id == pair.target_topic_id
    ]
    found |= {pair.target_topic: pair.topic for pair in pairs}
    active = {pair.topic: pair.target_topic for pair in pairs if pair.active}
    return {copy: topic for copy, topic in found.items() if active.get(topic, copy) == copy}


def look_at_source(context: FlowContext, topics: Topics, maps: FlowMaps) -> SourceLook:
    """Query the log end offsets of the source; ``maps``: read before the call."""
    time_ms = context.now_ms()
    ends, starts = bounds(context, partitions_of(topics, sorted(topics)), maps)
    beats = frozenset(filter(context.config.names.is_heartbeats, topics))
    counted = [place for place in ends if place.topic not in beats]
    late = list[tuple[bool, int, TopicPartition, int]]()
    for place in counted:
        position = maps.to_copy(place)
        at = starts.get(place, ends[place]) if position is None else position.source_next
        if ends[place] > at:
            status = maps.statuses.get(place)
            is_stuck = status is not None and status.state in AT_REST
            late.append((is_stuck, ends[place] - at, place, at))
    first = sorted(late, reverse=True)[:MOST_READ]
    times = record_times(context.source, [one[2:] for one in first])
    oldest_ms = {place: read_ms for place, read_ms in times.items() if read_ms is not None}
    return SourceLook(topics, ends, starts, oldest_ms, beats, time_ms)


def bounds(
    context: FlowContext, wanted: Collection[TopicPartition], maps: FlowMaps
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Query log end offsets of the source, and log start offsets without a position."""
    ends = context.source.log_ends(wanted) if wanted else {}
    unknown = [place for place in wanted if maps.get(place).position is None]
    return ends, context.source.log_starts(unknown) if unknown else {}


def record_times(cluster: Cluster, places: Collection[Place]) -> dict[TopicPartition, int | None]:
    """Read the times of first records, None if a marker hides it; unreadable ones are missing."""
    try:
        found = cluster.first_records(places, committed=False) if places else {}
    except SrmError as error:
        log.debug("records on %s are not read: %s", cluster.alias, error)
        return {}
    times = {place: record and record.timestamp_ms for (place, _), record in found.items()}
    return {place: at_ms for place, at_ms in times.items() if at_ms is None or at_ms > 0}
