"""Records of slots in the state topic, and the deletion of those that cannot be needed again."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from srm.domain.flow_state.anomalies import KEY_PREFIX as NOTES_PREFIX
from srm.domain.flow_state.anomalies import PartitionNotes
from srm.domain.flow_state.replication_records import (
    COMMANDS,
    SLOT_PREFIX,
    STATUS_PREFIX,
    Incarnation,
    PartitionPosition,
    PartitionStatus,
)
from srm.domain.flow_state.reported_positions import CopiedTopic, GoneTopics, is_superseded
from srm.domain.flow_state.slot_records import (
    PositionGroup,
    SlotHeartbeat,
    decode_slot_record,
)
from srm.domain.offset_map.map_records import CopyId
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.driver_log import LogRecord

_EVERY_S: Final = 5.0
_AT_ONCE: Final = 1000

Key = tuple[int, bytes]
"""Partition of the state topic, and key."""

SlotRecord = SlotHeartbeat | PositionGroup | PartitionStatus | PartitionNotes


def decode(record: LogRecord) -> SlotRecord | None:
    """Decode what a slot has written, None for everything else."""
    key, value = record.key, record.value or b""
    if key.startswith(SLOT_PREFIX):
        return decode_slot_record(key, value)
    if key.startswith(STATUS_PREFIX):
        return PartitionStatus.decode(value)
    if key.startswith(NOTES_PREFIX):
        return PartitionNotes.decode(value)
    return None


@dataclass
class StateBook:
    """The records of slots in the state topic; only ``slots`` of this application have a writer."""

    slots: Collection[str]
    newest: dict[str, Incarnation] = field(default_factory=dict)
    _groups: dict[Key, PositionGroup] = field(default_factory=dict)
    _heartbeats: dict[Key, SlotHeartbeat] = field(default_factory=dict)
    _statuses: dict[Key, str] = field(default_factory=dict)
    _notes: dict[Key, set[str]] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        """A record is deleted."""
        for known in (self._groups, self._heartbeats, self._statuses, self._notes):
            known.pop(key, None)

    def take(self, key: Key, record: SlotRecord) -> None:
        """Note what a record says."""
        match record:
            case SlotHeartbeat():
                self._heartbeats[key] = record
                known = self.newest.get(record.slot, record.incarnation)
                self.newest[record.slot] = max(known, record.incarnation)
            case PositionGroup():
                self._groups[key] = record
            case PartitionStatus():
                self._statuses[key] = record.topic
            case PartitionNotes():
                self._notes[key] = {record.topic_id, record.target_topic_id}

    def finished_topics(
        self, copied: Collection[CopiedTopic], gone: GoneTopics
    ) -> list[CopiedTopic]:
        """Return the deleted topics without a position or a use for one.

        While a remote topic exists, the successor of the deleted one has to know where the copy
        ends.
        """
        ended = [
            topic
            for topic in copied
            if topic.topic_id in gone.source or topic.target_topic_id in gone.target
        ]
        if not ended:
            return []
        told = {
            (entry.topic_id, entry.target_topic_id)
            for group in self._groups.values()
            for entry in group.positions
        }
        inherited = {
            entry.target_topic_id
            for group in self._groups.values()
            if self._is_live(group)
            for entry in group.positions
            if entry.producer_id >= 0 and entry.topic_id not in gone.source
        }
        return [
            topic
            for topic in ended
            if (topic.topic_id, topic.target_topic_id) not in told
            and (topic.target_topic_id in gone.target or topic.target_topic_id in inherited)
        ]

    def superseded_keys(self, gone: GoneTopics) -> list[Key]:
        """Return the records of processes of the past that are of no more use."""
        closed = {key: group for key, group in self._groups.items() if not self._is_live(group)}
        left = self._without_use(closed, gone) if closed else set()
        kept = (group for key, group in self._groups.items() if key not in left)
        written = {(group.slot, group.incarnation) for group in kept}
        old = [
            key
            for key, beat in self._heartbeats.items()
            if not self._is_newest(beat.slot, beat.incarnation)
            and (beat.slot, beat.incarnation) not in written
        ]
        return [*left, *old]

    def about(self, gone_names: Collection[str], gone: GoneTopics) -> list[Key]:
        """Return the statuses of topics that no name leads to any more, and notes of gone ones."""
        statuses = [key for key, topic in self._statuses.items() if topic in gone_names]
        ended = gone.source | gone.target
        return [*statuses, *(key for key, about in self._notes.items() if about & ended)]

    def _is_newest(self, slot: str, incarnation: Incarnation) -> bool:
        return slot in self.slots and self.newest.get(slot) == incarnation

    def _is_live(self, group: PositionGroup) -> bool:
        return not group.has_left and self._is_newest(group.slot, group.incarnation)

    def _without_use(self, closed: dict[Key, PositionGroup], gone: GoneTopics) -> set[Key]:
        wanted = {entry.copy_id for group in closed.values() for entry in group.positions}
        heirs = {(number, target) for _, number, target in wanted}
        live = defaultdict[CopyId, list[PartitionPosition]](list)
        successors = defaultdict[tuple[int, str], list[PartitionPosition]](list)
        for key, group in self._groups.items():
            if key in closed:
                continue
            for entry in group.positions:
                if entry.copy_id in wanted:
                    live[entry.copy_id].append(entry)
                place = entry.partition, entry.target_topic_id
                if place in heirs:
                    successors[place].append(entry)
        return {
            key
            for key, group in closed.items()
            if all(is_superseded(entry, live, gone, successors) for entry in group.positions)
        }


@dataclass
class Cleaning:
    """Follows copied topics to their end.

    A topic is written down in the transaction that first assigns it. Once it is gone, its statuses
    and notes are deleted, then what is known of its positions, then the places of groups in it and
    its map, then its own record: a driver that is killed on the way leaves the record, and the next
    one begins again.

    Discovery calls :meth:`look` in its own thread, as maps may take long; the driver the rest.
    """

    _copied: dict[bytes, CopiedTopic] = field(default_factory=dict)
    _gone: GoneTopics = field(default_factory=GoneTopics)
    _finished: tuple[CopiedTopic, ...] = ()
    _cleared: frozenset[bytes] = frozenset()
    _written_for: Discovered | None = None
    _due_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, topic: CopiedTopic) -> None:
        """Take over what an earlier driver wrote down."""
        with self._lock:
            self._copied[topic.key()] = topic

    def look(
        self,
        find_gone: Callable[[Collection[CopiedTopic]], GoneTopics],
        clear: Callable[[Collection[CopiedTopic]], None],
    ) -> None:
        """Find topics by ``find_gone``; ``clear`` deletes their maps and the groups' positions."""
        with self._lock:
            copied, finished = tuple(self._copied.values()), self._finished
        gone = find_gone(copied)
        with self._lock:
            self._gone = gone
        if finished:
            clear(finished)
            with self._lock:
                self._cleared |= {topic.key() for topic in finished}
                self._finished = ()

    def new_topics(self, found: Discovered | None) -> list[CopiedTopic]:
        """Return the topics to write down: copied and not known as such, or copied no longer."""
        if found is None or found is self._written_for:
            return []
        topics = (
            CopiedTopic(
                *(p.topic, p.topic_id, p.target_topic, p.target_topic_id),
                *(found.source_cluster, found.target_cluster),
            )
            for p in found.partitions
            if p.partition == 0
        )
        now = {topic.key(): topic for topic in topics}
        with self._lock:
            active = {key for key, topic in self._copied.items() if topic.active}
            left = [replace(self._copied[key], active=False) for key in active - now.keys()]
        new = sorted([*(now[key] for key in now.keys() - active), *left])
        if not new:
            self._written_for = found
        return new

    def deletions(self, state: StateBook, now: float) -> list[Key]:
        """Return some records to delete now; mostly none."""
        if now < self._due_s:
            return []
        self._due_s = now + _EVERY_S
        with self._lock:
            copied, gone, cleared = tuple(self._copied.values()), self._gone, self._cleared
        names = {topic.topic for topic in copied if topic.topic_id in gone.source}
        names -= {topic.topic for topic in copied if topic.topic_id not in gone.source}
        ended = [
            topic for topic in state.finished_topics(copied, gone) if topic.key() not in cleared
        ]
        with self._lock:
            self._finished = tuple(ended)
        return [
            *state.superseded_keys(gone),
            *state.about(names, gone),
            *((COMMANDS, key) for key in cleared),
        ][:_AT_ONCE]

    def on_publish(self, new: Collection[CopiedTopic], deletions: Collection[Key]) -> None:
        """New topics are written down, and records deleted."""
        with self._lock:
            self._copied |= {topic.key(): topic for topic in new}
            ended = self._cleared & {key for partition, key in deletions if partition == COMMANDS}
            self._cleared -= ended
            for key in ended:
                self._copied.pop(key, None)
