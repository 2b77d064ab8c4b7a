"""Inspection of a source that answers again, and the settlement of its return.

One transaction on the target writes all decisions about the residue and ends the pause. A process
killed before it leaves the flow paused; after it nothing is left to do.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    PartitionNotes,
    Pause,
    in_force,
)
from srm.domain.moves.disaster import Choice, GroupOutcome, Outcome
from srm.domain.moves.progress import end_of_pause
from srm.domain.moves.routing import topic_subject
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_loader import Wanted as WantedOffsets
from srm.domain.offset_map.runs import OffsetRange
from srm.domain.recovery.source_return import (
    CopyEnd,
    Counting,
    PartitionReturn,
    Settlement,
    Shape,
    SourceReturn,
    Wanted,
    decisions,
    describe,
    outcome_of,
    plan_settlement,
    topic_return,
    topic_shape,
    worst,
)
from srm.domain.text.amount import reasons_text, some
from srm.domain.text.documents import split, values_of
from srm.engine.cluster_ports import TopicDescription, Topics
from srm.engine.control.control_topics import create_control_topics
from srm.engine.flows.source_look import partitions_of
from srm.engine.flows.supervision import pause_in_force
from srm.engine.groups.checkpoints import groups_with_offsets
from srm.engine.groups.ledger import read_ledger
from srm.engine.moves.context import as_move
from srm.engine.moves.history import RoutingTables
from srm.engine.moves.registers import level
from srm.engine.moves.store import abandoned_ms, undecided_moves
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, GateClosedError, NotFoundError, SrmError, UnavailableError
from srm.replication.ports import DecodedRecord
from srm.replication.restore.flow_state import RestoreState, open_restores

log = logging.getLogger(__name__)

Show = Callable[[str], None]
Ends = dict[AssignedPartition, CopyEnd | SrmError]
"""Ends of copies, or why they are unknown."""
_AT_ONCE: Final = 16
_MERGE: Final = "run it again when a broker leads the partition, or merge its topic"
_Found = dict[AssignedPartition, PartitionReturn]
_Commits = Mapping[str, Mapping[TopicPartition, int]]
_LeftOut = Mapping[AssignedPartition, Sequence[tuple[int, int]]]


class ReturnedLogs(Protocol):
    """Both logs of the partitions of one flow. Calls block, and may take long."""

    def copy_ends(
        self, partitions: Sequence[AssignedPartition], show: Callable[[int], None]
    ) -> Ends:
        """Walk the logs and return where each copy ends, or the error that prevents it; only read.

        The result is final as long as no producer writes to the copies. Partitions without a copy
        have no target topic id. ``show``: called with the number of partitions done.
        """

    def read(
        self,
        wanted: Sequence[Wanted],
        visit: Callable[[int, Sequence[DecodedRecord]], bool],
        at_once: int,
    ) -> None:
        """Pass the records of ranges that the flow would copy to ``visit``, without markers.

        ``visit``: called with the index of a range and some records; False ends that range.
        ``at_once``: number of ranges read concurrently; each is read in order.
        """


ResidueState = Literal["undecided", "kept", "discarded"]


@dataclass(frozen=True, slots=True)
class ResidueRange:
    """Records that only the source has: offsets [from, to), epoch ms; ``note``: who decided."""

    topic: str
    partition: int
    topic_id: str
    state: ResidueState
    offset_from: int
    offset_to: int
    records: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    note: str = ""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def request(self) -> Wanted:
        """The range as :meth:`.ReturnedLogs.read` takes it."""
        return (
            AssignedPartition(self.topic, self.partition, self.topic_id, "", ""),
            OffsetRange(self.topic, self.partition, self.offset_from, self.offset_to),
        )


@dataclass(frozen=True, slots=True)
class SettledReturn:
    """Findings, plan and result; ``outcome`` is added to the report of the disaster."""

    found: SourceReturn
    settlement: Settlement
    outcome: Outcome
    applied: bool


@dataclass(frozen=True)
class ReturnedFlow:
    """A flow whose source answers again, with both its logs; ``show`` takes what is being done."""

    context: FlowContext
    logs: ReturnedLogs
    show: Show = lambda _: None

    def inspect(self, only: Collection[str] = (), *, groups: bool = True) -> SourceReturn:
        """Return the kind of return, and what the source holds and the target does not; only read.

        While the flow is not paused, that is still to be copied. ``only``: source topics, or all.
        ``groups``: also find what groups had read.
        """
        context, show = self.context, self.show
        show("topics of both clusters")
        known, names = RestoreState.read(context.target, context.config.flow), context.config.names
        there, now = context.target.topics(), context.source.topics()
        shapes = self._shapes(known, now, only)
        assigned = {name: self._assignments_of(there, now[name]) for name in shapes if name in now}
        everything = [entry for entries in assigned.values() for entry in entries]
        ends = self.logs.copy_ends(
            everything, lambda done: show(f"ends of the copies: {done:,} of {len(everything):,}")
        )
        found = {
            entry: _partition(entry, shapes[entry.topic][0], ends[entry]) for entry in everything
        }
        commits, unread = self._commits(found) if groups else ({}, ())
        found, read = self._count_records(found, commits, known.pause)
        found, routed_by = self._with_only_copied(found), self._routed_by(shapes)
        topics = tuple(
            replace(
                topic_return(
                    *(name, now[name].topic_id if name in now else "", finding),
                    [found[entry] for entry in assigned.get(name, ())],
                ),
                is_heartbeats=names.is_heartbeats(name),
                routed_by=routed_by.get(name, ""),
            )
            for name, finding in shapes.items()
        )
        was = sorted({one.source_cluster for one in known.state.copied if one.topic in shapes})
        cluster_id, flow = context.source.cluster_id(), context.config.flow
        before = cluster_id if cluster_id in was else " or ".join(was)
        shape = worst(topic.shape for topic in topics)
        evidence = describe(shape, flow.source, before, cluster_id)
        return SourceReturn(
            str(flow), shape, evidence, cluster_id, before, topics, read, unread, known.pause
        )

    def plan(self, named: Mapping[str, Choice], default: Choice | None, by: str) -> SettledReturn:
        """Return what is to be decided, and the effect of the choices; nothing is written."""
        found = self.inspect()
        settlement = plan_settlement(found, named, default)
        undecided = self._open_moves(found, settlement)
        blocked = (*settlement.blocked, *open_restores(self.context), *undecided)
        settlement = replace(settlement, blocked=blocked)
        move_id = found.pause.move_id if found.pause else ""
        outcome = outcome_of(found, settlement, move_id, by, self.context.now_ms())
        return SettledReturn(found, settlement, outcome, applied=False)

    def settle(
        self,
        named: Mapping[str, Choice],
        default: Choice | None,
        by: str,
        approve: Callable[[SettledReturn], bool] = lambda _: True,
    ) -> SettledReturn:
        """Carry out the choices and end the pause; safe to repeat.

        The copies to decide on are sealed and looked at again, so no record in flight can arrive.
        Merged copies need no final end. ``default``: the choice for all other topics, but not for
        rebuilt or missing ones. ``approve``: called before a decision is written; False: nothing is
        decided. GateClosedError: something is undecided, or cannot be settled.
        """
        context, show = self.context, self.show
        flow, switch, before = context.config.flow, context.own_switch, pause_in_force(context)
        if before is None:
            raise ConflictError(f"flow {flow} is not paused: there is nothing to settle")
        overtaken = (
            f"flow {flow} was {{}} by another process; check srm return status --flow '{flow}'"
        )
        planned, notes = self._plan_sealed(lambda: self.plan(named, default, by))
        if not approve(planned):
            return planned
        show("routes and moves of both clusters")
        level(as_move(context))
        now = pause_in_force(context)
        if now is None or now.request != before.request:
            raise ConflictError(overtaken.format("paused again" if now else "settled"))
        show("the outcome of the disaster")
        outcomes = [replace(planned.outcome, move_id=move_id) for move_id in before.moves]
        for outcome in outcomes:
            store_outcome(context, outcome)
        show("the decision")
        if not switch.resume({note.key(): note.value() for note in notes}, before.request):
            raise ConflictError(overtaken.format("settled"))
        for outcome in outcomes:  # again, over that of a settlement that decides too late
            store_outcome(context, replace(outcome, time_ms=context.now_ms()))
        return replace(planned, applied=True)

    def residue(
        self, topics: Collection[str] = (), partition: int | None = None
    ) -> tuple[ResidueRange, ...]:
        """Return the ranges with records of the residue; undecided ones only during a pause."""
        ranges: list[ResidueRange] = []
        is_paused = pause_in_force(self.context) is not None
        if is_paused:
            found = self.inspect(topics, groups=False)
            ranges = [
                ResidueRange(
                    *(entry.topic, entry.partition, topic.topic_id, "undecided"),
                    *entry.residue,
                    **values_of(entry, "records", "first_ms", "last_ms"),
                )
                for topic in found.topics
                for entry in topic.partitions
                if entry.residue is not None
            ]
        now = self.context.source.topics()
        left = self._decided_ranges(topics, now)
        if not is_paused:
            unknown = {*topics}.difference(one.topic for one in left)
            self._require_copied(unknown, self.context.config.names.select(now))
        self.show(f"counting {len(left):,} ranges that were left")
        counts = self._count([one.request for one in left], [Counting() for _ in left], {})
        some = zip(left, counts, strict=True)
        ranges += [replace(one, **found.totals) for one, found in some if found.records]
        wanted = [one for one in ranges if partition is None or one.partition == partition]
        return tuple(sorted(wanted, key=lambda one: (one.place, one.offset_from)))

    def _shapes(
        self, known: RestoreState, now: Topics, only: Collection[str]
    ) -> dict[str, tuple[Shape, str]]:
        config = self.context.config
        chosen = config.names.listed
        # Topics copied until the pause: one that was deleted before it has no status.
        lately = {status.topic for status in known.state.statuses}
        copied_ids = {copy_id[0] for copy_id in known.positions}
        missing = {
            entry.topic
            for entry in known.state.copied
            if entry.topic not in now and chosen.matches(entry.topic) and entry.topic in lately
        }
        names = {*config.names.select(now), *missing}
        self._require_copied(only, names)
        return {
            name: topic_shape(
                name, now[name].topic_id if name in now else None, known.state.copied, copied_ids
            )
            for name in sorted(names)
            if not only or name in only
        }

    def _require_copied(self, topics: Iterable[str], copied: Collection[str]) -> None:
        if unknown := ", ".join(sorted({*topics}.difference(copied))):
            raise NotFoundError(f"flow {self.context.config.flow} does not copy {unknown}")

    def _routed_by(self, topics: Collection[str]) -> dict[str, str]:
        routes = RoutingTables.read(as_move(self.context)).merge
        source = self.context.config.flow.source
        return {
            topic: route.move_id
            for topic in topics
            if (newest := routes.get(topic_subject(topic))) is not None
            for route in newest.each
            if route.cluster == source and not route.gives_up(source)
        }

    def _assignments_of(self, topics: Topics, topic: TopicDescription) -> list[AssignedPartition]:
        """Return the partitions of a topic; those without a copy have no target topic id."""
        remote = self.context.config.names.remote(topic.name)
        there = topics.get(remote)
        copied, copy_id = (there.partitions, there.topic_id) if there is not None else (0, "")
        return [
            AssignedPartition(topic.name, n, topic.topic_id, remote, copy_id if n < copied else "")
            for n in range(topic.partitions)
        ]

    def _count(
        self, wanted: Sequence[Wanted], counts: Sequence[Counting], left_out: _LeftOut
    ) -> Sequence[Counting]:
        """Count the records of ranges, without the offsets of ``left_out``; return the counts."""
        done, all_of_it = 0, sum(one.size for _, one in wanted)
        lasts = [one.start for _, one in wanted]

        def visit(index: int, records: Sequence[DecodedRecord]) -> bool:
            nonlocal done
            without = left_out.get(wanted[index][0], ())
            kept = [r for r in records if not any(a <= r.offset < b for a, b in without)]
            counts[index].take([r.offset for r in kept], [r.timestamp for r in kept])
            end = records[-1].offset + 1
            done += end - lasts[index]
            lasts[index] = end
            self.show(f"residue: {done:,} of {all_of_it:,} offsets")
            return True

        self.logs.read(wanted, visit, _AT_ONCE)
        return counts

    def _count_records(
        self, found: _Found, commits: _Commits, pause: Pause | None
    ) -> tuple[_Found, dict[str, GroupOutcome]]:
        tails = [(each, one.place, one.tail) for each, one in found.items() if one.tail]
        wanted = [(each, OffsetRange(*place, *tail)) for each, place, tail in tails]
        marks = defaultdict[TopicPartition, set[int]](set)
        for offsets in commits.values():
            for place, offset in offsets.items():
                marks[place].add(offset)
        left_out = {each: one.left_out for each, one in found.items()}
        at_pause = math.inf if pause is None else pause.time_ms
        abandoned = abandoned_ms(self.context, pause) if pause and pause.joined else {}
        counts = [Counting(marks[at], abandoned.get(at.topic, at_pause)) for _, at, _ in tails]
        totals = [*zip(tails, self._count(wanted, counts, left_out), strict=True)]
        counted = found | {
            each: replace(found[each], late=one.late, **one.totals) for (each, *_), one in totals
        }
        below = {place: one.below for (_, place, _), one in totals}
        reads = {}
        for group, offsets in sorted(commits.items()):
            before = {
                place: below.get(place, {}).get(at, 0) for place, at in sorted(offsets.items())
            }
            if read := {str(place): records for place, records in before.items() if records}:
                at = {str(place): offset for place, offset in offsets.items() if str(place) in read}
                reads[group] = GroupOutcome(read, at)
        return counted, reads

    def _commits(
        self, found: _Found
    ) -> tuple[dict[str, dict[TopicPartition, int]], tuple[str, ...]]:
        """Return commits on the source after the ends of copies, and why groups were not read."""
        ends = {entry.place: entry.tail[0] for entry in found.values() if entry.tail}
        if not ends:
            return {}, ()
        source = self.context.source
        ours = read_ledger(source, source.topics())
        self.show("commits of groups")
        read, errors = source.commits_of(groups_with_offsets(source))
        theirs = {
            group: {
                place: offset
                for place, offset in committed.items()
                if offset > ends.get(place, offset)
                and not ((mine := ours.entry(group, place)) and mine.owns(offset))
            }
            for group, committed in read.items()
        }
        commits = {group: offsets for group, offsets in theirs.items() if offsets}
        return commits, tuple(f"{group}: {error}" for group, error in errors.items())

    def _with_only_copied(self, found: _Found) -> _Found:
        cut = {
            entry.place: (entry.cut_from or 0, entry.cut_to or 0)
            for entry in found.values()
            if entry.cut_from is not None
        }
        if not cut:
            return found
        maps = self.context.maps.load(
            {place.topic for place in cut}, {p: WantedOffsets.of(ends) for p, ends in cut.items()}
        )
        counted = {
            place: maps.get(place).source_records_between(*ends)
            for place, ends in cut.items()
            if place not in maps.errors and place not in maps.gaps
        }
        return {at: replace(one, only_copied=counted.get(one.place)) for at, one in found.items()}

    def _decided_ranges(self, topics: Collection[str], now: Topics) -> list[ResidueRange]:
        """Return ranges of existing topics that earlier decisions left on the source."""
        context = self.context
        state = RestoreState.read(context.target, context.config.flow).state
        ids = {name: topic.topic_id for name, topic in now.items()}
        return [
            ResidueRange(
                *(note.topic, note.partition, note.topic_id),
                "kept" if note.decision == "keep" else "discarded",
                *note.left_out,
                note=note.loss,
            )
            for place, notes in state.notes_of(ids).items()
            if not topics or place.topic in topics
            for note in in_force(notes)
            if note.left_out is not None
        ]

    def _open_moves(self, found: SourceReturn, settlement: Settlement) -> Iterator[str]:
        """Yield the undecided moves of the pause, if something would be kept or discarded.

        Until a move is decided its clients may stay on the source: their records are not residue.
        """
        left_out = [topic for topic, choice in settlement.choices.items() if choice != "merge"]
        if not left_out or found.pause is None:
            return
        flow = self.context.config.flow
        for at in undecided_moves(self.context, found.pause):
            yield (
                f"move {at.move_id} has paused {flow} and is {at.step}, not decided: "
                f"{some(left_out)} can only be merged; {end_of_pause(flow, at.move_id)}"
            )

    def _copies(self, notes: Iterable[PartitionNotes]) -> set[TopicPartition]:
        names = self.context.config.names
        copies = {TopicPartition(names.remote(note.topic), note.partition) for note in notes}
        topics = {copy.topic for copy in copies}
        return copies & {*partitions_of(self.context.target.topics(), topics)}

    def _plan_sealed(
        self, plan: Callable[[], SettledReturn]
    ) -> tuple[SettledReturn, tuple[PartitionNotes, ...]]:
        """Plan until all copies to decide on were sealed, which fences slots that still write."""
        request, sealed = uuid.uuid4().hex[:12], set[TopicPartition]()
        target = self.context.config.flow.target
        while True:
            planned = plan()
            found, settlement, by = planned.found, planned.settlement, planned.outcome.by
            if settlement.blocked:
                raise GateClosedError(f"not settled: {reasons_text(settlement.blocked)}")
            notes = decisions(found, settlement, request, by, self.context.now_ms())
            unsealed = self._copies(notes) - sealed
            if not unsealed:
                return planned, notes
            self.show(f"sealing {len(unsealed):,} partitions of {target}")
            if failed := self.context.own_switch.seal(unsealed):
                [(copy, why), *others] = sorted(failed.items())
                more = f", and {len(others)} more" if others else ""
                raise UnavailableError(f"{copy} on {target} cannot be sealed{more}: {why}", _MERGE)
            sealed |= unsealed


def _partition(of: AssignedPartition, shape: Shape, end: CopyEnd | SrmError) -> PartitionReturn:
    place = values_of(of, "topic", "partition")
    if isinstance(end, SrmError):
        return PartitionReturn(**place, shape=shape, error=str(end))
    shape = shape if end.cut_from is None else "shorter"
    return PartitionReturn(**values_of(end, *CopyEnd.__slots__), **place, shape=shape)


def read_residue(
    logs: ReturnedLogs,
    ranges: Sequence[ResidueRange],
    visit: Callable[[ResidueRange, Sequence[DecodedRecord]], bool],
) -> None:
    """Pass the records of ranges to ``visit`` in order, until it returns False."""
    reads_on = True

    def take(index: int, records: Sequence[DecodedRecord]) -> bool:
        nonlocal reads_on
        reads_on = reads_on and visit(ranges[index], records)
        return reads_on

    logs.read([one.request for one in ranges], take, at_once=1)


def store_outcome(context: FlowContext, outcome: Outcome) -> None:
    """Write the outcome to the moves topics of both clusters; a failure is logged."""
    replicas = context.config.internal_replication_factor
    for cluster in (context.target, context.source):
        try:
            if cluster is context.target:
                create_control_topics(cluster, replicas, [internal_topics.MOVES])
            if internal_topics.MOVES in cluster.topics():
                topic = cluster.compacted_topic(internal_topics.MOVES)
                topic.write(split(outcome.key(), outcome.value(), topic.read))
        except SrmError as error:
            log.warning(
                "the outcome of move %s is not on %s: %s", outcome.move_id, cluster.alias, error
            )
