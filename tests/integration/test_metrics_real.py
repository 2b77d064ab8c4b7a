"""Raw metrics on a real broker become windows in the compacted topic, once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest
from confluent_kafka import Producer

from srm.config.loader import load_config
from srm.domain.metrics import RawMetric, Statistics, WindowMetric, encode_raw, latest
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import TopicSpec
from srm.engine.metrics.metrics import WindowSpec, stored_windows
from srm.spark.jobs import aggregate
from srm.spark.session import spark_session
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(400),  # the first test of a session also waits for brokers and Spark
]


def quiet_flow(brokers: Mapping[str, KafkaBroker], folder: Path) -> tuple[Flow, Path]:
    """Give a flow that nobody copies, with its configuration.

    From an alias of its own: the raw topic of P belongs to all tests. Switched off: of another that
    nobody copies the lag is told.
    """
    flow = Flow(f"P{uuid.uuid4().hex[:8]}", "B")
    file = folder / f"{flow.source}.properties"
    file.write_text(
        f"clusters = {flow.source}, B\n"
        f"{flow.source}.bootstrap.servers = {brokers['P'].bootstrap}\n"
        f"B.bootstrap.servers = {brokers['B'].bootstrap}\n"
        "offset-syncs.topic.replication.factor = 1\n"
    )
    return flow, file


def write_raw(bootstrap: str, topic: str, flow: Flow, until_ms: int) -> list[RawMetric]:
    """Two partitions report each second for three minutes; one value is no metric."""
    records = [
        RawMetric(
            until_ms - second * 1000, 1000, flow.source, flow.target,
            "pay", f"{flow.source}.pay", partition, 10, 5000, 2, 8, 50, 10, partition,
        )
        for second in range(180, 0, -1)
        for partition in range(2)
    ]  # fmt: skip
    producer = Producer({"bootstrap.servers": bootstrap})
    for time_ms, of_second in groupby(records, lambda record: record.time_ms):
        for value in encode_raw(of_second):
            producer.produce(topic, value, b"0", 0, timestamp=time_ms)
    producer.produce(topic, b"junk", timestamp=until_ms)
    assert producer.flush(60) == 0
    return records


def test_windows_are_computed_once_and_a_second_run_writes_nothing(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
):
    flow, file = quiet_flow(clusters, tmp_path)
    config = load_config(file)
    topic = internal_topics.raw_metrics(flow.source)
    consumer = config.client("B", "consumer")
    # A full multiple of the slide, so that the last window is known.
    until_ms = int(time.time() * 1000) // 10_000 * 10_000
    now_ms = until_ms + 1 + config.flow(flow).metrics_interval.seconds * 1000
    with spark_session("srm-metrics-tests", "local[2]") as spark, open_flow(config, flow) as opened:
        context = replace(opened, now_ms=lambda: now_ms)
        nothing = aggregate(spark, context, consumer, WindowSpec())
        context.target.create_topics([TopicSpec(topic, 1, 1, {})])
        write_raw(clusters["B"].bootstrap, topic, flow, until_ms)
        first = aggregate(spark, context, consumer, WindowSpec())
        again = aggregate(spark, context, consumer, WindowSpec())
        short = aggregate(
            spark,
            context,
            consumer,
            WindowSpec(look_back_ms=70_000, keep_ms=120_000, keep_all_ms=120_000),
        )
        windows = stored_windows(context.target, flow)
        newest = latest(windows)

    assert (nothing.raw_records, nothing.windows) == (0, 0)
    assert (first.raw_records, first.malformed_records) == (361, 1)
    # From 181 s to 1 s before the end: 19 ticks, and as many windows that have ended, per level.
    assert (first.windows, first.written) == (2 * 19, 2 * 19)
    assert (again.windows, again.written) == (2 * 19, 0)
    assert (short.written, short.expired > 0) == (0, True)
    assert all(window.end_ms >= now_ms - 120_000 for window in windows)
    cluster, pay = newest
    assert (cluster.level, pay.level, pay.end_ms) == ("cluster", "topic", until_ms)
    expected = {"records": 2 * 10 * 59, "bytes": 2 * 5000 * 59}
    assert {"records": pay.records, "bytes": pay.bytes} == expected
    rate = 5000 * 59 / 60
    assert pay.byte_rate == Statistics(rate, rate, 2 * rate, 2)
    assert pay.replication_records_lag == Statistics(0.0, 1.0, 1.0, 2)
    assert (pay.replication_latency_ms.avg, pay.replication_latency_ms.max) == (5.0, 8.0)
    assert isinstance(cluster, WindowMetric)
    assert cluster.byte_rate == pay.byte_rate
