"""The service for OpenTelemetry: requests are spans of whoever asks, metrics are exported."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from tests.otlp import Collector, collecting
from tests.unit.test_telemetry import PARENT

from srm import telemetry
from srm.service.app import create_app
from srm.service.prometheus import exposition
from srm.service.prometheus.metric_table import METRICS
from srm.service.views.views import Views

SERVER = 2


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    telemetry._tracer.cache_clear()
    telemetry._provider.cache_clear()
    with collecting() as made:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.url)
        monkeypatch.setattr(telemetry, "_FLUSH_S", 60.0)
        monkeypatch.setattr(exposition, "_SHUTDOWN_MS", 60_000)
        yield made
        telemetry.flush()
    telemetry._tracer.cache_clear()
    telemetry._provider.cache_clear()


def test_a_request_is_a_span_of_its_route_in_the_trace_of_whoever_asks(
    collector: Collector, views: Views
) -> None:
    with TestClient(create_app(views)) as client:
        client.get("/v2/flows/P/B", headers={"traceparent": PARENT})
        client.get("/v2/flows/P/X")
        client.get("/metrics")

    asked, failed = collector.spans
    assert asked.name == failed.name == "GET /v2/flows/{source}/{target}"
    assert [asked.trace_id, asked.parent_id] == PARENT.split("-")[1:3]
    assert (asked.kind, failed.parent_id) == (SERVER, "")
    assert asked.attributes["http.response.status_code"] == 200
    assert failed.attributes["http.response.status_code"] == 404
    assert failed.attributes["url.path"] == "/v2/flows/P/X"


def test_below_a_path_machines_that_ask_all_the_time_are_no_spans_either(
    collector: Collector, views: Views
) -> None:
    outer = FastAPI()
    outer.mount("/srm", create_app(views))
    client = TestClient(outer)
    for path in ("/srm/metrics", "/srm/health", "/srm/static/icon.svg", "/srm/v2/flows"):
        assert client.get(path).status_code == 200
    telemetry.flush()

    assert [span.name for span in collector.spans] == ["GET /v2/flows"]


def test_metrics_are_exported_by_the_names_that_they_have_for_prometheus(
    collector: Collector, views: Views
) -> None:
    with TestClient(create_app(views)):
        pass  # its end exports once more

    assert collector.points["srm_flow_lag_offsets", "P", "B"] == 3
    assert collector.points["srm_group_read_again_records", "audit", "P", "B"] == 0
    assert collector.units["srm_flow_look_timestamp_seconds"] == "s"
    assert collector.units.keys() <= METRICS.keys()


def test_traces_can_be_wanted_without_metrics(
    collector: Collector, views: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")

    with TestClient(create_app(views)) as client:
        client.get("/v2/flows")

    assert (len(collector.spans), collector.points) == (1, {})
