"""Metrics windows of many topics and flows in memory, 160 bytes each, ready for a chart."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from srm.domain.metrics import Statistics, WindowMetric
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import Stamped
from srm.errors import IntegrityError


class ChartMetric(NamedTuple):
    """Title and unit of a metric, and its statistic for a whole topic or flow.

    Samples of rates and lags are partitions; they are summed.
    """

    title: str
    unit: str
    whole: Literal["sum", "avg"] = "avg"


METRICS: Final = {
    "byte-rate": ChartMetric("Throughput", "bytes per second", "sum"),
    "replication-latency-ms": ChartMetric("Replication latency", "milliseconds"),
    "replication-records-lag": ChartMetric("Lag", "records", "sum"),
    "checkpoint-latency-ms": ChartMetric("Checkpoint latency", "milliseconds"),
}
"""Metrics by their names in SRM's REST API."""
_FIELDS: Final = {name: name.replace("-", "_") for name in METRICS}
"""Field of a window by metric."""

_STATISTICS: Final = ("min", "max", "sum", "count")
_COLUMNS: Final = (
    "start_ms",
    "end_ms",
    "records",
    "bytes",
    *(f"{field}.{name}" for field in _FIELDS.values() for name in _STATISTICS),
)
_COLUMN: Final = {name: number for number, name in enumerate(_COLUMNS)}
_FIRST: Final = 8

_Subject = tuple[str, str, str]
"""Source, target and topic; the empty topic is the whole flow."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One window of a topic or flow, with the measurements in ``[start_ms, end_ms)``."""

    start_ms: int
    end_ms: int
    records: int
    bytes: int
    byte_rate: Statistics
    replication_latency_ms: Statistics
    checkpoint_latency_ms: Statistics
    replication_records_lag: Statistics

    def figures(self, metric: str) -> Statistics:
        found: Statistics = getattr(self, _FIELDS[metric])
        return found


class Copied(NamedTuple):
    """Number of records copied in one window; cheap to make in large numbers."""

    start_ms: int
    end_ms: int
    records: int


class _Windows:
    __slots__ = ("_count", "_rows")

    def __init__(self) -> None:
        self._rows: NDArray[np.float64] = np.empty((_FIRST, len(_COLUMNS)))
        self._count = 0

    @property
    def rows(self) -> NDArray[np.float64]:
        return self._rows[: self._count]

    def put(self, row: list[float]) -> None:
        at, is_known = self._place(row[0])
        if is_known:
            self._rows[at] = row
            return
        if self._count == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[at + 1 : self._count + 1] = self._rows[at : self._count]
        self._rows[at] = row
        self._count += 1

    def drop(self, start_ms: int) -> None:
        at, is_known = self._place(start_ms)
        if is_known:
            self._rows[at : self._count - 1] = self._rows[at + 1 : self._count]
            self._count -= 1

    def between(self, from_ms: int, to_ms: int) -> NDArray[np.float64]:
        starts = self.rows[:, 0]
        low, high = np.searchsorted(starts, [from_ms, to_ms])
        return self.rows[low:high].copy()

    def _place(self, start_ms: float) -> tuple[int, bool]:
        starts = self.rows[:, 0]
        if not self._count or starts[-1] < start_ms:  # nearly all are in order
            return self._count, False
        at = int(np.searchsorted(starts, start_ms))
        return at, bool(starts[at] == start_ms)


class Series:
    """Windows topic of one cluster in memory (a sink of live tables); thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: dict[_Subject, _Windows] = {}
        self._read: dict[_Subject, _Windows] = {}

    def begin(self) -> None:
        self._read = {}

    def take(self, key: bytes, row: Stamped | None) -> None:
        try:
            source, target, _, topic, start_ms, _ = json.loads(key)
            subject = (str(source), str(target), str(topic))
            start_ms = int(start_ms)
            window = None if row is None else WindowMetric.decode(row.value)
            figures = [] if window is None else [float(figure) for figure in _row(window)]
        except (ValueError, TypeError, OverflowError, RecursionError, IntegrityError):
            return
        with self._lock:
            known = self._read.get(subject)
            if window is None:
                if known is not None:
                    known.drop(start_ms)
                    if not len(known.rows):
                        del self._read[subject]
                return
            if known is None:
                known = self._read[subject] = _Windows()
            known.put(figures)

    def end(self) -> None:
        with self._lock:
            self._shown = self._read

    def latest(self, flow: Flow) -> dict[str, Measured]:
        """Return the newest window of each topic of a flow; the empty name is the flow itself."""
        with self._lock:
            return {
                topic: _parse_row(windows.rows[-1])
                for (source, target, topic), windows in self._shown.items()
                if (source, target) == (flow.source, flow.target)
            }

    def between(self, flow: Flow, topic: str, from_ms: int, to_ms: int) -> list[Measured]:
        """Return the windows that start in ``[from_ms, to_ms)``, by start."""
        return [_parse_row(row) for row in self._between(flow, topic, from_ms, to_ms)]

    def copied_between(self, flow: Flow, topic: str, from_ms: int, to_ms: int) -> list[Copied]:
        rows = self._between(flow, topic, from_ms, to_ms)[:, :3]
        return [Copied(*map(int, row)) for row in rows.tolist()]

    def _between(self, flow: Flow, topic: str, from_ms: int, to_ms: int) -> NDArray[np.float64]:
        with self._lock:
            windows = self._shown.get((flow.source, flow.target, topic)) or _Windows()
            return windows.between(from_ms, to_ms)


def touching(windows: list[Measured]) -> list[Measured]:
    """Remove windows that overlap the one before, so that the rest can be summed."""
    found: list[Measured] = []
    for window in windows:
        is_full = window.start_ms % max(1, window.end_ms - window.start_ms) == 0
        if is_full and (not found or window.start_ms >= found[-1].end_ms):
            found.append(window)
    return found


def _row(window: WindowMetric) -> list[float]:
    row: list[float] = [window.start_ms, window.end_ms, window.records, window.bytes]
    for field in _FIELDS.values():
        found: Statistics = getattr(window, field)
        row += [found.min, found.max, found.sum, found.count]
    return row


def _parse_row(row: NDArray[np.float64]) -> Measured:
    values = row.tolist()
    figures = {}
    for field in _FIELDS.values():
        low, high, total, count = values[_COLUMN[f"{field}.min"] :][:4]
        figures[field] = Statistics(low, high, total, int(count))
    start_ms, end_ms, records, size = map(int, values[:4])
    return Measured(start_ms, end_ms, records, size, **figures)
