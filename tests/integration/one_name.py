"""One topic of one name on several clusters: its records, and groups that read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from tests.integration.moving import begin, pass_gate
from tests.replicating import is_copied
from tests.waiting import eventually

from srm.config.model import Config
from srm.domain.moves.request import MoveRequest
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.verification import VerificationRequest, carry_out, plan
from srm.kafka.cluster import KafkaCluster
from srm.spark.verification import BothClusters, RangeComparer
from srm.wiring import open_flow, open_move

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class NamedTopic:
    """A topic under aliases of one test; its config is set by who derives from it."""

    config: Config
    topic: str
    unique: str

    @contextmanager
    def cluster(self, alias: str) -> Iterator:  # type: ignore[type-arg]
        cluster = KafkaCluster(alias, self.config.cluster_clients(alias))
        try:
            yield cluster
        finally:
            cluster.close()

    def produce(self, alias: str, values: Sequence[str]) -> None:
        producer = Producer({**self.config.client(alias, "producer"), "linger.ms": 1})
        for value in values:
            producer.produce(self.topic, value, partition=0)
        assert producer.flush(60) == 0

    def values(self, alias: str, topic: str, start: int = 0) -> list[str]:
        """Read a topic from an offset to its end."""
        consumer = Consumer({**self.config.client(alias, "consumer"), "group.id": "reader"})
        try:
            place = KafkaTopicPartition(topic, 0, start)
            _, end = consumer.get_watermark_offsets(place, timeout=60)
            consumer.assign([place])
            found = list[str]()
            while (at := consumer.position([place])[0].offset) < end:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    found.append(message.value().decode())
                elif message is None and at == consumer.position([place])[0].offset:
                    break  # only markers are left
            return found
        finally:
            consumer.close()

    def commit(self, alias: str, group: str, topic: str, offset: int) -> None:
        with self.cluster(alias) as cluster:
            cluster.commit_idle(self.group(group), {TopicPartition(topic, 0): offset})

    def committed(self, alias: str, group: str, topic: str) -> int | None:
        with self.cluster(alias) as cluster:
            found = cluster.committed_offsets(self.group(group))
            return found.get(TopicPartition(topic, 0))  # type: ignore[no-any-return]

    def verified(self, *flows: Flow) -> list[tuple[str, int]]:
        """Compare whole copies; return the outcome and the records of each partition."""
        found = []
        for flow in flows:
            comparer = partial(RangeComparer, BothClusters.of(self.config, flow))
            with open_flow(self.config, flow) as context:
                request = VerificationRequest(topics=(self.topic,))
                summary = carry_out(context, plan(context, request), comparer)
            found += [(one.outcome, one.source_records) for one in summary.partitions]
        return found

    def end(self, alias: str) -> int:
        with self.cluster(alias) as cluster:
            place = TopicPartition(self.topic, 0)
            return cluster.high_watermarks([place])[place]  # type: ignore[no-any-return]

    def group(self, name: str) -> str:
        return f"{name}-{self.unique}"

    def copied(self, *flows: Flow) -> None:
        def done() -> bool:
            for flow in flows:
                with open_flow(self.config, flow) as context:
                    if not is_copied(context, self.topic):
                        return False
            return True

        eventually(done, "all is copied")

    def move(self, source: str, target: str, *groups: str, topics: tuple[str, ...] = ()) -> None:
        names, topics = tuple(map(self.group, groups)), topics or (self.topic,)
        request = MoveRequest("failover", source, target, topics, names, quiet_seconds=0.5)
        move_id = f"{source}-{target}"
        with open_move(self.config, source, target) as context:
            begin(context, request, move_id)
            pass_gate(context, move_id)

    def leave(self, source: str, target: str, *groups: str) -> None:
        """Move groups off a dead cluster."""
        names = tuple(map(self.group, groups))
        request = MoveRequest("failover", source, target, (self.topic,), names, mode="unplanned")
        with open_move(self.config, source, target, unplanned=True) as context:
            begin(context, request, f"leave-{self.unique}")
            pass_gate(context, f"leave-{self.unique}")
