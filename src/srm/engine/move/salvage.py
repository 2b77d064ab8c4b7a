"""What an unplanned move decides on: all that the target knows of a source that is given up."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import nlargest
from typing import Final

from srm.domain import internal_topics
from srm.domain.filters import group_filter
from srm.domain.ledger import Ledger
from srm.domain.move.forecast import (
    RATE_MS,
    Forecast,
    GroupForecast,
    PartitionKnown,
    forecast_topics,
    rate_of,
    with_held_back,
)
from srm.domain.move.plan import GroupPlan
from srm.domain.move.positions import PartitionMove
from srm.domain.move.presence import Presence
from srm.domain.move.request import MoveRequest
from srm.domain.move.resuming import GroupCheckpoint, resume_at
from srm.domain.move.routes import group_subject
from srm.domain.proof_records import FlowProof
from srm.domain.replication_records import SlotReport
from srm.domain.topics import TopicPartition
from srm.domain.translation import UNKNOWN_LOG
from srm.engine.checkpoints import Emitted, per_group, read_checkpoints, read_ledger
from srm.engine.move.facts import ClusterFacts, TopicPair, topic_pairs
from srm.engine.move.reading import partitions
from srm.engine.move.routes import RoutingTables
from srm.engine.move.store import MoveContext
from srm.engine.move.topics import originals, require_original
from srm.engine.partition_facts import logs_of, starts_of
from srm.engine.ports import FlowMaps
from srm.engine.proving import read_proof
from srm.engine.source_look import MOST_READ, SourceLook, times_of
from srm.errors import AuthorizationError, NotFoundError, SrmError

log = logging.getLogger(__name__)

_CLOCKS_MS: Final = 60_000
"""Clocks of producers and slots may differ by so much."""


@dataclass(frozen=True)
class Salvage:
    """One look at the target for an unplanned move.

    ``seen`` are the places where groups were last known to stand, ``maps`` the positions of the
    copies, ``recent`` the records of each copy within the last :data:`.RATE_MS` of its topic, none
    where that was long before the source was last heard, ``newest`` the timestamp of the last
    record of each copy, None where a marker hides it. ``proof`` is what was last proven of the
    checkpoints. ``commits`` are those of groups that nobody runs, as the source says now, if it was
    asked. ``still`` are groups that stood when the last emission looked where they did before.
    """

    request: MoveRequest
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    seen: Mapping[str, tuple[GroupCheckpoint, ...]]
    checkpoint_ms: Mapping[str, int]
    target: ClusterFacts
    routing: RoutingTables
    presence: Presence
    maps: FlowMaps
    recent: Mapping[TopicPartition, int]
    newest: Mapping[TopicPartition, int | None]
    copies: Mapping[TopicPartition, TopicPartition]
    transactions: tuple[str, ...]
    proof: FlowProof | None = None
    commits: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    still: frozenset[str] = frozenset()

    @cached_property
    def plans(self) -> tuple[GroupPlan, ...]:
        """Where each group continues; who runs on the source now is not known."""
        return tuple(
            GroupPlan(group, (), tuple(resume_at(place) for place in self.seen.get(group, ())))
            for group in self.groups
        )

    @property
    def unserved(self) -> tuple[TopicPartition, ...]:
        """Partitions of the target that have no leader now."""
        return tuple(sorted(place for place, log in self.target.logs.items() if log is UNKNOWN_LOG))

    @property
    def copy_starts(self) -> Mapping[TopicPartition, int]:
        """First offsets that the copies still hold, of those that have a leader."""
        logs = self.target.logs.items()
        return {place: log.start for place, log in logs if log is not UNKNOWN_LOG}

    def followers(self, group: str) -> int:
        """Clients of a group that have lately said, on the target, that they follow routes."""
        return len(self.presence.followers(group_subject(group)))

    def works_there(self, group: str) -> bool:
        """Whether the route of a group has sent it to the target already, or holds it there."""
        return self.routing.cluster_of(group) == self.request.target

    def forecast(self, now_ms: int, source: SourceLook | None = None) -> Forecast:
        """Say what is lost, and what is read again.

        Args:
            now_ms: epoch milliseconds.
            source: how far the source says that it is, asked with the positions of this look; None
                where it was not asked or does not answer.
        """
        known = tuple(self._known(source))
        growth = sum(report.source_growth for report in self.maps.reports)
        return Forecast(
            made_ms=now_ms,
            topics=forecast_topics(known, now_ms, growth),
            groups=tuple(
                GroupForecast(
                    plan.group,
                    len(plan.positions),
                    self.read_again(plan),
                    plan.skipped,
                    self._age_ms(plan.group, now_ms),
                    plan.group in self.still,
                )
                for plan in self.plans
                if plan.positions
            ),
            unseen=tuple(plan.group for plan in self.plans if not plan.positions),
            transactions=self.transactions,
            rate=max(rate_of(known), growth),
        )

    def read_again(self, plan: GroupPlan) -> int:
        """Count the records at most that a group would read a second time."""
        return sum(self.read_again_of(plan.group, position) for position in plan.positions)

    def read_again_of(self, group: str, position: PartitionMove) -> int:
        """Count those of one partition: all that the target holds behind the checkpoint.

        Any of it may have been read since. Of a group that nobody runs it is what was committed
        since: what it has never read it does not read again.
        """
        place = TopicPartition(position.topic, position.partition)
        committed = self.commits.get(group, {}).get(place)
        if committed is None or position.committed is None:
            return position.lag
        return min(position.lag, max(0, committed - position.committed))

    def _age_ms(self, group: str, now_ms: int) -> int | None:
        stamp = self.checkpoint_ms.get(group)
        return None if stamp is None else max(0, now_ms - stamp)

    def _known(self, source: SourceLook | None) -> Iterator[PartitionKnown]:
        heard, held = _heard(self.maps.reports), _held_back(self.maps.reports)
        for original, copy in sorted(self.copies.items()):
            topic = self.target.topics.get(copy.topic)
            place = (topic.topic_id if topic else "", copy.partition)
            heard_ms = heard.get(place, 0)
            known = PartitionKnown(
                original.topic,
                original.partition,
                self.maps.get(original).position,
                heard_ms,
                self.recent.get(copy, 0),
                self._stopped(original, heard_ms if source is None else source.time_ms),
                self.newest.get(copy),
            )
            if source is not None:
                known = source.brought_up_to_date(known)
            yield with_held_back(known, held.get(place, 0))
        if source is not None:
            yield from source.without_copy(self.copies.keys())

    def _stopped(self, original: TopicPartition, heard_ms: int) -> str:
        """Say why a partition was not copied while the source still answered."""
        status = (self.maps.statuses or {}).get(original)
        if status is None or status.state != "stopped" or status.time_ms >= heard_ms:
            return ""  # it stopped because the source did not answer any more
        return status.what or "no reason given"


def _heard(reports: Iterable[SlotReport]) -> dict[tuple[str, int], int]:
    """Return when the source last answered the slots of each copy, by remote topic id and number.

    Of a copy that nobody has now (the flow is paused) those count that had it.
    """
    now: dict[tuple[str, int], int] = {}
    former: dict[tuple[str, int], int] = {}
    for report in reports:
        for entries, found in ((report.positions, now), (report.former, former)):
            for entry in entries:
                place = entry.target_topic_id, entry.partition
                found[place] = max(found.get(place, 0), report.source_heard_ms)
    return former | now


def _held_back(reports: Iterable[SlotReport]) -> dict[tuple[str, int], int]:
    """Return how far the source's log of each copy went on behind an open transaction."""
    found: dict[tuple[str, int], int] = {}
    for report in reports:
        for topic_id, number, end in report.held_back:
            found[topic_id, number] = max(found.get((topic_id, number), 0), end)
    return found


