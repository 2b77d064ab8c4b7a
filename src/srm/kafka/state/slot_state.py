"""State that a slot follows: its assignment, and start positions of partitions."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from srm.domain.flow_state import replication_state
from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    AT_REST,
    COMMANDS,
    DRIVER_KEY,
    NOTES_PREFIX,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    PartitionNotes,
    PartitionPosition,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import CopyId, MapEnd, map_partition
from srm.domain.offset_map.offset_map import Position
from srm.engine.cluster_ports import Cluster, CompactedTopic
from srm.engine.flows.target_topics import StateTopic
from srm.errors import IntegrityError, SrmError, UnavailableError
from srm.replication.batches.batch import batches
from srm.replication.batches.records import LoopShare, records_of
from srm.replication.log_reader import LogReader, OutOfRangeError
from srm.replication.mapping import starts
from srm.replication.ports import Wire
from srm.replication.takeover import data_batches

_Starts = dict[AssignedPartition, starts.Start | SrmError]
logger = logging.getLogger(__name__)


class KafkaAssignmentFeed:
    """Follows ``assignment:<slot>`` (implements AssignmentFeed); for one event loop.

    Reads the log itself: a consumer passes a marker at the end a poll late, and claims wait for it.
    """

    def __init__(self, flow: Flow, slot: str, wire: Wire) -> None:
        self._key = ASSIGNMENT_PREFIX + slot.encode()
        self._sizes: dict[bytes, int] = {}
        self._decided: list[PartitionNotes] = []
        self._wire = wire
        self._log = TopicPartition(internal_topics.replication(flow.source), COMMANDS)
        self._reader: LogReader | None = None
        self.driver: DriverHeartbeat | None = None
        self._may_be_replaced = True
        self.position = 0

    async def poll(self, timeout_s: float) -> Assignment | None:
        reader, before = await self._log_reader(), self.position
        try:
            fetched = await reader.fetch(before, wait_ms=round(timeout_s * 1000))
        except OutOfRangeError as error:
            logger.warning("read again from its start: %s", error)
            self.position = error.log_start
            return None
        except UnavailableError:
            self._may_be_replaced = True  # perhaps: its name may lead to another topic
            raise
        records, turns = list[tuple[bytes, bytes | None]](), LoopShare()
        for batch in data_batches(fetched, read_committed=True):
            if batch.record_count and batch.last_offset >= before:
                async for piece in records_of(batch, turns, before):
                    records += ((bytes(r.key), r.value) for r in piece if r.key is not None)
        newest = await asyncio.to_thread(self._take, records) if records else None
        read = batches(fetched.records)
        self.position = max((batch.last_offset + 1 for batch in read), default=before)
        return newest

    async def end(self) -> int:
        _, end = await self._wire.log_range(self._log)
        return end

    async def _log_reader(self) -> LogReader:
        if self._reader is None or self._may_be_replaced:
            topic_id = await self._wire.topic_id(self._log.topic)
            if topic_id is None:
                raise UnavailableError(f"{self._log.topic} on {self._wire.alias} does not exist")
            if self._reader is None or self._reader.topic_id != topic_id:
                self._reader = LogReader(self._wire, self._log, topic_id, read_committed=True)
                self.position = 0
            self._may_be_replaced = False
        return self._reader

    def _take(self, records: Iterable[tuple[bytes, bytes | None]]) -> Assignment | None:
        """Take records in, and return the newest assignment among them; large ones take long."""
        newest = None
        for key, value in records:
            try:
                if key.startswith(NOTES_PREFIX) and value is not None:
                    self._decided.append(PartitionNotes.decode(value))
                if key == DRIVER_KEY and value is not None:
                    self.driver = DriverHeartbeat.decode(value)
                if not key.startswith(ASSIGNMENT_PREFIX):
                    continue
                assignment = None if value is None else Assignment.decode(value)
            except IntegrityError as error:
                logger.warning("skipped: %s", error)
                continue
            self._sizes[key] = 0 if assignment is None else len(assignment.partitions)
            if key == self._key and assignment is not None:
                newest = assignment
        return newest

    def take_decisions(self) -> Collection[PartitionNotes]:
        decided, self._decided = self._decided, []
        return decided

    def share(self) -> float:
        return self._sizes.get(self._key, 0) / max(1, sum(self._sizes.values()))


class MapStarts:
    """Reads starts of a flow from its target (implements StartReader); damage is per partition."""

    def __init__(self, flow: Flow, target: Cluster) -> None:
        self._flow = flow
        self._target = target

    def load(self, partitions: Sequence[AssignedPartition], *, thorough: bool = False) -> _Starts:
        # Reports first: a position is written after its blocks, so it has to be read before them.
        state = replication_state.decode_state(StateTopic(self._target, self._flow.source).read())
        reported = replication_state.positions_by_copy(state.reports)
        wanted: dict[int, dict[AssignedPartition, MapEnd | None]] = defaultdict(dict)
        for assigned in self._copied_partitions(partitions, reported):
            newest = replication_state.newest_position(reported.get(assigned.copy_id, ()))
            number = map_partition(assigned.topic, assigned.partition)
            wanted[number][assigned] = newest.map_end if newest else None
        of_targets = defaultdict[tuple[int, str], list[PartitionPosition]](list)
        for copy_id, entries in reported.items():
            of_targets[copy_id[1:]] += entries
        found: _Starts = {}
        for number, ends in sorted(wanted.items()):
            try:
                known = starts.known_maps(ends, self._map_topic(number), ends if thorough else ())
            except UnavailableError as error:
                found |= dict.fromkeys(ends, error)
                continue
            for assigned, ending in known.items():
                copy_id = assigned.copy_id
                of_target = of_targets[copy_id[1:]]
                former = [entry for entry in of_target if entry.topic_id != assigned.topic_id]
                try:
                    start = starts.start_of(ending, reported.get(copy_id, ()), former)
                except IntegrityError as error:
                    found[assigned] = error
                else:
                    if start is not None:
                        found[assigned] = start
        return _with_reports(partitions, found, state, reported)

    def cut(self, assigned: AssignedPartition, target_end: int) -> starts.Start:
        start = self.load([assigned]).get(assigned) or starts.Start(0, 0, has_position=False)
        if isinstance(start, SrmError):
            raise start
        topic = self.map_of(assigned)
        position = Position(start.source_next, start.target_next, start.source_next)
        before = starts.translate_back(start.tree, position, target_end, topic)
        return starts.cut_start(start, before, target_end)

    def predecessor(self, slot: str) -> starts.Predecessor:
        state = replication_state.decode_state(StateTopic(self._target, self._flow.source).read())
        seen = [report.incarnation for report in state.reports if report.slot == slot]
        meant = [entry.incarnation for entry in state.assignments if entry.slot == slot]
        return starts.Predecessor(
            tuple(found for found in (*seen, *meant) if found is not None),
            tuple(entry for entry in state.notes if entry.slot == slot),
        )

    def log_starts(self, partitions: Collection[AssignedPartition]) -> dict[AssignedPartition, int]:
        places = {p: TopicPartition(p.target_topic, p.partition) for p in partitions}
        found = self._target.log_starts(list(places.values()))
        return {p: found[place] for p, place in places.items() if place in found}

    def _copied_partitions(
        self,
        partitions: Sequence[AssignedPartition],
        reported: Mapping[CopyId, Sequence[PartitionPosition]],
    ) -> list[AssignedPartition]:
        """Omit partitions that were never copied: no report names them, the target log is empty.

        A claim of a former source's owner may still write to that log.
        """
        written = {copy_id[1:] for copy_id in _written(reported)}
        unknown = {p for p in partitions if not (p.copy_id in reported or p.copy_id[1:] in written)}
        places = {p: TopicPartition(p.target_topic, p.partition) for p in unknown}
        ends = self._target.high_watermarks(list(places.values())) if places else {}
        never = {p for p, place in places.items() if ends.get(place) == 0}
        return [p for p in partitions if p not in never]

    def map_of(self, assigned: AssignedPartition) -> CompactedTopic:
        return self._map_topic(map_partition(assigned.topic, assigned.partition))

    def _map_topic(self, number: int) -> CompactedTopic:
        return self._target.compacted_topic(internal_topics.offset_map(self._flow.source), number)


def _written(reported: Mapping[CopyId, Sequence[PartitionPosition]]) -> set[CopyId]:
    """Return the copies to which a claim that was reported may have written."""
    return {
        copy_id
        for copy_id, entries in reported.items()
        if any(one.may_have_written for one in entries)
    }


def _with_reports(
    partitions: Sequence[AssignedPartition],
    found: _Starts,
    state: replication_state.ReplicationState,
    reported: Mapping[CopyId, Sequence[PartitionPosition]],
) -> _Starts:
    """Apply operators' decisions and separate reports; start again for a new remote topic."""
    decided = defaultdict[tuple[str, int], list[PartitionNotes]](list)
    for note in state.notes:
        if note.decision or note.over:
            decided[note.topic_id, note.partition].append(note)
    at_rest = {(s.topic, s.partition): s for s in state.statuses if s.state in AT_REST}
    remote = {(one.topic_id, one.target_topic_id): one.target_topic for one in state.copied}
    former = defaultdict[tuple[str, int], set[tuple[str, int]]](set)
    for (topic_id, number, target_id), entries in reported.items():
        wrote = {(target_id, one.producer_id) for one in entries if one.may_have_written}
        former[topic_id, number] |= wrote
        former[remote.get((topic_id, target_id), ""), number] |= wrote
    written = _written(reported)
    for assigned in partitions:
        start, copy_id = found.get(assigned), assigned.copy_id
        if isinstance(start, SrmError):
            continue
        if about := decided.get((assigned.topic_id, assigned.partition)):
            start = starts.decided_start(start, about)
        places = (copy_id[:2], (assigned.target_topic, assigned.partition))
        known = (pair for one in places for pair in former[one] if copy_id not in written)
        if of := {one for target_id, one in known if target_id != assigned.target_topic_id}:
            # A batch to the former topic may still have reached this one: it is of these ids.
            start = start or starts.NOWHERE
            ids = start.producer_ids | {producer_id for producer_id in of if producer_id >= 0}
            start = replace(start, copy_is_gone=True, producer_ids=ids)
        if status := at_rest.get((assigned.topic, assigned.partition)):
            start = replace(start or starts.NOWHERE, at_rest=status)
        if start is not None:
            found[assigned] = start
    return found
