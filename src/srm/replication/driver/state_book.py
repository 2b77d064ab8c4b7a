"""The flow's state topic: its port, what slots write there, and what may be deleted of it."""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from srm.domain.flow_state.replication_records import (
    COMMANDS,
    NOTES_PREFIX,
    SLOT_PREFIX,
    STATUS_PREFIX,
    AssignedPartition,
    Incarnation,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
    Pause,
)
from srm.domain.flow_state.replication_state import (
    CopiedTopic,
    GoneTopics,
    is_superseded,
    newest_position,
)
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat, decode_slot_record
from srm.domain.metrics import decode_raw
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import CopyId
from srm.domain.offset_map.offset_map import Position
from srm.errors import IntegrityError
from srm.logs import Troubles
from srm.replication.driver.discovery import Discovered

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of the state topic or of the raw metrics topic; None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int = 0


class DriverLog(Protocol):
    """The flow's state topic, read by anyone and written by one driver at a time."""

    def read(self) -> list[LogRecord]:
        """Return the latest record of each key, commands first; raw metrics are only followed."""

    def fence(self) -> None:
        """Become the driver: every older one can write no more."""

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """Return what has been committed since the last call, waiting while there is nothing."""

    def publish(self, records: Mapping[bytes, bytes], deletions: Collection[Key] = ()) -> None:
        """Write all records to the partition of commands, or none (FencedError: a newer driver)."""

    def clear_maps(self, topics: Collection[CopiedTopic]) -> None:
        """Delete all maps of topics that are gone; safe to repeat, slow, from any thread."""

    def close(self) -> None:
        """Let go of all connections; the next :meth:`read` opens new ones."""


_AT_ONCE: Final = 1000

Key = tuple[int, bytes]
"""Partition of the state topic, and key."""

_R = TypeVar("_R", SlotHeartbeat, PositionGroup, PartitionStatus, PartitionNotes)
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
    _records: dict[Key, SlotRecord] = field(default_factory=dict)

    def forget(self, key: Key) -> None:
        self._records.pop(key, None)

    def take(self, key: Key, record: SlotRecord) -> None:
        self._records[key] = record
        if isinstance(record, SlotHeartbeat):
            known = self.newest.get(record.slot, record.incarnation)
            self.newest[record.slot] = max(known, record.incarnation)

    def _all(self, kind: type[_R]) -> dict[Key, _R]:
        return {key: found for key, found in self._records.items() if isinstance(found, kind)}

    def finished_topics(
        self, copied: Collection[CopiedTopic], gone: GoneTopics
    ) -> list[CopiedTopic]:
        """Return the deleted topics without a position or a use for one."""
        ended = [t for t in copied if t.topic_id in gone.source or t.target_topic_id in gone.target]
        if not ended:
            return []
        entries = [
            (entry, self._is_live(group))
            for group in self._all(PositionGroup).values()
            for entry in group.positions
        ]
        reported = {(entry.topic_id, entry.target_topic_id) for entry, _ in entries}
        inherited = {
            entry.target_topic_id
            for entry, is_live in entries
            if is_live and entry.producer_id >= 0 and entry.topic_id not in gone.source
        }
        return [
            topic
            for topic in ended
            if (topic.topic_id, topic.target_topic_id) not in reported
            and (topic.target_topic_id in gone.target or topic.target_topic_id in inherited)
        ]

    def superseded_keys(self, gone: GoneTopics) -> list[Key]:
        """Return the records of processes of the past that are of no more use."""
        groups = self._all(PositionGroup)
        left = self._without_use(groups, gone)
        written = {(g.slot, g.incarnation) for key, g in groups.items() if key not in left}
        old = [
            key
            for key, beat in self._all(SlotHeartbeat).items()
            if not self._is_newest(beat.slot, beat.incarnation)
            and (beat.slot, beat.incarnation) not in written
        ]
        return [*left, *old]

    def about(self, gone_names: Collection[str], gone: GoneTopics) -> list[Key]:
        """Return the statuses of topics that no name leads to any more, and notes of gone ones."""
        statuses, notes = self._all(PartitionStatus).items(), self._all(PartitionNotes).items()
        ended = gone.source | gone.target
        return [
            *(key for key, status in statuses if status.topic in gone_names),
            *(key for key, of in notes if not ended.isdisjoint((of.topic_id, of.target_topic_id))),
        ]

    def _is_newest(self, slot: str, incarnation: Incarnation) -> bool:
        return slot in self.slots and self.newest.get(slot) == incarnation

    def _is_live(self, group: PositionGroup) -> bool:
        return not group.has_left and self._is_newest(group.slot, group.incarnation)

    def _without_use(self, groups: Mapping[Key, PositionGroup], gone: GoneTopics) -> set[Key]:
        closed = {key: group for key, group in groups.items() if not self._is_live(group)}
        wanted = {entry.copy_id for group in closed.values() for entry in group.positions}
        heirs = {(number, one) for topic, number, target in wanted for one in (topic, target)}
        live = defaultdict[CopyId, list[PartitionPosition]](list)
        successors = defaultdict[tuple[int, str], list[PartitionPosition]](list)
        for key, group in groups.items() if closed else ():
            for entry in group.positions if key not in closed else ():
                if entry.copy_id in wanted:
                    live[entry.copy_id].append(entry)
                for one in (entry.topic_id, entry.target_topic_id):
                    if (entry.partition, one) in heirs:
                        successors[entry.partition, one].append(entry)
        return {
            key
            for key, group in closed.items()
            if all(is_superseded(entry, live, gone, successors) for entry in group.positions)
        }


