"""The slot between real brokers: what arrives is what was committed, once, in order, and mapped."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from tests.faults.campaign.brokers import delete_topics
from tests.integration.copying import CopyLab
from tests.integration.kafka_tools import run_tool
from tests.mm2 import decode_sync
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import AssignedPartition, Incarnation, begin_of_copy
from srm.domain.names import internal_topics
from srm.domain.names.topics import TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.errors import FencedError, SupersededError
from srm.replication.copy import slot
from srm.spark.slot import run_slot
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

BEGAN_MS = time.time_ns() // 1_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def lab(clusters: Mapping[str, KafkaBroker]) -> CopyLab:
    return CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)


def _fill(producer: Producer, topic: str, count: int, partitions: int = 1, seed: int = 0) -> None:
    for i in range(seed, seed + count):
        producer.produce(
            topic,
            None if i % 7 == 3 else os.urandom(i % 300),
            key=None if i % 5 == 2 else str(i % 50).encode(),
            partition=i % partitions,
            headers=[("n", str(i).encode()), ("empty", b""), ("null", None)] if i % 3 else None,
            timestamp=BEGAN_MS + i,  # older ones would be deleted by retention under the test
        )
        if i % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _newest(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for _, record in read_log(bootstrap, topic, 0)}


def _read_by_kafkas_own_consumer(
    bootstrap: str, topic: str, count: int
) -> list[tuple[bytes, bytes]]:
    tool = ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
    tool += ["--topic", topic, "--from-beginning", "--max-messages", str(count)]
    lines = run_tool(*tool, "--formatter-property", "print.key=true").stdout.encode().splitlines()
    return [(key, value) for key, _, value in (line.partition(b"\t") for line in lines)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_header_and_tombstone_arrives_unchanged(lab: CopyLab, codec: str) -> None:
    partitions = lab.topic(2)
    _fill(lab.producer(**{"compression.type": codec}), partitions[0].topic, 3000, 2)
    lab.assign("0", partitions)

    with lab.running():
        lab.wait_until_copied(partitions)
        _fill(lab.producer(**{"compression.type": codec}), partitions[0].topic, 500, 2, 3000)
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)


def test_only_committed_transactions_arrive(lab: CopyLab) -> None:
    partitions = lab.topic()
    topic = partitions[0].topic
    producer = lab.producer(**{"transactional.id": uuid.uuid4().hex})
    producer.init_transactions(120)
    for number in range(12):
        producer.begin_transaction()
        for i in range(20):
            producer.produce(topic, f"{number}-{i}".encode(), partition=0)
        producer.flush(120)
        if number % 3 == 1:
            producer.abort_transaction(120)
        else:
            producer.commit_transaction(120)
    lab.assign("0", partitions)

    with lab.running():
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)
    assert sum(run.count for run in lab.offset_map(partitions[0]).runs) == 8 * 20


def test_a_compacted_topic_with_holes_arrives_dense_and_mapped(lab: CopyLab) -> None:
    partitions = lab.topic(
        configs={
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
        }
    )
    topic = partitions[0].topic
    producer = lab.producer()
    source = lab.source_props["bootstrap.servers"]

    def has_holes() -> bool:
        for i in range(200):
            # Every twentieth record is the only one of its key: it stays, with holes around it.
            key = uuid.uuid4().hex if i % 20 == 0 else str(i % 50)
            producer.produce(topic, os.urandom(25).hex(), key=key.encode(), partition=0)
        assert producer.flush(120) == 0
        offsets = [offset for offset, _ in read_log(source, topic, 0)]
        return bool(offsets) and offsets[-1] - offsets[0] + 1 - len(offsets) > 300

    eventually(has_holes, "the cleaner has run")
    target, remote = lab.target_props["bootstrap.servers"], partitions[0].target_topic
    lab.target.alter_topic_configs({remote: {"cleanup.policy": "delete"}})
    lab.assign("0", partitions)

    with lab.running():
        lab.wait_until_copied(partitions)

    runs = lab.offset_map(partitions[0]).runs
    assert len(runs) > 1
    assert sum(run.count for run in runs) < runs[-1].source_end
    # The cleaner may go on at any time, so both copies are compared by what they say per key.
    assert _newest(source, topic) == _newest(target, remote)
    copied = [(record.key, record.value) for _, record in read_log(target, remote, 0)]
    assert _read_by_kafkas_own_consumer(target, remote, len(copied)) == copied


def test_a_broker_timestamp_of_the_source_becomes_the_record_timestamp(lab: CopyLab) -> None:
    name_partitions = lab.topic(configs=None)
    lab.source.alter_topic_configs(
        {name_partitions[0].topic: {"message.timestamp.type": "LogAppendTime"}}
    )
    _fill(lab.producer(), name_partitions[0].topic, 50)
    lab.assign("0", name_partitions)

    with lab.running():
        lab.wait_until_copied(name_partitions)

    p = name_partitions[0]
    source = read_log(lab.source_props["bootstrap.servers"], p.topic, 0)
    target = read_log(lab.target_props["bootstrap.servers"], p.target_topic, 0)
    assert [(r.value, r.timestamp[1]) for _, r in source] == [
        (r.value, r.timestamp[1]) for _, r in target
    ]


def test_a_new_topic_starts_without_stopping_the_others(lab: CopyLab) -> None:
    first = lab.topic()
    _fill(lab.producer(), first[0].topic, 100)
    lab.assign("0", first)

    with lab.running():
        lab.wait_until_copied(first)
        epochs = {e.producer_epoch for r in lab.reports() for e in r.positions}
        second = lab.topic()
        _fill(lab.producer(), second[0].topic, 100)
        lab.assign("0", [*first, *second])
        lab.wait_until_copied([*first, *second])
        _fill(lab.producer(), first[0].topic, 100, seed=100)
        lab.wait_until_copied(first)
        after = {
            e.producer_epoch
            for r in lab.reports()
            for e in r.positions
            if e.topic_id == first[0].topic_id
        }

    assert after == epochs, "the first topic was claimed again"
    lab.assert_equal([*first, *second])


def test_a_second_slot_takes_over_and_the_first_is_fenced(lab: CopyLab) -> None:
    partitions = lab.topic()
    _fill(lab.producer(), partitions[0].topic, 1000)
    lab.assign("0", partitions)

    with lab.running("0"), lab.running("1"):
        lab.wait_until_copied(partitions)
        lab.assign("1", partitions)  # slot 0 is not told: as if it had not heard yet
        _fill(lab.producer(), partitions[0].topic, 1000, seed=1000)
        lab.wait_until_copied(partitions)
        lab.assign("0", [])
        _fill(lab.producer(), partitions[0].topic, 1000, seed=2000)
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)


def test_a_slot_that_ends_reports_what_was_acknowledged_to_it(
    lab: CopyLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most 64 requests await their answers, so that of 70 records 6 are acknowledged."""
    monkeypatch.setattr(slot, "_REPORT_EVERY_S", 1e9)
    [p] = lab.topic()
    place, producer = TopicPartition(p.target_topic, 0), lab.producer()
    lab.assign("0", [p])
    with lab.running():
        for number in range(70):
            end = lab.target.high_watermarks([place])[place]
            _fill(producer, p.topic, 1, seed=number)
            eventually(lambda: lab.target.high_watermarks([place])[place] > end, "copied")  # noqa: B023

    [position] = lab.reports()[0].positions
    assert position.position.source_next >= 6


