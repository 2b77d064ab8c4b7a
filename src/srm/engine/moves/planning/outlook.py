"""Cost of losing a source: uncopied records and positions of groups, as its target knows them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Final

from srm.domain.flow_state.replication_records import SlotReport
from srm.domain.groups.proof_records import FlowProof
from srm.domain.groups.translation import UNKNOWN_LOG
from srm.domain.moves.gate.presence import Presence
from srm.domain.moves.records.forecast import (
    RATE_MS,
    Forecast,
    GroupForecast,
    PartitionKnown,
    forecast_topics,
    rate_of,
    with_held_back,
)
from srm.domain.moves.records.plan import GroupPlan
from srm.domain.moves.records.positions import LastPlace, PartitionMove
from srm.domain.moves.records.request import MoveRequest
from srm.domain.moves.routing.routes import group_subject, topic_subject
from srm.domain.names.topics import TopicPartition
from srm.engine.flows.source_look import MOST_READ, SourceLook, record_times
from srm.engine.moves.control.move_records import MoveContext
from srm.engine.moves.planning.facts import Away, MoveFacts
from srm.engine.moves.planning.reading import MoveScope, read_target
from srm.engine.ports import FlowMaps
from srm.errors import AuthorizationError

log = logging.getLogger(__name__)

_CLOCKS_MS: Final = 60_000
"""Maximum difference between clocks of producers and slots."""


@dataclass(frozen=True)
class Outlook:
    """Facts at the target, and what its copies show of the source that is, or may be, lost.

    ``recent``: number of records of each copy within the last :data:`.RATE_MS` of its topic,
    none if that was long before the source last answered.
    ``transactions``: open on the target.
    ``commits``: commits of idle groups on the source, if it was queried.
    """

    facts: MoveFacts
    presence: Presence
    recent: Mapping[TopicPartition, int]
    newest: Mapping[TopicPartition, int | None]
    copies: Mapping[TopicPartition, TopicPartition]
    transactions: tuple[str, ...]
    commits: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)

    @property
    def plans(self) -> tuple[GroupPlan, ...]:
        """The position of each group on the target."""
        return self.facts.plans

    @property
    def away(self) -> Away:
        """The source as the target knows it."""
        source = self.facts.source
        return source if isinstance(source, Away) else Away(source.alias)

    @property
    def proof(self) -> FlowProof | None:
        """The result of the last emission of checkpoints."""
        return self.away.proof

    @property
    def without_leader(self) -> tuple[TopicPartition, ...]:
        """Partitions of the target that have no leader."""
        logs = self.facts.target.logs
        return tuple(sorted(place for place, log in logs.items() if log is UNKNOWN_LOG))

    @property
    def copy_starts(self) -> Mapping[TopicPartition, int]:
        """Log start offsets of the copies that have a leader."""
        logs = self.facts.target.logs.items()
        return {place: log.start for place, log in logs if log is not UNKNOWN_LOG}

    def without(self, subjects: Collection[str]) -> Outlook:
        """Return the outlook without some topics and groups, named by routing subject."""
        facts = self.facts
        topics = tuple(one for one in facts.topics if topic_subject(one) not in subjects)
        groups = tuple(one for one in facts.groups if group_subject(one) not in subjects)
        return replace(self, facts=replace(facts, topics=topics, groups=groups))

    def places(self, group: str) -> Mapping[TopicPartition, LastPlace]:
        """Return the last known positions of a group, by partition on the target."""
        return self.facts.last_places(group)

    def known_places(self, plan: GroupPlan) -> frozenset[TopicPartition]:
        """Return the target partitions for which a group has a last known position or a commit."""
        resumed = (each.target for each in plan.positions if each.resume is not None)
        return frozenset((*self.places(plan.group), *resumed))

    def followers(self, group: str) -> int:
        """Count the clients of a group that recently reported on the target to follow routes."""
        return len(self.presence.followers(group_subject(group)))

    def works_there(self, group: str) -> bool:
        """Return True if the route of a group already leads to the target, or holds it there."""
        return self.facts.routing.cluster_of(group) == self.facts.request.target

    def forecast(self, now_ms: int, source: SourceLook | None = None) -> Forecast:
        """Forecast records lost or read again; ``source``: present log ends, None if not known."""
        partitions = tuple(self._partition_facts(source))
        growth = sum(report.source_growth for report in self.facts.maps.reports)
        return Forecast(
            made_ms=now_ms,
            topics=forecast_topics(partitions, now_ms, growth),
            groups=tuple(
                GroupForecast(
                    plan.group,
                    len(self.known_places(plan)),
                    self.read_again(plan),
                    plan.total_skipped,
                    self._age_ms(plan.group, now_ms),
                    self.away.is_still(plan.group),
                )
                for plan in self.plans
                if self.known_places(plan)
            ),
            unseen=tuple(plan.group for plan in self.plans if not self.known_places(plan)),
            transactions=self.transactions,
            rate=max(rate_of(partitions), growth),
        )

    def read_again(self, plan: GroupPlan) -> int:
        """Return the maximum number of records that a group would read again."""
        return sum(self.read_again_of(plan.group, position) for position in plan.positions)

    def read_again_of(self, group: str, position: PartitionMove) -> int:
        """Return that of one partition: all records on the target after the last known position.

        The group may have read any of them since; an idle group has read those that it committed.
        """
        if position.state == "no-commit":
            return 0  # auto.offset.reset of its clients decides
        place = TopicPartition(position.topic, position.partition)
        committed = self.commits.get(group, {}).get(place)
        if committed is None or position.committed is None:
            return position.lag
        return min(position.lag, max(0, committed - position.committed))

    def _age_ms(self, group: str, now_ms: int) -> int | None:
        stamp = self.away.known_ms(group)
        return None if stamp is None else max(0, now_ms - stamp)

    def _partition_facts(self, source: SourceLook | None) -> Iterator[PartitionKnown]:
        heard, held = _heard(self.facts.maps.reports), _held_back(self.facts.maps.reports)
        for original, copy in sorted(self.copies.items()):
            topic = self.facts.target.topics.get(copy.topic)
            place = (topic.topic_id if topic else "", copy.partition)
            heard_ms = heard.get(place, 0)
            known = PartitionKnown(
                original.topic,
                original.partition,
                self.facts.maps.get(original).position,
                heard_ms,
                self.recent.get(copy, 0),
                self._stop_reason(original, heard_ms if source is None else source.time_ms),
                self.newest.get(copy),
            )
            if source is not None:
                known = source.brought_up_to_date(known)
            yield with_held_back(known, held.get(place, 0))
        if source is not None:
            yield from source.without_copy(self.copies.keys())

    def _stop_reason(self, original: TopicPartition, heard_ms: int) -> str:
        """Return why a partition was not copied while the source still answered, or ""."""
        status = (self.facts.maps.statuses or {}).get(original)
        if status is None or status.state != "stopped" or status.time_ms >= heard_ms:
            return ""  # it stopped because the source no longer answered
        return status.what or "no reason given"


def _heard(reports: Iterable[SlotReport]) -> dict[tuple[str, int], int]:
    """Return when the source last answered the slots (former ones if it is paused) of each copy."""
    now: dict[tuple[str, int], int] = {}
    former: dict[tuple[str, int], int] = {}
    for report in reports:
        for entries, found in ((report.positions, now), (report.former, former)):
            for entry in entries:
                place = entry.target_topic_id, entry.partition
                found[place] = max(found.get(place, 0), report.source_heard_ms)
    return former | now


def _held_back(reports: Iterable[SlotReport]) -> dict[tuple[str, int], int]:
    """Return the source's log end after an open transaction, by remote topic id and number."""
    found: dict[tuple[str, int], int] = {}
    for report in reports:
        for topic_id, number, end in report.held_back:
            found[topic_id, number] = max(found.get((topic_id, number), 0), end)
    return found


