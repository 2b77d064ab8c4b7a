"""Verification on real brokers: an exact copy is equal, and each kind of damage is named."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Producer
from pyspark.sql import SparkSession
from tests.replicating import configure
from tests.slot_reports import records_of
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import Config
from srm.domain.flow_state.replication_records import (
    REPORTS,
    STATE_PARTITIONS,
    PartitionPosition,
    SlotReport,
)
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS, MapBlock, map_partition
from srm.domain.offset_map.offset_map import Position, Run
from srm.domain.verification.verification import Difference
from srm.engine import verification as engine
from srm.engine.cluster_ports import Cluster, TopicSpec
from srm.engine.control.control_topics import ensure_compacted
from srm.engine.ports import FlowContext
from srm.engine.verification import VerificationRequest
from srm.spark.session import spark_session
from srm.spark.verification import BothClusters, compare_all, prove_all, verify
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import LoggedRecord, read_log

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.integration,
    pytest.mark.timeout(400),  # the first test of a session also waits for brokers and Spark
]

FLOW = Flow("P", "B")
COUNT = 300
AT = 137
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Log = list[LoggedRecord]
Damage = Callable[[Log], Log]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("srm-verification-tests", "local[2]") as session:
        yield session


@pytest.fixture
def config(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Config:
    return configure(
        tmp_path / "srm.properties",
        {alias: broker.bootstrap for alias, broker in clusters.items()},
        "P->B.topics = verify-.*",
    )


@pytest.fixture
def context(config: Config) -> Iterator[FlowContext]:
    with open_flow(config, FLOW) as opened:
        yield opened


def properties(config: Config) -> BothClusters:
    return BothClusters(config.client("P", "consumer"), config.client("B", "consumer"))


def produce(producer: Producer, topic: str, partition: int, records: Log) -> None:
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            timestamp=record.timestamp[1],
            headers=list(record.headers),
        )


def content(number: int) -> LoggedRecord:
    return LoggedRecord(
        key=None if number % 7 == 0 else b"key-%d" % number,
        value=None if number % 11 == 0 else b"payment %d" % number,
        headers=(("trace", b"%d" % number), ("empty", None)) if number % 2 else (),
        timestamp=(TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + number),
    )


def write_source(bootstrap: str, topic: str, partitions: int) -> None:
    """Ordinary records, an aborted transaction, a committed one, and records again."""
    third = COUNT // 3
    plain = Producer({"bootstrap.servers": bootstrap})
    transactional = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    for partition in range(partitions):
        produce(plain, topic, partition, [content(n) for n in range(third)])
    assert plain.flush(DEADLINE_S) == 0
    transactional.init_transactions(DEADLINE_S)
    transactional.begin_transaction()
    for partition in range(partitions):
        transactional.produce(topic, b"never happened", partition=partition)
    transactional.flush(DEADLINE_S)
    transactional.abort_transaction(DEADLINE_S)
    transactional.begin_transaction()
    for partition in range(partitions):
        produce(transactional, topic, partition, [content(n) for n in range(third, 2 * third)])
    transactional.commit_transaction(DEADLINE_S)
    for partition in range(partitions):
        produce(plain, topic, partition, [content(n) for n in range(2 * third, COUNT)])
    assert plain.flush(DEADLINE_S) == 0


def written_log(bootstrap: str, topic: str, partition: int) -> Log:
    """Read what was written; a commit returns before its markers are in the logs."""
    found: list[Log] = []

    def whole() -> bool:
        found.append(read_log(bootstrap, topic, partition))
        return len(found[-1]) >= COUNT

    eventually(whole, "all transactions have ended in the log")
    assert len(found[-1]) == COUNT
    return found[-1]


def create(cluster: Cluster, topic: str, partitions: int) -> None:
    # The records are years old by their timestamps, so retention would take them.
    cluster.create_topics([TopicSpec(topic, partitions, 1, {"retention.ms": "-1"})])


def replicate(
    clusters: Mapping[str, KafkaBroker],
    context: FlowContext,
    topic: str,
    damages: list[Damage],
    codecs: Sequence[str] = ("none",),
) -> None:
    """Copy a topic, each partition with its damage, and write the map of an honest copier.

    The copies are compressed with the codecs in turn.
    """
    remote, map_topic = f"P.{topic}", internal_topics.offset_map("P")
    create(context.source, topic, len(damages))
    create(context.target, remote, len(damages))
    ensure_compacted(context.target, map_topic, MAP_PARTITIONS)
    ensure_compacted(context.target, internal_topics.replication("P"), STATE_PARTITIONS)
    source_id = context.source.topics()[topic].topic_id
    target_id = context.target.topics()[remote].topic_id
    write_source(clusters["P"].bootstrap, topic, len(damages))
    bootstrap = clusters["B"].bootstrap
    producers = [Producer({"bootstrap.servers": bootstrap, "compression.type": c}) for c in codecs]
    for partition, damage in enumerate(damages):
        producer = producers[partition % len(producers)]
        log = written_log(clusters["P"].bootstrap, topic, partition)
        produce(producer, remote, partition, damage([record for _, record in log]))
        runs = tuple(Run(offset, place, 1) for place, (offset, _) in enumerate(log))
        block = MapBlock(topic, source_id, partition, target_id, (1,), runs)
        table = context.target.compacted_topic(
            map_topic, map_partition(block.topic, block.partition)
        )
        table.write({block.key(): block.value()})
    assert all(producer.flush(DEADLINE_S) == 0 for producer in producers)
    report(context, topic, source_id, target_id)


def report(context: FlowContext, topic: str, topic_id: str, target_id: str) -> None:
    """Say that everything is copied, the markers at the source's end too, as a slot does."""
    partitions = range(context.source.topics()[topic].partitions)
    ends = context.source.log_ends([TopicPartition(topic, p) for p in partitions])
    positions = tuple(
        PartitionPosition(topic_id, place.partition, target_id, Position(end, COUNT, end), 1, 0)
        for place, end in ends.items()
    )
    record = SlotReport(topic, 1, context.now_ms(), positions)
    topic = internal_topics.replication("P")
    context.target.compacted_topic(topic, REPORTS).write(records_of(record))


