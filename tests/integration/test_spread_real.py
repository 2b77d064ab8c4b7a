"""Checkpoints and group sync as Spark jobs on real brokers do what the engine calls do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.replicating import configure

from srm.config.model import Config
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, map_partition
from srm.domain.offset_map.offset_map import Run
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.groups.checkpoints import emit
from srm.engine.ports import FlowContext
from srm.spark.jobs import emit_spread, sync_spread
from srm.spark.session import spark_session
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(900),  # the first test of a session also waits for brokers and Spark
]

JOBS = Path(__file__).parents[2] / "spark_jobs"
FLOW = Flow("P", "B")
GROUPS = 45
WRITTEN_MS = time.time_ns() // 1_000_000  # a copy has its original's time


@pytest.fixture
def name() -> str:
    return f"spread{uuid.uuid4().hex[:8]}"


@pytest.fixture
def config(clusters: Mapping[str, KafkaBroker], tmp_path: Path, name: str) -> Config:
    return configure(
        tmp_path / "srm.properties",
        {alias: broker.bootstrap for alias, broker in clusters.items()},
        f"P->B.topics = {name}",
        f"P->B.groups = {name}-.*",
        "sync.group.offsets.enabled = true",
    )


@pytest.fixture
def copied(clusters: Mapping[str, KafkaBroker], config: Config, name: str) -> Iterator[FlowContext]:
    """100 records with their copies and the map, and groups that have read some of them."""
    with open_flow(config, FLOW) as context:
        places = ((context.source, "P", name), (context.target, "B", f"P.{name}"))
        for cluster, alias, topic in places:
            cluster.create_topics([TopicSpec(topic, 1, 1, {})])
            producer = Producer({"bootstrap.servers": clusters[alias].bootstrap})
            for number in range(100):
                producer.produce(topic, b"%d" % number, partition=0, timestamp=WRITTEN_MS)
            assert producer.flush(120) == 0
        ids = [cluster.topics()[topic].topic_id for cluster, _, topic in places]
        map_topic = internal_topics.offset_map("P")
        ensure_compacted(context.target, map_topic, MAP_PARTITIONS)
        block = MapBlock(name, ids[0], 0, ids[1], (1,), (Run(0, 0, 100),))
        table = context.target.compacted_topic(
            map_topic, map_partition(block.topic, block.partition)
        )
        table.write({block.key(): block.value()})
        for group in range(GROUPS):
            context.source.commit_idle(f"{name}-{group}", {TopicPartition(name, 0): group + 1})
        yield context


def test_groups_in_many_tasks_are_checkpointed_and_synced_as_in_one(copied, config, name):
    before = emit(copied, dry_run=True)
    with spark_session("srm-spread-tests", "local[2]") as spark:
        emitted = emit_spread(spark, config, FLOW)
        synced = sync_spread(spark, config, FLOW)
        again = emit_spread(spark, config, FLOW)

    assert (emitted.groups, emitted.written, emitted.errors) == (GROUPS, GROUPS, {})
    assert (emitted.outcomes, emitted.states) == (before.outcomes, before.states)
    assert (again.written, again.unchanged) == (0, GROUPS)
    assert (synced.applied, synced.errors) == (GROUPS, {})
    copy = TopicPartition(f"P.{name}", 0)
    assert copied.target.committed_offsets(f"{name}-7") == {copy: 8}


@pytest.mark.usefixtures("copied")
def test_the_job_runs_under_spark_submit_and_prints_its_summary(config):
    python = Path(sys.executable)
    environ = {
        **os.environ,
        "PYSPARK_PYTHON": str(python),
        "PATH": f"{python.parent}:/usr/bin:/bin",
    }

    command = [python.with_name("spark-submit"), "--master", "local[2]", JOBS / "checkpoints.py"]

    ended = subprocess.run(
        [*command, "--config", config.path, "--flow", "P->B"],
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )

    assert ended.returncode == 0, ended.stderr[-2000:]
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert (summary["groups"], summary["written"], summary["errors"]) == (GROUPS, GROUPS, {})
