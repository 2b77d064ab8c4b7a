"""Two clusters in memory, one of them rebuilt, and a restore that may be killed at any write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from srm.config.restoring import restoring
from srm.domain.flow_state.replication_records import (
    COMMANDS,
    PAUSE_KEY,
    STATE_PARTITIONS,
    AssignedPartition,
    Pause,
    read_pause,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.groups.mm2_records import Checkpoint, TopicIds
from srm.domain.names import internal_topics
from srm.domain.names.policy import DefaultReplicationPolicy, RestoringPolicy
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_records import MAP_PARTITIONS
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.offset_map.runs import Runs
from srm.domain.recovery.restore import SLOT, restore_flow
from srm.engine.cluster_ports import CompactedTopic, TopicSpec
from srm.engine.flows.target_topics import StateTopic
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowContext
from srm.errors import ConflictError
from srm.kafka.state.slot_state import MapStarts
from srm.replication.claim import Claim, Sealed
from srm.replication.ports import Place, ProducerId, WriteResult
from srm.replication.report import Reporter
from srm.replication.restore.topic_handover import Handover, RestoreContext, RestoreLogs, hand_over
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import LARGEST_RECORD, FakeCompactedTopic
from srm_lab.testing.flows import flow_config

FORWARD = Flow("P", "B")
BACK = restore_flow(FORWARD)
WORST_DAY = Pause("r1", "ann", "unplanned failover m1", 1, "m1")
MARKER, HOLE = "marker", "hole"
Entry = str | int
"""What stands at an offset: a record by its number, a marker, or nothing any more."""


class KilledError(Exception):
    """The process was killed."""


@dataclass
class Life:
    """Counts writes, and ends at one of them."""

    writes: int = 0
    ends_at: int = 10**9

    def step(self) -> None:
        self.writes += 1
        if self.writes >= self.ends_at:
            raise KilledError


class SteppedTopic(FakeCompactedTopic):
    """Writes one record after the other, each of which may be the last one."""

    life: Life

    def write(
        self, records: Mapping[bytes, bytes | None], largest: int = LARGEST_RECORD
    ) -> int | None:
        for key, value in records.items():
            self.life.step()
            super().write({key: value}, largest)
        return None


class SteppedCluster(FakeCluster):
    """A cluster on which a process may be killed between any two writes."""

    def __init__(self, alias: str, life: Life) -> None:
        super().__init__(alias)
        self.life = life

    def create_topics(self, specs: Collection[TopicSpec]) -> None:
        for spec in specs:
            if spec.name not in self.topics():
                self.life.step()
            super().create_topics([spec])

    def compacted_topic(self, topic: str, partition: int = 0) -> SteppedTopic:
        plain = super().compacted_topic(topic, partition)
        table = SteppedTopic(plain._name, plain._find)
        table.life = self.life
        return table


@dataclass
class TableLog:
    """What a slot writes, straight into the topics of a cluster (implements StateLog)."""

    cluster: SteppedCluster
    places: dict[Place, dict[bytes, int]] = field(default_factory=dict)

    def write(self, topic: str, key: bytes, value: bytes | None, partition: int = 0) -> None:
        self.cluster.compacted_topic(topic, partition).write({key: value})
        place = TopicPartition(topic, partition)
        end = self.cluster.high_watermarks([place])[place]
        self.places.setdefault((topic, partition), {})[key] = end - 1

    def waiting(self, place: Place) -> int:
        del place
        return 0

    def settle(self, places: Collection[Place], timeout_s: float) -> WriteResult:
        del timeout_s
        return WriteResult(
            {}, frozenset(), {p: self.places.pop(p) for p in places if p in self.places}
        )

    def flush(self, timeout_s: float) -> None:
        """Nothing waits."""


@dataclass
class Switch:
    """Pauses a flow by its record alone."""

    cluster: SteppedCluster
    flow: Flow

    def pause(self, wanted: Pause, request: str | None = None) -> None:
        standing = read_pause(self._table.read())
        if request is not None and (standing is None or standing.request != request):
            raise ConflictError("the pause that is meant does not stand")
        self._write(wanted.value())

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        raise AssertionError(copies)

    def resume(self, decided: Mapping[bytes, bytes] = {}, request: str | None = None) -> bool:
        assert not decided
        standing = read_pause(self._table.read())
        if standing is not None and request not in {None, standing.request}:
            raise ConflictError(f"paused again by {standing.by}")
        self._write(None)
        return standing is not None

    def leave(self, move_id: str) -> None:
        raise AssertionError(move_id)

    @property
    def _table(self) -> CompactedTopic:
        return self.cluster.compacted_topic(internal_topics.replication(self.flow.source), COMMANDS)

    def _write(self, value: bytes | None) -> None:
        self._table.write({PAUSE_KEY: value})


class World(RestoreLogs):
    """What both clusters hold, in both of its forms: the fakes, and what stands at each offset.

    ``logs`` are by alias and partition. On B there are copies of topics that a former P had.
    """

    def __init__(self, copies: Mapping[str, Iterable[Iterable[Entry]]]) -> None:
        self.life = Life()
        self.p, self.b = SteppedCluster("P", self.life), SteppedCluster("B", self.life)
        self.logs: dict[tuple[str, TopicPartition], list[Entry]] = {}
        self.epochs = Counter[str]()
        self.copied_twice: list[TopicPartition] = []
        self._internal(self.b, FORWARD.source)
        table = self.b.compacted_topic(internal_topics.replication("P"), COMMANDS)
        table.write({PAUSE_KEY: WORST_DAY.value()})
        for topic, partitions in copies.items():
            logs = [list(log) for log in partitions]
            copy_id = self.b.add_topic(f"P.{topic}", len(logs), {"retention.ms": "-1"})
            former = CopiedTopic(topic, _former(topic), f"P.{topic}", copy_id, "old", "b")
            table.write({former.key(): former.value()})
            for number, log in enumerate(logs):
                for entry in log:
                    self.append("B", TopicPartition(f"P.{topic}", number), entry)
        self.b.add_topic(internal_topics.checkpoints("P"))
        self.life.writes = 0

    def _internal(self, cluster: FakeCluster, alias: str) -> None:
        cluster.add_topic(internal_topics.replication(alias), STATE_PARTITIONS)
        cluster.add_topic(internal_topics.offset_map(alias), MAP_PARTITIONS)

    def cluster(self, alias: str) -> SteppedCluster:
        return self.p if alias == "P" else self.b

    def append(self, alias: str, place: TopicPartition, entry: Entry) -> int:
        """Write to a log; return the offset."""
        self.life.step()
        log = self.logs.setdefault((alias, place), [])
        log.append(entry)
        self.cluster(alias).produce(place.topic, place.partition)
        return len(log) - 1

    def checkpoint(self, group: str, place: TopicPartition, old: int, downstream: int) -> None:
        """Write what was known of a group before the disaster."""
        ids = TopicIds("id before the disaster", self.b.topics()[place.topic].topic_id)
        told = Checkpoint(group, place, old, downstream, ids.metadata())
        self.b.compacted_topic(internal_topics.checkpoints("P")).write({told.key(): told.value()})

    def records_of_checkpoints(self) -> list[Checkpoint]:
        rows = self.b.compacted_topic(internal_topics.checkpoints("P")).read().items()
        return [Checkpoint.decode(*row) for row in rows]

    def checkpoints(self) -> dict[tuple[str, TopicPartition], tuple[int, int]]:
        told = self.records_of_checkpoints()
        return {
            (each.group, each.topic_partition): (each.upstream_offset, each.downstream_offset)
            for each in told
        }

    # ----- what a restore works with

    def context(self) -> RestoreContext:
        forward = flow_config(FORWARD, topics=(".*",))
        back = flow_config(
            BACK,
            policy=RestoringPolicy(DefaultReplicationPolicy()),
            emit_offset_syncs_enabled=False,
            emit_checkpoints_enabled=False,
        )
        return RestoreContext(
            self._flow(forward, self.p, self.b),
            self._flow(restoring(back, ()), self.b, self.p),
            ("P", "B"),
            self,
            MapStarts(FORWARD, self.b),
            lambda: self._reporter(FORWARD, self.b),
            self.copy,
            "ann",
        )

    def _flow(self, config, source, target) -> FlowContext:  # type: ignore[no-untyped-def]
        maps = KafkaMapReader(target, source, config.flow)
        other = KafkaMapReader(source, target, config.flow.reverse)
        switch = Switch(target, config.flow)
        return FlowContext(config, source, target, maps, other, lambda: 7, switch=switch)

    def _reporter(self, flow: Flow, cluster: SteppedCluster) -> Reporter:
        log = TableLog(cluster)
        config = flow_config(flow, emit_offset_syncs_enabled=False)
        return Reporter(config, SLOT, log, log, lambda: 7)

    # ----- its logs

    def seal(
        self, flow: Flow, partitions: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Sealed]:
        return {place: self._claim(flow, place) for place in partitions}

    def _claim(self, flow: Flow, place: TopicPartition) -> Sealed:
        name = f"{flow}-{place}"
        self.epochs[name] += 1
        producer = ProducerId(sum(name.encode()), self.epochs[name])
        return Sealed(Claim(producer, 0.0, 3), self.append(flow.target, place, MARKER))

    def begin_with_records(
        self, partitions: Mapping[TopicPartition, str]
    ) -> frozenset[TopicPartition]:
        return frozenset(p for p in partitions if isinstance(self.logs["P", p][0], int))

    def first_record_in(
        self, partition: TopicPartition, topic_id: str, ranges: Iterable[tuple[int, int]]
    ) -> int | None:
        del topic_id
        log = self.logs.get(("P", partition), [])
        offsets = (n for first, end in ranges for n in range(first, min(end, len(log))))
        return next((n for n in offsets if isinstance(log[n], int)), None)

    # ----- its replicator

    def copy(self, copies: Collection[str]) -> None:
        """Copy what is missing, two records for a report; what was not told is found by a walk."""
        assert not self.is_paused(self.p, BACK)
        here, there = self.b.topics(), self.p.topics()
        for copy in copies:
            original = copy.removeprefix("P.")
            for number in range(here[copy].partitions):
                self._copy(
                    AssignedPartition(
                        copy, number, here[copy].topic_id, original, there[original].topic_id
                    )
                )

    def _copy(self, assigned: AssignedPartition) -> None:
        source = TopicPartition(assigned.topic, assigned.partition)
        target = TopicPartition(assigned.target_topic, assigned.partition)
        log = self.logs.setdefault(("B", source), [])
        sealed = self._claim(BACK, target)
        done = self.pairs(target, source)
        at = done[-1][1] + 1 if done else 0
        while True:
            for _ in range(2):
                while at < len(log) and not isinstance(log[at], int):
                    at += 1
                if at < len(log):
                    self.append("P", target, log[at])
                    at += 1
            self._tell(assigned, sealed, at)
            if at >= len(log):
                return

    def _tell(self, assigned: AssignedPartition, sealed: Sealed, at: int) -> None:
        target = TopicPartition(assigned.target_topic, assigned.partition)
        pairs = self.pairs(target, TopicPartition(assigned.topic, assigned.partition))
        runs = Runs.of(OffsetMap.of(Run(there, here, 1) for here, there in pairs).runs)
        position = Position(at, len(self.logs["P", target]), at)
        handover = Handover(assigned, runs, position, sealed)
        hand_over([handover], MapStarts(BACK, self.p), self._reporter(BACK, self.p), 0)

    # ----- what came of it

    def pairs(self, original: TopicPartition, copy: TopicPartition) -> list[tuple[int, int]]:
        """Return where records stand in the original and in the copy, by what they are."""
        log = self.logs.get(("P", original), [])
        where = {e: n for n, e in enumerate(self.logs["B", copy]) if isinstance(e, int)}
        return [(n, where[e]) for n, e in enumerate(log) if isinstance(e, int) and e in where]

    def is_paused(self, cluster: FakeCluster, flow: Flow) -> bool:
        return PAUSE_KEY in StateTopic(cluster, flow.source).read_commands()


def _former(topic: str) -> str:
    return (topic + "A" * 22)[:21] + "g"
