"""Measurements of slots, and sliding windows computed from them: records of two topics.

Slots write raw records (:class:`RawMetric`, topic ``__srm-metrics.<SOURCE>``) about their
partitions with traffic or lag in one metrics interval. Writers of checkpoints add their latency.
Windows (:class:`WindowMetric`, topic ``__srm-metrics-windows``) are keyed by window, so computing
them again overwrites equal records. Both are JSON, so that other dashboards can read them.

Time is cut into *ticks*, one slide long and aligned to the epoch. The counts of a raw record are
distributed over the ticks of its interval. A window's statistics are over partitions, latencies
over records or checkpoints. Equal raw records give equal windows, in any order and any parts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from srm.domain.names.topics import Flow
from srm.domain.text.documents import MOST, decoding, read_json
from srm.errors import UsageError

Level = Literal["topic", "cluster"]

# Fields are called ``bytes`` as in the JSON, which hides the type inside their classes.
Encoded: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class RawMetric:
    """Measurement of one partition by one slot in the ``interval_ms`` before ``time_ms``.

    Latency is from the newest timestamp of a record's batch to the target's acknowledgement, over
    ``latency_count`` records. ``lag_records`` are source offsets still to copy.
    """

    time_ms: int
    interval_ms: int
    source: str
    target: str
    topic: str
    remote_topic: str
    partition: int
    records: int = 0
    bytes: int = 0
    latency_ms_min: int = 0
    latency_ms_max: int = 0
    latency_ms_sum: int = 0
    latency_count: int = 0
    lag_records: int = 0


LATENCY: Final = ("latency_ms_min", "latency_ms_max", "latency_ms_sum", "latency_count")
"""Fields of a :class:`CheckpointMetric` in a topic's list in a record, in order."""
COUNTS: Final = ("partition", "records", "bytes", *LATENCY, "lag_records")
"""Fields of a :class:`RawMetric` in a partition's list in a record, in order."""

METRICS_PER_RECORD = 1000
_MOMENT: Final = ("time_ms", "interval_ms", "source", "target")
_MOMENT_OF: Final = attrgetter(*_MOMENT)


def encode_raw(metrics: Iterable[RawMetric]) -> list[Encoded]:
    """Encode raw metrics in few record values: those of one flow and interval share one."""
    found = sorted(metrics, key=lambda metric: (_MOMENT_OF(metric), metric.topic, metric.partition))
    return [
        _record(moment, topics=_by_topic(part[at : at + METRICS_PER_RECORD]))
        for moment, group in groupby(found, _MOMENT_OF)
        for part in ([*group],)
        for at in range(0, len(part), METRICS_PER_RECORD)
    ]


def _by_topic(metrics: Iterable[RawMetric]) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "remote_topic": remote_topic,
            "partitions": [[getattr(metric, name) for name in COUNTS] for metric in group],
        }
        for (topic, remote_topic), group in groupby(metrics, attrgetter("topic", "remote_topic"))
    ]


def _record(moment: Iterable[object], **entries: list[dict[str, Any]]) -> Encoded:
    return _encode({**dict(zip(_MOMENT, moment, strict=True)), **entries})


@dataclass(frozen=True, slots=True)
class CheckpointMetric:
    """Latency of the checkpoints of one committed topic in an emission that ended at ``time_ms``.

    It begins just before reading a group's commits and ends when the target acknowledges the
    checkpoint. ``remote_topic`` is where the group continues on the target.
    """

    time_ms: int
    interval_ms: int
    source: str
    target: str
    topic: str
    remote_topic: str
    latency_ms_min: int
    latency_ms_max: int
    latency_ms_sum: int
    latency_count: int


def checkpoint_metrics(
    flow: Flow, began_ms: int, ended_ms: int, taken: Iterable[tuple[str, str, int]]
) -> list[CheckpointMetric]:
    """Sum up one emission, from topic, remote topic and latency (ms) of each checkpoint."""
    of_topics: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for topic, remote_topic, latency_ms in taken:
        of_topics[topic, remote_topic].append(max(0, latency_ms))
    moment = (ended_ms, max(1, ended_ms - began_ms), flow.source, flow.target)
    return [
        CheckpointMetric(*moment, *names, min(found), max(found), sum(found), len(found))
        for names, found in sorted(of_topics.items())
    ]


def encode_checkpoints(metrics: Iterable[CheckpointMetric]) -> list[Encoded]:
    """Encode metrics as raw record values, one for each emission, with no ``topics``."""
    return [
        _record(
            moment,
            topics=[],
            checkpoints=[
                {
                    "topic": metric.topic,
                    "remote_topic": metric.remote_topic,
                    "latency_ms": [getattr(metric, name) for name in LATENCY],
                }
                for metric in group
            ],
        )
        for moment, group in groupby(sorted(metrics, key=_MOMENT_OF), _MOMENT_OF)
    ]


Measured: TypeAlias = RawMetric | CheckpointMetric