@dataclass
class Cleaning:
    """Follows copied topics to their end.

    A topic is written down in the transaction that first assigns it. Once it is gone, its statuses
    and notes are deleted, then its positions, the places of groups in it and its map, at last its
    record: a driver that is killed leaves it to the next one. :meth:`look` is for another thread.
    """

    _copied: dict[bytes, CopiedTopic] = field(default_factory=dict)
    _gone: GoneTopics = field(default_factory=GoneTopics)
    _finished: tuple[CopiedTopic, ...] = ()
    _cleared: frozenset[bytes] = frozenset()
    _written_for: Discovered | None = None
    _due_s: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def load(self, topic: CopiedTopic) -> None:
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
                topic=p.topic,
                topic_id=p.topic_id,
                target_topic=p.target_topic,
                target_topic_id=p.target_topic_id,
                source_cluster=found.source_cluster,
                target_cluster=found.target_cluster,
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
        if now < self._due_s:
            return []
        self._due_s = now + 5.0
        with self._lock:
            copied, gone, cleared = tuple(self._copied.values()), self._gone, self._cleared
        names = {topic.topic for topic in copied if topic.topic_id in gone.source}
        names -= {topic.topic for topic in copied if topic.topic_id not in gone.source}
        ended = [one for one in state.finished_topics(copied, gone) if one.key() not in cleared]
        with self._lock:
            self._finished = tuple(ended)
        return [
            *state.superseded_keys(gone),
            *state.about(names, gone),
            *((COMMANDS, key) for key in cleared),
        ][:_AT_ONCE]

    def on_publish(self, new: Collection[CopiedTopic], deletions: Collection[Key]) -> None:
        with self._lock:
            self._copied |= {topic.key(): topic for topic in new}
            ended = self._cleared & {key for partition, key in deletions if partition == COMMANDS}
            self._cleared -= ended
            for key in ended:
                self._copied.pop(key, None)


_NO_CLAIM = (-1, -1)
_SMOOTHING = 0.3  # weight of the newest byte rate; the rest is what was known before


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """One flow at one moment.

    ``records``: offsets written to the target since the start, less a marker for each new claim.
    """

    flow: str
    topics: int
    partitions: int
    reported: int
    lag: int
    records: int
    bytes: int
    slots_alive: int
    slots: int
    stopped: tuple[PartitionStatus, ...] = ()
    trouble: str = ""


