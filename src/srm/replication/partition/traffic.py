"""Copied records of a partition since its last report: counters, and records for offset syncs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from srm.domain.offset_map.offset_map import Run


@dataclass(slots=True)
class Traffic:
    """Acknowledged records. Latencies are those of whole batches, by record; of none they are 0."""

    records: int = 0
    bytes: int = 0
    latency_ms_min: int = 0
    latency_ms_max: int = 0
    latency_ms_sum: int = 0
    latency_count: int = 0

    def add(self, records: int, size: int, latency_ms: int) -> None:
        """Count a batch with its records and bytes."""
        known = self.latency_count
        self.latency_ms_min = min(self.latency_ms_min, latency_ms) if known else latency_ms
        self.latency_ms_max = max(self.latency_ms_max, latency_ms)
        self.latency_ms_sum += latency_ms * records
        self.latency_count += records
        self.records += records
        self.bytes += size


@dataclass(frozen=True, slots=True)
class SyncMark:
    """Offsets of one record on both sides."""

    upstream: int
    downstream: int


class SyncMarks:
    """The first record of the newest run, and the newest copied record, for MM2's offset syncs."""

    def __init__(self) -> None:
        self.last_copied: SyncMark | None = None
        self._run_start: SyncMark | None = None

    def add(self, runs: Sequence[Run]) -> None:
        """Note what was copied, in order."""
        first, last, before = runs[0], runs[-1], self.last_copied
        if (
            len(runs) > 1
            or before is None
            or first.source_start != before.upstream + 1
            or first.target_start != before.downstream + 1
        ):
            self._run_start = SyncMark(last.source_start, last.target_start)
        self.last_copied = SyncMark(last.source_end - 1, last.target_end - 1)

    def take_run_start(self) -> SyncMark | None:
        """Return the start of the newest run since the last call, if there is a new one."""
        run_start, self._run_start = self._run_start, None
        return run_start
