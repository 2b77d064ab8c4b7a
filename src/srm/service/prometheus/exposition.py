"""Response to a scrape: the metrics of all flows and of the service's process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder

from srm.service.prometheus.metric_table import METRICS, Metric
from srm.service.prometheus.requests import RequestMetrics
from srm.service.prometheus.samples import (
    Sample,
    drill_samples,
    flow_samples,
    group_samples,
    move_samples,
    service_samples,
    topic_samples,
)
from srm.service.views.views import Views

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Exposition:
    """Answers scrapes; thread-safe.

    The text of the flows is made once per look for all scrapes, as ten thousand topics take most of
    a second. One thread makes it, other threads wait for it.
    """

    def __init__(self, views: Views) -> None:
        self.process = CollectorRegistry()
        self.requests = RequestMetrics(self.process)
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.process)
        self._views = views
        self._lock = threading.Lock()
        self._made: dict[bool, tuple[tuple[object, ...], bytes]] = {}

    def scrape(self, accept: str) -> tuple[bytes, str]:
        """Return the metrics in an accepted format, and its content type."""
        encode, content_type = choose_encoder(accept)
        openmetrics = content_type.startswith("application/openmetrics-text")
        with self._lock:
            looks = self._views.targets
            known = self._made.get(openmetrics)
            if known is None or not _same(known[0], looks):
                flows = render(samples(self._views), openmetrics=openmetrics)
                known = self._made[openmetrics] = (looks, flows)
        return known[1] + encode(self.process), content_type


def _same(one: Iterable[object], other: Iterable[object]) -> bool:
    """Return True if these are the same objects; looks are replaced as a whole."""
    return [*map(id, one)] == [*map(id, other)]


def samples(views: Views) -> Iterator[Sample]:
    """Yield the values of all metrics that the settings enable."""
    settings = views.config.service
    yield from service_samples(views.targets)
    for look in views.looks():
        groups = views.groups(look.flow) if look.view is not None else ()
        yield from flow_samples(look, groups)
        if settings.prometheus_groups:
            yield from group_samples(look.flow, groups)
        if settings.prometheus_topics and look.view is not None:
            yield from topic_samples(look, views.topics(look.flow))
    yield from move_samples(views.move_looks())
    yield from drill_samples(drill for look in views.targets for drill in look.drills)


def render(samples: Iterable[Sample], *, openmetrics: bool) -> bytes:
    """Return the text of all samples, by metric in the order of the table.

    prometheus_client takes three times as long, as it renders each label of each sample. A scrape
    of ten thousand topics has two hundred thousand samples, but few sets of labels.
    """
    lines: dict[str, list[str]] = {}
    known: dict[tuple[str, ...], dict[tuple[str, ...], str]] = {}
    labelled = {name: known.setdefault(metric.labels, {}) for name, metric in METRICS.items()}
    for name, labels, value in samples:
        shown = labelled[name]
        text = shown.get(labels)
        if text is None:
            text = shown[labels] = _labels(METRICS[name].labels, labels)
        lines.setdefault(name, []).append(f"{name}{text} {float(value)!r}\n")
    return "".join(_text(lines, openmetrics=openmetrics)).encode()


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = (
        f'{name}="{value.translate(_ESCAPES)}"' for name, value in zip(names, values, strict=True)
    )
    return f"{{{','.join(pairs)}}}"


def _text(lines: Mapping[str, list[str]], *, openmetrics: bool) -> Iterator[str]:
    for name, metric in METRICS.items():
        if name in lines:
            yield from _head(metric, openmetrics=openmetrics)
            yield from lines[name]


def _head(metric: Metric, *, openmetrics: bool) -> Iterator[str]:
    name, kind = metric.name, "gauge"
    if openmetrics and metric.is_info:
        name, kind = name.removesuffix("_info"), "info"
    yield f"# HELP {name} {metric.meaning}\n# TYPE {name} {kind}\n"
    if openmetrics and metric.unit:
        yield f"# UNIT {name} {metric.unit}\n"
