"""One source partition on its way to its target partition.

::

    IDLE --(a batch to write)--> CLAIMING --(resumed)--> COPYING --(claim lapses)--> CLAIMING
                                    ^  |                    |
              (back-off passed)     |  v                    v
                                  STOPPED <----(error)------+----(fenced)---> FENCED
                                                   (back-off has passed) FENCED --> IDLE

Every failure is handled alike: claim again and walk the logs (about 10 ms). So nothing is resent,
and a lost answer needs no interpretation.

Each arrow is a method of :class:`PartitionCopy`, the only code that changes its fields;
:mod:`srm.replication.copy.lifecycle` decides which arrow is taken.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    PartitionNotes,
    PartitionPosition,
)
from srm.domain.names.record_headers import Transform
from srm.domain.names.topics import TopicPartition, topic_id_bytes
from srm.domain.offset_map.offset_map import Position, Run
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.replication.batches.batch import BatchToSend, batches, next_sequence, rewrite
from srm.replication.batches.merging import Merging
from srm.replication.batches.to_send import TargetLimits, batches_to_send
from srm.replication.claim import Claim
from srm.replication.mapping.map_writer import MapWriter
from srm.replication.mapping.starts import Start
from srm.replication.ports import NO_LEADER, FetchedPartition, Leader, ProducerId
from srm.replication.resume.resume import Resumed, Walked
from srm.replication.resume.walk import ProvenPlace


@dataclass(slots=True)
class Traffic:
    """Acknowledged records. Latencies are those of whole batches, by record; of none they are 0."""

    records: int = 0
    bytes: int = 0
    latency_ms_min: int = 0
    latency_ms_max: int = 0
    latency_ms_sum: int = 0

    def add(self, records: int, size: int, latency_ms: int) -> None:
        known = self.records
        self.latency_ms_min = min(self.latency_ms_min, latency_ms) if known else latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        self.latency_ms_sum += latency_ms * records
        self.records += records
        self.bytes += size


SyncMark = tuple[int, int]
"""Source and target offset of one record."""


class SyncMarks:
    """The first record of the newest run, and the newest copied record, for MM2's offset syncs."""

    def __init__(self) -> None:
        self.last_copied: SyncMark | None = None
        self._run_start: SyncMark | None = None

    def add(self, runs: Sequence[Run]) -> None:
        first, last, before = runs[0], runs[-1], self.last_copied
        if len(runs) > 1 or before != (first.source_start - 1, first.target_start - 1):
            self._run_start = last.source_start, last.target_start
        self.last_copied = last.source_end - 1, last.target_end - 1

    def take_run_start(self) -> SyncMark | None:
        """Return the start of the newest run since the last call, if there is a new one."""
        run_start, self._run_start = self._run_start, None
        return run_start


class SendQueue:
    """Batches in the order of the source: first those in flight, then those that wait."""

    def __init__(self, rewrite: Callable[[memoryview, int, int, int], None]) -> None:
        self._rewrite = rewrite
        self._waiting: deque[BatchToSend] = deque()
        self._in_flight: deque[BatchToSend] = deque()
        self._sequence = 0
        self.bytes = 0
        """Size of what is not acknowledged yet."""

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def has_in_flight(self) -> bool:
        return bool(self._in_flight)

    @property
    def is_empty(self) -> bool:
        """True if all added batches are acknowledged."""
        return not self._waiting and not self._in_flight

    @property
    def oldest_in_flight(self) -> BatchToSend:
        return self._in_flight[0]

    def put(self, batch: BatchToSend) -> None:
        self._waiting.append(batch)
        self.bytes += len(batch.view)

    def send_next(self, producer: ProducerId) -> BatchToSend:
        """Take the next batch that waits, made ours; it is in flight from now on."""
        batch = self._waiting.popleft()
        self._rewrite(batch.view, producer.id, producer.epoch, self._sequence)
        self._sequence = next_sequence(self._sequence, batch.count)
        self._in_flight.append(batch)
        return batch

    def acknowledge(self) -> None:
        self.bytes -= len(self._in_flight.popleft().view)

    def clear(self) -> None:
        """Forget all batches: resume decides what is sent next, and under which claim."""
        self._waiting.clear()
        self._in_flight.clear()
        self.bytes = self._sequence = 0