def changed(**changes: object) -> Damage:
    def damage(log: Log) -> Log:
        return [
            *log[:AT],
            replace(log[AT], **changes),  # type: ignore[arg-type]
            *log[AT + 1 :],
        ]

    return damage


DAMAGES: dict[str, Damage] = {
    "none": lambda log: log,
    "key": changed(key=b"other"),
    "value": changed(value=b"other"),
    "headers": changed(headers=(("trace", b"other"),)),
    "timestamp": changed(timestamp=(TIMESTAMP_CREATE_TIME, 1)),
    "missing": lambda log: [*log[:AT], *log[AT + 1 :]],
    "extra": lambda log: [*log[:AT], log[AT - 1], *log[AT:]],
    "order": lambda log: [*log[:AT], log[AT + 1], log[AT], *log[AT + 2 :]],
    "foreign": lambda log: [*log, log[-1]],
}


def test_each_damage_is_found_at_its_offsets_and_only_there(clusters, context, config, spark):
    topic = f"verify-{uuid.uuid4().hex}"
    replicate(clusters, context, topic, list(DAMAGES.values()))
    source_offset = read_log(clusters["P"].bootstrap, topic, 0)[AT][0]

    for range_records in (100, 250_000):
        request = VerificationRequest((topic,), range_records=range_records, full=True)
        summary = verify(spark, context, properties(config), request)

        equal, *damaged = summary.partitions
        assert (equal.outcome, equal.reason) == ("equal", "")
        assert (equal.source_records, equal.target_records) == (COUNT, COUNT)
        assert equal.source_hash == equal.target_hash
        for kind, result in zip(list(DAMAGES)[1:], damaged, strict=True):
            source, copy = (None, COUNT) if kind == "foreign" else (source_offset, AT)
            expected = Difference(topic, result.partition, source, copy, (kind,))  # type: ignore[arg-type]
            assert (result.outcome, result.difference) == ("different", expected)
            assert result.source_hash != result.target_hash
        stored = [r for r in engine.latest(context.target, FLOW).partitions if r.topic == topic]
        assert tuple(stored) == summary.partitions


def test_the_bytes_of_batches_prove_what_consumers_find_and_nothing_else(clusters, context, config):
    topic = f"verify-{uuid.uuid4().hex}"
    equal, *damaged = DAMAGES.values()
    replicate(clusters, context, topic, [equal] * len(CODECS) + damaged, CODECS)
    ranges = engine.plan(context, VerificationRequest((topic,))).ranges
    both = properties(config)

    by_bytes = prove_all(both, ranges)
    by_records = list(compare_all(both, ranges, by_records=True))

    assert by_bytes == [*by_records[: len(CODECS)], *[None] * len(damaged)]
    for mine, consumed in zip(by_bytes[: len(CODECS)], by_records, strict=False):
        assert mine.source.epoch == consumed.source.epoch >= 0
        assert mine.target.reached == consumed.target.reached == COUNT


def test_the_command_names_the_first_difference_and_ends_with_exit_code_8(
    clusters, context, config
):
    topic = f"verify-{uuid.uuid4().hex}"
    replicate(clusters, context, topic, [DAMAGES["none"], DAMAGES["value"]])

    options = ["--config", config.path, "--flow", "P->B", "--topic", topic]

    ended = subprocess.run(
        [sys.executable, "-m", "srm.cli.main", "verify", "--json", *options],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 8, ended.stderr
    (line,) = [line for line in ended.stderr.splitlines() if f"{topic}-1 source offset" in line]
    assert json.loads(line)["error"]["message"].endswith("value")
    outcomes = [p["outcome"] for p in json.loads(ended.stdout)["partitions"]]
    assert outcomes == ["equal", "different"]
