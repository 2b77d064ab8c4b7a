"""Report of a move with its approvals and evidence, stored as a chain of signed revisions.

Evidence after go: acknowledgements of clients, and counts of records on the target. Clients' wall
clocks may be wrong by hours, so no measurement uses them. ``__srm-routing`` has LogAppendTime, so
one clock stamps all acknowledgements. The age of a state is measured by the client's monotonic
clock (Ack.ages_ms).
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain

from srm.domain.groups.translation import Direction, wanted_of
from srm.domain.moves.disaster import Outcome, stored_outcome
from srm.domain.moves.evidence import (
    Approval,
    Follower,
    Said,
    approval_key,
    decode_approvals,
    encode_approvals,
    followers_of,
    join_approvals,
    members_of,
    state_ms,
)
from srm.domain.moves.plan import MovePlan
from srm.domain.moves.progress import GroupResume, MoveProgress
from srm.domain.moves.report import MoveReport, build_report
from srm.domain.moves.revisions import KeptReport, newest, next_revision, report_key
from srm.domain.moves.routing import (
    CLOCK_KEY,
    AckState,
    Route,
    group_subject,
    merge_tables,
    topic_subject,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.flows.cluster_absence import loudness
from srm.engine.moves.facts import TopicPair, source_next, topic_pairs
from srm.engine.moves.records import (
    ControlChange,
    ControlTables,
    MoveContext,
    RoutingHistory,
    decode_or_none,
    newest_plan,
    read_both,
    read_report,
)
from srm.engine.moves.registers import SIDES, Registers, source_routing, transact
from srm.engine.ports import FlowMaps, MapReader
from srm.errors import NotFoundError, NotLoadedError, SrmError, UnavailableError

log = logging.getLogger(__name__)


def keep_report(context: MoveContext, plan: MovePlan, progress: MoveProgress) -> MoveReport:
    """Store progress and report if changed, as the next revision; return the report."""
    known = read_both(context, ControlTables.read_moves)
    seen = not progress.residue_over or _find_report(known, plan.move_id) is None
    followers = _followers(context, plan, progress) if seen and progress.attempt else ()
    clusters = _cluster_ids(context)
    key = context.notary.key()

    def next_of(tables: Sequence[ControlTables]) -> KeptReport:
        outcome = _outcome(tables, plan.move_id)
        rivals = _rivals(tables, plan, progress)
        report = replace(
            build_report(plan, _furthest(tables, progress), outcome, rivals),
            approvals=approvals_in(tables, plan.move_id),
            followers=followers,
            clusters=clusters,
            versions=context.notary.versions,
            config_sha256=context.notary.config_sha256,
        )
        return next_revision(_find_report(tables, plan.move_id), report, context.now_ms(), key)

    made = next_of(known)
    if all(_has(table, made, progress) for table in known):
        return made.report

    def write(registers: Registers) -> KeptReport:
        registers.require("target")
        kept = next_of([registers.tables(side) for side in SIDES])
        documents = {report_key(plan.move_id): kept.signed.value()}
        registers.write_both(ControlChange(progress=(progress,), documents=documents))
        return kept

    return transact(context, "writing the report of a move", write).report


def kept_report(context: MoveContext, move_id: str) -> KeptReport:
    """Return the newest stored revision of a report; clients and groups are not looked at."""
    kept = _find_report(read_both(context, ControlTables.read_moves), move_id)
    if kept is None:
        raise NotFoundError(
            f"no report of move {move_id!r} on {context.target.alias} or "
            f"{context.source.alias}; 'srm failover report --list' lists the stored ones"
        )
    return kept


def kept_reports(context: MoveContext) -> tuple[KeptReport, ...]:
    """Return the newest revision of each stored report, the oldest move first."""
    tables, prefix = read_both(context, ControlTables.read_moves), report_key("")
    keys = {key for table in tables for key in table.documents if key.startswith(prefix)}
    found = (_find_report(tables, key.removeprefix(prefix)) for key in keys)
    known = [kept for kept in found if kept is not None]
    return tuple(sorted(known, key=lambda kept: (kept.report.created_ms, kept.report.move_id)))


def kept_outcome(context: MoveContext, move_id: str) -> Outcome | None:
    """Return the findings of the return of an unplanned move's source, None before it."""
    return _outcome(read_both(context, ControlTables.read_moves), move_id)


def _find_report(tables: Iterable[ControlTables], move_id: str) -> KeptReport | None:
    key = report_key(move_id)
    found = (read_report(table.documents.get(key)) for table in tables)
    return newest(kept for kept in found if kept is not None)


def _outcome(tables: Iterable[ControlTables], move_id: str) -> Outcome | None:
    values = (stored_outcome(table.documents, move_id) for table in tables)
    found = (decode_or_none(value, Outcome.decode) for value in values)
    known = [outcome for outcome in found if outcome is not None]
    return max(known, key=lambda outcome: outcome.time_ms, default=None)