_NAMES_OF = attrgetter("source", "target", "topic", "remote_topic")
_NUMBERS_OF = {
    RawMetric: attrgetter("time_ms", "interval_ms", *COUNTS),
    CheckpointMetric: attrgetter("time_ms", "interval_ms", *LATENCY),
}
_RAW: Final = "raw metrics record"


def decode_measured(value: Encoded) -> tuple[Measured, ...]:
    raw = read_json(_RAW, value)
    with decoding(_RAW, value):
        found = _pop_measurements(raw)
        for metric in found:
            _check(metric, _NUMBERS_OF[type(metric)](metric), {int})
        return found


def _pop_measurements(raw: dict[str, Any]) -> tuple[Measured, ...]:
    topics, checkpoints = raw.pop("topics"), raw.pop("checkpoints", ())

    def read(kind: type[Any], entry: Mapping[str, Any], names: Iterable[str], found: Any) -> Any:
        numbers = dict(zip(names, found, strict=True))
        return kind(**raw, topic=entry["topic"], remote_topic=entry["remote_topic"], **numbers)

    return (
        *(read(RawMetric, one, COUNTS, some) for one in topics for some in one["partitions"]),
        *(read(CheckpointMetric, one, LATENCY, one["latency_ms"]) for one in checkpoints),
    )


def _check(record: Measured | WindowMetric, numbers: Iterable[float], kinds: set[type]) -> None:
    """Reject wrong types, which would make every reader fail."""
    if {*map(type, _NAMES_OF(record))} != {str} or not {*map(type, numbers)} <= kinds:
        raise TypeError("a field has the wrong type")


def decode_raw(value: Encoded) -> tuple[RawMetric, ...]:
    return tuple(metric for metric in decode_measured(value) if isinstance(metric, RawMetric))


@dataclass(frozen=True, slots=True)
class Statistics:
    """Minimum, maximum and sum of ``count`` values; all are 0 without values."""

    min: float = 0.0
    max: float = 0.0
    sum: float = 0.0
    count: int = 0

    @property
    def avg(self) -> float:
        return self.sum / self.count if self.count else 0.0

    def times(self, factor: float) -> Statistics:
        """Return the statistics of the values in another unit."""
        return Statistics(self.min * factor, self.max * factor, self.sum * factor, self.count)

    def merge(self, other: Statistics) -> Statistics:
        if not self.count or not other.count:
            return self if self.count else other
        low, high = min(self.min, other.min), max(self.max, other.max)
        return Statistics(low, high, self.sum + other.sum, self.count + other.count)


@dataclass(frozen=True, slots=True)
class WindowMetric:
    """Metrics of ``[start_ms, end_ms)`` for one topic of a flow, or for the whole flow.

    ``level`` ``cluster`` (SRM's word for a whole replication) has empty topic names. ``byte_rate``
    (bytes a second) and ``replication_records_lag`` (at the end) are over partitions with traffic
    or lag; their sums are those of the topic or flow.
    """

    source: str
    target: str
    level: Level
    topic: str
    remote_topic: str
    start_ms: int
    end_ms: int
    records: int
    bytes: int
    byte_rate: Statistics
    replication_latency_ms: Statistics
    replication_records_lag: Statistics
    checkpoint_latency_ms: Statistics = Statistics()

    @property
    def flow(self) -> Flow:
        return Flow(self.source, self.target)

    def key(self) -> Encoded:
        """Encode the record key: flow, level, topic and window, as a JSON list."""
        parts = [self.source, self.target, self.level, self.topic, self.start_ms, self.end_ms]
        return _encode(parts)

    def value(self) -> Encoded:
        """Encode the record value; ``avg`` is added for readers."""
        raw = asdict(self)
        for name in STATISTICS:
            raw[name]["avg"] = getattr(self, name).avg
        return _encode(raw)

    @classmethod
    def decode(cls, value: Encoded) -> WindowMetric:
        raw = read_json("window record", value)
        with decoding("window record", value):
            for name in STATISTICS:
                entry = raw[name]
                raw[name] = Statistics(entry["min"], entry["max"], entry["sum"], entry["count"])
            found = cls(**raw)
            _check(found, _NUMBERS_OF_WINDOW(found), {int, float})
            return found

    def merge(self, later: WindowMetric) -> WindowMetric:
        """Merge this window with a later one of the same subject that does not overlap it.

        Rates are of the whole time, lags of the end; extremes of any partition in either window.
        """
        size, milliseconds = self.bytes + later.bytes, later.end_ms - self.start_ms
        newest = later.replication_records_lag
        if not newest.count:
            newest = self.replication_records_lag
        rate = self.byte_rate.merge(later.byte_rate)
        partitions = max(self.byte_rate.count, later.byte_rate.count)
        lag = self.replication_records_lag.merge(later.replication_records_lag)
        return replace(
            later,
            start_ms=self.start_ms,
            records=self.records + later.records,
            bytes=size,
            byte_rate=replace(rate, sum=size * 1000 / milliseconds, count=partitions),
            replication_latency_ms=self.replication_latency_ms.merge(later.replication_latency_ms),
            replication_records_lag=replace(lag, sum=newest.sum, count=newest.count),
            checkpoint_latency_ms=self.checkpoint_latency_ms.merge(later.checkpoint_latency_ms),
        )


