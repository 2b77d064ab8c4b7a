"""A plain loop, Spark and a Spark Connect server make the same windows of the same raw metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.integration.connect_server import connect_server
from tests.integration.test_metrics_real import quiet_flow, write_raw

from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.metrics import RawMetric, encode_raw
from srm.domain.names import internal_topics
from srm.engine.cluster_ports import TopicSpec
from srm.engine.metrics.aggregation import AggregationSummary, aggregate
from srm.engine.metrics.metrics import stored_windows
from srm.kafka.tables import topic_tail
from srm.kafka.tables.topic_tail import read_raw_metrics
from srm.spark import REMOTE
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(600),  # it starts two Spark applications, and perhaps brokers
]

JOB = Path(__file__).resolve().parents[2] / "spark_jobs" / "metrics.py"
SPREAD = """
import os, sys
from srm.spark.session import spark_session
from srm.spark.jobs import cores, spread
with spark_session("srm-test") as spark:
    found = spread(spark, range(40), lambda part: [(item, os.getpid()) for item in part])
    print(cores(spark), [item for item, _ in found] == list(range(40)), os.getpid() in dict(found))
"""


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


class QuietFlow:
    """A flow that nobody copies, and what the engines make of its raw metrics."""

    def __init__(self, brokers: Mapping[str, KafkaBroker], folder: Path) -> None:
        self.flow, self.file = quiet_flow(brokers, folder)
        self.bootstrap = brokers["B"].bootstrap
        self.config: Config = load_config(self.file)
        self.consumer = self.config.cluster_clients("B", self.flow).consumer

    def measure(self, until_ms: int) -> list[RawMetric]:
        topic = internal_topics.raw_metrics(self.flow.source)
        with open_flow(self.config, self.flow) as context:
            context.target.create_topics([TopicSpec(topic, 1, 1, {})])
        return write_raw(self.bootstrap, topic, self.flow, until_ms)

    def plain(self) -> AggregationSummary | None:
        with open_flow(self.config, self.flow) as context:
            return aggregate(context, partial(read_raw_metrics, self.flow, self.consumer))

    def job(self, **environment: str) -> dict[str, Any]:
        """Run the Spark job as a process; return what it prints."""
        done = subprocess.run(
            [sys.executable, str(JOB), "--config", str(self.file), "--flow", str(self.flow)],
            env={**os.environ, **environment}, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def stored(self) -> list[bytes]:
        with open_flow(self.config, self.flow) as context:
            found = stored_windows(context.target, self.flow)
        return [window.value().replace(self.flow.source.encode(), b"P") for window in found]


@pytest.fixture
def flows(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> tuple[QuietFlow, QuietFlow]:
    return QuietFlow(clusters, tmp_path), QuietFlow(clusters, tmp_path)


@pytest.fixture
def until_ms() -> int:
    """All windows have ended long ago: it does not matter when somebody looks."""
    return int(time.time() * 1000) // 10_000 * 10_000 - 120_000


def test_each_engine_finds_nothing_to_do_where_another_one_has_been(
    flows: tuple[QuietFlow, QuietFlow], remote: str, until_ms: int
) -> None:
    one, other = flows
    for flow in flows:
        flow.measure(until_ms)

    plain = one.plain()
    connect = one.job(**{REMOTE: remote})
    first_connect = other.job(**{REMOTE: remote})
    then_plain = other.plain()
    cold = other.job()

    assert plain is not None
    assert then_plain is not None
    assert plain.written == first_connect["written"] > 0
    assert (connect["windows"], connect["written"]) == (plain.windows, 0)
    assert (then_plain.windows, then_plain.written, cold["written"]) == (plain.windows, 0, 0)
    assert one.stored() == other.stored()


def test_work_is_spread_over_the_workers_of_a_connect_server(remote: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPREAD], env={**os.environ, REMOTE: remote},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.stdout == "2 True False\n", done.stderr


def test_raw_metrics_that_are_too_many_for_one_process_are_not_read_to_the_end(
    flows: tuple[QuietFlow, QuietFlow], until_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, _ = flows
    values = encode_raw(flow.measure(until_ms))
    read = partial(read_raw_metrics, flow.flow, flow.consumer)

    with monkeypatch.context() as fewer:
        fewer.setattr(topic_tail, "MOST_BYTES", sum(map(len, values)) // 2)
        assert read(0) is None
    assert len(read(0) or ()) == len(values)
    assert 0 < len(read(until_ms - 30_000) or ()) < len(values)
    assert read(until_ms + 60_000) == []