def _rivals(
    tables: Sequence[ControlTables], plan: MovePlan, progress: MoveProgress
) -> Iterator[str]:
    """Yield a problem for each move of the same generation: both unplanned, each saw one side."""
    known = {one.move_id: one for table in tables for one in table.progress.values()}
    known.pop(plan.move_id, None)
    for one in known.values():
        if not one.is_decided or one.attempt != progress.attempt:
            continue
        other = newest_plan(tables, one.move_id)
        if other is not None and {*other.subjects} & {*plan.subjects}:
            yield (
                f"move {one.move_id} sent clients of this one to {other.request.target}, neither "
                f"saw the other; clients follow the later decision. Agree on one side and move them"
            )


def _furthest(tables: Iterable[ControlTables], progress: MoveProgress) -> MoveProgress:
    """Return the progress of the highest rank, another process's or the stored one if equal."""
    known = [table.progress.get(progress.move_id, progress) for table in tables]
    return max([*known, progress], key=lambda one: one.rank)


def _has(table: ControlTables, kept: KeptReport, progress: MoveProgress) -> bool:
    known = table.progress.get(progress.move_id)
    document = table.documents.get(report_key(progress.move_id))
    return known is not None and known.rank >= progress.rank and document == kept.signed.value()


def _followers(
    context: MoveContext, plan: MovePlan, progress: MoveProgress
) -> tuple[Follower, ...]:
    arrivals = Arrivals(context, plan, progress, ask_clock=False)
    said = arrivals.followers()
    groups = [*filter(arrivals.is_ours, plan.group_names if progress.is_decided else ())]
    described = context.target.groups(groups) if groups else {}
    others = ", ".join(kind for kind in plan.redirect if kind != "routing")
    silent = (
        members_of(group_subject(group), found.members, said, others)
        for group, found in described.items()
    )
    return (*said, *chain.from_iterable(silent))


def _cluster_ids(context: MoveContext) -> dict[str, str]:
    found = {}
    for cluster in (context.source, context.target):
        try:
            found[cluster.alias] = cluster.cluster_id()
        except SrmError as error:  # the report is complete without it
            log.log(loudness(error), "the id of cluster %s is not known: %s", cluster.alias, error)
    return found


def approve(context: MoveContext, move_id: str, approval: Approval) -> tuple[Approval, ...]:
    """Store an approval with the plan that it approves; return all of the move, the oldest first.

    Call it after the plan is stored and before the move holds clients; repeated, it changes
    nothing.
    """

    def write(registers: Registers) -> tuple[Approval, ...]:
        registers.require("target")
        if registers.plan(move_id) is None:
            raise NotFoundError(f"move {move_id!r} is not known: plan it, then approve it")
        tables = [registers.tables(side) for side in SIDES]
        known = join_approvals(approvals_in(tables, move_id), (approval,))
        documents = {approval_key(move_id): encode_approvals(known)}
        registers.write_both(ControlChange(documents=documents))
        return known

    return transact(context, f"approval of move {move_id}", write)


def approvals_in(tables: Iterable[ControlTables], move_id: str) -> tuple[Approval, ...]:
    """Return the approvals that any table has, oldest first; damaged ones are logged."""
    key = approval_key(move_id)
    return join_approvals(
        *(decode_or_none(table.documents.get(key), decode_approvals) or () for table in tables)
    )


class Arrivals:
    """One look at both routing topics, if available; ``ask_clock`` writes to read the clock."""

    def __init__(
        self, context: MoveContext, plan: MovePlan, progress: MoveProgress, *, ask_clock: bool
    ) -> None:
        self._plan = plan
        self._attempt = progress.attempt
        self._hold_stamp_ms = progress.hold_stamp_ms
        self._clocked = progress.hold_stamp_ms is not None
        table = context.target.compacted_topic(internal_topics.ROUTING)
        stamp = table.write({CLOCK_KEY: b"{}"}) if self._clocked and ask_clock else None
        self.now_ms: int = context.now_ms() if stamp is None else stamp
        """The time by the clock that stamped the hold, in epoch milliseconds."""
        target = RoutingHistory.read(context.target)
        source = source_routing(context) or RoutingHistory(context.source.alias)
        self._routes: Mapping[str, Route] = merge_tables([target.routes, source.routes])
        stamps = target.first_stamps("go") if self._clocked else {}
        self.gone_ms: int | None = stamps.get((plan.move_id, self._attempt))
        """Time of go by that clock; None if unknown."""
        self._on_target = self._of_attempt(target, plan.request.target)
        self._on_source = self._of_attempt(source, plan.request.source)

    def _of_attempt(self, history: RoutingHistory, cluster: str) -> Mapping[str, list[Said]]:
        found = defaultdict[str, list[Said]](list)
        for ack, row in history.messages():
            if (ack.generation, ack.cluster) == (self._attempt, cluster):
                stamped_ms = row.timestamp_ms if row.by_broker else None
                found[ack.subject].append((ack, stamped_ms))
        return found

    @property
    def producers_are_ours(self) -> bool:
        """True if no later move has held or redirected the producers."""
        return all(self._is_ours(topic_subject(topic)) for topic in self._plan.topics)

    def is_ours(self, group: str) -> bool:
        """Return True if no later move has held or redirected the members of a group."""
        return self._is_ours(group_subject(group))

    def of(self, group: str) -> tuple[GroupResume, bool]:
        """Return what the members of a group acknowledged of this move's go, and if any did.

        ``started`` has the lowest offset at which a member started each partition.
        """
        subject = group_subject(group)
        left = {
            ack.client: ack.uncommitted
            for ack, _ in self._on_source.get(subject, ())
            if ack.state == "held"
        }
        arrived = [one for one in self._on_target.get(subject, ()) if one[0].state != "held"]
        started: dict[str, int] = {}
        for ack, _ in arrived:
            left.setdefault(ack.client, ack.uncommitted)
            for name, offset in ack.positions.items():
                # A second member starts where the first has left.
                started[name] = min(offset, started.get(name, offset))
        found = GroupResume(
            resumed_ms=self._first(arrived, "resumed"),
            processed_ms=self._first(arrived, "processed"),
            started=started,
            uncommitted={client: lost for client, lost in left.items() if any(lost.values())},
        )
        return found, bool(arrived)

    def followers(self) -> tuple[Follower, ...]:
        """Return the clients that acknowledged routes of this attempt, and how far."""
        target, source = (
            [one for subject in self._plan.subjects for one in said.get(subject, ())]
            for said in (self._on_target, self._on_source)
        )
        return followers_of(target, source, "routing", self._hold_stamp_ms)

    def _first(self, arrived: Iterable[Said], state: AckState) -> int | None:
        times = (state_ms(one, state) for one in arrived if self._clocked)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _is_ours(self, subject: str) -> bool:
        route = self._routes.get(subject)
        return route is not None and route.decided and route.move_id == self._plan.move_id


