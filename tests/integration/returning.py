"""A flow between two brokers with its real driver and slot, whose source dies and returns."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.copying import described
from tests.replicating import configure, replicating
from tests.waiting import eventually

from srm.domain.flow_state.replication_records import Pause
from srm.domain.flow_state.replication_state import decode_state, newest_position, positions_by_copy
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.offset_map import OffsetMap
from srm.engine.cluster_ports import TopicSpec
from srm.engine.flows.target_topics import StateTopic
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowContext
from srm.kafka.cluster import KafkaCluster
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import LoggedRecord, read_log


class Pair:
    """Two clusters under aliases of this test, and topics that it alone has."""

    def __init__(self, p: KafkaBroker, b: KafkaBroker, home: Path, names: Sequence[str]) -> None:
        self.unique = unique = uuid.uuid4().hex[:6]
        self.p, self.b = f"P{unique}", f"B{unique}"
        self.topics = [f"{name}{unique}" for name in names]
        self.servers = {self.p: p.bootstrap, self.b: b.bootstrap}
        self.flow = Flow(self.p, self.b)
        self.path = home / "srm.properties"
        self.config = configure(
            self.path,
            self.servers,
            f"{self.flow.reverse}.enabled = true",
            f"topics = .*{unique}",
            "groups = .*",
        )
        self.clusters = {
            alias: KafkaCluster(alias, self.config.cluster_clients(alias)) for alias in self.servers
        }
        for cluster in self.clusters.values():
            cluster.create_topics([TopicSpec(name, 1, 1, {}) for name in self.topics])

    def close(self) -> None:
        for cluster in self.clusters.values():
            cluster.close()

    @contextmanager
    def replicating(self, *flows: Flow) -> Iterator[None]:
        """Run the driver and the slot of each flow; both flows by default."""
        with replicating(self.config, *(flows or (self.flow, self.flow.reverse))):
            yield

    # ----- clients

    def produce(self, alias: str, topic: str, values: Sequence[str], **settings: object) -> None:
        producer = Producer({"bootstrap.servers": self.servers[alias], "linger.ms": 5, **settings})
        for value in values:
            producer.produce(topic, value.encode(), b"k", partition=0, headers=[("h", b"\xff")])
        assert producer.flush(120) == 0

    def create_again(self, alias: str, topic: str) -> None:
        """Delete a topic and create it again, as a cluster that was rebuilt would have it."""
        cluster, before = self.clusters[alias], described(self.clusters[alias], topic).topic_id
        admin = AdminClient({"bootstrap.servers": self.servers[alias]})
        for deleted in admin.delete_topics([topic]).values():
            deleted.result(60)
        eventually(lambda: topic not in cluster.topics(), f"{topic} is deleted")
        cluster.create_topics([TopicSpec(topic, 1, 1, {})])
        assert described(cluster, topic, [before]).topic_id != before

    def abort(self, alias: str, topic: str) -> None:
        """Write three records and abort them: four offsets."""
        name = f"someone-{topic}"
        producer = Producer({"bootstrap.servers": self.servers[alias], "transactional.id": name})
        producer.init_transactions(120)
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"aborted", partition=0)
        producer.flush(120)
        ends = self.clusters[alias].high_watermarks([TopicPartition(topic, 0)])
        producer.abort_transaction(120)
        place = TopicPartition(topic, 0)
        eventually(
            lambda: self.clusters[alias].log_ends([place])[place] > ends[place], "it is aborted"
        )

    def commit(self, alias: str, group: str, commits: Mapping[str, int]) -> None:
        offsets = {TopicPartition(topic, 0): offset for topic, offset in commits.items()}
        self.clusters[alias].commit_idle(group, offsets)

    # ----- what there is

    def remote(self, topic: str) -> str:
        return f"{self.p}.{topic}"

    def log(self, alias: str, topic: str) -> list[tuple[int, LoggedRecord]]:
        return read_log(self.servers[alias], topic, 0)

    def values(self, alias: str, topic: str) -> list[str]:
        return [(record.value or b"").decode() for _, record in self.log(alias, topic)]

    def map(self, topic: str) -> OffsetMap:
        reader = KafkaMapReader(self.clusters[self.b], self.clusters[self.p], self.flow)
        return reader.load([topic]).get(TopicPartition(topic, 0))

    def copied_to(self, topic: str, flow: Flow | None = None) -> int:
        """Return the reported position in the source of a flow, -1 without one."""
        flow = flow or self.flow
        target = self.clusters[flow.target]
        state = decode_state(StateTopic(target, flow.source).read())
        topic_id = self.clusters[flow.source].topics()[topic].topic_id
        told = [
            entry
            for copy_id, entries in positions_by_copy(state.reports).items()
            if copy_id[0] == topic_id
            for entry in entries
        ]
        newest = newest_position(told)
        return newest.position.source_next if newest else -1

    def wait_until_copied(self, topics: Collection[str], flow: Flow | None = None) -> None:
        source = self.clusters[(flow or self.flow).source]
        for topic in topics:
            place = TopicPartition(topic, 0)
            eventually(
                lambda: self.copied_to(topic, flow) >= source.log_ends([place])[place],  # noqa: B023
                f"{topic} is copied",
            )

    def assert_mapped(self, topic: str, without: range = range(0)) -> None:
        """The copy holds exactly the source's records but some, and the map says which is which."""
        source = [(at, record) for at, record in self.log(self.p, topic) if at not in without]
        target = dict(self.log(self.b, self.remote(topic)))
        mapped = {
            run.source_start + i: run.target_start + i
            for run in self.map(topic).runs
            for i in range(run.count)
        }
        assert {at: target[mapped[at]] for at in mapped} == dict(source)
        assert len(target) == len(source)


def pause(context: FlowContext, move_id: str = "m1") -> None:
    """Pause a flow whose slots run, and wait until they copy nothing any more."""
    context.own_switch.pause(Pause("", "test", "the source is gone", 1, move_id))

    def is_heard() -> bool:
        state = decode_state(StateTopic(context.target, context.config.flow.source).read())
        applied = {report.slot: report.generation for report in state.reports}
        return all(applied.get(a.slot, -1) >= a.generation for a in state.assignments)

    eventually(is_heard, "the slots have heard of the pause")