def test_offset_syncs_are_mm2_records_of_copied_pairs(lab: CopyLab) -> None:
    partitions = lab.topic()
    _fill(lab.producer(), partitions[0].topic, 100)
    lab.assign("0", partitions)
    with lab.running():
        lab.wait_until_copied(partitions)

    table = lab.source.compacted_topic(internal_topics.offset_syncs(lab.flow.target)).read()
    syncs = [decode_sync(key, value) for key, value in table.items()]
    run = lab.offset_map(partitions[0]).runs[-1]
    assert [(s.upstream_offset, s.downstream_offset) for s in syncs] == [(99, 99 + run.shift)]


def test_of_two_live_processes_of_one_slot_the_one_that_started_first_leaves_the_partitions_alone(
    lab: CopyLab,
) -> None:
    """Say one on an executor that Spark has lost sight of, which goes on all the same."""
    partitions = lab.topic(2)
    lab.assign("0", partitions)
    _fill(lab.producer(), partitions[0].topic, 50)
    ended: list[BaseException] = []

    def first() -> None:
        try:
            run_slot(lab.spec("0"), threading.Event())
        except FencedError as error:
            ended.append(error)

    def incarnation() -> Incarnation | None:
        [report] = lab.reports()
        return report.incarnation

    lost = threading.Thread(target=first, daemon=True)
    lost.start()
    lab.wait_until_copied(partitions)
    older = incarnation()
    with lab.running("0"):
        eventually(lambda: incarnation() != older, "the second one has started")
        newer = incarnation()
        lab.assign("0", partitions, newer)
        lost.join(120)
        assert not lost.is_alive()
        _fill(lab.producer(), partitions[0].topic, 50, seed=50)
        lab.wait_until_copied(partitions)
        lab.assign("0", partitions, older)  # of a driver that is late: the newer one stays
        _fill(lab.producer(), partitions[0].topic, 50, seed=100)
        lab.wait_until_copied(partitions)

    assert older is not None
    assert newer is not None
    assert older < newer
    assert str(newer) in str(ended[0])
    lab.assert_equal(partitions)


