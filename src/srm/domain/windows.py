"""Raw metrics to sliding windows, one raw record after the other.

Time is cut into *ticks*, one slide long and aligned to the epoch. What a raw record counted is
shared out over the ticks that its interval touches; a window's statistics are over its ticks,
latencies over records or checkpoints. The same raw records give the same windows, whatever their
order and however often they are computed: :mod:`srm.spark.metrics` does the same as DataFrame code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from srm.domain.checkpoint_latency import CheckpointMetric
from srm.domain.metrics import Level, Measured, RawMetric, Statistics, WindowMetric
from srm.domain.topics import Flow

LONGEST_INTERVAL_MS: Final = 3_600_000
"""A slot whose clock was set would otherwise report an interval of years, and that many ticks."""


@dataclass(slots=True)
class _Tick:
    """What one subject did in one tick; ``lags`` are the newest told of a topic's partitions.

    A tick in which only checkpoints were written is no sample of rate and lag: ``told`` is False.
    """

    told: bool = False
    records: int = 0
    bytes: int = 0
    latency: Statistics = field(default_factory=Statistics)
    checkpoints: Statistics = field(default_factory=Statistics)
    lags: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        return sum(lag for _, lag in self.lags.values())


Subject = tuple[Level, str, str]
"""Level, topic and remote topic; the whole flow has no topics."""

_FLOW: Final[Subject] = ("cluster", "", "")


class Windows:
    """Sums of one flow by tick, for as long as somebody wants windows over them.

    Args:
        flow: whose raw metrics these are; those of others are left out.
        window_ms: length of a window, a multiple of the slide.
        tick_ms: the slide.
    """

    def __init__(self, flow: Flow, window_ms: int, tick_ms: int) -> None:
        self._flow = flow
        self._window_ms = window_ms
        self._tick_ms = tick_ms
        self._ticks: defaultdict[int, dict[Subject, _Tick]] = defaultdict(dict)
        self._changed: set[int] = set()

    def add(self, metrics: Iterable[Measured]) -> None:
        """Count raw metrics; those that nobody can have measured are left out."""
        for metric in metrics:
            ours = (metric.source, metric.target) == (self._flow.source, self._flow.target)
            if not ours or not 1 <= metric.interval_ms <= LONGEST_INTERVAL_MS:
                continue
            if isinstance(metric, RawMetric):
                self._share_out(metric)
            else:
                self._count(metric)

    def forget(self, before_ms: int) -> None:
        """Drop the ticks that end at or before a time."""
        for tick in [t for t in self._ticks if t + self._tick_ms <= before_ms]:
            del self._ticks[tick]

    def between(self, first_start_ms: int, last_end_ms: int) -> Iterator[WindowMetric]:
        """Compute the windows that start and end within these times and have a tick."""
        starts = {start for tick in self._ticks for start in self._over(tick)}
        last_start_ms = last_end_ms - self._window_ms
        return self._computed(s for s in starts if first_start_ms <= s <= last_start_ms)

    def take(self, first_start_ms: int, last_end_ms: int) -> list[WindowMetric]:
        """Compute those of them that something was added to since they were taken last."""
        last_start_ms = last_end_ms - self._window_ms
        self._changed = {start for start in self._changed if start >= first_start_ms}
        ready = {start for start in self._changed if start <= last_start_ms}
        self._changed -= ready
        return list(self._computed(ready))

    def _over(self, tick: int) -> range:
        """Return where the windows begin that slide over a tick."""
        return range(tick + self._tick_ms - self._window_ms, tick + self._tick_ms, self._tick_ms)

    def _computed(self, starts: Iterable[int]) -> Iterator[WindowMetric]:
        size, step = self._window_ms, self._tick_ms
        for start in sorted(starts):
            ticks = [self._ticks[t] for t in range(start, start + size, step) if t in self._ticks]
            for subject in sorted({subject for tick in ticks for subject in tick}):
                yield self._window(subject, start, [tick for tick in ticks if subject in tick])

    def _share_out(self, metric: RawMetric) -> None:
        size, interval = self._tick_ms, metric.interval_ms
        began = metric.time_ms - interval
        last = self._last_tick(metric)
        for tick in range(began // size * size, last + 1, size):
            low, high = max(tick - began, 0), min(tick + size - began, interval)
            # The difference of two rounded-down parts: the parts add up to the whole.
            records = metric.records * high // interval - metric.records * low // interval
            size_bytes = metric.bytes * high // interval - metric.bytes * low // interval
            for sums in self._sums(tick, metric):
                sums.told = True
                sums.records += records
                sums.bytes += size_bytes
                if tick == last:
                    sums.latency = sums.latency.merge(_latency(metric))
            told = (metric.time_ms, metric.lag_records)
            lags = self._ticks[tick]["topic", metric.topic, metric.remote_topic].lags
            lags[metric.partition] = max(lags.get(metric.partition, told), told)

    def _count(self, metric: CheckpointMetric) -> None:
        for sums in self._sums(self._last_tick(metric), metric):
            sums.checkpoints = sums.checkpoints.merge(_latency(metric))

    def _last_tick(self, metric: Measured) -> int:
        return (metric.time_ms - 1) // self._tick_ms * self._tick_ms

    def _sums(self, tick: int, metric: Measured) -> tuple[_Tick, _Tick]:
        """Return what there is of the metric's topic and of the flow in a tick, to be added to."""
        self._changed.update(self._over(tick))
        subjects = self._ticks[tick]
        topic = subjects.setdefault(("topic", metric.topic, metric.remote_topic), _Tick())
        return topic, subjects.setdefault(_FLOW, _Tick())

    def _window(
        self, subject: Subject, start_ms: int, ticks: list[dict[Subject, _Tick]]
    ) -> WindowMetric:
        level, topic, remote_topic = subject
        per_second = 1000 / self._tick_ms
        latency = checkpoints = Statistics()
        for tick in ticks:
            latency = latency.merge(tick[subject].latency)
            checkpoints = checkpoints.merge(tick[subject].checkpoints)
        samples = [tick for tick in ticks if tick[subject].told]
        sizes = [tick[subject].bytes for tick in samples]
        return WindowMetric(
            self._flow.source,
            self._flow.target,
            level,
            topic,
            remote_topic,
            start_ms,
            start_ms + self._window_ms,
            sum(tick[subject].records for tick in samples),
            sum(sizes),
            byte_rate=_over(sizes, per_second),
            replication_latency_ms=latency,
            replication_records_lag=_over([_lag(tick, subject) for tick in samples], 1.0),
            checkpoint_latency_ms=checkpoints,
        )


def _lag(tick: dict[Subject, _Tick], subject: Subject) -> int:
    if subject != _FLOW:
        return tick[subject].lag
    return sum(of_topic.lag for of_topic in tick.values())


def _latency(metric: Measured) -> Statistics:
    if not metric.latency_count:
        return Statistics()
    return Statistics(
        float(metric.latency_ms_min),
        float(metric.latency_ms_max),
        float(metric.latency_ms_sum),
        metric.latency_count,
    )


def _over(values: list[int], factor: float) -> Statistics:
    if not values:
        return Statistics()
    return Statistics(min(values) * factor, max(values) * factor, sum(values) * factor, len(values))
