"""A flow between two brokers with its real driver and slot, whose source dies and returns."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from tests.integration.copying import described
from tests.waiting import eventually

from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain.offset_map import OffsetMap
from srm.domain.pause import Pause
from srm.domain.replication_records import DriverHeartbeat
from srm.domain.replication_state import decode_state
from srm.domain.reported_positions import newest_position, positions_by_copy
from srm.domain.topics import Flow, TopicPartition
from srm.engine.ports import FlowContext, TopicSpec
from srm.engine.state_topic import StateTopic
from srm.kafka.cluster import KafkaCluster
from srm.kafka.driver_log import KafkaDriverLog
from srm.kafka.map_reader import KafkaMapReader
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.driver import FlowDriver, Timing
from srm.replication.slot.slot import SlotSpec
from srm.spark.slot import run_slot
from srm.stack.kafka import KafkaBroker
from srm.testing.logs import LoggedRecord, read_log
from srm.wiring import open_flow

PATIENT = Timing(refresh_s=0.5, slot_timeout_s=300.0, grace_s=300.0)


class Pair:
    """Two clusters under aliases of this test, and topics that it alone has."""

    def __init__(self, p: KafkaBroker, b: KafkaBroker, home: Path, names: Sequence[str]) -> None:
        self.unique = unique = uuid.uuid4().hex[:6]
        self.p, self.b = f"P{unique}", f"B{unique}"
        self.topics = [f"{name}{unique}" for name in names]
        self.servers = {self.p: p.bootstrap, self.b: b.bootstrap}
        path = home / "srm.properties"
        path.write_text(
            f"""
            clusters = {self.p}, {self.b}
            {self.p}.bootstrap.servers = {p.bootstrap}
            {self.b}.bootstrap.servers = {b.bootstrap}
            {self.p}->{self.b}.enabled = true
            {self.b}->{self.p}.enabled = true
            topics = .*{unique}
            groups = .*
            replication.factor = 1
            offset-syncs.topic.replication.factor = 1
            checkpoints.topic.replication.factor = 1
            heartbeats.topic.replication.factor = 1
            """
        )
        self.path = path
        self.config = load_config(path)
        self.flow = Flow(self.p, self.b)
        self.clusters = {
            alias: KafkaCluster(
                alias,
                *[self.config.client(alias, kind) for kind in ("admin", "consumer", "producer")],
            )
            for alias in (self.p, self.b)
        }
        for cluster in self.clusters.values():
            cluster.create_topics([TopicSpec(name, 1, 1, {}) for name in self.topics])

    def close(self) -> None:
        for cluster in self.clusters.values():
            cluster.close()

    @contextmanager
    def replicating(self, *flows: Flow) -> Iterator[None]:
        """Run the driver and the slot of each flow; both flows by default."""
        with replicating(self.config, *(flows or (self.flow, self.flow.reversed))):
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
    assert context.switch is not None
    context.switch.pause(Pause("", "test", "the source is gone", 1, move_id))

    def is_heard() -> bool:
        state = decode_state(StateTopic(context.target, context.config.flow.source).read())
        applied = {report.slot: report.generation for report in state.reports}
        return all(applied.get(a.slot, -1) >= a.generation for a in state.assignments)

    eventually(is_heard, "the slots have heard of the pause")


@contextmanager
def replicating(config: Config, *flows: Flow) -> Iterator[None]:
    """Run the driver and the slot of each flow, in threads."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def drive(flow: Flow) -> None:
        clients = [config.client(flow.target, kind) for kind in ("consumer", "producer")]
        try:
            with open_flow(config, flow) as context:
                FlowDriver(
                    flow,
                    KafkaDriverLog(flow, *clients),
                    Discovery(context, config.flow(flow)),
                    slots=("0",),
                    identity=lambda: DriverHeartbeat("d", "app", "host", os.getpid(), 0),
                    timing=PATIENT,
                ).run(stop)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    def copy(flow: Flow) -> None:
        sides = [config.cluster_clients(a, flow) for a in (flow.source, flow.target)]
        try:
            run_slot(SlotSpec(config.flow(flow), "0", *sides), stop)
        except BaseException as error:  # noqa: BLE001 - the test reports it
            failures.append(error)

    for flow in flows:
        with open_flow(config, flow) as context:
            Discovery(context, config.flow(flow)).prepare()
    threads = [
        threading.Thread(target=work, args=(flow,), daemon=True)
        for flow in flows
        for work in (drive, copy)
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(120)
    assert not any(thread.is_alive() for thread in threads), "a thread did not stop"
    assert not failures, failures
