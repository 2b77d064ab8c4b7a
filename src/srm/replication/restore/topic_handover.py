"""Handover of one topic: the resumed flow gets the map of its restore, in reverse.

The process may be killed anywhere: the next one continues at the end of the map found. A position
is written last, and marks the map as complete.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.flow_state.slot_records import next_incarnation
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap, Position
from srm.domain.offset_map.runs import Lineage, Runs
from srm.domain.recovery.restore import TopicRestore, holes, invert, runs_from
from srm.domain.text.amount import amount
from srm.engine.cluster_ports import TopicDescription
from srm.engine.flows.target_topics import assignments
from srm.engine.ports import FlowContext
from srm.errors import ConflictError, FencedError, IntegrityError, SrmError, UnavailableError
from srm.replication.claim import Sealed, begins_with_records, first_record_in, seal
from srm.replication.log_reader import Connect, of_each_log
from srm.replication.mapping.starts import Start, StartReader
from srm.replication.partition import PartitionCopy
from srm.replication.report import Reporter
from srm.replication.resume.resume import Resumed, Walked
from srm.replication.resume.walk import ProvenPlace


@dataclass(frozen=True)
class RestoreLogs:
    """Looks into logs of both clusters, and claims them. Calls block."""

    connect: Connect
    rebuilt: str

    def seal(self, flow: Flow, places: Mapping[TopicPartition, str]) -> Seals:
        return of_each_log(self.connect(flow.target), places, lambda log: seal(log, flow))

    def begin_with_records(self, places: Mapping[TopicPartition, str]) -> frozenset[TopicPartition]:
        """Return those originals that begin with a record, and not with the marker of a claim."""
        found = of_each_log(self.connect(self.rebuilt), places, begins_with_records)
        return frozenset(place for place, begins in found.items() if begins)

    def first_record_in(
        self, place: TopicPartition, topic_id: str, ranges: Iterable[tuple[int, int]]
    ) -> int | None:
        found = of_each_log(
            self.connect(self.rebuilt), {place: topic_id}, lambda log: first_record_in(log, ranges)
        )
        return found[place]


@dataclass(frozen=True)
class RestoreContext:
    """Both flows, and the operations on them.

    ``forward``: the flow whose source was rebuilt, P->B; ``copying``: the one that brings copies
    back.
    """

    forward: FlowContext
    copying: FlowContext
    clusters: Collection[str]
    logs: RestoreLogs
    starts: StartReader
    reporter: Callable[[], Reporter]
    copy: Callable[[Collection[str]], None]
    by: str


Show = Callable[[str], None]
Seals = Mapping[TopicPartition, Sealed]

RUNS_AT_ONCE: Final = 1 << 12
RUNS_PER_REPORT: Final = 1 << 16
_TRIES: Final = 15
"""Reports until something is not to be had: each waits some seconds for its acknowledgement."""


@dataclass(frozen=True, slots=True)
class TopicWork:
    """A topic at work: both of it."""

    plan: TopicRestore
    copy: TopicDescription
    original: TopicDescription

    @property
    def partitions(self) -> list[AssignedPartition]:
        """Its partitions as the forward flow is assigned them."""
        return assignments(self.original, self.copy)

    def places(self, topic: TopicDescription) -> dict[TopicPartition, str]:
        """Return the partitions of the copy or the original that the copy has, with the id."""
        return {TopicPartition(topic.name, n): topic.topic_id for n in range(self.copy.partitions)}


def hand_topic_over(context: RestoreContext, work: TopicWork, sealed: Seals, show: Show) -> int:
    maps = context.copying.maps.load([work.copy.name])
    handovers = []
    for partition in work.partitions:
        place = TopicPartition(partition.target_topic, partition.partition)
        damage = maps.errors.get(place) or maps.gaps.get(place)
        if damage:
            raise IntegrityError(
                f"the offset map of {place} on {context.forward.source.alias} cannot be used: "
                f"{damage}; run this again"
            )
        mine, claim = maps.get(place), sealed[place]
        position = _position(mine, claim, place)
        _check_foreign(context, work, partition, mine)
        handovers.append(Handover(partition, invert(mine.runs), position, claim))
    _check_seals(context, work, sealed)
    records = sum(each.map.records for each in handovers)
    show(f"handing over {work.plan.topic}: {amount(records, 'record')}")
    hand_over(handovers, context.starts, context.reporter(), context.forward.now_ms())
    check_read(context.forward, handovers)
    return records


def _position(mine: OffsetMap, sealed: Sealed, copy: TopicPartition) -> Position:
    """Return where P->B resumes: after the end of its copy, all restored (else ConflictError)."""
    at = mine.position
    if at is None or at.source_next < sealed.marker:
        raise ConflictError(
            f"{copy} is restored up to offset {at.source_next if at else 0} of {sealed.marker}: "
            "run this again"
        )
    return Position(at.target_next, sealed.marker + 1, at.target_next)


def _check_seals(context: RestoreContext, work: TopicWork, sealed: Seals) -> None:
    """Check that no process has claimed a copy since its map was read (else FencedError)."""
    copies = work.places(work.copy)
    ends = context.forward.target.high_watermarks(list(copies))
    taken = sorted(p for p in copies if ends.get(p) != sealed[p].marker + 1)
    if taken:
        raise FencedError(
            f"{taken[0]} on {context.forward.target.alias} was claimed by another process, "
            "perhaps another restore: check and run this again"
        )


def _check_foreign(
    context: RestoreContext, work: TopicWork, partition: AssignedPartition, mine: OffsetMap
) -> None:
    """Refuse foreign records between ours: no map could place them in the copy (ConflictError)."""
    place, end = TopicPartition(partition.topic, partition.partition), mine.position
    ranges = holes(mine.runs, end.target_next if end else 0)
    found = context.logs.first_record_in(place, work.original.topic_id, ranges)
    if found is not None:
        where = context.forward.source.alias
        raise ConflictError(
            f"{place} on {where} holds a record at offset {found} that the restore did not write: "
            f"stop the producers there, delete {work.plan.topic} on {where} and run this again"
        )


def check_read(flow: FlowContext, handovers: Sequence[Handover]) -> None:
    """Read back what was handed over, to the end of a map that may have begun before."""
    for topic, of_topic in groupby(handovers, key=lambda each: each.assigned.topic):
        found = flow.maps.load([topic])
        for each in of_topic:
            place, wanted = TopicPartition(topic, each.assigned.partition), each.map
            read = found.maps.get(place)
            begin = wanted.runs[0].source_start if len(wanted.runs) else sys.maxsize
            known = runs_from(read.runs, begin) if read else None
            if read is None or known != wanted.runs or _end(read) != _end(wanted):
                why = found.errors.get(place) or found.gaps.get(place) or "it is another one"
                raise IntegrityError(
                    f"the offset map of {place} that was handed over reads back differently: "
                    f"{why}; run this again"
                )


def _end(of: OffsetMap) -> tuple[int, int] | None:
    return (of.position.source_next, of.position.target_next) if of.position else None


@dataclass(frozen=True, slots=True)
class Handover:
    """One partition: all that was copied of it, and how far that is.

    ``sealed`` is our claim on the target, ``lost`` are source offsets without a copy.
    """

    assigned: AssignedPartition
    runs: Runs
    position: Position
    sealed: Sealed
    lost: Sequence[tuple[int, int]] = ()

    @property
    def map(self) -> OffsetMap:
        return OffsetMap(self.runs, self.position)


def hand_over(
    handovers: Sequence[Handover], starts: StartReader, reporter: Reporter, now_ms: int
) -> None:
    """Write maps, then positions, as the next process of a slot; safe to repeat."""
    known = starts.load([each.assigned for each in handovers])
    for start in known.values():
        if isinstance(start, SrmError):
            raise start
    before = starts.predecessor(reporter.slot)
    reporter.begin(next_incarnation(before.incarnations, now_ms), before.notes)
    copies = [_place(each, known.get(each.assigned), reporter) for each in handovers]
    for copy, handover in zip(copies, handovers, strict=True):
        for lost in handover.lost:
            reporter.lost(copy, *lost, "they were not copied before the copy was adopted")
        copy.leave()
    leaving: Sequence[PartitionCopy] = copies
    for _ in range(_TRIES):
        reporter.prepare((), leaving)()
        leaving = ()
        if reporter.has_reported_all:
            return
    raise UnavailableError("the offset map or the positions are not acknowledged in time; retry")


def _place(handover: Handover, known: Start | SrmError | None, reporter: Reporter) -> PartitionCopy:
    """Return a copy at the end position, with the runs that are not written yet."""
    if not isinstance(known, Start):
        known = Start(0, 0, fresh=True)
    elif known.tree.last is None:
        known = Start(0, 0, known.producer_ids, fresh=True, garbage=known.garbage)
    known = replace(known, at_rest=None)  # it is at its end: no failure is left
    sealed, copy = handover.sealed, PartitionCopy(handover.assigned, known)
    copy.begin_claiming()
    end = sealed.marker + 1
    written = 0
    runs = runs_from(handover.runs, known.source_next)
    for at in range(0, len(runs), RUNS_AT_ONCE):
        piece = runs[at : at + RUNS_AT_ONCE]
        last = piece[-1]
        settled = ProvenPlace(last.source_end, last.target_end, tuple(piece))
        copy.note_walk(sealed.claim, Walked(last.target_end, end, settled))
        written += len(piece)
        if written >= RUNS_PER_REPORT:
            _report(copy, reporter)
            written = 0
    position = handover.position
    lineage = Lineage(((sealed.claim.leader_epoch, sealed.marker),))
    at_end = Resumed(position.source_next, position.target_next, target_lineage=lineage)
    copy.begin_copying(sealed.claim, at_end)
    return copy


def _report(copy: PartitionCopy, reporter: Reporter) -> None:
    for _ in range(_TRIES):
        reporter.prepare((copy,))()
        if reporter.is_written(copy.assigned):
            return
    raise UnavailableError(f"the offset map of {copy.source} is not acknowledged in time; retry")
