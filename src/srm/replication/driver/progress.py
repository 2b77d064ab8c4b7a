"""Progress of one flow's copy, as reported by its slots."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from srm.domain.flow_state.replication_records import (
    AssignedPartition,
    PartitionPosition,
    PartitionStatus,
)
from srm.domain.flow_state.reported_positions import newest_position
from srm.domain.metrics.metrics import decode_raw
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.map_records import CopyId
from srm.domain.offset_map.offset_map import Position
from srm.errors import IntegrityError, SrmError
from srm.replication.driver.state_book import Key

logger = logging.getLogger(__name__)

_NO_CLAIM = (-1, -1)
_SMOOTHING = 0.3  # weight of the newest byte rate; the rest is what was known before


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """One flow at one moment.

    ``records`` and ``bytes`` count what was copied since the driver started: records from target
    positions less the marker that each claim writes, bytes from raw metrics, which come every
    ``metrics.interval.seconds``. ``lag`` is how many source offsets are not copied yet in the
    ``reported`` partitions. ``trouble`` says why flow, topics or a duty fail now; else empty.
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


class Troubles(dict[str, SrmError]):
    """Failures that last, by what does not work; each is logged once while it stays the same."""

    def __init__(self, flow: str) -> None:
        super().__init__()
        self._flow = flow

    def report(self, what: str, error: Exception) -> SrmError:
        """Note a failure, and return it as one of srm's."""
        trouble = error if isinstance(error, SrmError) else SrmError(f"unexpected: {error!r}")
        if str(self.get(what, "")) != str(trouble):
            known = trouble is error
            logger.warning(
                *("%s: %s fails and is tried again: %s", self._flow, what, trouble),
                exc_info=None if known else error,
            )
        self[what] = trouble
        return trouble

    def end(self, what: str) -> None:
        """Note that it works."""
        if self.pop(what, None) is not None:
            logger.warning("%s: %s works again", self._flow, what)

    @property
    def first(self) -> SrmError | None:
        """The oldest of them, or None."""
        return next(iter(tuple(self.values())), None)


class ProgressBook:
    """Gathers reports, statuses and raw metrics; written by one thread, read by any.

    ``troubles`` keep the flow from being copied, ``duty_troubles`` only a duty from being done.
    """

    def __init__(self, flow: str, slots: Collection[str]) -> None:
        self.troubles = Troubles(flow)
        self.duty_troubles = Troubles(flow)
        self._flow = flow
        self._slots = len(slots)
        self._lock = threading.Lock()
        self._alive = 0
        self._partitions: dict[CopyId, AssignedPartition] = {}
        self._told: dict[CopyId, dict[Key, PartitionPosition]] = {}
        self._tellers: dict[Key, set[CopyId]] = {}
        self._positions: dict[CopyId, Position] = {}
        self._statuses: dict[TopicPartition, PartitionStatus] = {}
        self._rates: dict[TopicPartition, float] = {}
        self._counted: dict[CopyId, tuple[int, tuple[int, int]]] = {}
        self._records = 0
        self._bytes = 0

    def unknown(self, partitions: Collection[AssignedPartition]) -> list[AssignedPartition]:
        """Return the partitions from which nothing was counted yet."""
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

    def set_alive(self, slots: Collection[str]) -> None:
        """Note which slots are alive."""
        with self._lock:
            self._alive = len(slots)

    def positions(self, key: Key, positions: Collection[PartitionPosition]) -> None:
        """Take in one record's positions, none if deleted; the newest of a partition counts."""
        with self._lock:
            told = {entry.copy_id for entry in positions}
            for copy_id in self._tellers.pop(key, set()) - told:
                others = self._told[copy_id]
                del others[key]
                if not others:
                    del self._told[copy_id]
            if told:
                self._tellers[key] = told
            for entry in positions:
                known = self._told.setdefault(entry.copy_id, {})
                if known.get(key) != entry:
                    known[key] = entry
                    self._choose(entry.copy_id)

    def status(self, status: PartitionStatus) -> None:
        """Take in one status."""
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
            return {
                partition: at
                for partition, offset in goal.items()
                if (at := self._next(partition)) < offset and partition.copy_id in self._partitions
            }

    def stopped_partitions(self) -> dict[TopicPartition, PartitionStatus]:
        """Return the partitions that have stopped, with their reasons."""
        with self._lock:
            return {k: v for k, v in self._statuses.items() if v.state == "stopped"}

    @property
    def trouble(self) -> SrmError | None:
        """A failure that lasts and keeps the flow from being copied, None where there is none."""
        return self.troubles.first

    def snapshot(self) -> FlowProgress:
        """Return the state of the flow."""
        with self._lock:
            stopped = (status for status in self._statuses.values() if status.state == "stopped")
            lag = sum(max(0, p.source_end - p.source_next) for p in self._positions.values())
            return FlowProgress(
                flow=self._flow,
                topics=len({partition.topic for partition in self._partitions.values()}),
                partitions=len(self._partitions),
                reported=len(self._positions),
                lag=lag,
                records=self._records,
                bytes=self._bytes,
                slots_alive=self._alive,
                slots=self._slots,
                stopped=tuple(sorted(stopped, key=lambda s: (s.topic, s.partition))),
                trouble=str(self.trouble or self.duty_troubles.first or ""),
            )

    def _next(self, partition: AssignedPartition) -> int:
        position = self._positions.get(partition.copy_id)
        return -1 if position is None else position.source_next

    def _choose(self, copy_id: CopyId) -> None:
        if copy_id in self._partitions:
            newest = newest_position(self._told.get(copy_id, {}).values())
            if newest is not None:
                self._position(newest)

    def _position(self, entry: PartitionPosition) -> None:
        key = entry.copy_id
        if self._positions.get(key) == entry.position:
            return
        self._positions[key] = entry.position
        claim = (entry.producer_id, entry.producer_epoch)
        reached = entry.position.target_next
        counted, known_claim = self._counted.get(key, (reached, claim))
        marker = 1 if claim not in (known_claim, _NO_CLAIM) else 0
        self._records += max(0, reached - counted - marker)
        self._counted[key] = (max(counted, reached), claim)
