"""Our text is what prometheus_client reads back, whatever the labels are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from srm.service.prometheus.exposition import Sample, render
from srm.service.prometheus.metric_table import METRICS

Reader = Callable[[str], Iterable[Metric]]


@st.composite
def some_samples(draw: st.DrawFn) -> list[Sample]:
    found: dict[tuple[str, tuple[str, ...]], float] = {}
    for name in draw(st.lists(st.sampled_from(sorted(METRICS)), max_size=5)):
        labels = tuple(draw(st.text(max_size=5)) for _ in METRICS[name].labels)
        value = draw(st.one_of(st.integers(0, 1 << 60), st.booleans(), st.floats(0, 1e12)))
        found[name, labels] = 1.0 if METRICS[name].is_info else float(value)
    return [(name, labels, value) for (name, labels), value in found.items()]


@pytest.mark.parametrize(("read", "openmetrics"), [(read_text, False), (read_openmetrics, True)])
@given(samples=some_samples())
def test_what_is_written_is_read_back(
    read: Reader, openmetrics: bool, samples: list[Sample]
) -> None:
    text = render(samples, openmetrics=openmetrics).decode() + "# EOF\n" * openmetrics

    back = [sample for family in read(text) for sample in family.samples]

    assert sorted((s.name, tuple(sorted(s.labels.items())), s.value) for s in back) == sorted(
        (name, tuple(sorted(zip(METRICS[name].labels, labels, strict=True))), value)
        for name, labels, value in samples
    )


def test_openmetrics_has_units_and_infos() -> None:
    samples: list[Sample] = [
        ("srm_service_info", ("0.1.0",), 1),
        ("srm_flow_look_timestamp_seconds", ("P", "B"), 1.5),
    ]

    text = render(samples, openmetrics=True).decode() + "# EOF\n"

    kinds = {family.name: (family.type, family.unit) for family in read_openmetrics(text)}
    assert kinds == {
        "srm_service": ("info", ""),
        "srm_flow_look_timestamp_seconds": ("gauge", "seconds"),
    }