_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 10.0
_STOPPED_RETRY_S: Final = 30.0
_STOPPED_LONG_RETRY_S: Final = 300.0
_OFTEN: Final = 120
"""Failures after which a stopped partition is tried less often: each try takes an epoch."""
_QUEUE_BYTES: Final = 32 << 20
"""Bytes waiting for the target before a partition is left out of fetches."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop with a reason: for a moment if a retry may help, else for longer, or for ``retry_s``.

    ``blocked``: source offsets that it concerns. ``stale_leader``: the side (``source`` or
    ``target``) whose leaders are looked up again. ``action``: the reason's part of what to do.
    ``is_undecidable``: the logs are checked again before another claim.
    """

    reason: str
    retriable: bool = True
    blocked: tuple[int, int] | None = None
    stale_leader: str = ""
    retry_s: float | None = None
    is_undecidable: bool = False
    action: str = ""

    def back_off_s(self, failures: int) -> float:
        if self.retry_s is not None:
            return self.retry_s
        if self.retriable:
            back_off: float = min(_LONGEST_RETRY_S, _FIRST_RETRY_S * 2.0 ** min(failures, 10))
            return back_off * random.uniform(0.8, 1.2)  # noqa: S311 - spreads, hides nothing
        return _STOPPED_RETRY_S if failures < _OFTEN else _STOPPED_LONG_RETRY_S


class Phase(Enum):
    """Phase of a partition, see the picture above."""

    IDLE = "idle"
    CLAIMING = "claiming"
    COPYING = "copying"
    FENCED = "fenced"
    STOPPED = "stopped"


