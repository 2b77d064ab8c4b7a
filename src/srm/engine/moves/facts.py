"""Facts of a move, from one look at both clusters or at the target of a lost source, and its gate.

*Ready*: all clients have left the source, replication has nothing left to copy, and every group's
last commit is decided and translated. Offsets may be applied on the target.
*Open*: the offsets on the target are also the intended ones. Clients may go there.

Writes count up to the high watermark: an open transaction stops the last stable offset for all.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

from srm.domain.flow_state.liveness_thresholds import is_silent
from srm.domain.flow_state.replication_records import SlotReport
from srm.domain.groups.group_sync import IDLE, GroupLedger
from srm.domain.groups.proof import FlowProof
from srm.domain.groups.translation import (
    UNFINISHED,
    UNKNOWN_LOG,
    Direction,
    LogRange,
    Losses,
    PartitionFacts,
    Translation,
    translate,
)
from srm.domain.moves.disaster import (
    Forecast,
    GroupForecast,
    PartitionKnown,
    forecast_topics,
    rate_of,
    with_held_back,
)
from srm.domain.moves.gate import (
    GroupSync,
    Presence,
    ReplicationFacts,
    SyncStatus,
    eta_seconds,
    is_member_of,
    unrouted_members,
)
from srm.domain.moves.plan import (
    GroupPlan,
    GroupPosition,
    LastPlace,
    PartitionMove,
    partition_move,
    position_problem,
)
from srm.domain.moves.progress import HELD, MoveProgress, Observation, WaitNote
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import group_subject, subjects_of, topic_subject
from srm.domain.names.topics import ActiveProducer, OpenTransaction, TopicPartition
from srm.domain.text.amount import Reason, ago, amount, excerpt
from srm.engine.cluster_ports import GroupDescription, Topics
from srm.engine.flows.source_look import SourceLook
from srm.engine.groups.translate import Logs, losses_of, partition_facts
from srm.engine.moves.context import MoveContext
from srm.engine.moves.history import RoutingTables
from srm.engine.ports import FlowMaps

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TopicPair:
    """A topic on the source with the target's topic that holds the same records.

    ``is_shared``: both flows copy into this name, and both maps are needed.
    """

    topic: str
    target_topic: str
    original: str
    direction: Direction
    is_shared: bool = False


def topic_pairs(context: MoveContext, originals: Collection[str]) -> tuple[TopicPair, ...]:
    """Return the two pairs of each original topic, forward and reverse; one if its name is kept."""
    names = context.forward.config.names
    pairs = []
    for topic in originals:
        if names.keeps_name(topic):
            is_shared = names.is_shared(topic)
            only_back = names.is_replica(topic) and not is_shared
            direction: Direction = "reverse" if only_back else "forward"
            pairs.append(TopicPair(topic, topic, topic, direction, is_shared))
        else:
            pairs.append(TopicPair(topic, names.remote(topic), topic, "forward"))
            pairs.append(TopicPair(names.replica(topic), topic, topic, "reverse"))
    return tuple(pairs)


@dataclass(frozen=True)
class SideFacts:
    """A cluster: its topics, logs, and the move's groups with their offsets.

    ``pending``: by group, partitions with a commit in an open transaction.
    ``unacknowledged``: lags of the share groups; ``resets``: their share.auto.offset.reset, empty
    if srm is not authorized.
    """

    alias: str
    topics: Topics = field(default_factory=dict)
    groups: Mapping[str, GroupDescription] = field(default_factory=dict)
    committed: Mapping[str, Offsets] = field(default_factory=dict)
    errors: Mapping[str, Reason] = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)
    pending: Mapping[str, Collection[TopicPartition]] = field(default_factory=dict)
    unacknowledged: Mapping[str, Offsets] = field(default_factory=dict)
    resets: Mapping[str, str] = field(default_factory=dict)

    def group(self, name: str) -> GroupDescription:
        """Describe a group; state "unknown" if it was not described, or is dead but has offsets."""
        found = self.groups.get(name, GroupDescription(name, "unknown"))
        if found.state == "dead" and self.committed.get(name):
            return replace(found, state="unknown", reason="it is absent but has committed offsets")
        return found

    def activity(self, name: str) -> str:
        """Say where a group is active, and which members; empty if it is idle."""
        found = self.group(name)
        state = f"state {found.state}{found.reason and ': '}{found.reason}"
        who = ", ".join(found.members) or state
        return "" if found.state in IDLE else f"active on {self.alias} ({who})"


@dataclass(frozen=True)
class Away(SideFacts):
    """A source that is, or may be, lost: what the target shows of it; no move reads or awaits it.

    ``places``: groups' last known places; ``without_copy``: uncopied topics.
    ``copies`` by original partition; ``recent``: number of records of each copy within the last
    :data:`.RATE_MS` of its topic, ``newest``: time of its last one.
    ``growth``: of the source, as slots see it; ``transactions``: open on the target.
    ``commits``: commits of idle groups on the source, if it was queried. ``deleted``: groups that
    it no longer had in the last looks, with the time of the first (epoch ms). ``forgotten``: those
    of them whose checkpoints are forgotten.
    """

    places: Mapping[str, Mapping[TopicPartition, LastPlace]] = field(default_factory=dict)
    proof: FlowProof | None = None
    copies: Mapping[TopicPartition, TopicPartition] = field(default_factory=dict)
    recent: Offsets = field(default_factory=dict)
    newest: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    growth: int = 0
    transactions: tuple[str, ...] = ()
    commits: Mapping[str, Offsets] = field(default_factory=dict)
    without_copy: tuple[str, ...] = ()
    deleted: Mapping[str, int] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()

    def group(self, name: str) -> GroupDescription:
        """Describe a group as empty: a move does not wait for members on a lost cluster.

        Its newest checkpoint has its kind: older ones may be those of a deleted group of its name.
        """
        places = self.places.get(name, {}).values()
        newest = max(
            places, key=lambda it: (it.upstream_offset is not None, it.time_ms), default=None
        )
        return GroupDescription(name, "empty", "share" if newest and newest.is_share else "classic")

    def stamp(self, group: str) -> tuple[int | None, bool]:
        """Return the time of a group's positions, and if the last emission found them unchanged.

        That is in epoch milliseconds, None without any. An unchanged checkpoint is not rewritten,
        so the time of the emission counts.
        """
        times = [last.time_ms for last in self.places.get(group, {}).values()]
        written_ms, proof = max(times, default=None), self.proof
        emitted_ms = proof.time_ms if proof is not None and proof.confirms(group) else 0
        is_still = written_ms is not None and written_ms < emitted_ms
        return emitted_ms if is_still else written_ms, is_still


@dataclass(frozen=True)
class MoveFacts:
    """One look at both clusters, for some topics and groups.

    ``maps_ms``: when the maps and the slots' reports were requested: a long look is not their
    silence.
    ``transactions``: open in the original topics on the source; ``hidden``: why they are not seen.
    ``writers``: their producers known to the source's brokers, empty if srm is not authorized.
    ``counted``: maps around the groups' places, which end after the markers of seals.
    """

    request: MoveRequest
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    pairs: tuple[TopicPair, ...]
    source: SideFacts
    target: SideFacts
    ledger: GroupLedger
    maps: FlowMaps
    maps_ms: int
    routing: RoutingTables
    reverse_maps: FlowMaps = field(default_factory=lambda: FlowMaps({}))
    transactions: Mapping[TopicPartition, tuple[OpenTransaction, ...]] = field(default_factory=dict)
    hidden: str = ""
    writers: tuple[ActiveProducer, ...] = ()
    source_ledger: GroupLedger = field(default_factory=lambda: GroupLedger({}, {}))
    counted: FlowMaps | None = None

    @property
    def is_away(self) -> bool:
        return isinstance(self.source, Away)

    @property
    def away(self) -> Away:
        return self.source if isinstance(self.source, Away) else Away(self.source.alias)

    @cached_property
    def plans(self) -> tuple[GroupPlan, ...]:
        return tuple(
            GroupPlan(
                group,
                self.source.group(group).members,
                tuple(map(partition_move, self._partitions(group))),
            )
            for group in self.groups
        )

    @cached_property
    def share_groups(self) -> frozenset[str]:
        return frozenset(name for name in self.groups if self.source.group(name).kind == "share")

    @property
    def subjects(self) -> tuple[str, ...]:
        return subjects_of(self.topics, self.groups)

    def last_places(self, group: str) -> Mapping[TopicPartition, LastPlace]:
        """Return a group's last known positions in the moving topics, if the source is lost."""
        places = self.away.places.get(group, {})
        return {place: last for place, last in places.items() if place.topic in self._copies}

    @cached_property
    def read_topics(self) -> frozenset[str]:
        return frozenset(pair.topic for pair in self.pairs)

    @cached_property
    def _copies(self) -> frozenset[str]:
        return frozenset(pair.target_topic for pair in self.pairs)

    @cached_property
    def _pairs_by_name(self) -> Mapping[str, Mapping[int, TopicPair]]:
        """Pairs by the names in them, in order: a group reads a few of thousands."""
        found = defaultdict[str, dict[int, TopicPair]](dict)
        of_original = defaultdict[str, dict[int, TopicPair]](dict)
        for index, pair in enumerate(self.pairs):
            of_original[pair.original][index] = pair
        for pair in self.pairs:
            for name in (pair.topic, pair.target_topic):
                found[name] |= of_original[pair.original]
        return found

    def unreadable(self, group: str) -> tuple[Reason, ...]:
        sides = (self.source, self.target)
        return tuple(side.errors[group] for side in sides if group in side.errors)

    def translations(
        self, group: str
    ) -> Iterator[tuple[TopicPartition, PartitionFacts, Translation]]:
        for one in self._partitions(group):
            if one.committed is not None:
                yield one.facts.upstream, one.facts, translate(one.facts, one.committed)

    @cached_property
    def replication(self) -> tuple[ReplicationFacts, ...]:
        return tuple(self._replication(tp) for tp in self.original_ends())

    def original_ends(self) -> dict[TopicPartition, int]:
        """Return the high watermarks of the original topics on the source."""
        originals = set(self.topics)
        logs = sorted(self.source.logs.items())
        return {tp: log.end for tp, log in logs if tp.topic in originals}

    @property
    def report_age_ms(self) -> int | None:
        newest = max((report.time_ms for report in self.maps.reports), default=None)
        return None if newest is None else max(0, self.maps_ms - newest)

    def _replication(self, tp: TopicPartition) -> ReplicationFacts:
        log, offset_map = self.source.logs[tp], self.maps.get(tp)
        at, stopped = offset_map.position, None
        if (status := self.maps.statuses.get(tp)) and status.state == "stopped":
            stopped = Reason(status.reason or "no reason given", status.action)
        # Without its last part the map does not show how far the partition is copied.
        lost_end = self.maps.gaps.get(tp, "") if at is None else ""
        return ReplicationFacts(
            tp,
            offset_map.last_source_end if at is None else at.source_next,
            log,
            stopped,
            self.transactions.get(tp, ()),
            self.hidden,
            self.maps.errors.get(tp, "") or lost_end,
            self._lost(tp, log),
        )

    def _lost(self, tp: TopicPartition, log: LogRange) -> int:
        """Count offsets that are never copied, except those that an operator has kept there."""
        losses, known = losses_of(self.maps, tp), self.maps.get(tp)
        kept = Losses(losses.kept).count_at_most(known, log.start, log.end)
        return losses.count_at_most(known, log.start, log.end) - kept

    def _partitions(self, group: str) -> Iterator[GroupPosition]:
        if self.unreadable(group):
            return
        committed = self.source.committed.get(group, {})
        last, on_target = self.last_places(group), self.target.committed.get(group, {})
        own = on_target if self.is_away else ()
        read = {tp.topic for tp in (*committed, *last, *own)}
        pairs = {i: pair for name in read for i, pair in self._pairs_by_name.get(name, {}).items()}
        for _, pair in sorted(pairs.items()):
            for tp in self._places(pair, last):
                counterpart = TopicPartition(pair.target_topic, tp.partition)
                theirs, entry = on_target.get(counterpart), self.ledger.entry(group, counterpart)
                is_ours = theirs is not None and entry is not None and entry.may_lower(theirs)
                is_theirs = theirs is not None and not is_ours
                came = self.source_ledger.entry(group, tp) if is_theirs else None
                yield GroupPosition(
                    self._facts(pair, tp, counterpart),
                    committed.get(tp),
                    theirs,
                    is_ours,
                    self.request.accept_open_transactions,
                    self.request.overwrite,
                    last.get(counterpart),
                    self.source.unacknowledged.get(group, {}).get(tp),
                    came is not None
                    and came.continues_from(self.target.alias, committed.get(tp, -1))
                    and (entry is None or entry.time_ms < came.time_ms),
                    entry.before_syncs if entry and is_ours else None,
                )

    def _facts(
        self, pair: TopicPair, tp: TopicPartition, counterpart: TopicPartition
    ) -> PartitionFacts:
        """Gather the facts of a partition, once for all groups that read it."""
        key = pair.direction, tp
        if key not in self._of_partitions:
            self._of_partitions[key] = partition_facts(
                {"forward": self.counted or self.maps, "reverse": self.reverse_maps},
                pair.direction,
                (tp, {tp: UNKNOWN_LOG} if self.is_away else self.source.logs),
                (counterpart, self.target.logs),
                self.target.alias,
                self.transactions.get(tp, ()),
                is_shared=pair.is_shared,
            )
        return self._of_partitions[key]

    @cached_property
    def _of_partitions(self) -> dict[tuple[Direction, TopicPartition], PartitionFacts]:
        return {}

    def _places(self, pair: TopicPair, last: Collection[TopicPartition]) -> list[TopicPartition]:
        """Return partitions named as on the source, in reverse or after a loss the target's too."""
        known = [self.source.topics.get(pair.topic)]
        if pair.direction == "reverse" or self.is_away:
            known.append(self.target.topics.get(pair.target_topic))
        count = max((topic.partitions for topic in known if topic is not None), default=0)
        numbers = {tp.partition for tp in last if tp.topic == pair.target_topic}
        return [TopicPartition(pair.topic, one) for one in sorted({*range(count), *numbers})]

    @property
    def without_leader(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted(place for place, log in self.target.logs.items() if log is UNKNOWN_LOG))

    def without(self, subjects: Collection[str]) -> MoveFacts:
        topics = tuple(one for one in self.topics if topic_subject(one) not in subjects)
        groups = tuple(one for one in self.groups if group_subject(one) not in subjects)
        return replace(self, topics=topics, groups=groups)

    def with_commits(self, commits: Mapping[str, Offsets]) -> MoveFacts:
        """Add commits of groups on the source; positions do not depend on them and are kept."""
        found = copy(self)
        object.__setattr__(found, "source", replace(self.away, commits=commits))
        return found

    def with_plans(self, plans: tuple[GroupPlan, ...]) -> MoveFacts:
        """Replace the rows of the groups."""
        found = copy(self)
        found.__dict__["plans"] = plans
        return found

    def known_places(self, plan: GroupPlan) -> frozenset[TopicPartition]:
        """Return the target partitions for which a group has a last known position or a commit."""
        resumed = (each.target for each in plan.positions if each.resume is not None)
        return frozenset((*self.last_places(plan.group), *resumed))

    def followers(self, group: str) -> int:
        """Count the clients of a group that recently announced that they work on the source."""
        return len(self.present.followers(group_subject(group)))

    @cached_property
    def present(self) -> Presence:
        """Clients that lately announced that they work on the source."""
        acks, source = self.routing.on_source, self.request.source
        return Presence([one for one in acks if one.ack.cluster == source], self.maps_ms)

    def activity_there(self, group: str) -> str:
        """Say that a group is active on the target, but for members that are left over there."""
        return "" if self.remnants(group) else self.target.activity(group)

    def remnants(self, group: str) -> tuple[str, ...]:
        """Return a group's members on the target if all are clients that work on the source.

        A cluster that is back lists the members that it had when it died until their sessions end.
        """
        members = self.target.group(group).members
        clients = [one.client for one in self.present.followers(group_subject(group))]
        left = all(any(is_member_of(one, member) for one in clients) for member in members)
        return members if left else ()

    def is_at_home_there(self, group: str) -> bool:
        """Return True if a group works on the target alone, and its places here came from there."""
        here, source = self.source.group(group), self.source.alias
        if here.state not in IDLE or not self.target.group(group).members:
            return False
        led_here = self.routing.where.cluster_of(group_subject(group), source) == source
        if led_here or self.followers(group) or self.unreadable(group):
            return False
        last, own = self.last_places(group), self.source.committed.get(group, {})
        for each in map(partition_move, self._partitions(group)):
            place = TopicPartition(each.topic, each.partition)
            entry = self.source_ledger.entry(group, place)
            # Group sync may have written there again since the look at the commits.
            written = entry.intended if entry and entry.origin == self.target.alias else -1
            came = own.get(place, sys.maxsize) <= written
            is_there = each.target_committed is not None and each.resume == each.target_committed
            if (place in own or each.target in last) and not (came or is_there):
                return False
        return True

    def works_there(self, group: str) -> bool:
        """Return True if the clients of a group have left the source for the target."""
        where, request = self.routing.where, self.request
        return where.cluster_of(group_subject(group), request.source) == request.target

    def forecast(self, now_ms: int, source: SourceLook | None = None) -> Forecast:
        """Forecast the loss; ``source``: present log ends, None if not known.

        Groups whose route leads to the target already read nothing again.
        """
        partitions, growth = tuple(self._known_partitions(source)), self.away.growth
        plans = [plan for plan in self.plans if not self.works_there(plan.group)]
        readable = (plan for plan in plans if not self.unreadable(plan.group))
        placed = {plan.group for plan in readable if self.known_places(plan)}
        return Forecast(
            made_ms=now_ms,
            topics=forecast_topics(partitions, now_ms, growth),
            groups=tuple(
                self._group_forecast(plan, now_ms) for plan in plans if plan.group in placed
            ),
            unseen=tuple(plan.group for plan in plans if plan.group not in placed),
            transactions=self.away.transactions,
            rate=max(rate_of(partitions), growth),
        )

    def _group_forecast(self, plan: GroupPlan, now_ms: int) -> GroupForecast:
        stamp_ms, is_still = self.away.stamp(plan.group)
        return GroupForecast(
            plan.group,
            len(self.known_places(plan)),
            self.read_again(plan),
            plan.total_skipped,
            None if stamp_ms is None else max(0, now_ms - stamp_ms),
            is_still,
            self.by_commits(plan),
        )

    def by_commits(self, plan: GroupPlan) -> bool:
        """Return True if its commits on the source are known wherever it has a backlog."""
        known = self.away.commits.get(plan.group, {})
        late = (one for one in plan.positions if self.read_again_of(plan.group, one))
        return all(
            one.committed is not None and TopicPartition(one.topic, one.partition) in known
            for one in late
        )

    def read_again(self, plan: GroupPlan) -> int:
        """Return the records that a group would read again, or its unread backlog."""
        return sum(self.read_again_of(plan.group, position) for position in plan.positions)

    def read_again_of(self, group: str, position: PartitionMove) -> int:
        """Return that of one partition: all records on the target after the last known position.

        The group may have read any of them since; with its commits, it has read those it committed.
        Without a position it may have read all, and auto.offset.reset may be earliest. A look that
        leaves out the commits on the target counts nothing there. A group that works on the target
        already reads nothing again, however much it has still to read there.
        """
        place = TopicPartition(position.topic, position.partition)
        committed = self.away.commits.get(group, {}).get(place)
        if position.state == "no-commit" and group not in self.target.committed:
            return 0
        count = position.lag
        if committed is not None and position.committed is not None:
            count = min(count, max(0, committed - position.committed))
        return 0 if count and self.works_there(group) else count

    def _known_partitions(self, source: SourceLook | None) -> Iterator[PartitionKnown]:
        reports, heard = self.maps.reports, last_heard(self.maps.reports)
        ends = ((end, topic, number) for one in reports for topic, number, end in one.held_back)
        held = {(topic, number): end for end, topic, number in sorted(ends)}  # the highest counts
        for original, place in sorted(self.away.copies.items()):
            if source is not None and source.lacks(original):
                continue
            topic = self.target.topics.get(place.topic)
            remote = (topic.topic_id if topic else "", place.partition)
            heard_ms = heard.get(remote, 0)
            known = PartitionKnown(
                original,
                self.maps.to_copy(original),
                heard_ms,
                self.away.recent.get(place, 0),
                self._stop_reason(original, heard_ms if source is None else source.time_ms),
                self.away.newest.get(place),
            )
            held_to = held.get(remote, 0)
            if source is not None:
                known = source.brought_up_to_date(known, held_to)
            yield with_held_back(known, held_to)
        if source is not None:
            yield from source.without_copy(self.away.copies.keys())
        else:
            for name in self.away.without_copy:
                yield PartitionKnown(TopicPartition(name, 0), None, 0, 0, "it has no copy")

    def _stop_reason(self, original: TopicPartition, heard_ms: int) -> str:
        """Return why a partition was not copied while the source still answered, or ""."""
        status = self.maps.statuses.get(original)
        if status is None or status.state != "stopped" or status.time_ms >= heard_ms:
            return ""  # it stopped because the source no longer answered
        return status.what or "no reason given"