STATISTICS: Final = (
    "byte_rate",
    "replication_latency_ms",
    "replication_records_lag",
    "checkpoint_latency_ms",
)
"""Fields of a :class:`WindowMetric` that have minimum, maximum, sum, count and average."""

_NUMBERS_OF_WINDOW: Final = attrgetter(
    *("start_ms", "end_ms", "records", "bytes"),
    *(f"{name}.{part}" for name in STATISTICS for part in ("min", "max", "sum", "count")),
)


def latest(windows: Iterable[WindowMetric]) -> tuple[WindowMetric, ...]:
    """Pick the newest window of each topic and flow, in a stable order."""
    newest: dict[tuple[str, ...], WindowMetric] = {}
    for window in sorted(windows, key=lambda w: w.start_ms, reverse=True):
        newest.setdefault(_subject(window), window)
    return tuple(newest[subject] for subject in sorted(newest))


def totals(windows: Iterable[WindowMetric]) -> tuple[WindowMetric, ...]:
    """Merge non-overlapping windows of each topic and flow, the newest first, into one each."""
    joined: dict[tuple[str, ...], WindowMetric] = {}
    for window in sorted(windows, key=lambda w: w.start_ms, reverse=True):
        known = joined.get(_subject(window))
        if known is None:
            joined[_subject(window)] = window
        elif window.end_ms <= known.start_ms:
            joined[_subject(window)] = window.merge(known)
    return tuple(joined[subject] for subject in sorted(joined))


@dataclass(frozen=True, slots=True)
class Keeping:
    """Rule for the windows to keep, in epoch milliseconds.

    All that ended at ``all_ms`` or later; before that those that begin at a multiple of their
    length, so that they adjoin, which is enough for a chart; none that ended before ``expire_ms``,
    or end after ``until_ms`` (by a fast clock).
    """

    expire_ms: int
    all_ms: int
    until_ms: int = MOST

    def keeps(self, start_ms: int, end_ms: int) -> bool:
        if end_ms >= self.all_ms:
            return end_ms <= self.until_ms
        return end_ms >= self.expire_ms and start_ms % (end_ms - start_ms) == 0


def changes(
    stored: Mapping[bytes, bytes], computed: Iterable[WindowMetric], flow: Flow, keeping: Keeping
) -> dict[bytes, bytes | None]:
    """Return writes that make the stored windows equal to the computed; tombstones for old ones."""
    wanted = {w.key(): w.value() for w in computed if keeping.keeps(w.start_ms, w.end_ms)}
    written: dict[bytes, bytes | None] = {
        key: value for key, value in wanted.items() if stored.get(key) != value
    }
    for key in stored.keys() - wanted.keys():
        span = _span(key, flow)
        if span is not None and not keeping.keeps(*span):
            written[key] = None
    return written


def _span(key: bytes, flow: Flow) -> tuple[int, int] | None:
    try:
        source, target, *_, start_ms, end_ms = json.loads(key)
        ours = Flow(source, target) == flow
        return (int(start_ms), int(end_ms)) if ours and end_ms > start_ms else None
    except (ValueError, TypeError, UsageError):
        return None


def _subject(window: WindowMetric) -> tuple[str, ...]:
    return (window.source, window.target, window.level, window.topic)


def _encode(value: Any) -> Encoded:
    return json.dumps(value, separators=(",", ":")).encode()


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
            records=self.records + other.records,
            bytes=self.bytes.merge(other.bytes),
            lag=self.lag.merge(other.lag),
            latency=self.latency.merge(other.latency),
            checkpoints=self.checkpoints.merge(other.checkpoints),
        )


_Topic = tuple[str, str]
"""Topic and remote topic."""


class Windows:
    """Sums of one flow by tick; ``window_ms`` is a multiple of the slide ``tick_ms``."""

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
            of_topic.add(metric.partition, _Share(metric.time_ms, metric.lag_records, size_bytes))
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
            source=self._flow.source,
            target=self._flow.target,
            level=level,
            topic=topic[0],
            remote_topic=topic[1],
            start_ms=start_ms,
            end_ms=start_ms + self._window_ms,
            records=sums.records,
            bytes=int(sums.bytes.sum),
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
    numbers = metric.latency_ms_min, metric.latency_ms_max, metric.latency_ms_sum
    low, high, total = map(float, numbers)
    return Statistics(low, high, total, metric.latency_count)


def _over(found: Collection[int]) -> Statistics:
    return Statistics(min(found), max(found), sum(found), len(found)) if found else Statistics()
