"""The internal topics of a simulated flow, as slots, driver and readers use them.

A FakeCluster holds them, so all readers of state topics through the engine's port read them here
too. The way to them is simulated: delays, and an outage in which nothing is written.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from srm.domain.flow_state.replication_records import (
    ASSIGNMENT_PREFIX,
    COMMANDS,
    NOTES_PREFIX,
    STATE_PARTITIONS,
    Assignment,
    PartitionNotes,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicDescription
from srm.errors import FencedError, UnavailableError
from srm.replication.driver.state_book import LogRecord
from srm.replication.ports import Place, WriteResult
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakePartition
from srm_lab.testing.simulation.cluster import SimulatedCluster
from srm_lab.testing.simulation.loop import Process, SimulatedLoop, resolve


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

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end of each partition's log."""
        found = {p: self._simulated.partition(p) for p in partitions}
        return super().high_watermarks(partitions) | {
            place: partition.log.high_watermark for place, partition in found.items() if partition
        }

    def records(self, topic: str, partition: int) -> FakePartition:
        """Return the partition itself."""
        place = topic, partition
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = self.compacted_topic(topic, partition).require()
        return found

    def open_partitions(self) -> Collection[FakePartition]:
        """Return the partitions that were ever written or followed."""
        return self._found.values()

    def lose(self, topic: str, chosen: Callable[[bytes], bool]) -> int:
        """Let the records with some keys be gone, as if compaction had gone wrong; count them."""
        count = 0
        for number in range(super().topics()[topic].partitions):
            partition = self.records(topic, number)
            kept = [i for i, (key, _, _) in enumerate(partition.records) if not chosen(key)]
            count += len(partition.records) - len(kept)
            partition.places = [partition.places[index] for index in kept]
            partition.records = [partition.records[index] for index in kept]
        return count


class StateStore:
    """The internal topics on one cluster, and whether they can be reached.

    Slots that are ``deaf`` hear nothing of their assignments.
    """

    def __init__(self, cluster: StateCluster, loop: SimulatedLoop) -> None:
        self.cluster = cluster
        self.loop = loop
        self.reachable = True
        self.deaf = set[str]()
        self.on_append: Callable[[], None] | None = None
        self._news: list[Future[None]] = []

    def delay_s(self) -> float:
        """Return how long a message to it takes."""
        return self.loop.rng.uniform(0.0005, 0.004)

    def append(
        self, place: Place, records: Collection[tuple[bytes, bytes | None]]
    ) -> dict[bytes, int]:
        """Take records, and wake up their followers; return their offsets by their keys."""
        partition = self.cluster.records(*place)
        offsets = {}
        for key, value in records:
            offsets[key] = partition.end
            partition.append(key, value, self.loop.now_ms())
        if self.on_append is not None:
            self.on_append()
        news, self._news = self._news, []
        for future in news:
            resolve(future, None)
        return offsets

    def compact(self) -> None:
        """Clean all partitions of the internal topics, as the brokers' log cleaner does."""
        for partition in self.cluster.open_partitions():
            partition.compact()

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

    def compacted_topic(self, topic: str, partition: int = 0) -> _SlowTopic:
        """Give access to one partition."""
        return _SlowTopic(self._store, topic, partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store.cluster, name)


class _SlowTopic:
    def __init__(self, store: StateStore, topic: str, partition: int) -> None:
        self._store = store
        self._name = f"{topic}-{partition}"
        self._topic = store.cluster.compacted_topic(topic, partition)

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
        self._left: Counter[Place] = Counter()
        self._offsets: dict[Place, dict[bytes, int]] = defaultdict(dict)
        self._waiters: list[Future[bool]] = []

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """See the port."""
        place = topic, partition
        self._queued[place].append((key, value))
        self._left[place] += 1
        self._send(place)

    def waiting(self, place: Place) -> int:
        """See the port."""
        return self._left[place]

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        """See the port; nothing is ever refused."""
        deadline = self._loop.time() + timeout_s
        while True:
            pending = frozenset(place for place in places if self._left[place])
            left = deadline - self._loop.time()
            if not pending or left <= 0:
                break
            news: Future[bool] = self._loop.create_future()
            self._waiters.append(news)
            self._loop.call_later(left, resolve, news, False)  # noqa: FBT003
            self._loop.block_on(news)
        offsets = {p: self._offsets.pop(p) for p in places if p in self._offsets}
        return WriteResult({}, pending, offsets)

    def flush(self, timeout_s: float) -> None:
        """See the port."""
        settled = self.settle([place for place, count in self._left.items() if count], timeout_s)
        if settled.pending:
            raise UnavailableError(f"not acknowledged in time: {sorted(settled.pending)}")

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
        offsets = self._store.append(place, records)
        acknowledge = partial(self._acknowledge, place, len(records), offsets)
        self._loop.call_later(self._store.delay_s(), acknowledge, context=self._in_process())

    def _acknowledge(self, place: Place, count: int, offsets: Mapping[bytes, int]) -> None:
        self._left[place] -= count
        self._offsets[place].update(offsets)
        self._sending.discard(place)
        if self._queued.get(place):
            self._send(place)
        waiters, self._waiters = self._waiters, []
        for done in waiters:
            resolve(done, True)  # noqa: FBT003

    def _in_process(self) -> Any:
        return self._loop.in_process(self._process)


