"""The deferred replicator in a real Airflow: its triggerer dies, then the driver."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from tests.airflow.running import running_airflow
from tests.replicating import configure
from tests.waiting import eventually

from srm.config.loader import load_config
from srm.domain.flow_state.replication_records import DriverHeartbeat
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.flows.supervision import read_driver
from srm.errors import UnavailableError
from srm.wiring import open_cluster, open_state_topics
from srm_lab.demo.airflow_api import AirflowApi
from srm_lab.stack.airflow import EmbeddedAirflow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.airflow, pytest.mark.kafka, pytest.mark.timeout(1800)]

DAG = "srm_replication"


@dataclass
class Site:
    """A flow, the Airflow that keeps its replicator running, and its REST API."""

    file: Path
    flow: Flow
    source: str
    topic: str
    airflow: EmbeddedAirflow
    api: AirflowApi
    written: int = 0

    def driver(self) -> DriverHeartbeat | None:
        """Return the latest heartbeat."""
        with open_state_topics(load_config(self.file), [self.flow]) as topics:
            return read_driver(topics[self.flow].read())

    def task(self) -> tuple[str, int]:
        """Return state and try of the task in the newest run."""
        try:
            newest = self.api.runs(DAG)[0]["dag_run_id"]
            path = f"/dags/{DAG}/dagRuns/{quote(newest)}/taskInstances/replicator"
            found = self.api._call("GET", path)
        except (IndexError, UnavailableError):
            return "", 0
        return str(found["state"]), int(found["try_number"])

    def progress(self) -> Mapping[str, Any]:
        """Return what the trigger has last published."""
        newest = self.api.runs(DAG)[0]["dag_run_id"]
        return self.api.task_state(DAG, newest, "replicator", "progress") or {}

    def copy_more(self) -> None:
        """Write records and wait until each has arrived once."""
        producer = Producer({"bootstrap.servers": self.source})
        for number in range(100):
            producer.produce(self.topic, str(number).encode(), partition=0)
        assert producer.flush(60) == 0
        self.written += 100
        place = TopicPartition(f"{self.flow.source}.{self.topic}", 0)

        def copied() -> bool:
            with open_cluster(load_config(self.file), self.flow.target) as target:
                if place.topic not in target.topics():
                    return False
                return target.log_ends([place]).get(place, 0) >= self.written

        eventually(copied, f"{self.written} records are copied", 300)


@contextmanager
def site_of(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Site]:
    """Start an Airflow with the DAG of replication alone, whose operators defer."""
    name = uuid.uuid4().hex[:8]
    flow, topic = Flow(f"x{name}", f"y{name}"), f"Payments{name}"
    file = tmp_path / "srm.properties"
    servers = {flow.source: clusters["P"].bootstrap, flow.target: clusters["B"].bootstrap}
    more = (f"topics = {topic}", "tasks.max = 1", "refresh.topics.interval.seconds = 2")
    with open_cluster(configure(file, servers, *more), flow.source) as source:
        source.create_topics([TopicSpec(topic, 1, 1, {})])
    deferring = {"AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True"}
    with running_airflow(tmp_path, file, DAG, deferring) as (airflow, api):
        yield Site(file, flow, servers[flow.source], topic, airflow, api)


def test_a_deferred_replicator_outlives_its_triggerer_and_is_replaced_when_it_dies(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    with site_of(clusters, tmp_path) as site:
        eventually(lambda: site.task()[0] == "deferred", "the task is deferred", 600)
        site.copy_more()
        first = site.driver()
        assert first is not None

        site.airflow.processes["triggerer"].kill()
        site.copy_more()
        assert site.task() == ("deferred", 1)
        restarted_ms = time.time_ns() // 1_000_000
        site.airflow.start()
        eventually(
            lambda: _newest_beat(site.progress()) > restarted_ms, "another triggerer looks", 600
        )
        same = site.driver()
        assert same is not None
        assert (same.driver, site.task()) == (first.driver, ("deferred", 1))

        os.kill(first.pid, signal.SIGKILL)
        eventually(lambda: site.task() == ("deferred", 2), "the next try defers", 600)
        site.copy_more()
        second = site.driver()
        assert second is not None
        assert second.driver != first.driver

        site.api.pause(DAG, paused=True)
        newest = site.api.runs(DAG)[0]["dag_run_id"]
        path = f"/dags/{DAG}/dagRuns/{quote(newest)}/taskInstances/replicator"
        site.api._call("PATCH", path, json={"new_state": "failed"})
        eventually(lambda: (site.driver() or first).ended, "a marked task ends the driver", 300)


def _newest_beat(progress: Mapping[str, Any]) -> int:
    return max((flow.get("heartbeat_ms", 0) for flow in progress.get("flows", ())), default=0)
