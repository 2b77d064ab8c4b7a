"""A slot at work between two real brokers, with the driver's part played by the test."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from tests.replicating import at_work
from tests.waiting import DEADLINE_S, eventually

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    STATE_PARTITIONS,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    Incarnation,
    PartitionNotes,
    PartitionStatus,
    SlotReport,
    in_force,
)
from srm.domain.flow_state.replication_state import ReplicationState, decode_state
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.cluster_ports import Cluster, TopicDescription, TopicSpec
from srm.engine.flows.target_topics import StateTopic
from srm.engine.map_reader import KafkaMapReader
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.writers import KafkaStateLog
from srm.replication.copy.slot import SlotSpec
from srm.spark.slot import run_slot
from srm_lab.testing.flows import flow_config
from srm_lab.testing.logs import first_difference, read_log


def _properties(cluster: str | Mapping[str, str]) -> dict[str, str]:
    return {"bootstrap.servers": cluster} if isinstance(cluster, str) else dict(cluster)


def delete_before(cluster: str | Mapping[str, str], topic: str, offset: int) -> None:
    """Delete the records of partition 0 before an offset, as retention would."""
    admin = AdminClient(_properties(cluster))
    [deleted] = admin.delete_records([KafkaPartition(topic, 0, offset)]).values()
    assert deleted.result(60).low_watermark == offset


def described(cluster: Cluster, name: str, gone: Collection[str] = ()) -> TopicDescription:
    """Ask for a topic until it is there: of several brokers one may know only what was before."""
    found: list[TopicDescription] = []

    def exists() -> bool:
        topic = cluster.topics().get(name)
        if topic is not None and topic.topic_id not in gone:
            found.append(topic)
        return bool(found)

    eventually(exists, f"{name} exists")
    return found[0]


class CopyLab:
    """One flow between two clusters, under aliases of its own so that tests do not meet."""

    def __init__(
        self,
        source: str | Mapping[str, str],
        target: str | Mapping[str, str],
        *,
        source_replicas: int = 1,
        target_replicas: int = 1,
        **config: object,
    ) -> None:
        """Take the clusters' addresses, or all properties that their clients need."""
        self._replicas = target_replicas
        unique = uuid.uuid4().hex[:6]
        self.flow = Flow(f"P{unique}", f"B{unique}")
        self.source_props = _properties(source)
        self.target_props = _properties(target)
        self.source = KafkaCluster(self.flow.source, ClusterClients.alike(self.source_props))
        self.target = KafkaCluster(self.flow.target, ClusterClients.alike(self.target_props))
        self.config = flow_config(self.flow, **config)
        self._log = KafkaStateLog(self.flow.target, self.target_props)
        self._generation = 0
        self.source.create_topics(
            [TopicSpec(internal_topics.offset_syncs(self.flow.target), 1, source_replicas, {})]
        )
        alias = self.flow.source
        compact = {"cleanup.policy": "compact"}
        self.target.create_topics(
            [
                TopicSpec(internal_topics.offset_map(alias), 8, target_replicas, compact),
                TopicSpec(
                    internal_topics.replication(alias), STATE_PARTITIONS, target_replicas, compact
                ),
                TopicSpec(internal_topics.raw_metrics(alias), 1, target_replicas, {}),
            ]
        )

    def topic(
        self, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> Sequence[AssignedPartition]:
        """Create a topic on both sides."""
        name = f"T{uuid.uuid4().hex[:6]}"
        self.source.create_topics([TopicSpec(name, partitions, 1, configs or {})])
        return self.remote(name, configs)

    def remote(
        self, name: str, configs: Mapping[str, str] | None = None
    ) -> Sequence[AssignedPartition]:
        """Create the remote topic of an existing one."""
        remote = self.config.names.remote(name)
        partitions = described(self.source, name).partitions
        self.target.create_topics([TopicSpec(remote, partitions, self._replicas, configs or {})])
        return self.assignable(name)

    def assignable(self, name: str, gone: Collection[str] = ()) -> Sequence[AssignedPartition]:
        """Describe the partitions of a topic that exists on both sides, not under ``gone`` ids."""
        remote = self.config.names.remote(name)
        source = described(self.source, name, gone)
        target = described(self.target, remote, gone)
        return [
            AssignedPartition(name, number, source.topic_id, remote, target.topic_id)
            for number in range(source.partitions)
        ]

    def assign(
        self,
        slot: str,
        partitions: Sequence[AssignedPartition],
        incarnation: Incarnation | None = None,
    ) -> int:
        """Publish an assignment, as the driver would."""
        self._generation += 1
        assignment = Assignment(slot, self._generation, tuple(partitions), incarnation)
        self._log.write(
            internal_topics.replication(self.flow.source), assignment.key(), assignment.value()
        )
        self._log.flush(DEADLINE_S)
        return self._generation

    def drive(self, name: str) -> None:
        """Give a sign of life as a driver."""
        beat = DriverHeartbeat(name, f"app-{name}", "elsewhere", 1, 0)
        self._log.write(internal_topics.replication(self.flow.source), DRIVER_KEY, beat.value())
        self._log.flush(DEADLINE_S)

    def spec(self, slot: str) -> SlotSpec:
        source, target = self.source_props, self.target_props
        return SlotSpec(
            self.config, slot, ClusterClients.alike(source), ClusterClients.alike(target)
        )

    @contextmanager
    def running(self, slot: str = "0") -> Iterator[None]:
        """Run a slot in a thread."""
        with at_work(partial(run_slot, self.spec(slot))):
            yield

    def use(self, **config: object) -> None:
        """Change settings of the flow, for slots that start from now on."""
        self.config = replace(self.config, **config)  # type: ignore[arg-type]

    def forget_state(self) -> None:
        """Delete the map and all positions: the next slot has to find them in the logs."""
        for number in range(MAP_PARTITIONS):
            table = self.target.compacted_topic(
                internal_topics.offset_map(self.flow.source), number
            )
            if blocks := table.read():
                table.write(dict.fromkeys(blocks))
        self.forget_reports()

    def forget_reports(self) -> None:
        """Delete all positions: what the map says is left."""
        for number in range(STATE_PARTITIONS):
            state = self.target.compacted_topic(
                internal_topics.replication(self.flow.source), number
            )
            state.write(dict.fromkeys(key for key in state.read() if key.startswith(b"slot:")))

    def producer(self, **settings: object) -> Producer:
        return Producer({**self.source_props, "linger.ms": 5, **settings})

    def produce(self, p: AssignedPartition, numbers: Sequence[int]) -> None:
        """Write records with these numbers as values to the source's partition."""
        producer = self.producer()
        for number in numbers:
            producer.produce(p.topic, b"%d" % number, key=b"key", partition=p.partition)
        assert producer.flush(60) == 0

    def state(self) -> ReplicationState:
        return decode_state(StateTopic(self.target, self.flow.source).read())

    def reports(self) -> tuple[SlotReport, ...]:
        return self.state().reports

    def status(self, partition: AssignedPartition) -> PartitionStatus | None:
        told = self.state().statuses_of({partition.topic: partition.topic_id})
        return told.get(TopicPartition(partition.topic, partition.partition))

    def note(self, noted: PartitionNotes) -> None:
        """Write what people have decided, as the command for it does."""
        self._log.write(internal_topics.replication(self.flow.source), noted.key(), noted.value())
        self._log.flush(DEADLINE_S)

    def decisions(self, partition: AssignedPartition) -> list[tuple[str, tuple[int, int] | None]]:
        """Return what is decided of ranges of a partition, as it counts now."""
        noted = self.state().notes_of({partition.topic: partition.topic_id})
        place = TopicPartition(partition.topic, partition.partition)
        return [(n.decision, n.left_out) for n in in_force(noted[place]) if n.left_out]

    def stopped(self, partition: AssignedPartition) -> PartitionStatus:
        """Wait until a partition is stopped by certain records, and return its status."""
        found: list[PartitionStatus] = []

        def stops() -> bool:
            status = self.status(partition)
            if status is not None and status.state == "stopped" and status.lost_from is not None:
                found.append(status)
            return bool(found)

        eventually(stops, f"{partition.topic}-{partition.partition} stops")
        return found[0]

    def caught_up(self, partitions: Sequence[AssignedPartition]) -> bool:
        """Whether reports say that everything there is now is copied."""
        ends = self.source.log_ends([TopicPartition(p.topic, p.partition) for p in partitions])
        reached: dict[tuple[str, int], int] = {}
        for report in self.reports():
            for entry in report.positions:
                key = (entry.topic_id, entry.partition)
                reached[key] = max(reached.get(key, -1), entry.position.source_next)
        return all(
            reached.get((p.topic_id, p.partition), -1) >= ends[TopicPartition(p.topic, p.partition)]
            for p in partitions
        )

    def wait_until_copied(self, partitions: Sequence[AssignedPartition]) -> None:
        eventually(lambda: self.caught_up(partitions), f"copied {partitions[0].topic}")

    def offset_map(self, partition: AssignedPartition) -> OffsetMap:
        reader = KafkaMapReader(self.target, self.source, self.flow)
        return reader.load([partition.topic]).get(
            TopicPartition(partition.topic, partition.partition)
        )

    def assert_equal(
        self, partitions: Sequence[AssignedPartition], without: Collection[int] = ()
    ) -> None:
        """Compare both copies record by record, and the map with both.

        ``without`` are source offsets that are not to be on the target.
        """
        for p in partitions:
            source = [
                (offset, record)
                for offset, record in read_log(self.source_props, p.topic, p.partition)
                if offset not in without
            ]
            target = read_log(self.target_props, p.target_topic, p.partition)
            difference = first_difference(source, target)
            assert difference is None, difference
            mapped = [
                (run.source_start + i, run.target_start + i)
                for run in self.offset_map(p).runs
                for i in range(run.count)
            ]
            assert mapped == [(s, t) for (s, _), (t, _) in zip(source, target, strict=True)]
