"""One simulated Kafka cluster: brokers, partitions with replicas, elections.

Replication is modelled as far as clients can notice it: how far each replica is, which are in
sync, and so where the high watermark is and what an election truncates.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from srm.domain.names.topics import TopicPartition, topic_id_text
from srm.replication.ports import FetchedPartition, Produced
from srm_lab.testing.simulation.log import NONE, OUT_OF_RANGE, LogFork, SimulatedLog
from srm_lab.testing.simulation.loop import SimulatedLoop, resolve

UNKNOWN_TOPIC: Final = 3
NOT_LEADER: Final = 6
FENCED_LEADER_EPOCH: Final = 74
UNKNOWN_LEADER_EPOCH: Final = 75
TIMED_OUT: Final = 7
NOT_ENOUGH_REPLICAS: Final = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND: Final = 20
UNKNOWN_TOPIC_ID: Final = 100

_NO_RECORDS: Final = memoryview(bytearray())


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings of a topic that matter here."""

    replicas: int = 1
    min_in_sync: int = 1
    log_append_time: bool = False
    max_message_bytes: int = 1 << 20
    producer_expiry_s: float = 86_400.0


@dataclass(eq=False)
class Broker:
    """A broker that may be down, or frozen: then it keeps its connections and does nothing."""

    node: int
    up: bool = True
    frozen: bool = False
    thawed: list[Future[None]] = field(default_factory=list)

    @property
    def works(self) -> bool:
        """True while the broker is up and not frozen."""
        return self.up and not self.frozen


class Partition:
    """One partition: the leader's log, and how far each replica is."""

    def __init__(self, place: TopicPartition, nodes: list[int], settings: TopicSettings) -> None:
        self.place = place
        self.settings = settings
        self.log = SimulatedLog(
            log_append_time=settings.log_append_time,
            max_message_bytes=settings.max_message_bytes,
            expiry_s=settings.producer_expiry_s,
        )
        self.log.begin_epoch(0)
        self.leader: int | None = nodes[0]
        self.in_sync = list(nodes)
        self.ends = dict.fromkeys(nodes, 0)
        self.copying: set[int] = set()
        self.news: list[Future[None]] = []
        self.uncommitted: list[tuple[int, Future[int]]] = []
        self.fork: LogFork | None = None

    def leader_error(self, node: int, epoch: int) -> int:
        """Return the error of a request to a node that names a leader epoch, -1 for any."""
        if self.leader != node:
            return NOT_LEADER
        if epoch in {-1, self.log.epoch}:
            return NONE
        return FENCED_LEADER_EPOCH if epoch < self.log.epoch else UNKNOWN_LEADER_EPOCH


@dataclass(eq=False)
class Topic:
    """A topic by one of its ids."""

    name: str
    topic_id: bytes
    settings: TopicSettings
    partitions: list[Partition]

    @property
    def id_text(self) -> str:
        """The id as Kafka prints it."""
        return topic_id_text(self.topic_id)


