"""Decoded state topic of a flow, and the newest of the positions that several processes report.

Several processes report a partition that moved or whose slot restarted, in any order. A leaving
partition's last position is written once, and reports of a former process stay
(:mod:`.slot_records`), as the next owner begins there. They are stale once a live process reports a
position that readers prefer, which it can only after it has read the old one.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    NOTES_PREFIX,
    SLOT_PREFIX,
    STATUS_PREFIX,
    AssignedPartition,
    Assignment,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
    with_notes,
)
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat, decode_slot_record
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import CopyId
from srm.domain.text.documents import Document
from srm.errors import IntegrityError


def positions_by_copy(reports: Iterable[SlotReport]) -> dict[CopyId, list[PartitionPosition]]:
    """Return the reported positions of each copy, those of current owners first."""
    found: dict[CopyId, list[PartitionPosition]] = defaultdict(list)
    known = list(reports)
    for entries in (*(r.positions for r in known), *(r.former for r in known)):
        for entry in entries:
            found[entry.copy_id].append(entry)
    return dict(found)


def newest_position(candidates: Iterable[PartitionPosition]) -> PartitionPosition | None:
    """Choose among the positions that several slots report for one copy.

    The latest leader epoch of the target counts first: what was reported under an earlier one can
    be further, and of a later claim, and wrong, as the log may have lost its end since. Then, under
    one producer id, the highest epoch is the owner. Ids expire after a week without a claim, so
    there may be several: of these the furthest position counts, of equal ones the first.
    """
    entries = list(candidates)
    latest = max((entry.target_lineage.epoch for entry in entries), default=-1)
    owners: dict[int, PartitionPosition] = {}
    for entry in entries:
        if entry.target_lineage.epoch not in (-1, latest):
            continue
        known = owners.get(entry.producer_id)
        if known is None or _claim_order(entry) > _claim_order(known):
            owners[entry.producer_id] = entry
    return max(owners.values(), key=_distance, default=None)


def _distance(entry: PartitionPosition) -> tuple[int, int, int]:
    position = entry.position
    return position.target_next, position.source_next, position.source_end


def _claim_order(entry: PartitionPosition) -> tuple[int, int, int, int]:
    return entry.producer_epoch, *_distance(entry)


COPIED_PREFIX = b"copied:"


@dataclass(frozen=True, slots=True, order=True)
class CopiedTopic(Document):
    """A topic that a flow copies (``active``) or has copied, with records in the state topics.

    It is written before and deleted after those records, so a driver knows which topics to look
    for. Brokers hide topics that srm may not see, so it has names, too. It has Kafka's ids of both
    clusters: a topic is not gone because an address leads to another cluster.
    """

    KIND = "copied topic"
    topic: str
    topic_id: str
    target_topic: str
    target_topic_id: str
    source_cluster: str
    target_cluster: str
    active: bool = True

    def key(self) -> bytes:
        return COPIED_PREFIX + f"{self.topic_id}:{self.target_topic_id}".encode()


@dataclass(frozen=True, slots=True)
class GoneTopics:
    """Ids of deleted topics, of each side."""

    source: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()


def is_superseded(
    entry: PartitionPosition,
    live: Mapping[CopyId, Collection[PartitionPosition]],
    gone: GoneTopics,
    successors: Mapping[tuple[int, str], Iterable[PartitionPosition]],
) -> bool:
    """Return True if a position that no process writes any more can be deleted.

    ``live`` are positions that live processes report, ``successors`` the same by partition number
    and topic id of either side: a re-created topic continues after the records of its former self,
    and a batch to a former remote topic may still reach the next one, until that is claimed.
    """
    topic_id, number, target_id = entry.copy_id
    ended = topic_id in gone.source, target_id in gone.target
    if any(ended):
        heirs = successors.get((number, target_id if ended[0] else topic_id), ())
        claimed = (other for other in heirs if other.producer_id >= 0)
        return all(ended) or any(other.copy_id != entry.copy_id for other in claimed)
    reported = live.get(entry.copy_id, ())
    return bool(reported) and newest_position([*reported, entry]) is not entry


_logger = logging.getLogger(__name__)
_KINDS: Final[Mapping[bytes, type[Assignment | Document]]] = {
    ASSIGNMENT_PREFIX: Assignment,
    STATUS_PREFIX: PartitionStatus,
    NOTES_PREFIX: PartitionNotes,
    COPIED_PREFIX: CopiedTopic,
}

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
        found = {
            TopicPartition(status.topic, status.partition): status
            for status in self.statuses
            if status.topic in topic_ids
        }
        noted = self.notes_of(topic_ids)
        merged = {place: with_notes(found.get(place), noted[place]) for place in noted}
        return found | {place: status for place, status in merged.items() if status is not None}

    def notes_of(
        self, topic_ids: Mapping[str, str]
    ) -> dict[TopicPartition, tuple[PartitionNotes, ...]]:
        noted = defaultdict[TopicPartition, tuple[PartitionNotes, ...]](tuple)
        for entry in self.notes:
            if topic_ids.get(entry.topic) == entry.topic_id:
                noted[TopicPartition(entry.topic, entry.partition)] += (entry,)
        return dict(noted)

    def newest_assignments(self) -> dict[PartitionId, tuple[int, AssignedPartition]]:
        newest: dict[PartitionId, tuple[int, AssignedPartition]] = {}
        for assignment in sorted(self.assignments, key=lambda a: a.generation):
            for entry in assignment.partitions:
                newest[entry.topic_id, entry.partition] = (assignment.generation, entry)
        return newest


def decode_state(table: Mapping[bytes, bytes]) -> ReplicationState:
    """Decode all readable records; log and omit the rest, which only causes delay."""
    found = defaultdict[bytes, list[Any]](list)
    for key, value in table.items():
        prefix = key[: key.find(b":") + 1]
        try:
            if prefix == SLOT_PREFIX:
                found[prefix].append(decode_slot_record(key, value))
            elif prefix in _KINDS:
                found[prefix].append(_KINDS[prefix].decode(value))
        except IntegrityError as error:
            _logger.warning("replication state record %r cannot be read: %s", key, error)
    reports = tuple(_reports(found[SLOT_PREFIX]))
    assignments, statuses, notes, copied = (tuple(found[prefix]) for prefix in _KINDS)
    return ReplicationState(assignments, reports, statuses, notes, copied)


def _reports(records: Iterable[SlotHeartbeat | PositionGroup]) -> Iterator[SlotReport]:
    beats_of = defaultdict[str, list[SlotHeartbeat]](list)
    groups_of = defaultdict[str, list[PositionGroup]](list)
    for record in records:
        if isinstance(record, SlotHeartbeat):
            beats_of[record.slot].append(record)
        else:
            groups_of[record.slot].append(record)
    for slot in sorted({*beats_of, *groups_of}):
        beats, groups = beats_of[slot], groups_of[slot]
        beat = max(beats, key=lambda beat: beat.incarnation, default=None)
        heard = max(beats, key=lambda beat: beat.source_heard_ms, default=None)
        newest = beat.incarnation if beat else max(group.incarnation for group in groups)
        positions: dict[bool, list[PartitionPosition]] = {True: [], False: []}
        for group in groups:
            is_current = group.incarnation == newest and not group.has_left
            positions[is_current] += group.positions
        yield SlotReport(
            slot,
            beat.generation if beat else -1,
            beat.time_ms if beat else 0,
            tuple(positions[True]),
            newest,
            tuple(positions[False]),
            heard.source_heard_ms if heard else 0,
            heard.source_growth if heard else 0,
            tuple(one for beat in beats for one in beat.held_back),
            beat.host if beat else "",
        )
