"""Two clusters in memory and the flows between them, with records that all look alike."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import (
    COMMANDS,
    NOTES_PREFIX,
    REPORTS,
    AssignedPartition,
    Incarnation,
    PartitionNotes,
    PartitionPosition,
    PartitionStatus,
    SlotReport,
    in_force,
    read_pause,
)
from srm.domain.flow_state.replication_state import CopiedTopic
from srm.domain.flow_state.slot_records import PositionGroup, SlotHeartbeat
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow, TopicPartition
from srm.domain.offset_map.map_loader import WantedOffsets
from srm.domain.offset_map.offset_map import OffsetMap, Position, Run
from srm.domain.recovery.source_return import CopyEnd, Wanted
from srm.engine.cluster_ports import Cluster, away_cluster
from srm.engine.control.control_topics import create_control_topics, ensure_compacted
from srm.engine.moves.context import MoveContext
from srm.engine.ports import FlowContext, FlowMaps
from srm.errors import SrmError, UnavailableError
from srm.replication.ports import DecodedRecord
from srm_lab.testing.fake_cluster import FakeCluster
from srm_lab.testing.fake_compacted import FakeMapReader
from srm_lab.testing.fake_switch import FakeSwitch
from srm_lab.testing.flows import FakeClock, flow_config

_WRITES: Final = frozenset(
    {
        *("commit_idle", "set_share_starts", "deny_writes", "allow_writes"),
        *("remove_members", "remove_static_members"),
    }
)


@dataclass(eq=False)
class Host:
    """One machine.

    ``name``: of the machine. ``clock``: the true time. ``skew_ms``: how far its clock is ahead.
    ``cut_from``: aliases of the clusters that it does not reach. ``stall_at``: the number of the
    write before which it stops for a while; 0: never. ``others``: actions of other hosts in
    that time.
    """

    name: str
    clock: FakeClock
    skew_ms: int = 0
    cut_from: set[str] = field(default_factory=set)
    stall_at: int = 0
    others: Callable[[], None] = lambda: None
    writes: int = 0

    def now_ms(self) -> int:
        """Return the time by its clock."""
        return self.clock() + self.skew_ms

    def view(self, cluster: FakeCluster) -> Cluster:
        """Return a cluster as this host reaches it."""
        return cast("Cluster", _View(self, cluster))

    def reach(self, alias: str) -> None:
        """Raise UnavailableError where a cluster is cut off."""
        if alias in self.cut_from:
            raise UnavailableError(f"{self.name} does not reach cluster {alias}; retry")

    def write(self, act: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        """Carry a write out; the host stops before one of them, and wakes up late."""
        self.writes += 1
        if self.writes == self.stall_at:
            self.others()
        return act(*args, **settings)


class _View:
    """A cluster with the network of a host between."""

    def __init__(self, host: Host, cluster: FakeCluster) -> None:
        self._host = host
        self._cluster = cluster
        self.alias = cluster.alias

    def __getattr__(self, name: str) -> Any:
        self._host.reach(self.alias)
        found = getattr(self._cluster, name)
        if name not in _WRITES:
            return found
        return lambda *args, **settings: self._host.write(found, *args, **settings)

    def compacted_topic(self, topic: str, partition: int = 0) -> _Table:
        return _Table(self._host, self.alias, self._cluster.compacted_topic(topic, partition))

    def control_writer(self, transactional_id: str) -> _Table:
        self._host.reach(self.alias)
        writer = self._cluster.control_writer(transactional_id)
        return _Table(self._host, self.alias, writer)


class _Table:
    """A compacted topic, or a writer of control records, likewise."""

    def __init__(self, host: Host, alias: str, table: Any) -> None:
        self._host = host
        self._alias = alias
        self._table = table

    def __getattr__(self, name: str) -> Any:
        self._host.reach(self._alias)
        return getattr(self._table, name)

    def write(self, records: Mapping[Any, Any], *args: Any, **settings: Any) -> Any:
        self._host.reach(self._alias)
        return self._host.write(self._table.write, records, *args, **settings)


TOPIC: Final = "Payments"
_SLOT: Final = Incarnation(1, "aa")


class Copier:
    """Copies one flow as a slot does, and reports how far it is.

    It claims a copy, which puts a marker there, once there is something to copy. Unlike a slot it
    never passes the markers of others at the end of an idle copy: no move may depend on that.
    """

    def __init__(self, sites: Sites, flow: Flow) -> None:
        self.flow = flow
        self.maps = FakeMapReader()
        self._sites = sites
        self._source, self._target = sites.clusters[flow.source], sites.clusters[flow.target]
        self._remote = f"{flow.source}.{TOPIC}"
        self._runs: dict[int, list[Run]] = defaultdict(list)
        self.positions = dict.fromkeys(range(sites.partitions), Position(0, 0, 0))
        self._claimed: set[int] = set()
        self._state = internal_topics.replication(flow.source)
        ensure_compacted(self._target, self._state, 2)
        ids = self._source.topics()[TOPIC].topic_id, self._target.topics()[self._remote].topic_id
        self.ids = ids
        copied = CopiedTopic(
            topic=TOPIC,
            topic_id=ids[0],
            target_topic=self._remote,
            target_topic_id=ids[1],
            source_cluster=self._source.cluster_id(),
            target_cluster=self._target.cluster_id(),
        )
        self._target.compacted_topic(self._state, COMMANDS).write({copied.key(): copied.value()})
        for number, position in self.positions.items():
            self.maps.maps[self._original(number)] = OffsetMap.of((), position)

    def step(self) -> None:
        """Copy what there is, unless the flow is paused or a cluster is down."""
        try:
            commands = self._target.compacted_topic(self._state, COMMANDS).read()
            self._take_notes(commands)
            if read_pause(commands) is not None:
                self._claimed.clear()
                return
            ends = self._source.log_ends([self._original(n) for n in range(self._sites.partitions)])
        except SrmError:
            return
        for number in range(self._sites.partitions):
            self._copy(number, ends[self._original(number)])
        self._report()

    def mark(self, copy: TopicPartition) -> None:
        """Take a marker that a foreign writer has put at the end of a copy."""
        self._target.mark(copy.topic, copy.partition)
        self._sites.records[self.flow.target, copy].append(None)

    def _copy(self, number: int, end: int) -> None:
        place, copy = self._original(number), TopicPartition(self._remote, number)
        known = self.positions[number]
        if known.source_next >= end:
            return
        if number not in self._claimed:
            self._claimed.add(number)
            self.mark(copy)
        left_out = self._left_out(place)
        records = self._sites.records
        for offset in self._source.readable(place, known.source_next):
            if any(start <= offset < stop for start, stop in left_out):
                continue
            there = self._target.produce(self._remote, number, 1, timestamp_ms=self._sites.clock())
            records[self.flow.target, copy].append(records[self.flow.source, place][offset])
            self._runs[number].append(Run(offset, there - 1, 1))
        self._reach(number, Position(end, self._target.high_watermarks([copy])[copy], end))

    def _reach(self, number: int, position: Position) -> None:
        self.positions[number] = position
        # A record that was left out may have the place of a marker on the line of the last run.
        self.maps.maps[self._original(number)] = OffsetMap.of(
            self._runs[number], position, open_end=False
        )

    def _left_out(self, place: TopicPartition) -> list[tuple[int, int]]:
        notes = in_force(self.maps.notes.get(place, ()))
        return [note.left_out for note in notes if note.left_out is not None]

    def _take_notes(self, commands: Mapping[bytes, bytes]) -> None:
        notes: dict[TopicPartition, tuple[PartitionNotes, ...]] = {}
        for key, value in commands.items():
            if key.startswith(NOTES_PREFIX):
                note = PartitionNotes.decode(value)
                place = TopicPartition(note.topic, note.partition)
                notes[place] = (*notes.get(place, ()), note)
        self.maps.notes = notes

    def _report(self) -> None:
        now = self._sites.clock()
        topic_id, remote_id = self.ids
        positions = tuple(
            PartitionPosition(topic_id, number, remote_id, position, 1, 0)
            for number, position in sorted(self.positions.items())
        )
        self.maps.reports = (SlotReport("0", 1, now, positions, _SLOT, source_heard_ms=now),)
        beat = SlotHeartbeat("0", _SLOT, 1, now, len(positions), now, 0, ())
        group = PositionGroup("0", _SLOT, "0", positions)
        rows = {beat.key(): beat.value(), group.key(): group.value()}
        for number in range(self._sites.partitions):
            status = PartitionStatus(TOPIC, number, "copying", time_ms=now)
            self.maps.statuses[self._original(number)] = status
            rows[status.key()] = status.value()
        self._target.compacted_topic(self._state, REPORTS).write(dict[bytes, bytes | None](rows))

    def _original(self, number: int) -> TopicPartition:
        return TopicPartition(TOPIC, number)


class SiteSwitch(FakeSwitch):
    """Pauses a flow and puts a marker into each copy that it seals."""

    def __init__(self, host: Host, copier: Copier, target: FakeCluster) -> None:
        super().__init__(host.view(target), copier.flow.source)
        self._copier = copier

    def seal(self, copies: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """See the port."""
        for copy in copies:
            self._copier.mark(copy)
        return super().seal(copies)


class SiteLogs:
    """Both logs of a flow in memory (implements the comeback's ReturnedLogs)."""

    def __init__(self, sites: Sites, copier: Copier) -> None:
        self._sites = sites
        self._copier = copier

    def copy_ends(
        self, partitions: Sequence[AssignedPartition], show: Callable[[int], None]
    ) -> dict[AssignedPartition, CopyEnd | SrmError]:
        """Return where copies end; nothing is walked."""
        show(len(partitions))
        source = self._sites.clusters[self._copier.flow.source]
        found: dict[AssignedPartition, CopyEnd | SrmError] = {}
        for entry in partitions:
            place = TopicPartition(entry.topic, entry.partition)
            at = self._copier.positions[entry.partition]
            found[entry] = CopyEnd(
                copied_to=at.source_next,
                target_next=at.target_next,
                log_start=source.log_starts([place])[place],
                log_end=source.log_ends([place])[place],
                high_watermark=source.high_watermarks([place])[place],
            )
        return found

    def read(
        self,
        wanted: Sequence[Wanted],
        visit: Callable[[int, Sequence[DecodedRecord]], bool],
        at_once: int,
    ) -> None:
        """Show records without content: no residue is exported here."""
        del at_once
        source = self._sites.clusters[self._copier.flow.source]
        for index, (_, one) in enumerate(wanted):
            offsets = source.readable(TopicPartition(one.topic, one.partition), one.start)
            held = [offset for offset in offsets if offset < one.end]
            if held:
                visit(index, [DecodedRecord(at, 0, None, None, []) for at in held])


class _Maps:
    """The maps of a flow as a host reaches them."""

    def __init__(self, host: Host, copier: Copier, target: FakeCluster) -> None:
        self._host = host
        self._copier = copier
        self._target = target

    def load(self, topics: Collection[str], wanted: WantedOffsets | None = None) -> FlowMaps:
        self._host.reach(self._target.alias)
        self._target.partition_counts()
        return self._copier.maps.load(topics, wanted)


@dataclass(eq=False)
class Sites:
    """Clusters P and B, ``Payments`` on either and copied both ways.

    ``records`` are the serial numbers of the records at the offsets, None for a marker: records of
    one number are copies of one another. Nothing of srm sees them.
    """

    rng: random.Random
    partitions: int
    settings: Mapping[str, object]

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.clusters = {alias: FakeCluster(alias, clock=self.clock) for alias in "PB"}
        self.down: set[str] = set()
        self.records: defaultdict[tuple[str, TopicPartition], list[int | None]] = defaultdict(list)
        self.serial = 0
        for alias, cluster in self.clusters.items():
            create_control_topics(cluster, 1)
            other = "B" if alias == "P" else "P"
            for topic in (TOPIC, f"{other}.{TOPIC}"):
                cluster.add_topic(topic, self.partitions)
            cluster.add_topic(internal_topics.checkpoints(other))
        self.copiers = {flow: Copier(self, flow) for flow in (Flow("P", "B"), Flow("B", "P"))}

    def config(self, flow: Flow) -> FlowConfig:
        """Return the settings of a flow."""
        reverse = (f"{flow.target}.{TOPIC}",) if self.settings.get("reverse") else ()
        return flow_config(
            flow,
            topics=(TOPIC,),
            reverse_checkpointing_enabled=bool(reverse),
            reverse_checkpointed_topics=reverse,
        )

    def write(self, alias: str, number: int, count: int, *, in_transaction: bool) -> list[int]:
        """Let a producer write some records; return their serial numbers."""
        cluster, place = self.clusters[alias], TopicPartition(TOPIC, number)
        cluster.produce(TOPIC, number, count, producer_id=1, timestamp_ms=self.clock())
        new = list(range(self.serial, self.serial + count))
        self.serial += count
        self.records[alias, place] += new
        if in_transaction:
            cluster.mark(TOPIC, number)
            self.records[alias, place].append(None)
        return new

    def flow(self, flow: Flow, host: Host, *, gone: str = "") -> FlowContext:
        """Return a flow as a host sees it; it gives up the cluster that is ``gone``."""
        copier, back = self.copiers[flow], self.copiers[flow.reverse]
        source, target = (self.clusters[alias] for alias in (flow.source, flow.target))

        def view(cluster: FakeCluster) -> Cluster:
            return away_cluster(gone) if cluster.alias == gone else host.view(cluster)

        return FlowContext(
            self.config(flow),
            view(source),
            view(target),
            _Maps(host, copier, target),
            _Maps(host, back, source),
            host.now_ms,
            switch=SiteSwitch(host, copier, target),
            opposite=self.config(flow.reverse),
        )

    def move(self, flow: Flow, host: Host, *, unplanned: bool) -> MoveContext:
        """Return what the steps of a move need."""
        gone = flow.source if unplanned else ""
        return MoveContext(
            self.flow(flow, host, gone=gone),
            self.flow(flow.reverse, host, gone=gone),
            lambda: self.clock() / 1000,
            host.name,
        )