@dataclass(frozen=True)
class Look:
    """One look at a move, and the gate's answer; most fields are empty without a hold.

    ``moving``: offsets since the hold, by topic written to on the source within the quiet time.
    ``unrouted``: topics that a producer without a route has recently written to, or may have.
    ``unheld``, ``unconfirmed``: reasons by producers, and by redirectors or a fence.
    ``rested``: topics and commits on the source have been quiet for long enough.
    ``end``: since when the hold is over; empty while it lasts.
    """

    facts: MoveFacts
    progress: MoveProgress
    now_ms: int
    seen: Observation
    moving: Mapping[str, int] = field(default_factory=dict)
    unrouted: tuple[str, ...] = ()
    unheld: tuple[str, ...] = ()
    unconfirmed: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()
    rested: bool = False
    end: str = ""

    @property
    def held_ms(self) -> int | None:
        return self.progress.times_ms.get("holding") if self.progress.step in HELD else None

    @cached_property
    def status(self) -> SyncStatus:
        facts = self.facts
        blocking = (
            *filter(None, [self.end]),
            *_routing_reasons(self),
            *self.unconfirmed,
            *self.unheld,
            *_writer_reasons(self),
            *waiting_reasons(facts),
        )
        unapplied = tuple(
            f"group {group.group}, {p.target}: offset on {facts.request.target} "
            f"is {p.target_committed}, intended is {p.resume}"
            for group in facts.plans
            for p in group.positions
            if not p.is_applied
        )
        remaining = sum(partition.remaining for partition in facts.replication)
        missing = dict(_missing(facts))
        elapsed = 0.0 if self.held_ms is None else max(0, self.now_ms - self.held_ms) / 1000
        eta = eta_seconds(self.seen.samples, self.now_ms, remaining) if blocking else 0.0
        return SyncStatus(
            move_id=self.progress.move_id,
            ready=not blocking,
            applied=not unapplied,
            blocking=blocking,
            unapplied=unapplied,
            remaining_records=remaining,
            groups=tuple(
                GroupSync(
                    group.group,
                    len(group.members),
                    synchronised=not any(_group_reasons(group, facts)),
                    applied=all(position.is_applied for position in group.positions),
                    remaining=sum(position.remaining for position in group.positions),
                )
                for group in facts.plans
            ),
            eta_seconds=eta,
            elapsed_seconds=elapsed,
            timed_out=bool(self.end),
            rpo_records=sum(missing.values()),
            missing=tuple(missing),
            asks=self.requests,
        )

    def note(self, now_ms: int, carrier: str) -> WaitNote:
        return WaitNote(
            self.progress.move_id,
            self.progress.attempt,
            now_ms,
            waits=excerpt(self.status.blocking, 5),
            sample=next(iter(self.seen.samples), None),
            still=self.seen.fingerprint if self.rested else "",
            carrier=carrier,
        )