@dataclass(eq=False)
class PartitionCopy:
    """State of one partition.

    - ``attempt``: number of the claim, to separate its answers from those of older claims.
    - ``blocked``: source offsets that keep a stopped partition from continuing, where known.
    - ``fetch_lineage``, ``fetch_epoch``: lineage of the source before ``fetch_offset``, and the
      epoch that a fetch names, -1 if the log's may not be compared.
    - ``in_doubt``: the source's log has to be checked; ``found_epoch`` is of a batch in the place
      of records that are left out, -1 if none was seen.
    - ``written_by``, ``target_lineage``: claim of the batch before ``target_next``, to its marker.
    - ``held_back``: the map cannot be written, or the position is untold; nothing is fetched.
    - ``is_troubled``: from a stop, also of a former owner, until progress or nothing is left.
    - ``end_at_rest``: end of the source found while nothing was fetched.
    - ``position_is_unreported``: no report under our claim has the position after a cut or a skip:
      lost records would be translated as their successors. Nor that before the log begins.
    - ``has_lost_start``: nothing can be done before where to start has been found out again.
    - ``others``: target offsets [from, to) of foreign records in a target without a copy.
    - ``over``: decisions that the source's log holds only in part or no more, with their new ends.
    """

    assigned: AssignedPartition
    start: Start
    transform: Transform | None = None
    merging: Merging | None = None
    phase: Phase = Phase.IDLE
    reason: str = ""
    action: str = ""
    blocked: tuple[int, int] | None = None
    attempt: int = 0
    fetch_offset: int = 0
    fetch_lineage: Lineage = UNKNOWN_LINEAGE
    fetch_epoch: int = -1
    source_leader: Leader = NO_LEADER
    in_doubt: bool = False
    found_epoch: int = -1
    source_next: int = 0
    source_end: int = 0
    source_high: int = 0
    target_next: int = 0
    target_lineage: Lineage = UNKNOWN_LINEAGE
    written_by: ProducerId | None = None
    claim: Claim | None = None
    failures: int = 0
    traffic: Traffic = field(default_factory=Traffic)
    checked: tuple[int, int] | None = None
    held_back: bool = False
    position_is_unreported: bool = False
    is_shared: bool = False
    has_lost_start: bool = False
    is_troubled: bool = False
    end_at_rest: int = 0
    others: tuple[int, int] | None = None
    over: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assigned = self.assigned
        self.source = TopicPartition(assigned.topic, assigned.partition)
        self.target = TopicPartition(assigned.target_topic, assigned.partition)
        self.source_id = topic_id_bytes(assigned.topic_id)
        start = self.start
        self.limits = TargetLimits()
        self.sync_marks = SyncMarks()
        self.map = MapWriter(assigned, start)
        self._fetch_from(start.source_next, start.source_lineage)
        self.target_next = start.target_next
        self.target_lineage, self.written_by = start.target_lineage, start.written_by
        self.has_position = start.has_position
        self.is_undecidable = False
        self._claimed_ids: frozenset[int] = frozenset()
        self._old_id_lapses_at: float | None = None
        self._fresh = start.fresh
        self._is_unproven = False
        self._truncated = start.truncated
        self._is_cut = self.position_is_unreported = start.cut
        self.is_troubled = start.at_rest is not None
        self.queue = SendQueue(self.merging.native.rewrite if self.merging else rewrite)

    @property
    def wants_data(self) -> bool:
        if self.in_doubt or self.held_back:
            return False
        if self.phase is Phase.IDLE:
            return not self.queue.has_waiting
        return self.phase is Phase.COPYING and self.queue.bytes < _QUEUE_BYTES

    @property
    def waiting_bytes(self) -> int:
        """Bytes fetched and not yet acknowledged by the target."""
        return self.queue.bytes

    @property
    def can_send(self) -> bool:
        """True if a batch waits; the second one of a log waits until the first was read back.

        A broker takes any sequence number of a producer that it does not know: it would take the
        second batch even if it refused the first.
        """
        begins = self.claim is not None and self.claim.begins
        is_second = begins and (self.queue.has_in_flight or self.target_next > 0)
        return self.phase is Phase.COPYING and self.queue.has_waiting and not is_second

    @property
    def needs_claim(self) -> bool:
        """True if there is something to write but no valid claim.

        A cut has to be reported under a claim of its own: of the reports of one claim the furthest
        is the newest. Without a position there is nothing to report, even if nothing is copied.
        """
        if self.phase is Phase.IDLE:
            return self.queue.has_waiting or self._is_cut or not self.has_position
        lapsed = self.claim is None or not self.claim.holds()
        return self.phase is Phase.COPYING and lapsed and self.queue.has_waiting

    def accept(
        self, fetched: FetchedPartition, owner: object, requested: int, *, read_committed: bool
    ) -> None:
        """Queue the batches of a fetch from ``requested``."""
        self.source_end = fetched.last_stable_offset if read_committed else fetched.high_watermark
        self.source_high = fetched.high_watermark
        self.end_at_rest = 0
        self.map.source_log_start = max(self.map.source_log_start, fetched.log_start)
        if requested != self.fetch_offset or self.phase not in (Phase.IDLE, Phase.COPYING):
            return  # the answer belongs to a position that resume has replaced
        if (epoch := self.limits.epoch_of_others(fetched.records)) is not None:
            self.doubt(epoch)
            return
        for outgoing in batches_to_send(
            fetched,
            self.fetch_offset,
            owner,
            read_committed=read_committed,
            limits=self.limits,
            transform=self.transform,
            merging=self.merging,
        ):
            if isinstance(outgoing, BatchToSend):
                self.queue.put(outgoing)
            if outgoing.leader_epoch != self.fetch_lineage.epoch:
                self._note_epochs(fetched.records, outgoing.source_next)
            self.fetch_offset, self.fetch_epoch = outgoing.source_next, outgoing.leader_epoch
        if self.is_drained:
            self.source_next = self.fetch_offset
            self.fetch_lineage = self.source_lineage

    def _note_epochs(self, records: memoryview, end: int) -> None:
        """Add the epochs of the batches before an offset; what follows it may be damaged."""
        at = self.fetch_offset
        for batch in batches(records):
            if batch.last_offset >= at:
                self.fetch_lineage = self.fetch_lineage.with_epoch(batch.leader_epoch, at)
                at = batch.last_offset + 1
            if at >= end:
                return

    @property
    def source_lineage(self) -> Lineage:
        """Lineage of the source before ``source_next``."""
        return self.fetch_lineage.before(self.source_next)

    @property
    def is_drained(self) -> bool:
        """True if all fetched records are acknowledged."""
        return self.queue.is_empty

    @property
    def is_idle(self) -> bool:
        """True if nothing is to be written and no check of that is running."""
        return self.phase in (Phase.IDLE, Phase.COPYING) and self.is_drained

    def cut_at(self, source_offset: int, *, lost: bool = True) -> None:
        """The source was truncated: copy what it has from there on; ``lost``: copied records."""
        self.map.cut(source_offset, self.target_next)
        self.limits.cut(source_offset)
        self.go_back_to(source_offset)
        self._is_cut = self.position_is_unreported = True
        self._truncated = self._truncated or lost

    def skip_to(self, source_offset: int) -> None:
        """The target refuses the record before an offset: copy from there on, after a report."""
        self.go_back_to(source_offset)
        self.position_is_unreported = True

    def go_back_to(self, source_offset: int) -> None:
        """Copy from another source offset on; nothing was read before a later one."""
        is_before = source_offset <= self.fetch_offset
        lineage = self.fetch_lineage.before(source_offset) if is_before else UNKNOWN_LINEAGE
        self._fetch_from(source_offset, lineage)

    def _fetch_from(self, source_offset: int, lineage: Lineage) -> None:
        self.fetch_offset = self.source_next = source_offset
        self.fetch_lineage, self.fetch_epoch = lineage, lineage.epoch
        self.in_doubt = False

    def send_next(self) -> BatchToSend:
        """Take the next batch, made ours; only while :attr:`can_send` and the claim holds."""
        if self.claim is None:
            raise RuntimeError(f"{self.target}: sending without a claim")
        return self.queue.send_next(self.claim.producer)

    def on_ack(self, outgoing: BatchToSend, base_offset: int, now_ms: int) -> bool:
        """Record an acknowledged batch; False when the target put it somewhere unexpected."""
        is_expected = base_offset == self.target_next or (
            self.is_shared and base_offset > self.target_next
        )
        if not is_expected or self.queue.oldest_in_flight is not outgoing:
            return False
        self.queue.acknowledge()
        runs, target_start = list[Run](), base_offset
        for source_start, count in outgoing.stretches:
            runs.append(Run(source_start, target_start, count))
            target_start += count
        self._map(runs)
        self.target_next = base_offset + outgoing.count
        self.source_next = self.fetch_offset if self.is_drained else outgoing.source_next
        self.failures = 0
        self.is_troubled = False
        if self.limits.knows_something:
            self.limits.on_accept(len(outgoing.view), self.source_next)
        latency_ms = max(0, now_ms - outgoing.max_timestamp)
        self.traffic.add(outgoing.count, len(outgoing.view), latency_ms)
        return True

    def note_source_end(self, end: int) -> None:
        """The source's log is so long, though nothing of it is fetched now."""
        if self.phase in (Phase.FENCED, Phase.STOPPED):
            self.end_at_rest = end

    @property
    def known_end(self) -> int:
        """Known end of the source, from fetches, or from checks while stopped."""
        return max(self.source_end, self.source_next, self.end_at_rest if self.has_position else 0)

    def note_source_answered(self) -> bool:
        """Resume on a source answer without error if nothing is to be written; return whether."""
        if self.is_troubled and self.is_idle and not (self.in_doubt or self.needs_claim):
            self.is_troubled = False
            self._forget_reason()  # no claim comes that would: there is nothing to copy
        return not self.is_troubled

    def take_up(self) -> None:
        """Leave a rest (STOPPED or FENCED): wait for a batch to write again."""
        self.phase = Phase.IDLE
        self.attempt += 1  # another end of the same rest may still be due

    def begin_at(self, source_start: int, target_start: int, target_end: int) -> None:
        """Begin at the start of both logs, as nothing is known.

        That is a position only if the target never held anything. Elsewhere a walk has to prove one
        before a report may name it.
        """
        self.go_back_to(source_start)
        self.target_next = target_start
        self.has_position = target_end == 0
        self._is_unproven = True

    @property
    def is_unknown(self) -> bool:
        """True if the target holds records that no record of srm identifies as a copy."""
        start = self.start
        is_identified = start.producer_ids and not start.copy_is_gone
        is_known = is_identified or start.garbage or start.has_former or not start.fresh
        return not (self.has_position or is_known)

    def note_others(self, offsets: tuple[int, int] | None) -> None:
        self.others = offsets

    def note_leader(self, leader: Leader) -> None:
        self.source_leader = leader

    def note_target(self, lineage: Lineage) -> None:
        """Remember the lineage of the target that a check before a claim has proven."""
        self.target_lineage = lineage

    def leave(self) -> None:
        """Stop writing for good: the partition has another owner or none."""
        self.rest(Phase.FENCED, Stop(""))
        if self.map.has_claim:  # otherwise the run may still be growing, where it is not seen here
            self.map.close_block()

    @property
    def accepts_loss(self) -> bool:
        """True if the walk may pass copies the source no longer holds, by an earlier decision."""
        return self._truncated and self.start.truncated

    def doubt(self, found_epoch: int = -1) -> None:
        """Stop fetching until the source is known to hold what was copied."""
        self.in_doubt = True
        self.found_epoch = found_epoch

    def believe(self) -> None:
        """Fetch on: the source holds what was copied, whatever the epoch of what follows."""
        self.fetch_offset, self.fetch_epoch = self.source_next, -1
        self.in_doubt = False

    def note_checked(self, log_start: int) -> None:
        """Remember that both logs were walked after retention had passed the position."""
        self.checked = self.source_next, log_start

    def hold_back(self, *, held: bool) -> None:
        self.held_back = held

    @property
    def unreported_claim(self) -> ProducerId | None:
        """The claim that reports a cut or a skip; None without one of them or a claim."""
        return self.written_by if self.position_is_unreported and not self._is_cut else None

    def note_position_reported(self) -> None:
        """A report under our claim is acknowledged: it passes what was cut off or skipped."""
        self.position_is_unreported = False

    @property
    def decisions(self) -> tuple[PartitionNotes, ...]:
        """Decisions about ranges that the copy has not passed."""
        at = self.source_next if self.has_position else 0
        return tuple(one for one in self.start.left_out if (one.lost_to or 0) > at)

    def decide(self, held_to: Mapping[PartitionNotes, int]) -> None:
        """Leave out what was decided about, as far as the source's log still holds it."""
        counting = (note.up_to(end) for note, end in held_to.items())
        self.limits.decide(note for note in counting if note is not None)
        self.over |= {one.slot: end for one, end in held_to.items() if one.up_to(end) is not one}

    def begin_claiming(self) -> None:
        """Forget what is queued: resume decides where to continue."""
        self.phase = Phase.CLAIMING
        self.attempt += 1
        self._forget()

    def note_walk(self, claim: Claim, walked: Walked) -> None:
        """Take over what a walk under way has proven, and how far it is, under the new claim."""
        self.reason, self.action = walked.text, ""
        if walked.settled is not None:
            self._resume_at(claim, walked.settled)

    def begin_copying(self, claim: Claim, resumed: Resumed) -> None:
        self.claim = claim
        self._old_id_lapses_at = None
        self._resume_at(claim, resumed)
        self.position_is_unreported |= claim.begins  # a report shows the next owner whose log it is
        self.held_back = self.held_back or self.position_is_unreported
        self.phase = Phase.COPYING
        self._forget_reason()

    def _resume_at(self, claim: Claim, place: ProvenPlace) -> None:
        self.map.begin_claim(claim.producer)
        self._fetch_from(place.source_next, place.source_lineage)
        if place.runs:
            self._map(place.runs)
        self.target_next = place.target_next
        self._hold(claim, place.target_lineage)
        self.has_position = True
        self._fresh = self._truncated = self._is_unproven = self._is_cut = False

    def note_claimed_cut(self, claim: Claim) -> None:
        """Report a cut of the target under its claim, before the walk, which may fail and stop.

        The map would name lost copies for all that time. A cut of the source is reported after the
        walk: until then the next owner finds it again, with the old claim and the decision.
        """
        if self._is_cut and self.written_by is None and not self._truncated:
            self.map.begin_claim(claim.producer)
            self._hold(claim, self.target_lineage)

    def _hold(self, claim: Claim, lineage: Lineage) -> None:
        self.written_by = claim.producer
        self.target_lineage = lineage.with_leader(claim.leader_epoch, self.target_next)

    def rest(self, phase: Phase, stop: Stop) -> None:
        """Leave the copy path (STOPPED or FENCED) until :meth:`take_up`."""
        self.phase = phase
        self.is_troubled = True
        self.reason, self.action, self.blocked = stop.reason, stop.action, stop.blocked
        self.is_undecidable = stop.is_undecidable
        self.claim = self.checked = None
        self.attempt += 1
        self.failures += 1
        self._forget()

    def note_claim(self, claim: Claim) -> None:
        """Remember a claim that was taken: batches under its producer id are ours."""
        self._claimed_ids |= {claim.producer.id}

    def note_in_force(self, claim: Claim) -> None:
        """Remember that the first batch of the log was read back."""
        self.claim = claim
        self.target_lineage = self.target_lineage.with_epoch(claim.leader_epoch, 0)

    def note_rotated(self, lapses_at: float) -> float:
        """Remember when the claims under an old producer id have lapsed; the first time counts."""
        if self._old_id_lapses_at is None:
            self._old_id_lapses_at = lapses_at
        return self._old_id_lapses_at

    def known_start(self) -> Start:
        """Return the start of the next walk, which is the end of the acknowledged records."""
        return Start(
            self.source_next,
            self.target_next,
            self.map.producer_ids | self._claimed_ids,
            fresh=self._fresh,
            has_position=not self._is_unproven,
            has_former=self.start.has_former,
            truncated=self._truncated,
            source_lineage=self.source_lineage,
            target_lineage=self.target_lineage,
            written_by=self.written_by,
            last_run=self.map.last_run,
            copy_is_gone=self.start.copy_is_gone,
        )

    def state(self) -> tuple[object, ...]:
        """Return the reported state, cheap to compare, without :attr:`sync_marks` and traffic."""
        maps = self.map
        source = self.source_next, self.source_end, self.end_at_rest
        target = self.target_next, self.target_lineage, self.written_by, self.has_position
        health = self.phase, self.reason, self.blocked, self.is_troubled
        waits = self.held_back, self.position_is_unreported
        mapped = maps.changes, maps.source_log_start, maps.target_log_start
        return source, target, health, waits, mapped

    def position(self) -> PartitionPosition:
        written_by = self.written_by
        return PartitionPosition(
            *self.assigned.copy_id,
            position=Position(self.source_next, self.target_next, self.known_end),
            producer_id=written_by.id if written_by else -1,
            producer_epoch=written_by.epoch if written_by else -1,
            source_lineage=self.source_lineage,
            target_lineage=self.target_lineage,
        )

    def take_traffic(self) -> Traffic:
        taken, self.traffic = self.traffic, Traffic()
        return taken

    def _map(self, runs: Sequence[Run]) -> None:
        self.map.add(runs, self.fetch_lineage)
        self.sync_marks.add(runs)

    def _forget_reason(self) -> None:
        self.reason = self.action = ""
        self.blocked = None

    def _forget(self) -> None:
        self.queue.clear()
        self.go_back_to(self.source_next)
