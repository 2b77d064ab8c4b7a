"""Metrics windows of a flow: which to compute, from which raw records, and their table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from srm.config.model import FlowConfig
from srm.domain.metrics import Keeping, RawMetric, WindowMetric, Windows, changes, decode_measured
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Cluster
from srm.engine.ports import FlowContext
from srm.errors import IntegrityError, UsageError

_FRESH_MS: Final = 5 * 60_000
"""Maximum age of a window that counts as current."""
PACE_MS: Final = 15 * 60_000
"""Age up to which rates count as possible now."""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """Size, slide, look-back and retention of the windows; milliseconds.

    After ``keep_all_ms`` only windows that do not overlap are kept (:class:`.Keeping`).
    """

    window_ms: int = 60_000
    slide_ms: int = 10_000
    look_back_ms: int = 900_000
    keep_ms: int = 7_200_000
    keep_all_ms: int = 900_000

    def keeping(self, now_ms: int) -> Keeping:
        return Keeping(now_ms - self.keep_ms, now_ms - self.keep_all_ms, now_ms + self.look_back_ms)

    def __post_init__(self) -> None:
        if self.slide_ms <= 0 or self.window_ms <= 0 or self.window_ms % self.slide_ms:
            raise UsageError(
                f"invalid window of {self.window_ms} ms; use a multiple of the slide of "
                f"{self.slide_ms} ms"
            )
        if self.look_back_ms < self.window_ms:
            raise UsageError(
                f"look-back of {self.look_back_ms} ms too short; use at least {self.window_ms} ms"
            )


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """Windows to compute: they start at or after one time and end at or before another."""

    first_start_ms: int
    last_end_ms: int


class KeptWindows:
    """Adds raw records and returns windows that have ended, once or repeatedly.

    The look-back bounds the memory: older records, and those of a clock that runs ahead by more,
    are dropped. ``reported_ms``: when the newest added lag was measured, 0 without one.
    """

    def __init__(self, config: FlowConfig, spec: WindowSpec) -> None:
        self.measured = 0
        self.malformed = 0
        self.reported_ms = 0
        self._flow = config.flow.source, config.flow.target
        self._spec = spec
        self._interval_ms = config.metrics_interval // timedelta(milliseconds=1)
        self._windows = Windows(config.flow, spec.window_ms, spec.slide_ms)

    def bounds(self, now_ms: int) -> WindowBounds:
        """Return the bounds of the windows that are complete at a time.

        One that started before the look-back misses raw records. One that ended less than a metrics
        interval ago may still receive some.
        """
        spec = self._spec
        first = -(-(now_ms - spec.look_back_ms) // spec.slide_ms) * spec.slide_ms
        return WindowBounds(max(0, first), now_ms - self._interval_ms)

    def add(self, values: Iterable[bytes], now_ms: int) -> None:
        latest_ms = now_ms + self._spec.look_back_ms
        for value in values:
            try:
                found = decode_measured(value)
            except IntegrityError:
                self.measured += 1
                self.malformed += 1
                continue
            self.measured += len(found)
            usable = [metric for metric in found if metric.time_ms <= latest_ms]
            self._windows.add(usable)
            for metric in usable:
                ours = (metric.source, metric.target) == self._flow
                if ours and isinstance(metric, RawMetric) and metric.time_ms <= now_ms:
                    self.reported_ms = max(self.reported_ms, metric.time_ms)

    def merge(self, other: KeptWindows) -> None:
        self.measured += other.measured
        self.malformed += other.malformed
        self.reported_ms = max(self.reported_ms, other.reported_ms)
        self._windows.merge(other._windows)

    def take(self, now_ms: int) -> list[WindowMetric]:
        """Return the complete windows that have received records since the last call."""
        wanted = self.bounds(now_ms)
        self._windows.forget(wanted.first_start_ms)
        return self._windows.take(wanted.first_start_ms, wanted.last_end_ms)

    def all(self, wanted: WindowBounds) -> list[WindowMetric]:
        return list(self._windows.between(wanted.first_start_ms, wanted.last_end_ms))


def store(
    cluster: Cluster, flow: Flow, computed: Iterable[WindowMetric], keeping: Keeping
) -> tuple[int, int]:
    """Write windows that differ and drop expired ones; return the numbers of both."""
    table = cluster.compacted_topic(internal_topics.METRICS_WINDOWS)
    written = changes(table.read(), computed, flow, keeping)
    if written:
        table.write(written)
    dropped = sum(value is None for value in written.values())
    return len(written) - dropped, dropped


def stored_windows(
    cluster: Cluster, flow: Flow | None = None, topic: str | None = None
) -> tuple[WindowMetric, ...]:
    """Return stored windows by start, of all or one flow and topic (empty: the cluster level)."""
    table = cluster.compacted_topic(internal_topics.METRICS_WINDOWS).read()
    found = [WindowMetric.decode(value) for value in table.values()]
    chosen = [
        w for w in found if (flow is None or w.flow == flow) and (topic is None or w.topic == topic)
    ]
    return tuple(sorted(chosen, key=lambda w: (w.start_ms, w.source, w.level, w.topic)))


def recent_rate(context: FlowContext, topics: Collection[str], now_ms: int) -> float | None:
    """Return the highest recent copy rate of topics together, records a second; None if unknown."""
    windows = stored_windows(context.target, context.config.flow)
    of_topics = (window for window in windows if window.topic in topics)
    return rate_of(((w.start_ms, w.end_ms, w.records) for w in of_topics), now_ms)


def rate_of(windows: Iterable[tuple[int, int, int]], now_ms: int) -> float | None:
    """Return the highest rate of recent windows (start, end, records) in records per second.

    Windows with the same start are added up. While a copy is caught up its rate is that of the
    producers, so the highest rate is a lower bound. None without recent windows or copied records.
    """
    rates: defaultdict[int, float] = defaultdict(float)
    for start_ms, end_ms, records in windows:
        if end_ms > start_ms and abs(now_ms - end_ms) <= PACE_MS:
            rates[start_ms] += records * 1000 / (end_ms - start_ms)
    return max(rates.values(), default=0.0) or None


def is_fresh(end_ms: int, now_ms: int) -> bool:
    """Return whether a window that ended then is current, neither old nor in the future."""
    return abs(now_ms - end_ms) <= _FRESH_MS


def seconds_to_go(offsets: int, rate: float | None) -> float | None:
    """Return the estimated seconds to copy, at most, without new records; None without a rate."""
    if not offsets:
        return 0.0
    return offsets / rate if rate else None
