"""Windows of one flow, computed from the raw records of the last minutes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from srm.config.model import FlowConfig
from srm.domain.metrics.metrics import RawMetric, WindowMetric, decode_measured
from srm.domain.metrics.windows import Windows
from srm.engine.metrics.metrics import WindowBounds, WindowSpec, bounds
from srm.errors import IntegrityError


class KeptWindows:
    """Adds raw records and returns windows that have ended, once or repeatedly.

    The look-back bounds the memory. Older records are dropped; so are measurements from a clock
    that runs ahead by more than the look-back.

    Attributes:
        measured: number of measurements added, malformed records included.
        malformed: number of records that are not metrics.
        told_ms: when the newest added lag was measured, 0 without one.
    """

    def __init__(self, config: FlowConfig, spec: WindowSpec) -> None:
        self.measured = 0
        self.malformed = 0
        self.told_ms = 0
        self._flow = config.flow.source, config.flow.target
        self._spec = spec
        self._interval_ms = config.metrics_interval // timedelta(milliseconds=1)
        self._windows = Windows(config.flow, spec.window_ms, spec.slide_ms)

    def bounds(self, now_ms: int) -> WindowBounds:
        """Return the bounds of the windows that are complete at a time."""
        return bounds(self._spec, now_ms, self._interval_ms)

    def add(self, values: Iterable[bytes], now_ms: int) -> None:
        """Add record values."""
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
                    self.told_ms = max(self.told_ms, metric.time_ms)

    def take(self, now_ms: int) -> list[WindowMetric]:
        """Return the complete windows that have received records since the last call."""
        wanted = self.bounds(now_ms)
        self._windows.forget(wanted.first_start_ms)
        return self._windows.take(wanted.first_start_ms, wanted.last_end_ms)

    def all(self, wanted: WindowBounds) -> list[WindowMetric]:
        """Return all windows within bounds."""
        return list(self._windows.between(wanted.first_start_ms, wanted.last_end_ms))
