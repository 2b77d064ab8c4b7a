"""Look-ups by time find on a copy what they find on the source, also in a backlog of the past."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.integration.copying import CopyLab

from srm.clock import now_ms
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS, STEP_MS = 1000, 7_000
LOOK_UPS = 200


def _looked_up(props: Mapping[str, str], topic: str, times: Sequence[int]) -> list[bytes | None]:
    """Return the value of the record that a look-up finds, for each time and the newest one."""
    values = {offset: record.value for offset, record in read_log(dict(props), topic, 0)}
    consumer = Consumer({**props, "group.id": "looks"})
    try:
        wanted = [KafkaPartition(topic, 0, time) for time in times]
        found = [consumer.offsets_for_times([one], timeout=60)[0].offset for one in wanted]
    finally:
        consumer.close()
    admin, newest = AdminClient(dict(props)), KafkaPartition(topic, 0)
    [latest] = admin.list_offsets({newest: OffsetSpec.max_timestamp()}).values()
    return [values.get(offset) for offset in (*found, latest.result(60).offset)]


def test_a_look_up_in_a_copied_backlog_finds_the_copy_of_the_record(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    topics = {codec: lab.topic()[0] for codec in CODECS}
    began = now_ms() - RECORDS * STEP_MS
    for codec, p in topics.items():
        producer = lab.producer(**{"compression.type": codec, "batch.num.messages": 7})
        for i in range(RECORDS):
            time = began + i * STEP_MS - (i % 3) * 2 * STEP_MS  # some come late
            producer.produce(p.topic, b"%d" % i, key=b"key", partition=0, timestamp=time)
        assert producer.flush(120) == 0
    partitions = list(topics.values())
    lab.assign("0", partitions)
    times = [began + i * RECORDS * STEP_MS // LOOK_UPS - STEP_MS for i in range(LOOK_UPS)]

    with lab.running():
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)
    for p in partitions:
        originals = _looked_up(lab.source_props, p.topic, times)
        assert _looked_up(lab.target_props, p.target_topic, times) == originals
        assert None not in originals
        assert len(set(originals)) > LOOK_UPS // 2

    lab.forget_state()
    with lab.running():  # the next owner knows the batches of a claim without a marker
        lab.wait_until_copied(partitions)

    lab.assert_equal(partitions)
