"""Decoder of the state topic of a flow, ``__srm-replication.<SOURCE>``."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from srm.domain.flow_state.anomalies import KEY_PREFIX, PartitionNotes, with_notes
from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    SLOT_PREFIX,
    STATUS_PREFIX,
    AssignedPartition,
    Assignment,
    PartitionStatus,
    SlotReport,
)
from srm.domain.flow_state.reported_positions import COPIED_PREFIX, CopiedTopic
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat, decode_slot_record
from srm.domain.names.topics import TopicPartition
from srm.errors import IntegrityError

_logger = logging.getLogger(__name__)

PartitionId = tuple[str, int]
"""Source topic id and partition number."""


@dataclass(frozen=True)
class ReplicationState:
    """Decoded records of the topic ``__srm-replication.<SOURCE>``."""

    assignments: tuple[Assignment, ...] = ()
    reports: tuple[SlotReport, ...] = ()
    statuses: tuple[PartitionStatus, ...] = ()
    notes: tuple[PartitionNotes, ...] = ()
    copied: tuple[CopiedTopic, ...] = ()

    def statuses_of(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, PartitionStatus]:
        """Return the statuses of the partitions of topics (current id by name), with notes."""
        found = {
            TopicPartition(status.topic, status.partition): status
            for status in self.statuses
            if status.topic in topic_ids
        }
        noted = self.notes_of(topic_ids)
        told = {place: with_notes(found.get(place), noted[place]) for place in noted}
        return found | {place: status for place, status in told.items() if status is not None}

    def notes_of(
        self, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[PartitionNotes, ...]]:
        """Return the notes of slots on partitions of the topics with these ids."""
        noted = defaultdict[TopicPartition, tuple[PartitionNotes, ...]](tuple)
        for entry in self.notes:
            if topic_ids.get(entry.topic) == entry.topic_id:
                noted[TopicPartition(entry.topic, entry.partition)] += (entry,)
        return dict(noted)

    def newest_assignments(self) -> dict[PartitionId, tuple[int, AssignedPartition]]:
        """Return the newest assignment of each partition, with its generation."""
        newest: dict[PartitionId, tuple[int, AssignedPartition]] = {}
        for assignment in sorted(self.assignments, key=lambda a: a.generation):
            for entry in assignment.partitions:
                newest[entry.topic_id, entry.partition] = (assignment.generation, entry)
        return newest


def decode_state(table: Mapping[bytes, bytes]) -> ReplicationState:
    """Decode all readable records; log and omit the rest, which only causes delay."""
    assignments: list[Assignment] = []
    statuses: list[PartitionStatus] = []
    notes: list[PartitionNotes] = []
    copied: list[CopiedTopic] = []
    slots = _Slots()
    for key, value in table.items():
        try:
            if key.startswith(ASSIGNMENT_PREFIX):
                assignments.append(Assignment.decode(value))
            elif key.startswith(SLOT_PREFIX):
                slots.add(key, value)
            elif key.startswith(STATUS_PREFIX):
                statuses.append(PartitionStatus.decode(value))
            elif key.startswith(KEY_PREFIX):
                notes.append(PartitionNotes.decode(value))
            elif key.startswith(COPIED_PREFIX):
                copied.append(CopiedTopic.decode(value))
        except IntegrityError as error:
            _logger.warning("replication state record %r cannot be read: %s", key, error)
    return ReplicationState(
        tuple(assignments), slots.reports(), tuple(statuses), tuple(notes), tuple(copied)
    )


class _Slots:
    def __init__(self) -> None:
        self._heartbeats = defaultdict[str, list[SlotHeartbeat]](list)
        self._groups = defaultdict[str, list[PositionGroup]](list)

    def add(self, key: bytes, value: bytes) -> None:
        record = decode_slot_record(key, value)
        if isinstance(record, SlotHeartbeat):
            self._heartbeats[record.slot].append(record)
        else:
            self._groups[record.slot].append(record)

    def reports(self) -> tuple[SlotReport, ...]:
        names = {*self._heartbeats, *self._groups}
        return tuple(self._report(slot) for slot in sorted(names))

    def _report(self, slot: str) -> SlotReport:
        groups = self._groups[slot]
        beat = max(self._heartbeats[slot], key=lambda beat: beat.incarnation, default=None)
        heard = max(self._heartbeats[slot], key=lambda beat: beat.source_heard_ms, default=None)
        newest = beat.incarnation if beat else max(group.incarnation for group in groups)
        current = tuple(
            entry
            for group in groups
            if group.incarnation == newest and not group.has_left
            for entry in group.positions
        )
        former = tuple(
            entry
            for group in groups
            if group.incarnation != newest or group.has_left
            for entry in group.positions
        )
        return SlotReport(
            slot,
            beat.generation if beat else -1,
            beat.time_ms if beat else 0,
            current,
            newest,
            former,
            heard.source_heard_ms if heard else 0,
            heard.source_growth if heard else 0,
            tuple(one for beat in self._heartbeats[slot] for one in beat.held_back),
        )
