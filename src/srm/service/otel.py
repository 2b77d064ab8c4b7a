"""Metrics of the service by OTLP, if OpenTelemetry is enabled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from srm import telemetry
from srm.service.prometheus.exposition import Sample, samples
from srm.service.prometheus.metric_table import METRICS, Metric
from srm.service.views.views import Views

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation
    from opentelemetry.sdk.metrics import MeterProvider

_FRESH_S: Final = 1.0
_SHUTDOWN_MS: Final = 2000
_UNITS: Final[Mapping[str, str]] = {
    "seconds": "s",
    "bytes_per_second": "By/s",
    "records_per_second": "{record}/s",
    "records": "{record}",
    "offsets": "{offset}",
}


class ExportedMetrics:
    """Exports the metrics of :mod:`.metric_table` by OTLP, if the environment enables it.

    The names are those for Prometheus, so alerts and dashboards are the same.
    """

    def __init__(self, views: Views) -> None:
        self._views = views
        self._lock = threading.Lock()
        self._made_s = float("-inf")
        self._samples: dict[str, list[Sample]] = {}
        self._provider: MeterProvider | None = None

    def start(self) -> None:
        """Start the export."""
        reader = telemetry.metric_reader()
        if reader is None:
            return
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 -- only where wanted

        self._provider = MeterProvider([reader], telemetry.resource(), shutdown_on_exit=False)
        meter = self._provider.get_meter("srm")
        for metric in METRICS.values():
            unit = _UNITS.get(metric.unit, "1")
            meter.create_observable_gauge(
                metric.name, [self._observing(metric)], unit, metric.meaning
            )

    def close(self) -> None:
        """Export once more, then stop."""
        if self._provider is not None:
            self._provider.shutdown(_SHUTDOWN_MS)

    def _observing(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        from opentelemetry.metrics import Observation  # noqa: PLC0415 -- only where wanted

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            for _name, labels, value in self._fresh().get(metric.name, ()):
                yield Observation(float(value), dict(zip(metric.labels, labels, strict=True)))

        return observe

    def _fresh(self) -> dict[str, list[Sample]]:
        """Return samples by metric; all callbacks of one export share them."""
        with self._lock:
            if time.monotonic() - self._made_s > _FRESH_S:
                found: dict[str, list[Sample]] = {}
                for sample in samples(self._views):
                    found.setdefault(sample[0], []).append(sample)
                self._samples, self._made_s = found, time.monotonic()
            return self._samples