def test_slots_of_an_application_that_drives_the_flow_no_more_end_and_begin_no_more(
    lab: CopyLab,
) -> None:
    """Its own driver may be cut off from the target, and have them submitted again."""
    partitions = lab.topic(2)
    ended: list[BaseException] = []

    def copy() -> None:
        try:
            run_slot(replace(lab.spec("0"), driver="older"), threading.Event())
        except SupersededError as error:
            ended.append(error)

    lab.drive("older")
    lab.assign("0", partitions)
    _fill(lab.producer(), partitions[0].topic, 50)
    superseded = threading.Thread(target=copy, daemon=True)
    superseded.start()
    lab.wait_until_copied(partitions)
    lab.drive("newer")
    superseded.join(120)
    assert "(pid 1 on elsewhere, Spark application app-newer)" in str(ended[0])

    told = lab.reports()
    copy()
    assert len(ended) == 2
    assert lab.reports() == told


def test_where_the_copy_of_a_topic_begins_that_was_created_again_is_told(
    lab: CopyLab, clusters: Mapping[str, KafkaBroker]
) -> None:
    """Before its first record, too: what stands on the target is of the former topic."""
    [former] = lab.topic()
    _fill(lab.producer(), former.topic, 5)
    lab.assign("0", [former])
    with lab.running():
        lab.wait_until_copied([former])
        place = TopicPartition(former.target_topic, 0)
        end = lab.target.high_watermarks([place])[place]  # a claim may have taken two markers
        delete_topics(clusters["P"].bootstrap, [former.topic])
        lab.source.create_topics([TopicSpec(former.topic, 1, 1, {})])
        [p] = lab.assignable(former.topic)
        assert p.topic_id != former.topic_id
        lab.assign("0", [p])
        eventually(
            lambda: f"begins at target offset {end}," in _reason(lab, p), "the begin is told"
        )
        _fill(lab.producer(), p.topic, 3)
        lab.wait_until_copied([p])

    noted = lab.state().notes_of({p.topic: p.topic_id})[TopicPartition(p.topic, 0)]
    assert begin_of_copy(noted) == end


def _reason(lab: CopyLab, p: AssignedPartition) -> str:
    status = lab.status(p)
    return status.reason if status else ""
