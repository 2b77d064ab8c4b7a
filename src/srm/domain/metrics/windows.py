"""Sliding windows computed from raw metrics, one raw record after the other.

Time is cut into *ticks*, one slide long and aligned to the epoch. The counts of a raw record are
distributed over the ticks of its interval. A window has the bytes of each partition and its newest
lag. Its statistics are over these partitions, latencies over records or checkpoints. Equal raw
records give equal windows, in any order, however often and in however many parts they are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Final, NamedTuple

from srm.domain.metrics.metrics import (
    CheckpointMetric,
    Level,
    Measured,
    RawMetric,
    Statistics,
    WindowMetric,
)
from srm.domain.names.topics import Flow

LONGEST_INTERVAL_MS: Final = 3_600_000
"""Limit for a slot with a wrong clock, which could report an interval of years, with its ticks."""


class _Share(NamedTuple):
    """Bytes of one partition in one tick, with its newest lag and the time of that."""

    time_ms: int
    lag: int
    bytes: int

    def merge(self, other: _Share) -> _Share:
        return max(self, other)._replace(bytes=self.bytes + other.bytes)


@dataclass(slots=True)
class _Tick:
    """Measurements of one topic in one tick; checkpoints alone add no partition."""

    records: int = 0
    latency: Statistics = field(default_factory=Statistics)
    checkpoints: Statistics = field(default_factory=Statistics)
    partitions: dict[int, _Share] = field(default_factory=dict)

    def add(self, partition: int, share: _Share) -> None:
        known = self.partitions.get(partition)
        self.partitions[partition] = known.merge(share) if known else share

    def merge(self, other: _Tick) -> None:
        self.records += other.records
        self.latency = self.latency.merge(other.latency)
        self.checkpoints = self.checkpoints.merge(other.checkpoints)
        for partition, share in other.partitions.items():
            self.add(partition, share)


class _Sums(NamedTuple):
    """Sums of a topic or flow over the ticks of a window; bytes and lags are over partitions."""

    records: int
    bytes: Statistics
    lag: Statistics
    latency: Statistics
    checkpoints: Statistics

    def merge(self, other: _Sums) -> _Sums:
        return _Sums(
            self.records + other.records,
            *(one.merge(another) for one, another in zip(self[1:], other[1:], strict=True)),
        )


_Topic = tuple[str, str]
"""Topic and remote topic."""


class Windows:
    """Sums of one flow by tick, until they are forgotten.

    ``window_ms``: length of a window, a multiple of the slide ``tick_ms``.
    """

    def __init__(self, flow: Flow, window_ms: int, tick_ms: int) -> None:
        self._flow = flow
        self._window_ms = window_ms
        self._tick_ms = tick_ms
        self._ticks: defaultdict[int, dict[_Topic, _Tick]] = defaultdict(dict)
        self._changed: set[int] = set()

    def add(self, metrics: Iterable[Measured]) -> None:
        """Count raw metrics, without those with an impossible interval."""
        for metric in metrics:
            ours = (metric.source, metric.target) == (self._flow.source, self._flow.target)
            if not ours or not 1 <= metric.interval_ms <= LONGEST_INTERVAL_MS:
                continue
            if isinstance(metric, RawMetric):
                self._share_out(metric)
            else:
                self._count(metric)

    def merge(self, other: Windows) -> None:
        """Add other raw metrics of the flow, counted in ticks of the same size."""
        for tick, topics in other._ticks.items():
            self._changed.update(self._over(tick))
            for topic, found in topics.items():
                self._ticks[tick].setdefault(topic, _Tick()).merge(found)

    def forget(self, before_ms: int) -> None:
        """Drop the ticks that end at or before a time."""
        for tick in [t for t in self._ticks if t + self._tick_ms <= before_ms]:
            del self._ticks[tick]

    def between(self, first_start_ms: int, last_end_ms: int) -> Iterator[WindowMetric]:
        """Compute the windows within these times that have a tick."""
        starts = {start for tick in self._ticks for start in self._over(tick)}
        last_start_ms = last_end_ms - self._window_ms
        return self._compute(s for s in starts if first_start_ms <= s <= last_start_ms)

    def take(self, first_start_ms: int, last_end_ms: int) -> list[WindowMetric]:
        """Compute the windows within these times that have changed since the last call."""
        last_start_ms = last_end_ms - self._window_ms
        self._changed = {start for start in self._changed if start >= first_start_ms}
        ready = {start for start in self._changed if start <= last_start_ms}
        self._changed -= ready
        return list(self._compute(ready))

    def _over(self, tick: int) -> range:
        return range(tick + self._tick_ms - self._window_ms, tick + self._tick_ms, self._tick_ms)

    def _compute(self, starts: Iterable[int]) -> Iterator[WindowMetric]:
        size, step = self._window_ms, self._tick_ms
        for start in sorted(starts):
            ticks = [self._ticks[t] for t in range(start, start + size, step) if t in self._ticks]
            topics = sorted({topic for tick in ticks for topic in tick})
            of_topics = [_sums(tick[topic] for tick in ticks if topic in tick) for topic in topics]
            if of_topics:
                yield self._window("cluster", ("", ""), start, reduce(_Sums.merge, of_topics))
            for topic, sums in zip(topics, of_topics, strict=True):
                yield self._window("topic", topic, start, sums)

    def _share_out(self, metric: RawMetric) -> None:
        size, interval = self._tick_ms, metric.interval_ms
        began = metric.time_ms - interval
        last = self._last_tick(metric)
        for tick in range(began // size * size, last + 1, size):
            low, high = max(tick - began, 0), min(tick + size - began, interval)
            of_topic = self._tick(tick, metric)
            # The difference of two rounded-down parts, so that all parts add up to the whole.
            of_topic.records += metric.records * high // interval - metric.records * low // interval
            size_bytes = metric.bytes * high // interval - metric.bytes * low // interval
            share = _Share(metric.time_ms, metric.lag_records, size_bytes)
            of_topic.add(metric.partition, share)
        of_topic.latency = of_topic.latency.merge(_latency(metric))

    def _count(self, metric: CheckpointMetric) -> None:
        of_topic = self._tick(self._last_tick(metric), metric)
        of_topic.checkpoints = of_topic.checkpoints.merge(_latency(metric))

    def _last_tick(self, metric: Measured) -> int:
        return (metric.time_ms - 1) // self._tick_ms * self._tick_ms

    def _tick(self, tick: int, metric: Measured) -> _Tick:
        self._changed.update(self._over(tick))
        return self._ticks[tick].setdefault((metric.topic, metric.remote_topic), _Tick())

    def _window(self, level: Level, topic: _Topic, start_ms: int, sums: _Sums) -> WindowMetric:
        return WindowMetric(
            self._flow.source,
            self._flow.target,
            level,
            *topic,
            start_ms,
            start_ms + self._window_ms,
            sums.records,
            int(sums.bytes.sum),
            byte_rate=sums.bytes.times(1000 / self._window_ms),
            replication_latency_ms=sums.latency,
            replication_records_lag=sums.lag.times(1.0),
            checkpoint_latency_ms=sums.checkpoints,
        )


def _sums(ticks: Iterable[_Tick]) -> _Sums:
    """Sum up the ticks of one topic in order, so that a partition's newest lag is last."""
    records, latency, checkpoints = 0, Statistics(), Statistics()
    sizes: defaultdict[int, int] = defaultdict(int)
    newest: dict[int, _Share] = {}
    for tick in ticks:
        records += tick.records
        latency = latency.merge(tick.latency)
        checkpoints = checkpoints.merge(tick.checkpoints)
        newest.update(tick.partitions)
        for partition, (_, _, size) in tick.partitions.items():
            sizes[partition] += size
    lags = [share.lag for share in newest.values()]
    return _Sums(records, _over(sizes.values()), _over(lags), latency, checkpoints)


def _latency(metric: Measured) -> Statistics:
    if not metric.latency_count:
        return Statistics()
    return Statistics(
        float(metric.latency_ms_min),
        float(metric.latency_ms_max),
        float(metric.latency_ms_sum),
        metric.latency_count,
    )


def _over(values: Collection[int]) -> Statistics:
    return (
        Statistics(min(values), max(values), sum(values), len(values)) if values else Statistics()
    )
