"""A slot's report of each second: map blocks, then positions, then derived records.

A position is written only after its map blocks are acknowledged, so every run before a visible
position exists. Notes precede the position, so none passes an unreported loss. The last position of
a leaving partition precedes the group without it. One report takes all positions and blocks at the
same moment, between two steps of the event loop.

Unwritten records wait, only the newest version of each. Where blocks of some partitions are late,
only the positions of those partitions wait with them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from socket import gethostname
from typing import Final

from srm.clock import now_s
from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import (
    AT_REST,
    NO_INCARNATION,
    REPORTS,
    AssignedPartition,
    HeldBack,
    Incarnation,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
    State,
)
from srm.domain.flow_state.slot_records import GROUP_SIZE, LEFT, PositionGroup, SlotHeartbeat
from srm.domain.groups.mm2_records import OffsetSync
from srm.domain.metrics import RawMetric, encode_raw
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import CopyId
from srm.domain.offset_map.runs import both_ends
from srm.domain.text.amount import some
from srm.errors import AuthorizationError, NotFoundError, SrmError, UnavailableError
from srm.logs import Troubles
from srm.replication.mapping.map_writer import MapLog
from srm.replication.mapping.map_writer import Record as MapRecord
from srm.replication.partition import PartitionCopy, Phase, SyncMark
from srm.replication.ports import Clock, ProducerId, StateLog

logger = logging.getLogger(__name__)

Records = dict[bytes, bytes | None]
_Copies = Sequence[PartitionCopy]


class PositionGroups:
    """Keeps the positions of a slot in groups, and knows which of them are to be written."""

    def __init__(self, slot: str, incarnation: Incarnation) -> None:
        self._slot = slot
        self._incarnation = incarnation
        self._groups: list[dict[CopyId, PartitionPosition]] = []
        self._number_of: dict[CopyId, int] = {}
        self._changed: set[int] = set()
        self._leaving: dict[CopyId, PartitionPosition] = {}
        self._left = 0

    def put(self, entry: PartitionPosition) -> None:
        copy_id = entry.copy_id
        self._leaving.pop(copy_id, None)
        number = self._number_of.get(copy_id)
        if number is None:
            number = self._number_of[copy_id] = self._number_with_room()
        group = self._groups[number]
        if group.get(copy_id) != entry:
            group[copy_id] = entry
            self._changed.add(number)

    def leave(self, entry: PartitionPosition) -> None:
        """Report a position for the last time: the slot no longer copies the partition."""
        self._leaving[entry.copy_id] = entry

    def last_positions(self) -> Records:
        """Return what is to be acknowledged before :meth:`forget_left`, each time by new keys."""
        entries = list(self._leaving.values())
        records: Records = {}
        for at in range(0, len(entries), GROUP_SIZE):
            part = entries[at : at + GROUP_SIZE]
            group = PositionGroup(self._slot, self._incarnation, f"{LEFT}{self._left}", tuple(part))
            records[group.key()] = group.value()
            self._left += 1
        return records

    def forget_left(self) -> None:
        """The last positions are acknowledged: take the partitions out of their groups."""
        for copy_id in self._leaving:
            number = self._number_of.pop(copy_id, None)
            if number is not None:
                del self._groups[number][copy_id]
                self._changed.add(number)
        self._leaving.clear()

    def to_write(self, *, everything: bool) -> Records:
        """Return the groups changed since :meth:`written`, or all; an empty one is deleted."""
        numbers: Iterable[int] = range(len(self._groups)) if everything else self._changed
        groups = (
            PositionGroup(
                self._slot, self._incarnation, str(number), tuple(self._groups[number].values())
            )
            for number in sorted(numbers)
        )
        return {
            group.key(): group.value() if group.positions else None
            for group in groups
            if group.positions or int(group.name) in self._changed
        }

    def written(self) -> None:
        self._changed.clear()

    def _number_with_room(self) -> int:
        for number, group in enumerate(self._groups):
            if len(group) < GROUP_SIZE:
                return number
        self._groups.append({})
        return len(self._groups) - 1


_STATES: Final[dict[Phase, State]] = {
    Phase.IDLE: "copying",
    Phase.COPYING: "copying",
    Phase.CLAIMING: "claiming",
    Phase.FENCED: "waiting",
    Phase.STOPPED: "stopped",
}


class Statuses:
    """Reports the states of partitions on change, and repeats them from time to time."""

    def __init__(self, map_topic: str) -> None:
        self._map_topic = map_topic
        self._reported: dict[TopicPartition, PartitionStatus] = {}
        self._rests_since: dict[TopicPartition, int] = {}

    def forget(self, copy: PartitionCopy) -> None:
        self._reported.pop(copy.source, None)
        self._rests_since.pop(copy.source, None)

    def changes(
        self, copies: _Copies, now_ms: int, *, due: bool, rests_due: bool
    ) -> Iterator[PartitionStatus]:
        """Yield the states to report: changed ones, all if ``due``, idle ones if ``rests_due``."""
        rested = {*self._rests_since}
        for copy in copies:
            key = copy.source
            known = self._reported.get(key)
            status = self._status(copy, known or copy.start.at_rest, now_ms)
            if status == known and not (due or (rests_due and status.state != "copying")):
                continue
            self._reported[key] = status
            yield status
        if ended := sorted(map(str, rested.difference(self._rests_since))):
            logger.warning("copied again after a stop: %s", some(ended))

    def _status(
        self, copy: PartitionCopy, known: PartitionStatus | None, now_ms: int
    ) -> PartitionStatus:
        key, state = copy.source, _STATES[copy.phase]
        if known is not None and known.state in AT_REST:
            self._rests_since.setdefault(key, known.time_ms)
            is_tried = copy.is_troubled and state not in AT_REST
            if is_tried and copy.reason in ("", known.reason):
                return known
        lost_from, lost_to = copy.blocked or (None, None)
        reason = copy.reason
        if copy.held_back and not copy.position_is_unreported and state == "copying":
            state, reason = "stopped", f"{self._map_topic} cannot be written for now"
        status = PartitionStatus(*key, state, reason, lost_from, lost_to, action=copy.action)
        if state in AT_REST:
            return replace(status, time_ms=self._rests_since.setdefault(key, now_ms))
        if not copy.is_troubled:
            self._rests_since.pop(key, None)
        if known is not None and status == replace(known, time_ms=0):
            return known
        return replace(status, time_ms=now_ms)


_SETTLE_S: Final = 2.0  # what is late after that is looked at again in the next report
_LAST_S: Final = 20.0
_EVERYTHING_S: Final = 30.0
_MOST_WAITING: Final = 100  # records of a kind that is of no use when it is late


_Sync = tuple[PartitionCopy, SyncMark]


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """Contents of one report: changed and leaving positions, MM2 syncs, metrics."""

    positions: Sequence[PartitionPosition]
    without_position: Sequence[CopyId]
    last_positions: Sequence[PartitionPosition]
    syncs: Sequence[_Sync]
    metrics: Sequence[RawMetric]
    copied: frozenset[CopyId]
    unreported: Mapping[CopyId, ProducerId]


class Reporter:
    """Writes the state of one slot to the flow's internal topics."""

    def __init__(
        self, config: FlowConfig, slot: str, state: StateLog, offset_syncs: StateLog, now_ms: Clock
    ) -> None:
        self._config = config
        self.slot = slot
        self._host = gethostname()
        self._state = state
        self._offset_syncs = offset_syncs
        self._now_ms = now_ms
        source = config.flow.source
        separator = config.policy.separator
        self._reports = internal_topics.replication(source), REPORTS
        self._metrics_place = internal_topics.raw_metrics(source), 0
        other = config.flow.target if config.offset_syncs_location == "source" else source
        self._syncs_place = internal_topics.offset_syncs(other, separator), 0
        self._incarnation = NO_INCARNATION
        self._groups = PositionGroups(slot, NO_INCARNATION)
        self._everything_due = 0.0
        self._statuses_due = False
        self._map_topic = internal_topics.offset_map(source)
        self._map = MapLog()
        self._statuses = Statuses(self._map_topic)
        self._notes: dict[tuple[str, int], PartitionNotes] = {}
        self._unreported: dict[bytes, PartitionStatus] = {}
        self._unreported_notes: dict[bytes, PartitionNotes] = {}
        self._leaving: list[PartitionPosition] = []
        self._reported_positions: dict[CopyId, ProducerId] = {}
        self._looked_at: dict[PartitionCopy, tuple[object, ...]] = {}
        self._copies: Sequence[PartitionCopy] = ()
        self._copied: frozenset[CopyId] = frozenset()
        self._positions: dict[CopyId, PartitionPosition] = {}
        self._unplaced: dict[CopyId, None] = {}
        """Partitions whose position, or the end of whose map, is not in its group yet."""
        self._synced: dict[PartitionCopy, SyncMark] = {}
        self._has_written = False
        """True if the last report is acknowledged, except where the map is late."""
        self._metrics = MetricsReader(config)
        self._writing = threading.RLock()
        self.troubles = Troubles(f"slot {slot}")

    def begin(self, incarnation: Incarnation, notes: Iterable[PartitionNotes] = ()) -> None:
        """Report as this process, and continue the notes of those before it, who had their keys."""
        self._incarnation = incarnation
        self._groups = PositionGroups(self.slot, incarnation)
        self._notes = {(entry.topic, entry.partition): entry for entry in notes}

    def is_written(self, assigned: AssignedPartition) -> bool:
        return self._has_written and not self._map.is_late(assigned.copy_id)

    @property
    def has_reported_all(self) -> bool:
        """True if the whole last report is acknowledged, partitions that left included."""
        return self._has_written and not (self._map.late or self._leaving)

    def lost(
        self, copy: PartitionCopy, lost_from: int, lost_to: int, what: str, *, is_cut: bool = False
    ) -> None:
        """Note records that can never be copied; ``is_cut``: the source lost what was copied."""
        gone = both_ends(lost_from, lost_to)
        logger.error("%s: records %s are lost: %s", copy.source, gone, what)
        notes = self._notes_of(copy).with_loss(lost_from, lost_to, what, self._now_ms())
        self._note(notes.with_cut(lost_from, copy.target_next) if is_cut else notes)

    def note_anomaly(self, copy: PartitionCopy, what: str) -> None:
        """Note an anomaly of the logs that is not a loss."""
        logger.error("%s: %s", copy.target, what)
        self._note(self._notes_of(copy).with_anomaly(what, self._now_ms()))

    def over(self, copy: PartitionCopy) -> None:
        """Note decisions that end, because the source's log lost the records they were about."""
        notes = self._notes_of(copy)
        if copy.over.items() - notes.over.items():
            ends = ", ".join(f"{slot} at offset {end}" for slot, end in copy.over.items())
            text = "%s: kept or discarded ranges end earlier, as the source lost these records: %s"
            logger.warning(text, copy.source, ends)
            self._note(notes.with_over(copy.over))

    def begins(self, copy: PartitionCopy, target_offset: int) -> None:
        """Note that the records before an offset belong to a former topic of the same name."""
        notes = self._notes_of(copy)
        if notes.begins is None or notes.begins < target_offset:
            text = "%s: re-created, its copy begins at target offset %s"
            logger.warning(text, copy.source, target_offset)
            self._note(notes.with_begin(target_offset, self._now_ms()))

    def is_full(self, copy: PartitionCopy) -> bool:
        """Return whether the partition has to wait because too much of its map is unwritten."""
        return self._map.is_full(copy.map.index.partition)

    def has_reported_position(self, copy: PartitionCopy) -> bool:
        claim = copy.unreported_claim
        return claim is not None and self._reported_positions.get(copy.assigned.copy_id) == claim

    def report_everything(self) -> None:
        """Write all positions and statuses next: a former owner may have written its own."""
        self._everything_due = 0.0
        self._statuses_due = True

    def beat(
        self,
        generation: int,
        partitions: int,
        source_silent_s: float,
        source_growth: int,
        held_back: tuple[HeldBack, ...] = (),
    ) -> None:
        """Write a heartbeat without waiting; a silence of infinity: the source never answered."""
        if self._state.waiting(self._reports) >= _MOST_WAITING:
            return  # no reader could read it in time
        now_ms = self._now_ms()
        heard_ms = 0 if source_silent_s == float("inf") else now_ms - round(source_silent_s * 1000)
        beat = SlotHeartbeat(
            slot=self.slot,
            incarnation=self._incarnation,
            generation=generation,
            time_ms=now_ms,
            partitions=partitions,
            source_heard_ms=heard_ms,
            source_growth=source_growth,
            held_back=held_back,
            host=self._host,
        )
        topic, partition = self._reports
        try:
            self._state.write(topic, beat.key(), beat.value(), partition)
            self.troubles.end("heartbeat")
        except SrmError as error:
            self.troubles.report("heartbeat", error)

    def prepare(self, copies: _Copies, leaving: _Copies = ()) -> Callable[[], None]:
        """Take a snapshot now; the returned call writes it, and blocks while it does."""
        now_ms = self._now_ms()
        for copy in leaving:
            self._statuses.forget(copy)
            self._synced.pop(copy, None)
        due, self._statuses_due = self._statuses_due, False
        rests_due = due or now_s() >= self._everything_due
        before, self._looked_at = self._looked_at, {copy: copy.state() for copy in copies}
        changed = [
            copy
            for copy, state in self._looked_at.items()
            if rests_due or before.get(copy) != state or copy.position_is_unreported
        ]
        statuses = self._statuses.changes(changed, now_ms, due=due, rests_due=rests_due)
        self._unreported |= {status.key(): status for status in statuses}
        if self._copies != copies:
            self._copies = copies
            self._copied = frozenset(copy.assigned.copy_id for copy in copies)
        last_positions = self._take(leaving)
        snapshot = _Snapshot(
            self._take(changed),
            [copy.assigned.copy_id for copy in changed if not copy.has_position],
            last_positions,
            self._new_syncs(copies) if self._config.emit_offset_syncs_enabled else [],
            self._metrics.due(copies, now_ms),
            self._copied,
            {copy.assigned.copy_id: claim for copy in changed if (claim := copy.unreported_claim)},
        )

        def write() -> None:
            self._has_written, self._reported_positions = False, {}
            with self._writing:
                try:
                    self._write(snapshot)
                    self._has_written = True
                    self.troubles.end("report")
                except SrmError as error:
                    self.troubles.report("report", error)

        return write

    def _take(self, copies: Iterable[PartitionCopy]) -> list[PartitionPosition]:
        positions = []
        for copy in copies:
            position = copy.position()
            self._map.take(copy.map, position.position)
            if copy.has_position:
                positions.append(position)
        return positions

    def report(self, copies: _Copies, leaving: _Copies = ()) -> None:
        """Write a last report before the slot ends, and wait until all of it is there."""
        with self._writing:  # a report may still be on its way
            self.prepare(copies, leaving)()
        for log in {self._state, self._offset_syncs}:
            try:
                log.flush(_LAST_S)
            except SrmError as error:
                logger.warning("slot %s: the last report is not complete: %s", self.slot, error)

    def _send_map(
        self, records: Mapping[int, Sequence[MapRecord]]
    ) -> Mapping[int, Mapping[bytes, int]]:
        """Write to the map topic and wait; what is late is not written again before it is known."""
        places = [(self._map_topic, number) for number in records]
        pending = self._state.settle(places, 0.0).pending
        sent = [place for place in places if place not in pending]
        for topic, number in sent:
            for key, value in records[number]:
                self._state.write(topic, key, value, number)
        settled = self._state.settle(sent, _SETTLE_S)
        for failure in settled.failed.values():
            self.troubles.report("offset map", failure)
        if sent and not (settled.failed or settled.pending):
            self.troubles.end("offset map")
        unknown = settled.pending | settled.failed.keys()
        return {place[1]: settled.offsets.get(place, {}) for place in sent if place not in unknown}

    def _write(self, snapshot: _Snapshot) -> None:
        # A returning partition and its map begin at the reported position. It has to find again
        # what was copied beyond that, as a later position would lack those runs in the map.
        leaving = (*self._leaving, *snapshot.last_positions)
        self._leaving = [left for left in leaving if left.copy_id not in snapshot.copied]
        self._note_positions(snapshot)
        self._map.write(self._send_map)
        self._unplaced |= dict.fromkeys(self._map.moved_ends() & self._positions.keys())
        self._write_first()
        self._place_positions()
        self._write_groups()
        self._reported_positions = {
            copy_id: claim
            for copy_id, claim in snapshot.unreported.items()
            if copy_id in self._positions and not self._map.is_late(copy_id)
        }
        self._map.on_report()
        unreported = {entry.copy_id for entry in self._leaving}
        self._map.forget_others(snapshot.copied | unreported)
        self._write_metrics(snapshot.metrics)
        self._write_syncs(snapshot.syncs)

    def _note_positions(self, snapshot: _Snapshot) -> None:
        for copy_id in {*snapshot.without_position, *(self._positions.keys() - snapshot.copied)}:
            self._positions.pop(copy_id, None)
            self._unplaced.pop(copy_id, None)
        for entry in snapshot.positions:
            self._positions[entry.copy_id] = entry
            self._unplaced[entry.copy_id] = None

    def _place_positions(self) -> None:
        for copy_id in list(self._unplaced):
            if not self._map.is_late(copy_id):
                self._groups.put(self._with_map_end(self._positions[copy_id]))
                del self._unplaced[copy_id]

    def _with_map_end(self, entry: PartitionPosition) -> PartitionPosition:
        return replace(entry, map_end=self._map.end(entry.copy_id))

    def _write_first(self) -> None:
        """Write what no position may come before: notes, and last positions of what leaves."""
        leaving, self._leaving = self._leaving, []
        for entry in leaving:
            if self._map.is_late(entry.copy_id):
                self._leaving.append(entry)
            else:
                self._groups.leave(self._with_map_end(entry))
        notes = dict(self._unreported_notes)
        first: Records = {key: noted.value() for key, noted in notes.items()}
        first |= self._groups.last_positions()
        if not first:
            return
        self._write_reports(first)
        for key, noted in notes.items():
            if self._unreported_notes.get(key) is noted:
                del self._unreported_notes[key]
        self._groups.forget_left()

    def _write_groups(self) -> None:
        everything = now_s() >= self._everything_due
        statuses = dict(self._unreported)
        records = self._groups.to_write(everything=everything)
        records |= {key: status.value() for key, status in statuses.items()}
        self._write_reports(records)  # without any, it still serves the producer of the heartbeats
        self._groups.written()
        for key, status in statuses.items():
            if self._unreported.get(key) is status:
                del self._unreported[key]
        if everything:
            self._everything_due = now_s() + _EVERYTHING_S

    def _write_reports(self, records: Records) -> None:
        topic, partition = place = self._reports
        if self._state.waiting(place) >= _MOST_WAITING:
            self._state.settle([place], _SETTLE_S)
        if self._state.waiting(place) >= _MOST_WAITING:
            raise UnavailableError(f"{topic}-{partition} takes no records")
        for key, value in records.items():
            self._state.write(topic, key, value, partition)
        settled = self._state.settle([place], _SETTLE_S)
        for failure in settled.failed.values():
            raise failure
        if settled.pending:
            raise UnavailableError(f"{topic}-{partition}: not acknowledged in time")

    def _write_metrics(self, metrics: Sequence[RawMetric]) -> None:
        topic, partition = place = self._metrics_place
        if metrics and self._state.waiting(place) < _MOST_WAITING:
            for value in encode_raw(metrics):
                self._state.write(topic, self.slot.encode(), value, partition)

    def _write_syncs(self, syncs: Sequence[_Sync]) -> None:
        self._look_after_syncs()
        for copy, (upstream_offset, downstream_offset) in syncs:
            record = OffsetSync(copy.source, upstream_offset, downstream_offset)
            topic, partition = self._syncs_place
            self._offset_syncs.write(topic, record.key(), record.value(), partition)

    def _look_after_syncs(self) -> None:
        """Have offset syncs written again that were lost; to the target once the source refuses."""
        failure = self._offset_syncs.settle([self._syncs_place], 0).failed.get(self._syncs_place)
        if failure is None:
            return
        self._synced.clear()
        refused = isinstance(failure, AuthorizationError | NotFoundError)
        if refused and self._offset_syncs is not self._state:  # KIP-716
            flow, separator = self._config.flow, self._config.policy.separator
            topic = internal_topics.offset_syncs(flow.source, separator)
            logger.warning("%s: offset syncs go to %s on %s: %s", flow, topic, flow.target, failure)
            self._offset_syncs, self._syncs_place = self._state, (topic, 0)

    def _notes_of(self, copy: PartitionCopy) -> PartitionNotes:
        assigned = copy.assigned
        notes = self._notes.get((assigned.topic, assigned.partition))
        if notes is not None and notes.topic_id == assigned.topic_id:
            return notes
        return PartitionNotes(self.slot, assigned.topic, assigned.partition, assigned.topic_id)

    def _note(self, notes: PartitionNotes) -> None:
        self._notes[notes.topic, notes.partition] = self._unreported_notes[notes.key()] = notes

    def _new_syncs(self, copies: Sequence[PartitionCopy]) -> list[_Sync]:
        syncs = []
        if self._offset_syncs.waiting(self._syncs_place) >= _MOST_WAITING:
            return []
        for copy in copies:
            for at in (copy.sync_marks.take_run_start(), copy.sync_marks.last_copied):
                if at is not None and at != self._synced.get(copy):
                    self._synced[copy] = at
                    syncs.append((copy, at))
        return syncs


class MetricsReader:
    """Looks at the traffic of a slot's partitions, which has no other reader."""

    def __init__(self, config: FlowConfig) -> None:
        self._flow = config.flow
        self._interval_s = config.metrics_interval.total_seconds()
        self._looked_s = now_s()

    def due(self, copies: Sequence[PartitionCopy], now_ms: int) -> list[RawMetric]:
        """Return what partitions with traffic or lag did since the last time; mostly nothing."""
        interval_s = now_s() - self._looked_s
        if interval_s < self._interval_s:
            return []
        self._looked_s += interval_s
        interval_ms = max(1, round(interval_s * 1000))  # the wall clock may have been set
        found = []
        for copy in copies:
            traffic, lag = copy.take_traffic(), copy.known_end - copy.source_next
            if traffic.records or lag:
                metric = RawMetric(
                    time_ms=now_ms,
                    interval_ms=interval_ms,
                    source=self._flow.source,
                    target=self._flow.target,
                    topic=copy.source.topic,
                    remote_topic=copy.target.topic,
                    partition=copy.source.partition,
                    lag_records=lag,
                    latency_count=traffic.records,
                    **asdict(traffic),
                )
                found.append(metric)
        return found
