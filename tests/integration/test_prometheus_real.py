"""A real Prometheus scrapes the service over real brokers, and its rules see what happens there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Producer
from tests.debian import program
from tests.integration.moving import Site
from tests.unit.deploy.queries import DEPLOY, RULES, alerts
from tests.waiting import eventually

from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.groups.checkpoints import emit
from srm.wiring import open_flow
from srm_lab.stack.process import ManagedProcess, ProcessSpec, free_port
from srm_lab.stack.service import EmbeddedService

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


@contextmanager
def service_of(site: Site, home: Path) -> Iterator[int]:
    """Run srm-service over the brokers; give its port."""
    port = free_port()
    service = EmbeddedService(home, port, site.path, {})
    service.start()
    try:
        service.wait_ready()
        yield port
    finally:
        service.stop()


class Prometheus:
    """A Prometheus with the configuration that ships with srm, only more often.

    A scrape may take as long as the interval: in less the service of a busy machine is down.
    """

    def __init__(self, home: Path, scraped_port: int) -> None:
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "5s", "evaluation_interval": "1s"}
        config["rule_files"] = [str(RULES)]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{scraped_port}"]
        file = home / "prometheus.yaml"
        file.write_text(yaml.safe_dump(config))
        self._url = f"http://127.0.0.1:{(port := free_port())}"
        self._process = ManagedProcess("Prometheus", home / "prometheus.log", home / "pid")
        command = [
            program("prometheus", "prometheus"),
            f"--config.file={file}",
            f"--storage.tsdb.path={home / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        spec = ProcessSpec("Prometheus", command, dict(os.environ), self._process.log, home)
        self._process.start(spec)

    def stop(self) -> None:
        self._process.stop(10)

    def get(self, path: str, **parameters: str) -> Any:
        """Ask its API; nothing while it does not answer."""
        try:
            answer = httpx.get(
                f"{self._url}/api/v1/{path}", params=parameters, timeout=60, trust_env=False
            )
        except httpx.TransportError:
            return {}
        return answer.json().get("data", {}) if answer.is_success else {}

    def value(self, query: str) -> float | None:
        """Return the value of a query that has one."""
        found = self.get("query", query=query).get("result", [])
        return float(found[0]["value"][1]) if found else None


@pytest.fixture
def home(tmp_path: Path) -> Path:
    program("prometheus", "prometheus")  # before brokers are started for nothing
    for name in ("logs", "run"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_prometheus_scrapes_the_service_and_its_rules_see_a_flow_that_stops(
    home: Path, site: Site
) -> None:
    flow = Flow(site.p, site.b)
    here = f'source="{site.p}", target="{site.b}"'
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(30):
        producer.produce(site.topic, b"%d" % number, partition=number % 3)
    assert producer.flush(60) == 0
    group = site.group("audit")

    with service_of(site, home) as port:
        prometheus = Prometheus(home, port)
        try:
            with site.replicating(flow):
                copied = f'srm_topic_copied_offsets{{{here}, topic="{site.topic}"}}'
                eventually(lambda: (prometheus.value(copied) or 0) >= 30, "the copy is told")
                site.clusters[site.p].commit_idle(group, {TopicPartition(site.topic, 0): 4})
                with open_flow(site.config, flow) as context:
                    emit(context, [group])
                # Of a group that nobody runs it is what it has committed since its checkpoint.
                site.clusters[site.p].commit_idle(group, {TopicPartition(site.topic, 0): 7})

                again = f'srm_group_read_again_records{{{here}, group="{group}"}}'
                eventually(lambda: prometheus.value(again) == 3, "the group is told")
                lag = f'srm_topic_lag_offsets{{{here}, topic="{site.topic}"}}'
                runs = f'srm_topic_state{{{here}, topic="{site.topic}", state="RUNNING"}}'
                for query, value in ((lag, 0), (runs, 1), ('up{job="srm"}', 1)):
                    eventually(lambda: prometheus.value(query) == value, query)  # noqa: B023
                groups = prometheus.get("rules").get("groups", [])
                rules = [rule for one in groups for rule in one["rules"]]
                assert len(rules) == len(alerts())
                unwell = [rule for rule in rules if rule["health"] not in {"ok", "unknown"}]
                assert not unwell

            def pending() -> set[str]:
                found = prometheus.get("alerts").get("alerts", [])
                mine = [one for one in found if one["labels"].get("source") == site.p]
                return {one["labels"]["alertname"] for one in mine}

            eventually(lambda: "SrmFlowStopped" in pending(), "the alert is raised")
        finally:
            prometheus.stop()
