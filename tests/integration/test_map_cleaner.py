"""The maps of topics that are gone are deleted from the topic, those of others are left."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.integration.copying import CopyLab

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import topic_id_bytes
from srm.domain.offset_map.map_records import MAP_PARTITIONS
from srm.kafka.state.driver_log import KafkaDriverLog
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


def test_all_that_the_map_topic_holds_of_a_gone_topic_is_deleted(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    gone, kept = lab.topic(3), lab.topic(3)
    producer = lab.producer()
    for partition in (*gone, *kept):
        producer.produce(partition.topic, b"x", partition=partition.partition)
    assert producer.flush(120) == 0
    lab.assign("0", [*gone, *kept])
    with lab.running():
        lab.wait_until_copied([*gone, *kept])

    def written() -> set[bytes]:
        topic = internal_topics.offset_map(lab.flow.source)
        tables = (lab.target.compacted_topic(topic, n).read() for n in range(MAP_PARTITIONS))
        return {key for table in tables for key in table}

    before = written()
    first = gone[0]
    ids = (first.topic, first.topic_id, first.target_topic, first.target_topic_id)
    clear = KafkaDriverLog(lab.flow, ClusterClients.alike(lab.target_props)).clear_maps
    other_target = CopiedTopic(*ids[:3], kept[0].target_topic_id, "p", "b")

    clear([other_target])
    assert written() == before
    for _ in range(2):
        clear([CopiedTopic(*ids, "p", "b")])

    left = written()
    assert any(topic_id_bytes(first.topic_id) in key for key in before)
    assert left == {key for key in before if topic_id_bytes(first.topic_id) not in key}
    assert all(lab.offset_map(partition).runs for partition in kept)