def written_between(offset_map: OffsetMap, start: int, end: int) -> int:
    """Count records of a source topic; after the end of its copy every offset counts."""
    copied = source_next(offset_map) or 0
    try:
        known = offset_map.source_records_between(start, end)
    except NotLoadedError:  # a part of the map is lost: each of its offsets counts
        return max(0, end - start)
    return known + max(0, end - max(start, copied))


class TargetRecords:
    """Records between ``offsets`` of the target's topics; maps are loaded on first use."""

    def __init__(
        self, context: MoveContext, plan: MovePlan, offsets: Iterable[Mapping[str, int]]
    ) -> None:
        self._context = context
        self._offsets: dict[TopicPartition, set[int]] = defaultdict(set)
        for each in offsets:
            for name, offset in each.items():
                self._offsets[TopicPartition.parse(name)].add(offset)
        self._pairs: dict[str, TopicPair] = {
            pair.target_topic: pair for pair in topic_pairs(context, plan.topics)
        }

    @cached_property
    def _maps(self) -> FlowMaps:
        return self._load(self._context.forward.maps, "forward")

    @cached_property
    def _reverse_maps(self) -> FlowMaps:
        try:
            return self._load(self._context.forward.reverse_maps, "reverse")
        except UnavailableError as error:  # the maps are on the source: every offset counts
            log.log(loudness(error), "records are counted by their offsets: %s", error)
            return FlowMaps({})

    def _load(self, reader: MapReader, direction: Direction) -> FlowMaps:
        wanted = {
            TopicPartition(pair.original, place.partition): wanted_of(
                direction, (), {*offsets, self._ends.get(place)}
            )
            for place, offsets in self._offsets.items()
            if (pair := self._pairs.get(place.topic)) is not None and pair.direction == direction
        }
        topics = {original.topic for original in wanted}
        return reader.load(topics, wanted) if topics else FlowMaps({})

    @cached_property
    def _ends(self) -> Mapping[TopicPartition, int]:
        return self._context.target.log_ends(list(self._offsets)) if self._offsets else {}

    def count_before(
        self, intended: Mapping[str, int], started: Mapping[str, int], committed: Mapping[str, int]
    ) -> int:
        """Count records that a group reads again, from where it was seen to its intended offset."""
        return sum(
            self._count(name, min(started.get(name, at), committed.get(name, at)), at)
            for name, at in intended.items()
        )

    def count_after(self, intended: Mapping[str, int], started: Mapping[str, int]) -> int:
        """Count records that a group skipped, from its intended offset to where it started."""
        return sum(self._count(name, at, started.get(name, at)) for name, at in intended.items())

    def any_after(self, intended: Mapping[str, int]) -> bool:
        """Return True if a record exists at or after the offsets."""
        return any(
            self._count(name, at, self._ends.get(TopicPartition.parse(name), at))
            for name, at in intended.items()
        )

    def _count(self, name: str, start: int, end: int) -> int:
        place = TopicPartition.parse(name)
        pair = self._pairs.get(place.topic)
        if pair is None or start >= end:
            return 0
        original = TopicPartition(pair.original, place.partition)
        try:
            if pair.direction == "forward":
                return self._maps.get(original).records_between(start, end)
            return written_between(self._reverse_maps.get(original), start, end)
        except NotLoadedError:  # a part of the map is lost: each of its offsets counts
            return end - start
