"""What a slot writes down each second: map blocks, then positions, then what follows from them.

The order matters to readers: a position is written only after the map blocks it rests on are
acknowledged, so whoever sees a position finds every run before it. Notes come before the position,
so none passes a loss that was not told. All positions and blocks of one
report are taken at the same moment, between two steps of the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from srm.config.model import FlowConfig
from srm.domain import internal_topics
from srm.domain.map_records import BlockKey, MapBlock, map_partition
from srm.domain.metrics import RawMetric
from srm.domain.mm2_records import OffsetSync
from srm.domain.partition_notes import PartitionNotes
from srm.domain.replication_records import (
    PartitionPosition,
    PartitionStatus,
    SlotReport,
    State,
)
from srm.errors import AuthorizationError, NotFoundError, SrmError
from srm.replication.clock import now_s
from srm.replication.ports import Clock, StateLog
from srm.replication.slot.partition import PartitionCopy, Phase, RunStart, Traffic

logger = logging.getLogger(__name__)

_FLUSH_S: Final = 20.0
_STATES: Final[dict[Phase, State]] = {
    Phase.IDLE: "copying",
    Phase.COPYING: "copying",
    Phase.CLAIMING: "claiming",
    Phase.FENCED: "waiting",
    Phase.STOPPED: "stopped",
}


@dataclass(frozen=True, slots=True)
class _Sync:
    copy: PartitionCopy
    at: RunStart


class Reporter:
    """Writes the state of one slot to the flow's internal topics."""

    def __init__(
        self,
        config: FlowConfig,
        slot: str,
        state: StateLog,
        offset_syncs: StateLog,
        now_ms: Clock,
    ) -> None:
        self._config = config
        self._slot = slot
        self._state = state
        self._offset_syncs = offset_syncs
        self._now_ms = now_ms
        source = config.flow.source
        separator = config.policy.separator
        self._map_topic = internal_topics.offset_map(source)
        self._replication_topic = internal_topics.replication(source)
        self._metrics_topic = internal_topics.raw_metrics(source)
        other = config.flow.target if config.offset_syncs_location == "source" else source
        self._syncs_topic = internal_topics.offset_syncs(other, separator)
        self._statuses: dict[tuple[str, int], PartitionStatus] = {}
        self._notes: dict[tuple[str, int], PartitionNotes] = {}
        self._new_notes: dict[bytes, PartitionNotes] = {}
        self._unwritten: list[MapBlock] = []
        self._replaced: list[tuple[str, BlockKey]] = []
        self._untold: list[PartitionStatus] = []
        self._untold_notes: dict[bytes, PartitionNotes] = {}
        self._synced: dict[PartitionCopy, RunStart] = {}
        self._is_written = False
        self._metrics_at = now_s()
        self._metrics_ms = now_ms()

    @property
    def slot(self) -> str:
        """Name of the slot."""
        return self._slot

    def remember(self, notes: Iterable[PartitionNotes]) -> None:
        """Go on with the notes of this slot's predecessor, who had the same keys."""
        self._notes = {(entry.topic, entry.partition): entry for entry in notes}

    @property
    def goes_on_after_loss(self) -> bool:
        """Whether a partition goes on after records were lost (data.loss.policy=continue)."""
        return self._config.data_loss_policy == "continue"

    @property
    def is_written(self) -> bool:
        """Whether the last report is acknowledged, with everything that it rests on."""
        return self._is_written

    def lost(self, copy: PartitionCopy, lost_from: int, lost_to: int, what: str) -> None:
        """Note that source records in a range can never be copied."""
        logger.error("%s: records %s to %s are lost: %s", copy.source, lost_from, lost_to, what)
        self._note(self._notes_of(copy).with_loss(lost_from, lost_to, what, self._now_ms()))

    def strange(self, copy: PartitionCopy, what: str) -> None:
        """Note something about the logs that is no loss but should not be."""
        logger.error("%s: %s", copy.target, what)
        self._note(self._notes_of(copy).with_strange(what, self._now_ms()))

    def prepare(
        self,
        generation: int,
        copies: Sequence[PartitionCopy],
        leaving: Sequence[PartitionCopy],
        kept: Iterable[PartitionPosition] = (),
    ) -> Callable[[], None]:
        """Take a snapshot now; the returned call writes it, and blocks while it does.

        ``kept`` are positions of partitions that are not copied here any more, or not yet: whoever
        takes them up looks for them in this report.
        """
        now_ms = self._now_ms()
        blocks = [
            *self._unwritten,
            *(
                block
                for copy in (*leaving, *copies)
                for block in copy.map.changed_blocks(copy.position().position)
            ),
        ]
        replaced = [
            *self._replaced,
            *(
                (copy.source.topic, key)
                for copy in (*leaving, *copies)
                for key in copy.map.replaced_blocks()
            ),
        ]
        positions = [copy.position() for copy in copies if copy.has_position]
        told = {(entry.topic_id, entry.partition) for entry in positions}
        positions += [entry for entry in kept if (entry.topic_id, entry.partition) not in told]
        report = SlotReport(self._slot, generation, now_ms, tuple(positions))
        changed = self._changed_statuses(copies, now_ms)
        statuses = [*self._untold, *changed]
        notes, self._new_notes = {**self._untold_notes, **self._new_notes}, {}
        syncs = self._new_syncs(copies) if self._config.emit_offset_syncs_enabled else []
        metrics = self._due_metrics(copies, now_ms)

        def write() -> None:
            # No position may be reported before its blocks are acknowledged, so a block whose fate
            # is unknown is written again first.
            self._unwritten, self._replaced = blocks, replaced
            self._untold, self._untold_notes = statuses, notes
            self._is_written = False
            try:
                self._write_blocks(blocks)
                self._unwritten = []
                self._delete_blocks(replaced)
                self._replaced = []
                self._write(notes, report, statuses, syncs, metrics)
                self._untold, self._untold_notes = [], {}
                self._is_written = True
            except SrmError as error:
                logger.warning("slot %s: report is late: %s", self._slot, error)

        return write

    def report(
        self,
        generation: int,
        copies: Sequence[PartitionCopy],
        leaving: Sequence[PartitionCopy],
        kept: Iterable[PartitionPosition] = (),
    ) -> None:
        """Write a last report before the slot ends."""
        self.prepare(generation, copies, leaving, kept)()

    def _write_blocks(self, blocks: list[MapBlock]) -> None:
        for block in blocks:
            partition = map_partition(block.topic, block.partition)
            self._state.write(self._map_topic, block.key(), block.value(), partition)
        if blocks:
            self._state.flush(_FLUSH_S)

    def _delete_blocks(self, replaced: list[tuple[str, BlockKey]]) -> None:
        for topic, key in replaced:
            partition = map_partition(topic, key.partition)
            self._state.write(self._map_topic, key.encode(), None, partition)

    def _write(
        self,
        notes: Mapping[bytes, PartitionNotes],
        report: SlotReport,
        statuses: list[PartitionStatus],
        syncs: list[_Sync],
        metrics: list[RawMetric],
    ) -> None:
        for key, noted in notes.items():
            self._state.write(self._replication_topic, key, noted.value())
        self._state.write(self._replication_topic, report.key(), report.value())
        for status in statuses:
            self._state.write(self._replication_topic, status.key(), status.value())
        for metric in metrics:
            self._state.write(self._metrics_topic, metric.key(), metric.value())
        self._leave_a_source_that_refuses()
        for sync in syncs:
            record = OffsetSync(sync.copy.source, sync.at.upstream, sync.at.downstream)
            self._offset_syncs.write(self._syncs_topic, record.key(), record.value())
        self._state.flush(_FLUSH_S)

    def _leave_a_source_that_refuses(self) -> None:
        """Write offset syncs to the target once the source has refused them (KIP-716)."""
        if self._offset_syncs is self._state:
            return
        failure = self._offset_syncs.failure()
        if isinstance(failure, AuthorizationError | NotFoundError):
            flow, separator = self._config.flow, self._config.policy.separator
            topic = internal_topics.offset_syncs(flow.source, separator)
            logger.warning("%s: offset syncs go to %s on %s: %s", flow, topic, flow.target, failure)
            self._offset_syncs, self._syncs_topic = self._state, topic
            self._synced.clear()  # what was refused is written again

    def _notes_of(self, copy: PartitionCopy) -> PartitionNotes:
        assigned = copy.assigned
        notes = self._notes.get((assigned.topic, assigned.partition))
        if notes is not None and notes.topic_id == assigned.topic_id:
            return notes
        return PartitionNotes(self._slot, assigned.topic, assigned.partition, assigned.topic_id)

    def _note(self, notes: PartitionNotes) -> None:
        self._notes[notes.topic, notes.partition] = self._new_notes[notes.key()] = notes

    def _changed_statuses(
        self, copies: Sequence[PartitionCopy], now_ms: int
    ) -> list[PartitionStatus]:
        changed = []
        for copy in copies:
            key = (copy.source.topic, copy.source.partition)
            lost_from, lost_to = copy.blocked or (None, None)
            status = PartitionStatus(*key, _STATES[copy.phase], copy.reason, lost_from, lost_to)
            if status != self._statuses.get(key):
                self._statuses[key] = status
                changed.append(replace(status, time_ms=now_ms))
        return changed

    def _new_syncs(self, copies: Sequence[PartitionCopy]) -> list[_Sync]:
        """Collect MM2 offset syncs: the newest run start and the newest copied record."""
        syncs = []
        for copy in copies:
            for at in (copy.take_run_start(), copy.last_copied):
                if at is not None and at != self._synced.get(copy):
                    self._synced[copy] = at
                    syncs.append(_Sync(copy, at))
        return syncs

    def _due_metrics(self, copies: Sequence[PartitionCopy], now_ms: int) -> list[RawMetric]:
        if now_s() - self._metrics_at < self._config.metrics_interval.total_seconds():
            return []
        self._metrics_at = now_s()
        interval_ms, self._metrics_ms = now_ms - self._metrics_ms, now_ms
        records = []
        for copy in copies:
            traffic = copy.take_traffic()
            lag = max(0, copy.source_end - copy.source_next)
            if traffic.records or lag:
                records.append(self._metric(copy, traffic, lag, now_ms, interval_ms))
        return records

    def _metric(
        self, copy: PartitionCopy, traffic: Traffic, lag: int, now_ms: int, interval_ms: int
    ) -> RawMetric:
        return RawMetric(
            time_ms=now_ms,
            interval_ms=interval_ms,
            source=self._config.flow.source,
            target=self._config.flow.target,
            topic=copy.source.topic,
            remote_topic=copy.target.topic,
            partition=copy.source.partition,
            records=traffic.records,
            bytes=traffic.bytes,
            latency_ms_min=traffic.latency_ms_min,
            latency_ms_max=traffic.latency_ms_max,
            latency_ms_sum=traffic.latency_ms_sum,
            latency_count=traffic.latency_count,
            lag_records=lag,
        )
