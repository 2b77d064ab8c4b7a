"""A driver over a state topic in memory, for its tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

from srm.domain.flow_state.replication_records import (
    COMMANDS,
    REPORTS,
    AssignedPartition,
    Assignment,
    DriverHeartbeat,
    Incarnation,
    PartitionPosition,
)
from srm.domain.flow_state.replication_state import CopiedTopic, GoneTopics
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat
from srm.domain.metrics import RawMetric
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.errors import FencedError, IntegrityError, UnavailableError
from srm.replication.driver.discovery import Discovered
from srm.replication.driver.driver import FlowDriver
from srm.replication.driver.state_book import LogRecord

FLOW = Flow("P", "B")
RAW = RawMetric(0, 1000, "P", "B", "orders", "P.orders", 0, 0, 0, 0, 0, 0, 0, 0)
STATE, METRICS = internal_topics.replication("P"), internal_topics.raw_metrics("P")
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
TARGET_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
FIRST = Incarnation(1, "aa")


class MemoryTopic:
    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        self.epoch = 0
        self.cleared: list[CopiedTopic] = []

    def append(
        self, key: bytes, value: bytes | None, topic: str = STATE, partition: int = COMMANDS
    ) -> None:
        self.records.append(LogRecord(topic, key, value, partition))

    def standing(self, partition: int = REPORTS) -> list[bytes]:
        """Return the keys that have a value."""
        latest = {r.key: r.value for r in self.records if r.partition == partition}
        return sorted(key for key, value in latest.items() if value is not None)

    def assignments(self) -> dict[str, Assignment]:
        decoded = []
        for record in self.records:
            if record.key.startswith(b"assignment:"):
                with suppress(IntegrityError):
                    decoded.append(Assignment.decode(record.value or b""))
        return {assignment.slot: assignment for assignment in decoded}


class MemoryLog:
    """A DriverLog over a MemoryTopic; ``broken`` makes the next publish fail."""

    def __init__(self, topic: MemoryTopic) -> None:
        self.topic = topic
        self.at = 0
        self.epoch = -1
        self.broken = False

    def read(self) -> list[LogRecord]:
        self.at = len(self.topic.records)
        latest = {(r.partition, r.key): r for r in self.topic.records if r.topic == STATE}
        return [record for _, record in sorted(latest.items()) if record.value is not None]

    def fence(self) -> None:
        self.topic.epoch += 1
        self.epoch = self.topic.epoch

    def poll(self, timeout_s: float) -> list[LogRecord]:
        del timeout_s
        new, self.at = self.topic.records[self.at :], len(self.topic.records)
        return new

    def publish(
        self, records: Mapping[bytes, bytes], deletions: Collection[tuple[int, bytes]] = ()
    ) -> None:
        if self.epoch != self.topic.epoch:
            raise FencedError("a newer driver has taken over")
        if self.broken:
            self.broken = False
            raise UnavailableError("target does not answer")
        for key, value in records.items():
            self.topic.append(key, value)
        for partition, key in deletions:
            self.topic.append(key, None, partition=partition)

    def clear_maps(self, topics: Collection[CopiedTopic]) -> None:
        self.topic.cleared += topics

    def close(self) -> None:
        self.at = 0


class NoDiscovery:
    """Finds nothing; ``target`` and ``source`` are what comes of reaching a cluster."""

    target: Exception | None = None
    source: Exception | None = None

    def __init__(self) -> None:
        self.forgotten: list[CopiedTopic] = []

    def prepare(self) -> None:
        if self.target is not None:
            raise self.target

    def round(self) -> Discovered:
        if self.source is not None:
            raise self.source
        return Discovered()

    def target_ends(self, partitions: object) -> dict[AssignedPartition, int]:
        del partitions
        return {}

    def find_deleted(self, copied: Collection[CopiedTopic]) -> GoneTopics:
        del copied
        return GoneTopics()

    def forget(self, topics: Collection[CopiedTopic]) -> None:
        self.forgotten.extend(topics)


class Lab:
    """Drivers of one flow with what surrounds them; a fixture per test."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.topic = MemoryTopic()
        self.discovery = NoDiscovery()

    def driver(self, name: str = "first", slots: int = 2, *, opened: bool = True) -> FlowDriver:
        driver = FlowDriver(
            FLOW,
            MemoryLog(self.topic),
            self.discovery,
            slots=[str(n) for n in range(slots)],
            identity=lambda: DriverHeartbeat(name, "app-1", "here", 1, 0),
            grace_s=3.0,
            clock=lambda: self.now,
        )
        if opened:
            driver._open(again=False)
        return driver

    def beat(self, slot: str, incarnation: Incarnation = FIRST, *, generation: int = 1) -> None:
        """A slot gives a sign of life."""
        beat = SlotHeartbeat(slot, incarnation, generation, 0, 0)
        self.topic.append(beat.key(), beat.value(), partition=REPORTS)

    def tell(
        self,
        slot: str,
        *positions: PartitionPosition,
        incarnation: Incarnation = FIRST,
        name: str = "0",
    ) -> bytes:
        """A slot writes a group of positions."""
        group = PositionGroup(slot, incarnation, name, positions)
        self.topic.append(group.key(), group.value(), partition=REPORTS)
        return group.key()

    def second(self, driver: FlowDriver, *slots: str, generation: int = 1) -> None:
        """One second passes in which the given slots report and the driver works."""
        self.now += 1.0
        for slot in slots:
            self.beat(slot, generation=generation)
        driver._step()
        driver._step()  # the second one sees the heartbeat that the first one wrote


def found(*topics: str, partitions: int = 2) -> Discovered:
    return Discovered(
        tuple(
            AssignedPartition(topic, number, TOPIC_ID, f"P.{topic}", TARGET_ID)
            for topic in topics
            for number in range(partitions)
        )
    )


def held(lab: Lab) -> dict[str, list[str]]:
    return {
        slot: [f"{p.topic}-{p.partition}" for p in assignment.partitions]
        for slot, assignment in lab.topic.assignments().items()
    }
