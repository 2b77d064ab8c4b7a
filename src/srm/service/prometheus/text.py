"""Samples in Prometheus' text format and as OpenMetrics; both have the same lines for gauges.

prometheus_client takes three times as long, as it renders each label of each sample. A scrape of
ten thousand topics has two hundred thousand samples, but few sets of labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from srm.service.prometheus.metric_table import METRICS, Metric
from srm.service.prometheus.samples import Sample

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(samples: Iterable[Sample], *, openmetrics: bool) -> bytes:
    """Return the text of all samples, by metric in the order of the table."""
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
