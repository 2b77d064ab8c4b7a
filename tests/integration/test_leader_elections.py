"""Elections of a partition's leader in a cluster of three brokers, while a slot copies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.copying import CopyLab
from tests.leaders import partition
from tests.replicating import at_work
from tests.waiting import DEADLINE_S, eventually

from srm.domain.flow_state.replication_records import AssignedPartition, PartitionPosition
from srm.domain.names.topics import TopicPartition
from srm.domain.offset_map.runs import UNKNOWN_LINEAGE, Lineage
from srm.kafka.wire.cluster import open_wire
from srm.replication.batches.batch import batches
from srm.replication.log_reader import LogReader, fetches, of_each_log
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(900)]


class Writing:
    """A producer that writes numbers to partition 0 of the source in order."""

    def __init__(self, lab: CopyLab, topic: str) -> None:
        self.acknowledged = 0
        self._producer, self._topic = lab.producer(**{"enable.idempotence": True}), topic

    def run(self, stop: threading.Event) -> None:
        number = 0
        while not stop.wait(0.005):
            value = b"%d" % number
            self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
        assert self._producer.flush(DEADLINE_S) == 0
        assert self.acknowledged == number

    def _delivered(self, error: object, _message: object) -> None:
        assert error is None, error
        self.acknowledged += 1


def position(lab: CopyLab, p: AssignedPartition) -> PartitionPosition:
    """Return the reported position of a partition, once there is one."""
    found: list[PartitionPosition] = []

    def is_reported() -> bool:
        reported = (one for report in lab.reports() for one in report.positions)
        found.extend(one for one in reported if one.copy_id == p.copy_id)
        return bool(found)

    eventually(is_reported, "the position is reported")
    return found[0]


def create(props: Mapping[str, str], topic: str, replicas: list[int]) -> None:
    """Create a topic of one partition on certain brokers, the leader first."""
    admin = AdminClient(dict(props))
    new = NewTopic(topic, 1, replica_assignment=[replicas])
    admin.create_topics([new])[topic].result(DEADLINE_S)


def epochs(props: Mapping[str, str], p: TopicPartition, topic_id: str, end: int) -> Lineage:
    """Return the leader epochs of a log up to an offset, by its batches, markers included."""

    async def read(log: LogReader) -> Lineage:
        found, at = UNKNOWN_LINEAGE, 0
        async for wanted, fetched in fetches(log, 0):
            for batch in batches(fetched.records):
                if wanted <= batch.base_offset < end:
                    found = found.with_epoch(batch.leader_epoch, at)
                    at = batch.last_offset + 1
        assert at >= end
        return found

    return of_each_log(open_wire("read", props), {p: topic_id}, read)[p]


@pytest.mark.parametrize("side", ["source", "target"])
def test_elections_lose_double_and_reorder_nothing_and_the_position_names_each_leader(
    side: str,
    clusters: Mapping[str, KafkaBroker],
    cluster_factory: Callable[..., list[KafkaBroker]],
) -> None:
    """A lost answer or a refused write costs a claim and its marker; the producer id stays."""
    brokers = cluster_factory("X", 3)
    servers = ",".join(broker.bootstrap for broker in brokers)
    on_source = side == "source"
    lab = CopyLab(
        *(servers, clusters["B"].bootstrap) if on_source else (clusters["P"].bootstrap, servers),
        source_replicas=3 if on_source else 1,
        target_replicas=1 if on_source else 3,
    )
    watched, second, _ = brokers
    topic = f"Elected-{lab.flow.source}"
    remote = lab.config.names.remote(topic)
    create(lab.source_props, topic, [2, 3, 1] if on_source else [1])
    create(lab.target_props, remote, [1] if on_source else [2, 3, 1])
    [p] = lab.assignable(topic)
    lab.assign("0", [p])
    elected = topic if on_source else remote
    writing = Writing(lab, p.topic)

    def copies() -> PartitionPosition:
        """Wait until records are copied that are written from now on."""
        wanted = writing.acknowledged + 100
        eventually(lambda: writing.acknowledged >= wanted, "records are written")
        eventually(lambda: position(lab, p).position.source_next >= wanted, "and copied")
        return position(lab, p)

    def claim(at: PartitionPosition) -> tuple[int, int]:
        return at.producer_id, at.producer_epoch

    with lab.running():
        eventually(lambda: lab.reports() and lab.status(p) is not None, "the slot has begun")
        with at_work(writing.run):
            first = copies()
            assert partition(watched, elected).leader == 2
            second.kill()
            eventually(lambda: partition(watched, elected).leader in {1, 3}, "another leads")
            after_the_kill = copies()
            second.start()
            second.wait_ready()
            eventually(lambda: set(partition(watched, elected).isrs) == {1, 2, 3}, "all in sync")
            admin = AdminClient({"bootstrap.servers": servers})
            places = [KafkaPartition(elected, 0)]
            admin.elect_leaders(ElectionType.PREFERRED, places).result(DEADLINE_S)
            eventually(lambda: partition(watched, elected).leader == 2, "it leads again")
            after_the_election = copies()
        lab.wait_until_copied([p])
        count = writing.acknowledged

        assert claim(first)[0] == claim(after_the_kill)[0] == claim(after_the_election)[0]
        written = [record.value for _, record in read_log(lab.source_props, p.topic, 0)]
        assert written == [b"%d" % number for number in range(count)]
        lab.assert_equal([p])
        place = TopicPartition(p.target_topic, 0)
        end = lab.target.log_ends([place])[place]
        latest = claim(position(lab, p))
        assert 0 <= end - count <= latest[1], "at most a marker for each claim but the first"

    on_the_source = epochs(lab.source_props, TopicPartition(topic, 0), p.topic_id, count)
    assert position(lab, p).source_lineage == on_the_source
    with lab.running():  # the next claim reads which leaders have taken the copy
        lab.produce(p, [count])
        eventually(lambda: claim(position(lab, p)) != latest, "it is claimed again")
    on_the_target = epochs(lab.target_props, place, p.target_topic_id, end)
    assert position(lab, p).target_lineage.before(end) == on_the_target
    assert len((on_the_source if on_source else on_the_target).starts) >= 3