def read_outlook(
    context: MoveContext,
    request: MoveRequest,
    *,
    with_groups: bool = True,
    also: Collection[str] = (),
    chosen: MoveScope | None = None,
) -> Outlook:
    """Take one look at the target; the settings are those of :func:`.read_target`."""
    facts = read_target(context, request, chosen, also=also, with_groups=with_groups)
    target, logs = context.target, facts.target.logs
    original = {pair.target_topic: pair.original for pair in facts.pairs}
    forward = {pair.target_topic for pair in facts.pairs if pair.direction == "forward"}
    copies = {
        TopicPartition(original[place.topic], place.partition): place
        for place in logs
        if place.topic in forward
    }
    own = {place for place in copies.values() if logs[place] is not UNKNOWN_LOG}
    newest = target.newest_times(own) if own else {}
    return Outlook(
        facts=facts,
        presence=Presence.of(facts.routing.on_target, context.now_ms()),
        recent=_recent(context, newest, facts),
        newest={**newest, **_last_copied(context, facts.maps, copies, own)},
        copies=copies,
        transactions=_transactions(context, facts),
    )


def _recent(
    context: MoveContext, newest: Mapping[TopicPartition, int], facts: MoveFacts
) -> dict[TopicPartition, int]:
    """Count the records of each copy in the last seconds of its topic, by their timestamps.

    Records from more than a minute before the source's last answer do not count. A producer's clock
    that is further off hides traffic here; slots also report the growth of the source by offsets.
    """
    heard: defaultdict[str, int] = defaultdict(int)
    for (topic_id, _), heard_ms in _heard(facts.maps.reports).items():
        heard[topic_id] = max(heard[topic_id], heard_ms)
    last = {name: heard[about.topic_id] - _CLOCKS_MS for name, about in facts.target.topics.items()}
    for place, time_ms in newest.items():
        last[place.topic] = max(last.get(place.topic, 0), time_ms)
    since = {place: last[place.topic] - RATE_MS for place in newest}
    starts = context.target.offsets_at(since) if since else {}
    return {place: facts.target.logs[place].end - at for place, at in starts.items()}


def _last_copied(
    context: MoveContext,
    maps: FlowMaps,
    copies: Mapping[TopicPartition, TopicPartition],
    served: Collection[TopicPartition],
) -> dict[TopicPartition, int | None]:
    """Read the time of the last copied record of partitions with lag, largest lag first.

    The newest timestamp of a log may be that of a marker.
    """
    late = list[tuple[int, TopicPartition, int]]()
    for original, copy in copies.items():
        at = maps.get(original).position
        if at is not None and at.source_end > at.source_next and at.target_next and copy in served:
            late.append((at.source_end - at.source_next, copy, at.target_next - 1))
    return record_times(context.target, [one[1:] for one in nlargest(MOST_READ, late)])


def _transactions(context: MoveContext, facts: MoveFacts) -> tuple[str, ...]:
    held_back = [place for place, at in facts.target.logs.items() if at.stable_end < at.end]
    try:
        found = context.target.open_transactions(held_back) if held_back else {}
    except AuthorizationError as error:
        log.warning("open transactions on %s are not visible: %s", context.target.alias, error)
        return tuple(f"{place} has an open transaction: {error}" for place in held_back)
    return tuple(
        f"{place} from offset {one.first_offset} on: {one.owner}; the broker aborts it after its "
        f"transaction.timeout.ms, or end it now: {one.command}"
        for place, some in sorted(found.items())
        for one in some
    )