def waiting_reasons(facts: MoveFacts) -> Iterator[str]:
    """Yield what is not copied, left or translated yet, with or without a hold."""
    yield from _replication_reasons(facts)
    for group in facts.plans:
        yield from _group_reasons(group, facts)


def _routing_reasons(look: Look) -> Iterator[str]:
    for subject in look.facts.subjects:
        route = look.facts.routing.merge.get(subject)
        if route is None or route.state != "hold" or route.move_id != look.progress.move_id:
            owner = "" if route is None or not route.move_id else f" (last set by {route.move_id})"
            yield f"{subject} is not held by this move{owner}: hold first"


def _writer_reasons(look: Look) -> Iterator[str]:
    request = look.facts.request
    for topic, offsets in sorted(look.moving.items()):
        quiet = f"{request.quiet_s(unrouted=topic in look.unrouted):g} s"
        if topic in look.unrouted and not look.end:
            quiet += ": a producer that follows no route may have written to it recently"
        grown = f"{amount(offsets, 'offset')} since the hold"
        yield (
            f"topic {topic} is still written to on {request.source} ({grown}): stop its producers"
            if offsets
            else f"topic {topic} must be idle on {request.source} for {quiet}"
        )


def _missing(facts: MoveFacts) -> Iterator[tuple[str, int]]:
    """Yield the gaps of the target, with records (or offsets that may be markers)."""
    target = facts.request.target
    for each in facts.replication:
        yield from each.missing(target)
    uncopied: dict[str, int] = {}
    for p in (p for group in facts.plans for p in group.positions if p.uncopied):
        uncopied[p.name] = max(p.uncopied, uncopied.get(p.name, 0))
    for name, count in uncopied.items():
        before = f"{amount(count, 'offset')} from before the first record copied to {target}"
        yield f"{name}: {before}", count


