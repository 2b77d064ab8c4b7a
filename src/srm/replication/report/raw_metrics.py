"""Raw metrics of a slot, once in ``metrics.interval.seconds``."""

from __future__ import annotations

from collections.abc import Sequence

from srm.config.model import FlowConfig
from srm.domain.metrics.metrics import RawMetric
from srm.replication.clock import now_s
from srm.replication.partition.partition import PartitionCopy
from srm.replication.partition.traffic import Interval, TrafficReader


class MetricsReader:
    """Looks at the traffic of a slot's partitions."""

    def __init__(self, config: FlowConfig) -> None:
        self._config = config
        self._interval_s = config.metrics_interval.total_seconds()
        self._readers: dict[PartitionCopy, TrafficReader] = {}
        self._looked_s = now_s()

    def due(self, copies: Sequence[PartitionCopy], now_ms: int) -> list[RawMetric]:
        """Return what partitions with traffic or lag did since the last time; mostly nothing."""
        interval_s = now_s() - self._looked_s
        if interval_s < self._interval_s:
            return []
        known = self._readers
        self._readers = {copy: known.get(copy) or copy.traffic.reader() for copy in copies}
        self._looked_s += interval_s
        interval_ms = max(1, round(interval_s * 1000))  # the wall clock may have been set
        found = []
        for copy, reader in self._readers.items():
            interval, lag = reader.take(), copy.known_end - copy.source_next
            if interval.records or lag:
                found.append(self._metric(copy, interval, lag, now_ms, interval_ms))
        return found

    def _metric(
        self, copy: PartitionCopy, interval: Interval, lag: int, now_ms: int, interval_ms: int
    ) -> RawMetric:
        return RawMetric(
            time_ms=now_ms,
            interval_ms=interval_ms,
            source=self._config.flow.source,
            target=self._config.flow.target,
            topic=copy.source.topic,
            remote_topic=copy.target.topic,
            partition=copy.source.partition,
            records=interval.records,
            bytes=interval.bytes,
            latency_ms_min=interval.latency_ms_min,
            latency_ms_max=interval.latency_ms_max,
            latency_ms_sum=interval.latency_ms_sum,
            latency_count=interval.latency_count,
            lag_records=lag,
        )
