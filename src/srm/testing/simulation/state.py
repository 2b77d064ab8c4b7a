"""The internal topics of a simulated flow, as slots, driver and readers use them.

They stand in a FakeCluster, so whatever reads state topics through the engine's port reads them
here too; what is simulated is the way to them: delays, and an outage in which nothing is written.
"""

from __future__ import annotations

from asyncio import Future
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from srm.domain import internal_topics
from srm.domain.replication_records import Assignment
from srm.domain.topics import Flow, TopicPartition
from srm.engine.ports import TopicDescription
from srm.errors import FencedError, SrmError, UnavailableError
from srm.replication.driver.driver_log import LogRecord
from srm.testing.fake_cluster import FakeCluster
from srm.testing.fake_compacted import FakePartition
from srm.testing.simulation.cluster import SimulatedCluster
from srm.testing.simulation.loop import Process, SimulatedLoop, resolve

Place = tuple[str, int]


class StateCluster(FakeCluster):
    """A FakeCluster that also knows the topics of a simulated one."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster.alias, clock=cluster.loop.now_ms)
        self._simulated = cluster
        self._found: dict[Place, FakePartition] = {}

    def topics(self) -> dict[str, TopicDescription]:
        """Describe all topics."""
        return super().topics() | {
            topic.name: TopicDescription(topic.name, topic.id_text, len(topic.partitions))
            for topic in self._simulated.topics.values()
        }

    def log_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset each partition still holds."""
        found = {p: self._simulated.partition(p) for p in partitions}
        return super().log_starts(partitions) | {
            place: partition.log.start for place, partition in found.items() if partition
        }

    def records(self, topic: str, partition: int) -> FakePartition:
        """Return the partition itself."""
        place = topic, partition
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = self.compacted(topic, partition).require()
        return found

    def lose(self, topic: str, chosen: Callable[[bytes], bool]) -> int:
        """Let the records with some keys be gone, as if compaction had gone wrong; count them."""
        count = 0
        for number in range(super().topics()[topic].partitions):
            records = self.records(topic, number).records
            for index, (key, value, time_ms) in enumerate(records):
                if value is not None and chosen(key):
                    records[index] = (b"\0", None, time_ms)
                    count += 1
        return count


class StateStore:
    """The internal topics on one cluster, and whether they can be reached."""

    def __init__(self, cluster: StateCluster, loop: SimulatedLoop) -> None:
        self.cluster = cluster
        self.loop = loop
        self.reachable = True
        self.on_append: Callable[[], None] | None = None
        self._news: list[Future[None]] = []

    def delay_s(self) -> float:
        """Return how long a message to it takes."""
        return self.loop.rng.uniform(0.0005, 0.004)

    def append(self, place: Place, records: Collection[tuple[bytes, bytes | None]]) -> None:
        """Take records, and wake up who follows."""
        partition = self.cluster.records(*place)
        for key, value in records:
            partition.append(key, value, self.loop.now_ms())
        if self.on_append is not None:
            self.on_append()
        news, self._news = self._news, []
        for future in news:
            resolve(future, None)

    def wait_for_news(self, timeout_s: float) -> None:
        """Block until something is written, or the time is over."""
        news: Future[None] = self.loop.create_future()
        self._news.append(news)
        self.loop.call_later(timeout_s, resolve, news, None)
        self.loop.block_on(news)

    def require(self, doing: str) -> None:
        """Let a call take its time, and fail while the topics cannot be reached."""
        self.loop.pause(self.delay_s() * 4)
        if not self.reachable:
            self.loop.pause(2.0)
            raise UnavailableError(f"{doing}: simulated outage")


class SlowCluster:
    """The engine's view of the store for a simulated process: each read takes time."""

    def __init__(self, store: StateStore) -> None:
        self._store = store

    def compacted(self, topic: str, partition: int = 0) -> _SlowTopic:
        """Give access to one partition."""
        return _SlowTopic(self._store, topic, partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.cluster, name)


class _SlowTopic:
    def __init__(self, store: StateStore, topic: str, partition: int) -> None:
        self._store = store
        self._name = f"{topic}-{partition}"
        self._topic = store.cluster.compacted(topic, partition)

    def __getattr__(self, name: str) -> Any:
        self._store.require(f"reading {self._name}")
        return getattr(self._topic, name)