class StateFollower:
    """Reads partitions of a topic from their start, and what is written to them since."""

    def __init__(self, store: StateStore, topic: str, partitions: Collection[int]) -> None:
        self.loop = store.loop
        self._store = store
        self._topic = topic
        self.at = dict.fromkeys(partitions, 0)

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """Return what is new, waiting for it; an outage looks like no news."""
        deadline = self.loop.time() + timeout_s
        while True:
            store = self._store
            found = self._take() if store.reachable else []
            left = deadline - self.loop.time()
            if found or left <= 0:
                self.loop.pause(self._store.delay_s())
                return found
            self._store.wait_for_news(left)

    def _take(self) -> list[LogRecord]:
        found: list[LogRecord] = []
        for number, at in self.at.items():
            partition = self._store.cluster.records(self._topic, number)
            index = bisect_left(partition.places, at)
            news = partition.records[index:]
            found += [LogRecord(self._topic, key, value, number) for key, value, _ in news]
            self.at[number] = partition.end
        return found


class SimulatedFeed:
    """The assignment of one slot (implements AssignmentFeed)."""

    def __init__(self, store: StateStore, flow: Flow, slot: str) -> None:
        self._key = ASSIGNMENT_PREFIX + slot.encode()
        self._store = store
        self._slot = slot
        self._topic = internal_topics.replication(flow.source)
        self._follower = StateFollower(store, self._topic, [COMMANDS])
        self._decided: list[PartitionNotes] = []
        self.driver = None  # slots outlive drivers here

    @property
    def position(self) -> int:
        """See the port."""
        return self._follower.at[COMMANDS]

    async def poll(self, timeout_s: float) -> Assignment | None:
        """See the port."""
        loop = asyncio.get_running_loop()
        self._require_hearing()
        news = await loop.run_in_executor(None, self._follower.poll, timeout_s)
        values = [r.value for r in news if r.key == self._key and r.value]
        notes = [r.value for r in news if r.key.startswith(NOTES_PREFIX) and r.value]
        self._decided += map(PartitionNotes.decode, notes)
        return Assignment.decode(values[-1]) if values else None

    async def end(self) -> int:
        """See the port."""
        loop = asyncio.get_running_loop()
        self._require_hearing()
        await loop.run_in_executor(None, self._store.require, "reading the end of commands")
        return self._store.cluster.records(self._topic, COMMANDS).end

    def _require_hearing(self) -> None:
        if self._slot in self._store.deaf:
            raise UnavailableError(f"slot {self._slot} cannot read its assignment")

    def take_decisions(self) -> Collection[PartitionNotes]:
        """See the port."""
        decided, self._decided = self._decided, []
        return decided

    def share(self) -> float:
        """See the port."""
        return 1.0


class SimulatedDriverLog:
    """The state topic as one driver uses it (implements DriverLog)."""

    def __init__(self, store: StateStore, flow: Flow, epochs: dict[str, int]) -> None:
        self._store = store
        self._topic = internal_topics.replication(flow.source)
        self._epochs = epochs
        self._epoch = -1
        self._follower = self._new_follower()

    def _new_follower(self) -> StateFollower:
        return StateFollower(self._store, self._topic, range(STATE_PARTITIONS))

    def read(self) -> list[LogRecord]:
        """See the port."""
        self._store.require("reading the driver's log")
        self._follower = self._new_follower()
        latest = {(record.partition, record.key): record for record in self._follower.poll(0)}
        return [record for record in latest.values() if record.value is not None]

    def fence(self) -> None:
        """See the port."""
        self._store.require("taking over the driver's role")
        self._epoch = self._epochs["driver"] = self._epochs.get("driver", 0) + 1

    def poll(self, timeout_s: float) -> list[LogRecord]:
        """See the port."""
        self._store.loop.pause(timeout_s)
        return self._follower.poll(0)

    def publish(
        self, records: Mapping[bytes, bytes], deletions: Collection[tuple[int, bytes]] = ()
    ) -> None:
        """See the port."""
        self._store.require("writing the driver's log")
        if self._epoch != self._epochs["driver"]:
            raise FencedError("a newer driver has taken over")
        self._store.append((self._topic, COMMANDS), list(records.items()))
        for partition, key in deletions:
            self._store.append((self._topic, partition), [(key, None)])

    def clear_maps(self, topics: Collection[CopiedTopic]) -> None:
        """See the port; no topic is ever gone here."""
        raise AssertionError(f"the maps of {topics} are of use")

    def close(self) -> None:
        """See the port."""