def read_salvage(
    context: MoveContext,
    request: MoveRequest,
    *,
    for_forecast: bool = False,
    also: Collection[str] = (),
) -> Salvage:
    """Take one look at the target, for all that the request asks for.

    Args:
        context: the flows; the source is never asked.
        request: what is to move.
        for_forecast: leave out how groups are on the target now, which takes a request for each.
        also: topics whose positions are wanted with it, though they do not move.

    Raises:
        NotFoundError: a topic that was named is copied neither way.
        SrmError: the target does not answer.
    """
    target, config = context.target, context.forward.config
    target_topics = target.topics()
    topics = _topics(context, request, target_topics)
    pairs = topic_pairs(context, topics)
    ledger = read_ledger(target, target_topics)
    routing = RoutingTables.of_target(context)
    topic = internal_topics.checkpoints(config.flow.source, config.policy.separator)
    emitted = read_checkpoints(target, topic, target_topics)
    noted = _noted(emitted, ledger, {pair.target_topic: pair for pair in pairs})
    groups = _groups(context, request, noted, routing)
    asked = () if for_forecast else groups
    described = target.groups(asked) if asked else {}
    committed, errors = per_group(asked, target.committed)
    proof = read_proof(target, config.flow)
    places = partitions(target_topics, [pair.target_topic for pair in pairs])
    served = [p for p in places if p.partition not in target_topics[p.topic].leaderless]
    positioned = {*topics, *also}
    maps = context.forward.maps.load(positioned, {}) if positioned else FlowMaps({})
    # One broker of the target that is away, too, keeps nobody from going on elsewhere.
    logs = {
        **dict.fromkeys(places, UNKNOWN_LOG),
        **logs_of(target, served, starts_of(target, served)),
    }
    found = ClusterFacts(target.alias, target_topics, described, committed, errors, logs)
    original = {pair.target_topic: pair.original for pair in pairs if pair.direction == "forward"}
    copies = {
        TopicPartition(original[place.topic], place.partition): place
        for place in places
        if place.topic in original
    }
    own = {*copies.values()} & {*served}
    newest = target.newest_times(own) if own else {}
    return Salvage(
        request=request,
        topics=topics,
        groups=groups,
        seen=_places(groups, noted, found, ledger),
        checkpoint_ms=_stamps(noted, groups, proof),
        target=found,
        routing=routing,
        presence=Presence.of(routing.on_target, context.now_ms()),
        maps=maps,
        recent=_recent(context, newest, found, maps),
        newest={**newest, **_last_copied(context, maps, copies, own)},
        copies=copies,
        transactions=_transactions(context, found),
        proof=proof,
        still=_still(noted, groups, proof),
    )