class SimulatedCluster:
    """Brokers and topics; times by the loop, chance by its generator."""

    def __init__(self, alias: str, loop: SimulatedLoop, brokers: int) -> None:
        self.alias = alias
        self.loop = loop
        self.brokers = {node: Broker(node) for node in range(1, brokers + 1)}
        self.topics: dict[str, Topic] = {}
        self.former: list[Topic] = []
        self._by_id: dict[bytes, Topic] = {}

    # ----- topics

    def create_topic(self, name: str, partitions: int, settings: TopicSettings) -> Topic:
        """Create a topic; its former self, if there was one, must be deleted."""
        rng = self.loop.rng
        nodes = list(self.brokers)
        made = []
        for number in range(partitions):
            first = rng.randrange(len(nodes))
            chosen = (nodes[first:] + nodes[:first])[: settings.replicas]
            made.append(Partition(TopicPartition(name, number), chosen, settings))
        topic = Topic(name, rng.randbytes(16), settings, made)
        self.topics[name] = self._by_id[topic.topic_id] = topic
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its records."""
        topic = self.topics.pop(name)
        del self._by_id[topic.topic_id]
        self.former.append(topic)
        for partition in topic.partitions:
            partition.leader = None
            self._refuse_uncommitted(partition, UNKNOWN_TOPIC)
            self._publish_news(partition)

    def partition(self, place: TopicPartition) -> Partition | None:
        """Return a partition by name."""
        topic = self.topics.get(place.topic)
        if topic is None or place.partition >= len(topic.partitions):
            return None
        return topic.partitions[place.partition]

    def by_id(self, topic_id: bytes, number: int) -> Partition | None:
        """Return a partition by its topic's id."""
        topic = self._by_id.get(topic_id)
        return topic.partitions[number] if topic and number < len(topic.partitions) else None

    def partitions(self) -> Iterable[Partition]:
        """Go through all partitions."""
        for topic in self.topics.values():
            yield from topic.partitions

    # ----- what brokers do for clients

    def fetch(
        self,
        node: int,
        topic_id: bytes,
        number: int,
        offset: int,
        max_bytes: int,
        epoch: int = -1,
        leader_epoch: int = -1,
        *,
        committed: bool,
    ) -> FetchedPartition:
        """Read from one partition whose log holds an epoch up to the offset."""
        partition = self.by_id(topic_id, number)
        error = partition.leader_error(node, leader_epoch) if partition else UNKNOWN_TOPIC_ID
        if partition is None or error:
            return FetchedPartition(topic_id, number, error, -1, -1, -1, (), _NO_RECORDS)
        log = partition.log
        stable = log.last_stable_offset
        upto = stable if committed else log.high_watermark
        head = topic_id, number
        marks = log.high_watermark, stable, log.start
        held = log.epoch_end(epoch)
        diverges = epoch >= 0 and (held.epoch < epoch or held.end < offset)
        if diverges or not log.start <= offset <= log.end:
            return FetchedPartition(*head, OUT_OF_RANGE, *marks, (), _NO_RECORDS)
        if offset >= upto:
            return FetchedPartition(*head, NONE, *marks, (), _NO_RECORDS)
        records = memoryview(log.read(offset, upto, max_bytes))
        aborted = log.aborted_between(offset, upto) if committed else ()
        return FetchedPartition(*head, NONE, *marks, aborted, records)

    async def produce(self, node: int, place: TopicPartition, data: bytes) -> Produced:
        """Append one batch, and wait until all replicas in sync have it."""
        partition = self.partition(place)
        if partition is None or partition.leader != node:
            return Produced(UNKNOWN_TOPIC if partition is None else NOT_LEADER, -1)
        if len(partition.in_sync) < partition.settings.min_in_sync:
            return Produced(NOT_ENOUGH_REPLICAS, -1)
        produced = partition.log.append(data, self.loop.time(), self.loop.now_ms())
        if produced.error:
            return produced
        self.replicate(partition)
        if partition.log.high_watermark >= partition.log.end:
            return produced
        committed: Future[int] = self.loop.create_future()
        partition.uncommitted.append((partition.log.end, committed))
        timer = self.loop.call_later(30.0, resolve, committed, TIMED_OUT)
        error = await committed
        timer.cancel()
        return produced if not error else Produced(error, -1)

    async def wait_for_news(self, partitions: Iterable[Partition], wait_s: float) -> None:
        """Wait until something changes in one of the partitions."""
        news: Future[None] = self.loop.create_future()
        for partition in partitions:
            partition.news.append(news)
        timer = self.loop.call_later(wait_s, resolve, news, None)
        await news
        timer.cancel()

    async def until_it_works(self, node: int) -> bool:
        """Wait while a broker is frozen; False if it is down."""
        broker = self.brokers[node]
        while broker.up and broker.frozen:
            thawed: Future[None] = self.loop.create_future()
            broker.thawed.append(thawed)
            await thawed
        return broker.up

    # ----- replication

    def replicate(self, partition: Partition) -> None:
        """Let the replicas fetch what the leader has, each after a moment."""
        for node in partition.in_sync:
            if node != partition.leader and node not in partition.copying:
                partition.copying.add(node)
                delay = self.loop.rng.uniform(0.0003, 0.004)
                self.loop.world_later(delay, self._on_copy, partition, node, partition.log.epoch)
        self._advance(partition)

    def _on_copy(self, partition: Partition, node: int, epoch: int) -> None:
        partition.copying.discard(node)
        if partition.log.epoch == epoch and self.brokers[node].works and self._led(partition):
            partition.ends[node] = partition.log.end
            self._advance(partition)

    def _led(self, partition: Partition) -> bool:
        return partition.leader is not None and self.brokers[partition.leader].works

    def _advance(self, partition: Partition) -> None:
        log, leader = partition.log, partition.leader
        if leader is None:
            return
        partition.ends[leader] = log.end
        high = min([log.end, *(partition.ends[node] for node in partition.in_sync)])
        if high <= log.high_watermark:
            return
        log.high_watermark = high
        short = len(partition.in_sync) < partition.settings.min_in_sync
        while partition.uncommitted and partition.uncommitted[0][0] <= high:
            _, future = partition.uncommitted.pop(0)
            resolve(future, NOT_ENOUGH_REPLICAS_AFTER_APPEND if short else NONE)
        self._publish_news(partition)

    def _publish_news(self, partition: Partition) -> None:
        news, partition.news = partition.news, []
        for future in news:
            resolve(future, None)

    def _refuse_uncommitted(self, partition: Partition, error: int) -> None:
        waiting, partition.uncommitted = partition.uncommitted, []
        for _, future in waiting:
            resolve(future, error)

    # ----- faults

    def crash(self, node: int) -> None:
        """Kill a broker; what it led is led by others soon, if others are in sync."""
        self.brokers[node].up = False
        self._thaw(node)
        rng = self.loop.rng
        self.loop.world_later(rng.uniform(0.1, 1.5), self._shrink, node)
        for partition in self.partitions():
            if partition.leader == node:
                self._publish_news(partition)

    def start(self, node: int) -> None:
        """Start a broker that was down."""
        self.brokers[node].up = True
        self.loop.world_later(self.loop.rng.uniform(0.1, 1.0), self._rejoin, node)

    def freeze(self, node: int) -> None:
        """Stop a broker without ending it; it loses its partitions after a session timeout."""
        self.brokers[node].frozen = True
        self.loop.world_later(self.loop.rng.uniform(4.0, 9.0), self._shrink, node)

    def thaw(self, node: int) -> None:
        """Let a frozen broker continue."""
        self.brokers[node].frozen = False
        self._thaw(node)
        self.loop.world_later(self.loop.rng.uniform(0.01, 0.5), self._rejoin, node)

    def _thaw(self, node: int) -> None:
        thawed, self.brokers[node].thawed = self.brokers[node].thawed, []
        for future in thawed:
            resolve(future, None)

    def _shrink(self, node: int) -> None:
        """Take a broker that does nothing out of the replicas in sync."""
        if self.brokers[node].works:
            return
        for partition in self.partitions():
            if partition.leader == node:
                self.elect(partition)
            elif node in partition.in_sync and partition.leader is not None:  # else the last one
                partition.in_sync.remove(node)
                self._advance(partition)

    def _rejoin(self, node: int) -> None:
        if not self.brokers[node].works:
            return
        for partition in self.partitions():
            if node not in partition.ends:
                continue
            if partition.leader is None and node in partition.in_sync:
                self.elect(partition)
            elif self._led(partition) and node not in partition.in_sync:
                partition.ends[node] = partition.log.end
                partition.in_sync.append(node)
            if self._led(partition):
                self.replicate(partition)

    def elect(self, partition: Partition, chosen: int | None = None) -> None:
        """Choose another leader among the replicas in sync, or a given replica, in sync or not."""
        able = [n for n in partition.in_sync if self.brokers[n].works and n != partition.leader]
        if chosen is None and not able:
            if partition.leader is not None and not self.brokers[partition.leader].works:
                partition.in_sync = [partition.leader]  # the last one stays, until it is back
                partition.leader = None
                self._refuse_uncommitted(partition, NOT_LEADER)
                self._publish_news(partition)
            if partition.leader is None:
                back = [n for n in partition.in_sync if self.brokers[n].works]
                if back:
                    self._lead(partition, back[0], partition.ends[back[0]])
            return
        node = self.loop.rng.choice(able) if chosen is None else chosen
        self._lead(partition, node, partition.ends[node])

    def _lead(self, partition: Partition, node: int, end: int, epoch: int | None = None) -> None:
        log = partition.log
        partition.leader = node
        if epoch is None:
            epoch = log.epoch + 1  # the controller counts on, whatever the log has lost
        if end < log.end:
            log.truncate(end, self.loop.time())
        log.begin_epoch(epoch)
        now_s, now_ms = self.loop.time(), self.loop.now_ms()
        for pid, marker in log.lost_markers():  # a coordinator repeats it until it is in the log
            epoch, commit = marker.producer_epoch, marker.is_commit
            log.append_marker(pid, epoch, now_s, now_ms, commit=commit)
        partition.ends = {n: min(at, end) for n, at in partition.ends.items()}
        partition.in_sync = [node] + [
            n for n in partition.in_sync if n != node and self.brokers[n].works
        ]
        self._refuse_uncommitted(partition, NOT_LEADER)
        self._publish_news(partition)
        self.replicate(partition)

    def lose_tail(self, partition: Partition, records: int) -> None:
        """Let the leader come back without the end of its log, which was committed."""
        partition.fork = partition.log.fork()
        self._lead_from(partition, self._boundary(partition, records))

    def restore(self, partition: Partition, records: int) -> None:
        """Replace the log by that of a snapshot, whose controller counts leader epochs from there.

        An epoch is not used again at its former start, as the logs could not be distinguished.
        """
        log, boundary = partition.log, self._boundary(partition, records)
        former = log.epochs
        log.truncate(boundary, self.loop.time())
        epoch = log.epoch + 1
        while (epoch, boundary) in former:
            epoch += 1
        self._lead_from(partition, boundary, epoch)

    def rejoin(self, partition: Partition) -> None:
        """Elect the replica that fell behind before the log lost its end, with what it held."""
        fork, partition.fork = partition.fork, None
        if fork is not None:
            epoch = partition.log.epoch + 1
            partition.log.rejoin(fork, self.loop.time())
            end = partition.log.end
            partition.ends = dict.fromkeys(partition.ends, end)
            self._lead_from(partition, end, epoch)

    def _boundary(self, partition: Partition, records: int) -> int:
        end = max(partition.log.start, partition.log.end - records)
        return max([b.base for b in partition.log.history if b.base <= end], default=end)

    def _lead_from(self, partition: Partition, end: int, epoch: int | None = None) -> None:
        partition.ends = {node: min(at, end) for node, at in partition.ends.items()}
        leader = partition.leader if partition.leader is not None else partition.in_sync[0]
        self._lead(partition, leader, end, epoch)


async def sleep_until(loop: SimulatedLoop, when: float) -> None:
    """Let virtual time pass."""
    left = when - loop.time()
    if left > 0:
        await asyncio.sleep(left)