class ProgressBook:
    """Gathers reports, statuses and raw metrics; written by one thread, read by any."""

    def __init__(self, flow: str, slots: Collection[str]) -> None:
        self.troubles = Troubles(flow)
        self.duty_troubles = Troubles(flow)
        self._flow = flow
        self._slots = len(slots)
        self.pause: Pause | None = None
        self._lock = threading.Lock()
        self.alive = 0
        self._partitions: dict[CopyId, AssignedPartition] = {}
        self._reported: dict[CopyId, dict[Key, PartitionPosition]] = {}
        self._copies_in: dict[Key, set[CopyId]] = {}
        self._positions: dict[CopyId, Position] = {}
        self._statuses: dict[TopicPartition, PartitionStatus] = {}
        self._rates: dict[TopicPartition, float] = {}
        self._counted: dict[CopyId, tuple[int, tuple[int, int]]] = {}
        self._records = self._bytes = 0

    def unknown(self, partitions: Collection[AssignedPartition]) -> list[AssignedPartition]:
        with self._lock:
            return [p for p in partitions if p.copy_id not in self._counted]

    def set_partitions(
        self,
        partitions: Collection[AssignedPartition],
        target_ends: Mapping[AssignedPartition, int] | None = None,
    ) -> None:
        """Replace what the flow copies; records count from ``target_ends`` or the first report."""
        with self._lock:
            for assigned, end in (target_ends or {}).items():
                self._counted.setdefault(assigned.copy_id, (end, _NO_CLAIM))
            new = {p.copy_id for p in partitions} - self._partitions.keys()
            self._partitions = {p.copy_id: p for p in partitions}
            self._counted = {k: v for k, v in self._counted.items() if k in self._partitions}
            names = {TopicPartition(p.topic, p.partition) for p in partitions}
            self._positions = {k: v for k, v in self._positions.items() if k in self._partitions}
            self._statuses = {k: v for k, v in self._statuses.items() if k in names}
            self._rates = {k: v for k, v in self._rates.items() if k in names}
            for copy_id in new:
                self._choose(copy_id)

    def positions(self, key: Key, positions: Collection[PartitionPosition]) -> None:
        """Take in one record's positions, none if deleted; the newest of a partition counts."""
        with self._lock:
            copy_ids = {entry.copy_id for entry in positions}
            for copy_id in self._copies_in.pop(key, set()) - copy_ids:
                others = self._reported[copy_id]
                del others[key]
                if not others:
                    del self._reported[copy_id]
            if copy_ids:
                self._copies_in[key] = copy_ids
            for entry in positions:
                known = self._reported.setdefault(entry.copy_id, {})
                if known.get(key) != entry:
                    known[key] = entry
                    self._choose(entry.copy_id)

    def status(self, status: PartitionStatus) -> None:
        with self._lock:
            self._statuses[TopicPartition(status.topic, status.partition)] = status

    def metric(self, value: bytes) -> None:
        """Take in one raw metrics record; one that cannot be read only costs its numbers."""
        try:
            metrics = decode_raw(value)
        except IntegrityError as error:
            logger.warning("%s: %s", self._flow, error)
            return
        with self._lock:
            for raw in metrics:
                partition = TopicPartition(raw.topic, raw.partition)
                rate = raw.bytes * 1000 / max(1, raw.interval_ms)
                self._bytes += raw.bytes
                known = self._rates.get(partition, rate)
                self._rates[partition] = known + _SMOOTHING * (rate - known)

    def rates(self) -> dict[AssignedPartition, float]:
        """Return the smoothed bytes per second of the partitions where they are known."""
        with self._lock:
            named = {TopicPartition(p.topic, p.partition): p for p in self._partitions.values()}
            return {named[key]: rate for key, rate in self._rates.items() if key in named}

    def behind(self, goal: Mapping[AssignedPartition, int]) -> dict[AssignedPartition, int]:
        """Return the positions that have not reached the given source offsets, -1 for none."""
        with self._lock:
            copied = [p for p in goal if p.copy_id in self._partitions]
            found = {p: self._positions.get(p.copy_id) for p in copied}
        reached = {p: -1 if at is None else at.source_next for p, at in found.items()}
        return {p: at for p, at in reached.items() if at < goal[p]}

    def stopped_partitions(self) -> dict[TopicPartition, PartitionStatus]:
        with self._lock:
            return {k: v for k, v in self._statuses.items() if v.state == "stopped"}

    def snapshot(self) -> FlowProgress:
        pause, stopped = self.pause, self.stopped_partitions()
        troubles = [f"paused: {pause.reason}"] if pause else []
        with self._lock:
            lag = sum(max(0, p.source_end - p.source_next) for p in self._positions.values())
            return FlowProgress(
                flow=self._flow,
                topics=len({partition.topic for partition in self._partitions.values()}),
                partitions=len(self._partitions),
                reported=len(self._positions),
                lag=lag,
                records=self._records,
                bytes=self._bytes,
                slots_alive=self.alive,
                slots=self._slots,
                stopped=() if pause else tuple(stopped[one] for one in sorted(stopped)),
                trouble=[*troubles, *self.troubles.lines, *self.duty_troubles.lines, ""][0],
            )

    def _choose(self, copy_id: CopyId) -> None:
        if copy_id not in self._partitions:
            return
        newest = newest_position(self._reported.get(copy_id, {}).values())
        if newest is None:
            return
        self._positions[copy_id] = newest.position
        claim = (newest.producer_id, newest.producer_epoch)
        reached = newest.position.target_next
        counted, known_claim = self._counted.get(copy_id, (reached, claim))
        begins = not (counted or newest.producer_epoch)  # the first claim has no marker
        marker = 0 if begins or claim in (known_claim, _NO_CLAIM) else 1
        self._records += max(0, reached - counted - marker)
        self._counted[copy_id] = (max(counted, reached), claim)
