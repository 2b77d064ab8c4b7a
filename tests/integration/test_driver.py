"""Drivers on real brokers; the slots' part, their heartbeats, is played by the test."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.mm2 import decode_heartbeat
from tests.replicating import PATIENT, configure, driver_of, slot_of
from tests.slot_reports import FIRST
from tests.waiting import DEADLINE_S, eventually

from srm.clock import now_ms
from srm.config.model import Config
from srm.domain.flow_state.replication_records import (
    DRIVER_KEY,
    REPORTS,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
)
from srm.domain.flow_state.slot_records import SlotHeartbeat
from srm.domain.groups.mm2_records import Heartbeat
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, topic_id_text
from srm.engine.cluster_ports import TopicSpec
from srm.engine.ports import FlowContext
from srm.errors import FencedError, SrmError
from srm.kafka.state.driver_log import KafkaDriverLog
from srm.kafka.state.slot_state import KafkaAssignmentFeed
from srm.kafka.wire.cluster import WireCluster
from srm.replication.driver.discovery import Discovery
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.duties import emit_heartbeats
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

SLOTS = ("0", "1")


@dataclass
class RunningDriver:
    driver: FlowDriver
    stop: threading.Event = field(default_factory=threading.Event)
    error: SrmError | None = None
    thread: threading.Thread | None = None

    def start(self) -> None:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.driver.run(self.stop)
        except SrmError as error:
            self.error = error

    def end(self) -> None:
        self.stop.set()
        assert self.thread is not None
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()


class Lab:
    """One flow with aliases of its own, whose slots report all the time."""

    def __init__(self, config: Config, flow: Flow, context: FlowContext) -> None:
        self.config, self.flow, self.context = config, flow, context
        self._drivers: list[RunningDriver] = []
        self._ended = threading.Event()
        self.state = internal_topics.replication(flow.source)
        Discovery(replace(context, config=config.flow(flow))).prepare()
        self._reporter = threading.Thread(target=self._report, daemon=True)
        self._reporter.start()

    def _report(self) -> None:
        producer = Producer(self.config.client(self.flow.target, "producer"))
        while not self._ended.wait(0.5):
            for slot in SLOTS:
                beat = SlotHeartbeat(slot, FIRST, 1, 0, 0)
                producer.produce(self.state, beat.value(), beat.key(), partition=REPORTS)
            producer.flush(60)

    def driver(self, name: str = "driver") -> RunningDriver:
        driver = driver_of(
            self.context, slot_of(self.config, self.flow), name, slots=SLOTS, timing=PATIENT
        )
        running = RunningDriver(driver)
        self._drivers.append(running)
        running.start()
        return running

    def topic(self, partitions: int = 1, prefix: str = "orders") -> str:
        """Create a source topic; one that begins with ``orders`` is selected by this flow only."""
        name = f"{prefix}{self.flow.source[1:]}-{uuid.uuid4().hex[:6]}"
        self.context.source.create_topics([TopicSpec(name, partitions, 1, {})])
        return name

    def assignments(self) -> dict[str, Assignment]:
        records = self.context.target.compacted_topic(self.state).read()
        return {
            key.decode().removeprefix("assignment:"): Assignment.decode(value)
            for key, value in records.items()
            if key.startswith(b"assignment:")
        }

    def holders(self, topic: str) -> list[str]:
        """Slots that hold a partition of the topic, one entry per partition."""
        return sorted(
            slot
            for slot, assignment in self.assignments().items()
            for partition in assignment.partitions
            if partition.topic == topic
        )

    def last_driver(self) -> str:
        value = self.context.target.compacted_topic(self.state).read().get(DRIVER_KEY)
        return DriverHeartbeat.decode(value).driver if value else ""

    def end(self) -> None:
        for running in self._drivers:
            running.end()
        self._ended.set()
        self._reporter.join(DEADLINE_S)


@pytest.fixture
def lab(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Lab]:
    with _lab(clusters, tmp_path) as made:
        yield made


@contextmanager
def _lab(clusters: Mapping[str, KafkaBroker], folder: Path) -> Iterator[Lab]:
    unique = uuid.uuid4().hex[:6]
    flow = Flow(f"P{unique}", f"B{unique}")
    config = configure(
        folder / "srm.properties",
        {flow.source: clusters["P"].bootstrap, flow.target: clusters["B"].bootstrap},
        f"topics = orders{unique}.*",
        "heartbeats.replication.enabled = false",
    )
    with ExitStack() as stack:
        lab = Lab(config, flow, stack.enter_context(open_flow(config, flow)))
        stack.callback(lab.end)
        yield lab


def test_a_topic_is_created_on_the_target_and_its_partitions_spread_over_the_slots(lab):
    topic = lab.topic(partitions=4)

    lab.driver()

    eventually(lambda: lab.holders(topic) == ["0", "0", "1", "1"], "an even assignment")
    remote = lab.context.target.topics()[f"{lab.flow.source}.{topic}"]
    source = lab.context.source.topics()[topic]
    assigned = [p for a in lab.assignments().values() for p in a.partitions if p.topic == topic]
    assert {(p.topic_id, p.target_topic_id) for p in assigned} == {
        (source.topic_id, remote.topic_id)
    }


def test_a_newer_driver_fences_the_older_one_and_keeps_its_assignment(lab):
    topic = lab.topic(partitions=4)
    older = lab.driver("older")
    eventually(lambda: len(lab.holders(topic)) == 4, "the first assignment")
    before = lab.assignments()

    lab.driver("newer")

    eventually(lambda: older.error is not None, "the end of the older driver")
    assert isinstance(older.error, FencedError)
    assert str(lab.flow) in str(older.error)
    eventually(lambda: lab.last_driver() == "newer", "a heartbeat of the newer driver")
    more = lab.topic(partitions=2)
    eventually(lambda: len(lab.holders(more)) == 2, "an assignment by the newer driver")
    after = lab.assignments()
    assert all(set(before[slot].partitions) <= set(after[slot].partitions) for slot in SLOTS)
    assert max(a.generation for a in after.values()) > max(a.generation for a in before.values())


def test_an_assignment_of_20_000_partitions_fits_into_one_record(lab):
    """Each topic with names and ids of its own: the worst case for the record's size."""
    config, flow = lab.config, lab.flow
    ids = [topic_id_text(uuid.uuid4().bytes) for _ in range(20_000)]
    partitions = tuple(
        AssignedPartition(f"a-topic-{n}", 0, ids[n], f"{flow.source}.a-topic-{n}", ids[-n])
        for n in range(20_000)
    )
    assignment = Assignment("0", 1, partitions)
    log = KafkaDriverLog(flow, config.cluster_clients(flow.target))
    log.fence()
    log.publish({assignment.key(): assignment.value()})
    log.close()

    async def read() -> Assignment | None:
        wire = WireCluster(flow.target, config.client(flow.target, "consumer"))
        await wire.start()
        try:
            feed = KafkaAssignmentFeed(flow, "0", wire)
            end, newest = await feed.end(), None
            while feed.position < end:
                newest = await feed.poll(1.0) or newest
            return newest
        finally:
            await wire.close()

    assert asyncio.run(read()) == assignment


def test_heartbeats_are_written_in_the_format_and_topic_of_mm2(lab):
    stop = threading.Event()
    works = lab.context.target, [lab.context.config], now_ms, stop
    thread = threading.Thread(target=emit_heartbeats, args=works)
    thread.start()
    topic = lab.context.target.compacted_topic(internal_topics.HEARTBEATS)
    key = Heartbeat(lab.flow, 0).key()

    def beat() -> int:
        value = topic.read().get(key)
        return decode_heartbeat(key, value).time_ms if value else 0

    eventually(beat, "the first heartbeat")
    first = beat()
    eventually(lambda: beat() > first, "the next heartbeat")
    stop.set()
    thread.join(DEADLINE_S)

    assert not thread.is_alive()
    assert abs(beat() - time.time() * 1000) < 60_000