def _replication_reasons(facts: MoveFacts) -> Iterator[str]:
    for each in facts.replication:
        if each.remaining and each.damage:
            yield f"the offset map of {each.place} cannot be used: {each.damage}"
        elif each.halt_reason is not None:
            yield each.halt_reason.text
    yield from missing_reasons(facts)
    is_behind = any(one.remaining > one.held_back and not one.damage for one in facts.replication)
    if is_behind and is_silent(facts.report_age_ms):
        age = facts.report_age_ms
        seen = "has never reported" if age is None else f"last reported {ago(age)}"
        yield f"the replicator of {facts.request.flow} {seen}: is it running? see 'srm status'"


def missing_reasons(facts: MoveFacts) -> Iterator[str]:
    """Yield what is not copied yet and will be, as far as the move wants it."""
    source, behind = facts.request.source, Counter[str]()
    for each in facts.replication:
        if each.damage or each.halt_reason is not None:
            continue
        if each.held_back and not facts.request.accept_open_transactions:
            yield from each.transaction_reasons(source)
        behind[each.place.topic] += each.remaining - each.held_back
    for topic, remaining in sorted(behind.items()):
        if remaining:
            yield f"replication of {topic} from {source} is {amount(remaining, 'record')} behind"


def _group_reasons(group: GroupPlan, facts: MoveFacts) -> Iterator[str]:
    name = group.group
    for side in (facts.source, facts.target):
        if activity := side.activity(name):
            members = side.group(name).members if side is facts.source else ()
            left = not members or unrouted_members(name, members, facts.present)
            what = "stop it there" if left else "it follows routes and leaves at the hold"
            yield f"group {name} is still {activity}: {what}"
    if unreadable := "; ".join(reason.text for reason in facts.unreadable(name)):
        yield f"offsets of group {name} cannot be read: {unreadable}"
    if pending := facts.source.pending.get(name):
        where = ", ".join(map(str, sorted(pending)))
        yield (
            f"group {name} has offsets of {where} in a transaction on {facts.source.alias} that is "
            f"not decided: wait for it or end it there, 'kafka-transactions.sh --bootstrap-server "
            f"HOST:PORT list' shows it as Ongoing"
        )
    for position in group.positions:
        if position.state in UNFINISHED:
            yield (
                f"group {name}, {position.name}: committed offset {position.committed} is "
                f"not copied yet, {position.remaining} to go"
            )
        elif (problem := position_problem(name, position, facts.request)) is not None:
            yield problem.text


def last_heard(reports: Iterable[SlotReport]) -> dict[tuple[str, int], int]:
    """Return when the source last answered the slots (former ones if it is paused) of each copy."""
    rows = (
        (is_now, report.source_heard_ms, (entry.target_topic_id, entry.partition))
        for report in reports
        for is_now, entries in ((False, report.former), (True, report.positions))
        for entry in entries
    )
    return {place: heard_ms for _, heard_ms, place in sorted(rows)}  # the last one counts
