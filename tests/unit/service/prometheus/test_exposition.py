"""``/metrics`` speaks both formats, keeps Prometheus' conventions, and costs a look only once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.debian import program

from srm.service.app import create_app
from srm.service.prometheus import exposition
from srm.service.prometheus.exposition import Exposition
from srm.service.prometheus.metric_table import METRICS
from srm.service.views.views import Views

OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture
def scraped(everything: Views) -> Iterator[TestClient]:
    with TestClient(create_app(everything)) as opened:
        yield opened


def test_promtool_has_nothing_to_say_against_names_and_units(scraped: TestClient) -> None:
    scraped.get("/v2/flows")
    text = scraped.get("/metrics").text

    checked = subprocess.run(
        [program("promtool", "prometheus"), "check", "metrics"],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert all(f"\n# TYPE {name} gauge\n" in f"\n{text}" for name in METRICS)


def test_whoever_accepts_openmetrics_gets_it(scraped: TestClient) -> None:
    answer = scraped.get("/metrics", headers={"Accept": OPENMETRICS})

    assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["srm_service"].type == "info"
    assert families["srm_flow_lag_offsets"].samples[0].labels == {"source": "P", "target": "B"}


def test_the_service_tells_of_its_own_process(scraped: TestClient) -> None:
    text = scraped.get("/metrics").text

    assert "\nprocess_cpu_seconds_total " in text
    assert "\nprocess_resident_memory_bytes " in text


def test_requests_are_counted_by_route_and_not_by_path(scraped: TestClient) -> None:
    for path in ("/v2/flows/P/B", "/v2/flows/P/X", "/nothing/at/all", "/static/icon.svg"):
        scraped.get(path)

    text = scraped.get("/metrics").text

    flow = 'method="GET",route="/v2/flows/{source}/{target}"'
    assert f'srm_service_requests_total{{{flow},status="200"}} 1.0' in text
    assert f'srm_service_requests_total{{{flow},status="404"}} 1.0' in text
    assert 'srm_service_requests_total{method="GET",route="(none)",status="404"} 1.0' in text
    assert f"srm_service_request_duration_seconds_count{{{flow}}} 2.0" in text
    assert "/nothing" not in text


def test_a_scrape_is_small_where_gzip_is_accepted(scraped: TestClient) -> None:
    packed = scraped.get("/metrics", headers={"Accept-Encoding": "gzip"})
    plain = scraped.get("/metrics", headers={"Accept-Encoding": "identity"})

    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 4
    assert "srm_flow_lag_offsets" in packed.text


@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [
        ("gzip;q=0, identity", False),
        ("GZIP ; q = 0.000", False),
        ("deflate, x-gzip", False),
        ("", False),
        ("deflate, gzip;q=0.5", True),
        ("Gzip;q=0.001", True),
        ("identity;q=0, gzip", True),
    ],
)
def test_a_scrape_is_packed_only_where_gzip_is_accepted(
    scraped: TestClient, accepted: str, is_packed: bool
) -> None:
    told = scraped.get("/metrics", headers={"Accept-Encoding": accepted})

    assert ("Content-Encoding" in told.headers) == is_packed


def test_what_is_told_of_flows_is_made_once_for_each_look(
    everything: Views, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    samples = exposition.samples
    monkeypatch.setattr(exposition, "samples", lambda views: made.append(1) or samples(views))
    asked = Exposition(everything)

    asked.scrape("")
    asked.scrape("")
    assert len(made) == 1

    [watch] = everything._watches.values()
    watch.look = replace(watch.look, looked_ms=watch.look.looked_ms + 1000)  # type: ignore[misc]
    body, _ = asked.scrape("")
    assert len(made) == 2
    assert f"{watch.look.looked_ms / 1000!r}".encode() in body
