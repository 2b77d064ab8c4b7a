"""Counters of the copied records of one partition: they only grow, for any number of readers.

A reader takes the difference to its last values, so readers do not affect each other. Smallest and
largest latency need a :class:`TrafficReader` for each reader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(slots=True)
class Counters:
    """Sums since the partition was taken on. Latencies are those of whole batches, by record."""

    records: int = 0
    bytes: int = 0
    latency_ms_sum: int = 0
    latency_count: int = 0


@dataclass(slots=True)
class Extremes:
    """Smallest and largest latency that was seen; of none, both are 0."""

    least_ms: int = 0
    most_ms: int = 0
    seen: bool = False

    def see(self, latency_ms: int) -> None:
        """Take in one more."""
        self.least_ms = min(self.least_ms, latency_ms) if self.seen else latency_ms
        self.most_ms = max(self.most_ms, latency_ms)
        self.seen = True


@dataclass(frozen=True, slots=True)
class Interval:
    """Traffic between two reads; without records the latencies are 0."""

    records: int
    bytes: int
    latency_ms_min: int
    latency_ms_max: int
    latency_ms_sum: int
    latency_count: int


class Traffic:
    """Counts acknowledged batches."""

    def __init__(self) -> None:
        self.total = Counters()
        self._extremes = Extremes()
        self._readers: list[TrafficReader] = []

    def add(self, records: int, size: int, latency_ms: int) -> None:
        """Count a batch with its records and bytes."""
        total = self.total
        total.records += records
        total.bytes += size
        total.latency_ms_sum += latency_ms * records
        total.latency_count += records
        self._extremes.see(latency_ms)
        for reader in self._readers:
            reader.extremes.see(latency_ms)

    def reader(self) -> TrafficReader:
        """Return a reader; its first interval is all there was."""
        reader = TrafficReader(self.total, replace(self._extremes))
        self._readers.append(reader)
        return reader


class TrafficReader:
    """One who looks at the traffic of a partition from time to time."""

    def __init__(self, total: Counters, extremes: Extremes) -> None:
        self.extremes = extremes
        self._total = total
        self._before = Counters()

    def take(self) -> Interval:
        """Return what was copied since the last call."""
        total, before, extremes = self._total, self._before, self.extremes
        self._before, self.extremes = replace(total), Extremes()
        return Interval(
            total.records - before.records,
            total.bytes - before.bytes,
            extremes.least_ms,
            extremes.most_ms,
            total.latency_ms_sum - before.latency_ms_sum,
            total.latency_count - before.latency_count,
        )
