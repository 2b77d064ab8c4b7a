"""A remote topic that others have filled is not filled a second time before that is decided."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.copying import CopyLab, delete_before
from tests.waiting import eventually

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import TopicPartition
from srm.engine.control import topic_sync
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowContext
from srm.kafka.state.driver_log import KafkaFlowSwitch
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

COUNT = 100


@pytest.fixture
def lab(clusters: Mapping[str, KafkaBroker]) -> CopyLab:
    return CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)


def mirror(lab: CopyLab, p: AssignedPartition, **settings: object) -> None:
    """Copy the source's records record by record, as MirrorMaker 2 does."""
    producer = Producer({**lab.target_props, "enable.idempotence": True, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(60)
        producer.begin_transaction()
    for _, record in read_log(lab.source_props, p.topic, p.partition):
        producer.produce(p.target_topic, record.value, key=record.key, partition=p.partition)
    if "transactional.id" in settings:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0


def values(lab: CopyLab, p: AssignedPartition) -> list[int]:
    return [int(r.value or b"") for _, r in read_log(lab.target_props, p.target_topic, 0)]


def until_stopped(lab: CopyLab, p: AssignedPartition) -> str:
    def reason() -> str:
        status = lab.status(p)
        return status.reason if status is not None and status.state == "stopped" else ""

    eventually(lambda: "srm did not copy" in reason(), "the partition stops")
    return reason()


def append(lab: CopyLab, p: AssignedPartition) -> tuple[AssignedPartition, ...]:
    maps = KafkaMapReader(lab.target, lab.source, lab.flow)
    context = FlowContext(lab.config, lab.source, lab.target, maps, maps, lambda: 0)
    return topic_sync.append(context, [p.topic], "ann")


@pytest.mark.parametrize("transactional", [False, True])
def test_a_remote_topic_that_others_have_filled_is_copied_after_them_once_that_is_decided(
    lab: CopyLab, transactional: bool
) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p, **({"transactional.id": f"{p.topic}-mm2"} if transactional else {}))
    lab.assign("0", [p])

    with lab.running():
        reason = until_stopped(lab, p)
    with lab.running():
        assert until_stopped(lab, p) == reason, "nor does another process copy"
        assert values(lab, p) == list(range(COUNT))
        assert f"target offsets 0 to {COUNT - 1}" in reason
        assert f"srm topics append --flow '{lab.flow}' --topic {p.topic}" in reason
        assert f"delete {p.target_topic} on {lab.flow.target}" in reason
        assert append(lab, p) == (p,)
        lab.wait_until_copied([p])
        assert values(lab, p) == [*range(COUNT), *range(COUNT)]
        status = lab.status(p)
    assert status is not None
    assert status.state == "copying"
    assert f"foreign records at target offsets 0 to {COUNT - 1}" in status.reason
    assert "begins after the records of others in" in status.reason
    assert append(lab, p) == (), "a copy that has begun needs no decision"

    lab.forget_state()
    with lab.running():
        lab.produce(p, range(COUNT, COUNT + 5))
        lab.wait_until_copied([p])
    found = values(lab, p)
    assert found == [*range(COUNT), *range(COUNT + 5)], "copies are known by their claims"


def test_a_remote_topic_that_is_deleted_is_copied_from_the_start(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p)
    lab.assign("0", [p])

    with lab.running():
        until_stopped(lab, p)
        admin = AdminClient(lab.target_props)
        [deleted] = admin.delete_topics([p.target_topic]).values()
        deleted.result(60)
        eventually(lambda: p.target_topic not in lab.target.topics(), "the topic is gone")
        [again] = lab.remote(p.topic)
        lab.assign("0", [again])
        lab.wait_until_copied([again])

    lab.assert_equal([again])


def test_records_of_others_that_retention_removes_hold_nothing_up(lab: CopyLab) -> None:
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    mirror(lab, p)
    delete_before(lab.target_props, p.target_topic, COUNT)
    lab.assign("0", [p])

    with lab.running():
        lab.wait_until_copied([p])

    lab.assert_equal([p])


def test_what_others_write_after_a_claim_is_a_hole(lab: CopyLab) -> None:
    """The slot was killed before it had copied a record, or reported anything."""
    [p] = lab.topic()
    lab.produce(p, range(COUNT))
    switch = KafkaFlowSwitch(lab.flow, lab.target, ClusterClients.alike(lab.target_props))
    assert not switch.seal([TopicPartition(p.target_topic, p.partition)])
    mirror(lab, p)
    lab.assign("0", [p])

    with lab.running():
        lab.wait_until_copied([p])

    assert values(lab, p) == [*range(COUNT), *range(COUNT)]