@dataclass(frozen=True, slots=True)
class _Noted:
    """Where a group stood when that was last written: on the target, and if known on the source."""

    pair: TopicPair
    offset: int
    upstream_offset: int | None
    time_ms: int


_NotedPlaces = Mapping[tuple[str, TopicPartition], _Noted]


def _noted(
    emitted: Iterable[Emitted], ledger: Ledger, pairs: Mapping[str, TopicPair]
) -> _NotedPlaces:
    """Take of checkpoint and own write the one that is newer."""
    found: dict[tuple[str, TopicPartition], _Noted] = {}
    for one in emitted:
        checkpoint = one.checkpoint
        pair = pairs.get(checkpoint.topic_partition.topic)
        if pair is not None:
            offsets = checkpoint.downstream_offset, checkpoint.upstream_offset
            found[checkpoint.group, checkpoint.topic_partition] = _Noted(
                pair, *offsets, one.time_ms
            )
    for entry in ledger.entries():
        place = entry.group, entry.topic_partition
        pair, known = pairs.get(entry.topic_partition.topic), found.get(place)
        is_newer = known is None or entry.time_ms > known.time_ms
        if pair is not None and entry.settled and is_newer:
            is_same = known is not None and known.offset == entry.intended
            upstream = known.upstream_offset if known is not None and is_same else None
            found[place] = _Noted(pair, entry.intended, upstream, entry.time_ms)
    return found


def _stamps(
    noted: _NotedPlaces, groups: Collection[str], proof: FlowProof | None
) -> dict[str, int]:
    """Say as of when the places of groups are known.

    A checkpoint that has not changed is not written again: then the emission counts, not its stamp.
    """
    wanted, stamps = frozenset(groups), dict[str, int]()
    for (group, _), one in noted.items():
        if group in wanted:
            emitted_ms = proof.time_ms if proof is not None and proof.confirms(group) else 0
            stamps[group] = max(stamps.get(group, 0), one.time_ms, emitted_ms)
    return stamps


def _still(noted: _NotedPlaces, groups: Collection[str], proof: FlowProof | None) -> frozenset[str]:
    """Name the groups of which the last emission had nothing to write: nobody was reading."""
    if proof is None:
        return frozenset()
    moved = {group for (group, _), one in noted.items() if one.time_ms >= proof.time_ms}
    return frozenset(one for one in groups if one not in moved and proof.confirms(one))


def _places(
    groups: Collection[str], noted: _NotedPlaces, target: ClusterFacts, ledger: Ledger
) -> dict[str, tuple[GroupCheckpoint, ...]]:
    found: dict[str, list[GroupCheckpoint]] = {group: [] for group in groups}
    for (group, place), one in sorted(noted.items(), key=lambda item: item[0]):
        if group not in found:
            continue
        theirs = target.committed.get(group, {}).get(place)
        entry = ledger.entry(group, place)
        ours = entry is not None and theirs is not None and entry.may_lower(theirs)
        known = GroupCheckpoint(
            TopicPartition(one.pair.topic, place.partition),
            place,
            one.pair.direction,
            one.upstream_offset,
            one.offset,
            target.logs.get(place),
            theirs,
            ours,
        )
        found[group].append(known)
    return {group: tuple(places) for group, places in found.items()}