class SimulatedStateLog:
    """Writes of one process (implements StateLog); each partition on its own, in order."""

    def __init__(self, store: StateStore, process: Process) -> None:
        self._store = store
        self._loop = store.loop
        self._process = process
        self._queued: dict[Place, list[tuple[bytes, bytes | None]]] = defaultdict(list)
        self._sending: set[Place] = set()
        self._left = 0
        self._flushes: list[Future[bool]] = []

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """See the port."""
        place = topic, partition
        self._queued[place].append((key, value))
        self._left += 1
        self._send(place)

    def flush(self, timeout_s: float) -> None:
        """See the port."""
        if not self._left:
            return
        done: Future[bool] = self._loop.create_future()
        self._flushes.append(done)
        timer = self._loop.call_later(timeout_s, resolve, done, False)  # noqa: FBT003
        if not self._loop.block_on(done):
            raise UnavailableError(f"{self._left} records not acknowledged in time")
        timer.cancel()

    def failure(self) -> SrmError | None:
        """See the port."""
        return None

    def _send(self, place: Place) -> None:
        if place not in self._sending:
            self._sending.add(place)
            self._loop.call_later(
                self._store.delay_s(), self._leave, place, context=self._in_process()
            )

    def _leave(self, place: Place) -> None:
        records = self._queued.pop(place)
        self._loop.world_later(self._store.delay_s(), self._arrive, place, records)

    def _arrive(self, place: Place, records: list[tuple[bytes, bytes | None]]) -> None:
        if not self._store.reachable:
            self._queued[place] = records + self._queued.pop(place, [])
            self._loop.call_later(0.3, self._leave, place, context=self._in_process())
            return
        self._store.append(place, records)
        context = self._in_process()
        self._loop.call_later(
            self._store.delay_s(), self._acknowledge, place, len(records), context=context
        )

    def _acknowledge(self, place: Place, count: int) -> None:
        self._left -= count
        self._sending.discard(place)
        if self._queued.get(place):
            self._send(place)
        if not self._left:
            flushes, self._flushes = self._flushes, []
            for done in flushes:
                resolve(done, True)  # noqa: FBT003

    def _in_process(self) -> Any:
        return self._loop.in_process(self._process)


class Follower:
    """Reads a topic from its start, and what is written to it since."""

    def __init__(self, store: StateStore, topic: str) -> None:
        self._store = store
        self._topic = topic
        count = store.cluster.topics()[topic].partitions
        self._at = dict.fromkeys(range(count), 0)

    def poll(self, timeout_s: float) -> list[tuple[bytes, bytes | None]]:
        """Return what is new, waiting for it; an outage looks like no news."""
        deadline = self._store.loop.time() + timeout_s
        while True:
            found = self._take() if self._store.reachable else []
            left = deadline - self._store.loop.time()
            if found or left <= 0:
                self._store.loop.pause(self._store.delay_s())
                return found
            self._store.wait_for_news(left)

    def _take(self) -> list[tuple[bytes, bytes | None]]:
        found: list[tuple[bytes, bytes | None]] = []
        for number, at in self._at.items():
            records = self._store.cluster.records(self._topic, number).records
            if len(records) > at:
                found += [(key, value) for key, value, _ in records[at:]]
                self._at[number] = len(records)
        return found


class SimulatedFeed:
    """The assignment of one slot (implements AssignmentFeed)."""

    def __init__(self, store: StateStore, flow: Flow, slot: str) -> None:
        self._key = f"assignment:{slot}".encode()
        self._follower = Follower(store, internal_topics.replication(flow.source))

    def poll(self, timeout_s: float) -> Assignment | None:
        """See the port."""
        deadline = self._follower._store.loop.time() + timeout_s  # noqa: SLF001
        while True:
            left = deadline - self._follower._store.loop.time()  # noqa: SLF001
            values = [v for key, v in self._follower.poll(left) if key == self._key and v]
            if values:
                return Assignment.decode(values[-1])
            if left <= 0:
                return None

    def share(self) -> float:
        """See the port."""
        return 1.0


class SimulatedDriverLog:
    """The state topic as one driver uses it (implements DriverLog)."""

    epochs: dict[str, int]

    def __init__(self, store: StateStore, flow: Flow, epochs: dict[str, int]) -> None:
        self._store = store
        self._topic = internal_topics.replication(flow.source)
        self._follower = Follower(store, self._topic)
        self._epochs = epochs
        self._epoch = -1

    def read(self) -> list[LogRecord]:
        """See the port."""
        self._store.require("reading the driver's log")
        self._follower = Follower(self._store, self._topic)
        latest = dict(self._follower.poll(0))
        return [LogRecord(self._topic, k, v) for k, v in latest.items() if v is not None]

    def fence(self) -> None:
        """See the port."""
        self._store.require("taking over the driver's role")
        self._epoch = self._epochs["driver"] = self._epochs.get("driver", 0) + 1

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """See the port."""
        self._store.loop.pause(timeout_s)
        return [LogRecord(self._topic, key, value) for key, value in self._follower.poll(0)]

    def publish(self, records: Mapping[bytes, bytes]) -> None:
        """See the port."""
        self._store.require("writing the driver's log")
        if self._epoch != self._epochs["driver"]:
            raise FencedError("a newer driver has taken over")
        self._store.append((self._topic, 0), list(records.items()))

    def close(self) -> None:
        """See the port."""