def _topics(
    context: MoveContext, request: MoveRequest, on_target: Collection[str]
) -> tuple[str, ...]:
    """Choose the original topics: those copied from the source, and those copied to it."""
    forward, reverse = context.forward.config, context.reverse.config
    policy, flow = forward.policy, forward.flow
    copied = {
        original
        for topic in on_target
        if policy.topic_source(topic) == flow.source and not policy.is_internal_topic(topic)
        if (original := policy.upstream_topic(topic)) and not policy.is_heartbeats_topic(topic)
    }
    if not request.topics:
        return tuple(sorted(copied | originals(on_target, reverse)))
    for topic in request.topics:
        require_original(topic, policy, flow)
        if topic not in copied and topic not in on_target:
            raise NotFoundError(
                f"topic {topic!r}: {flow.target} has neither it nor its copy "
                f"{policy.format_remote_topic(flow.source, topic)!r}"
            )
    return tuple(sorted(request.topics))


def _groups(
    context: MoveContext, request: MoveRequest, noted: _NotedPlaces, routing: RoutingTables
) -> tuple[str, ...]:
    """Choose the groups: those that were asked for, or all that are known to have been there."""
    if request.groups:
        return tuple(sorted(request.groups))
    config = context.forward.config
    selection = group_filter(config.groups, config.groups_exclude)
    known = {group for group, _ in noted}
    prefix = group_subject("")
    known |= {
        ack.subject.removeprefix(prefix) for ack in routing.acks if ack.subject.startswith(prefix)
    }
    return tuple(sorted(group for group in known if selection.matches(group)))


def _recent(
    context: MoveContext,
    newest: Mapping[TopicPartition, int],
    target: ClusterFacts,
    maps: FlowMaps,
) -> dict[TopicPartition, int]:
    """Count the records of each copy in the last seconds of its topic, by their timestamps.

    What is older than the last minute before the source was last heard is no traffic of then. A
    producer's clock that is further off hides traffic here: slots that hear a source say by its
    offsets how it grew.
    """
    heard: defaultdict[str, int] = defaultdict(int)
    for (topic_id, _), heard_ms in _heard(maps.reports).items():
        heard[topic_id] = max(heard[topic_id], heard_ms)
    last = {name: heard[about.topic_id] - _CLOCKS_MS for name, about in target.topics.items()}
    for place, time_ms in newest.items():
        last[place.topic] = max(last.get(place.topic, 0), time_ms)
    since = {place: last[place.topic] - RATE_MS for place in newest}
    starts = context.target.offsets_at(since) if since else {}
    return {place: target.logs[place].end - at for place, at in starts.items()}


def _last_copied(
    context: MoveContext,
    maps: FlowMaps,
    copies: Mapping[TopicPartition, TopicPartition],
    served: Collection[TopicPartition],
) -> dict[TopicPartition, int | None]:
    """Read the time of the last copied record where the source has more, where most first.

    The newest of a log may be a marker: a claim has the time at which it was made.
    """
    late = list[tuple[int, TopicPartition, int]]()
    for original, copy in copies.items():
        at = maps.get(original).position
        if at is not None and at.source_end > at.source_next and at.target_next and copy in served:
            late.append((at.source_end - at.source_next, copy, at.target_next - 1))
    places = [one[1:] for one in nlargest(MOST_READ, late)]
    try:
        found = context.target.first_records(places, committed=False) if places else {}
    except SrmError as error:
        log.debug("the last copied records on %s are not read: %s", context.target.alias, error)
        return {}
    hidden = {copy: None for (copy, _), record in found.items() if record is None}
    return {**hidden, **times_of(found)}


def _transactions(context: MoveContext, target: ClusterFacts) -> tuple[str, ...]:
    """Name the transactions that hold up readers of what moves."""
    held_back = [place for place, at in target.logs.items() if at.stable_end < at.end]
    try:
        found = context.target.open_transactions(held_back) if held_back else {}
    except AuthorizationError as error:
        log.warning("open transactions on %s are not seen: %s", target.alias, error)
        return tuple(f"{place} has an open transaction: {error}" for place in held_back)
    return tuple(
        f"{place} from offset {one.first_offset} on: {one.owner}; the broker aborts it when its "
        f"transaction.timeout.ms is over, or end it now: {one.command}"
        for place, some in sorted(found.items())
        for one in some
    )
