"""A whole flow in a simulated world: writers, clusters, driver, slots, and what befalls them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from srm.config.model import FlowConfig
from srm.domain.flow_state.replication_records import (
    COMMANDS,
    AssignedPartition,
    DriverHeartbeat,
    PartitionNotes,
    PartitionPosition,
)
from srm.domain.flow_state.replication_state import (
    CopiedTopic,
    GoneTopics,
    ReplicationState,
    decode_state,
    newest_position,
    positions_by_copy,
)
from srm.domain.names import internal_topics
from srm.domain.names.record_headers import ClusterIds
from srm.errors import FencedError, SrmError, UnavailableError
from srm.kafka.state.slot_state import MapStarts
from srm.replication.claim import ClaimLifetime
from srm.replication.copy.claiming import SlotContext
from srm.replication.copy.fetching import Quota
from srm.replication.copy.slot import Slot
from srm.replication.driver.discovery import Discovered, Discovery, internal_topic_specs
from srm.replication.driver.driver import FlowDriver
from srm.replication.report import Reporter
from srm_lab.testing.flows import P_TO_B, flow_config
from srm_lab.testing.simulation.batches import foreign_batch
from srm_lab.testing.simulation.cluster import SimulatedCluster
from srm_lab.testing.simulation.connection import Network
from srm_lab.testing.simulation.loop import Process, SimulatedLoop
from srm_lab.testing.simulation.scenario import SimulatedScenario
from srm_lab.testing.simulation.state import (
    SimulatedDriverLog,
    SimulatedFeed,
    SimulatedStateLog,
    SlowCluster,
    StateCluster,
    StateStore,
)
from srm_lab.testing.simulation.threads import SimulatedEvent
from srm_lab.testing.simulation.transactions import Coordinator
from srm_lab.testing.simulation.wire import SimulatedWire
from srm_lab.testing.simulation.workload import Habit, TopicWriter

logger = logging.getLogger(__name__)

FLOW: Final = P_TO_B
_WATCHED_S: Final = 40.0
_LAST_RECORDS: Final = Habit(batches=2, most_records=1, pause_s=1.0, keys=1)
_SETTLED_S: Final = 240.0
"""Maximum of virtual seconds after the last fault until all work has ended."""


def settings_of(scenario: SimulatedScenario) -> FlowConfig:
    """Return the settings of the flow."""
    return flow_config(
        FLOW,
        tasks_max=scenario.slots,
        sync_topic_configs_enabled=False,
        emit_checkpoints_enabled=False,
        sync_group_offsets_enabled=False,
        emit_offset_syncs_enabled=False,
        offset_syncs_location="target",
        metrics_interval=timedelta(hours=1),
        data_loss_policy="continue" if scenario.accepts_loss else "stop",
        merge_bytes=scenario.merge_bytes,
    )


@dataclass(eq=False)
class Worker:
    """One process that is a slot."""

    process: Process
    slot: str
    source: SimulatedWire
    target: SimulatedWire
    stop: SimulatedEvent
    task: asyncio.Task[None] | None = None


@dataclass
class SimulatedWorld:
    """Everything there is, and a timeline to show."""

    scenario: SimulatedScenario
    loop: SimulatedLoop
    source: SimulatedCluster
    target: SimulatedCluster
    coordinator: Coordinator
    store: StateStore
    config: FlowConfig
    trace: Callable[[str], None]
    workers: dict[str, Worker] = field(default_factory=dict)
    others: list[Worker] = field(default_factory=list)
    driver: Process | None = None
    events: list[tuple[float, str, Any]] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    ending: bool = False
    births: int = 0

    @classmethod
    def made(
        cls, scenario: SimulatedScenario, loop: SimulatedLoop, trace: Callable[[str], None]
    ) -> SimulatedWorld:
        """Set up clusters and topics."""
        source = SimulatedCluster("P", loop, scenario.source_brokers)
        target = SimulatedCluster("B", loop, scenario.target_brokers)
        config = settings_of(scenario)
        store = StateStore(StateCluster(target), loop)
        for spec in internal_topic_specs(config)[0]:
            store.cluster.create_topics([spec])
        coordinator = Coordinator(target, scenario.txn_expiry_s, scenario.late_markers)
        world = cls(scenario, loop, source, target, coordinator, store, config, trace)
        for plan in scenario.topics:
            source.create_topic(plan.name, plan.partitions, plan.source)
            target.create_topic(f"P.{plan.name}", plan.partitions, plan.target)
        for partition in target.partitions() if scenario.filled else ():
            partition.log.append(foreign_batch(loop.now_ms()), loop.time(), loop.now_ms())
            target.replicate(partition)
        return world

    def note(self, kind: str, what: Any = None) -> None:
        """Remember something that the scenario did."""
        self.events.append((self.loop.time(), kind, what))
        self.trace(f"{kind} {what if what is not None else ''}")

    # ----- the flow's processes

    def network(self) -> Network:
        """Return a way to a cluster."""
        scenario = self.scenario
        return Network(loses=scenario.loses, spikes=scenario.spikes)

    def start_slot(self, slot: str) -> None:
        """Start a worker."""
        self.births += 1
        process = Process(f"slot {slot} ({self.births})")
        worker = Worker(
            process,
            slot,
            SimulatedWire(self.source, self.coordinator, self.network()),
            SimulatedWire(self.target, self.coordinator, self.network()),
            SimulatedEvent(self.loop),
        )
        former = self.workers.get(slot)
        if former is not None and former.process.alive:
            self.others.append(former)
        self.workers[slot] = worker
        context = self.loop.in_process(process)
        worker.task = self.loop.create_task(self._slot(worker), context=context)
        worker.task.add_done_callback(lambda task: self._on_end(worker, task), context=context)
        self.trace(f"started {process.name}")

    async def _slot(self, worker: Worker) -> None:
        state = SimulatedStateLog(self.store, worker.process)
        context = SlotContext(
            self.config,
            worker.source,
            worker.target,
            Reporter(self.config, worker.slot, state, state, self.loop.now_ms),
            self.loop.now_ms,
            ClaimLifetime(self._expirations),
            Quota(None),
            ClusterIds("", ""),
        )
        feed, starts = (
            SimulatedFeed(self.store, FLOW, worker.slot),
            MapStarts(FLOW, SlowCluster(self.store)),
        )
        await Slot(context, feed, starts).run(worker.stop)  # type: ignore[arg-type]

    async def _expirations(self) -> Mapping[str, str]:
        await asyncio.sleep(0.01)
        expiry_s = 4 * self.scenario.claim_lifetime_s
        return {
            "producer.id.expiration.ms": str(round(expiry_s * 1000)),
            "transactional.id.expiration.ms": str(round(self.scenario.txn_expiry_s * 1000)),
        }

    def _on_end(self, worker: Worker, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.workers.get(worker.slot) is not worker:
            return
        error = task.exception()
        if error is not None:
            self.note("slot failed", f"{worker.process.name}: {error!r}")
            if not isinstance(error, UnavailableError | FencedError):
                self.problems.append(f"slot ended by {error!r}")
        worker.process.kill()
        if not self.ending:
            self.loop.world_later(self.loop.rng.uniform(0.2, 2.0), self.start_slot, worker.slot)

    def kill_slot(self, slot: str, down_s: float) -> None:
        """Kill a worker; another one is started in its place."""
        worker = self.workers[slot]
        if worker.process.alive:
            self.note("killed", worker.process.name)
            worker.process.kill()
            worker.source.network.cut_off = worker.target.network.cut_off = False
            self.loop.world_later(down_s, self._start_again, slot, worker)

    def _start_again(self, slot: str, former: Worker) -> None:
        if self.workers[slot] is former:
            self.start_slot(slot)

    def start_driver(self) -> None:
        """Start a driver; an older one that lives is fenced by it."""
        self.births += 1
        process = Process(f"driver ({self.births})")
        self.driver = process
        driver = FlowDriver(
            FLOW,
            SimulatedDriverLog(self.store, FLOW, self.epochs),
            _Rounds(self),
            slots=[str(number) for number in range(self.scenario.slots)],
            identity=lambda: DriverHeartbeat(process.name, "", "", 0, self.loop.now_ms()),
            grace_s=2.0,
            clock=self.loop.time,
        )
        stop = SimulatedEvent(self.loop)

        async def run() -> None:
            try:
                await self.loop.run_in_executor(None, driver.run, stop)
            except SrmError as error:
                self.note("driver ended", error)

        self.loop.create_task(run(), context=self.loop.in_process(process))
        self.trace(f"started {process.name}")

    # ----- what is known

    def assignments(self) -> list[AssignedPartition]:
        """Return what there is to copy now."""
        found = []
        for topic in self.source.topics.values():
            remote = self.target.topics.get(f"P.{topic.name}")
            if remote is not None:
                found += [
                    AssignedPartition(
                        topic.name, number, topic.id_text, remote.name, remote.id_text
                    )
                    for number in range(len(topic.partitions))
                ]
        return found

    def state(self) -> ReplicationState:
        """Return what the state topics say now."""
        topic = internal_topics.replication(FLOW.source)
        table: dict[bytes, bytes] = {}
        for number in range(self.store.cluster.topics()[topic].partitions):
            table |= self.store.cluster.compacted_topic(topic, number).read()
        return decode_state(table)

    def positions(self) -> dict[AssignedPartition, PartitionPosition | None]:
        """Return the newest reported position of everything that is copied."""
        reported = positions_by_copy(self.state().reports)
        return {a: newest_position(reported.get(a.copy_id, ())) for a in self.assignments()}

    def list_unfinished(self) -> list[str]:
        """Say what is not copied to its end."""
        left = []
        for assigned, entry in self.positions().items():
            partition = self.source.topics[assigned.topic].partitions[assigned.partition]
            end = partition.log.last_stable_offset
            start = partition.log.start
            reached = entry.position.source_next if entry else 0
            if reached != end and (end > start or entry is not None):
                left.append(f"{partition.place} at {reached} of {end}")
                continue
            copy = self.target.topics[assigned.target_topic].partitions[assigned.partition].log
            after = entry.position.target_next if entry else copy.end
            if after < copy.end and all(b.is_control for b in copy.history if b.base >= after):
                left.append(f"{partition.place} at {after} of {copy.end} on the target")
        return left

    def is_keyed(self, topic: str) -> bool:
        """Return whether all records of a topic have keys, so that it may be compacted."""
        return any(plan.name == topic and plan.habit.keys for plan in self.scenario.topics)

    # ----- a life

    async def live(self) -> None:
        """Play the scenario to its end."""
        scenario = self.scenario
        self.start_driver()
        for number in range(scenario.slots):
            self.start_slot(str(number))
        writers = [
            self.loop.world_task(
                TopicWriter(self.source, partition, plan.habit).run(),
            )
            for plan in scenario.topics
            for partition in self.source.topics[plan.name].partitions
        ]
        faults = [
            self.loop.world_task(fault.play(self, self.loop.time() + fault.at_s))
            for fault in scenario.faults
        ]
        if scenario.filled:
            faults.append(self.loop.world_task(self._append()))
        await asyncio.gather(*writers, *faults)
        self.heal()
        await self._show_cuts()
        await self._settle()
        self.ending = True
        if scenario.clean_end:
            await self._stop_slots()
        else:
            for worker in self.workers.values():
                worker.process.kill()
        await asyncio.sleep(5.0)

    async def _append(self) -> None:
        """Decide to copy after the records of others, which no slot has done before."""
        await asyncio.sleep(self.loop.rng.uniform(0.0, self.scenario.span_s))
        for assigned in self.assignments():
            target = self.target.topics[assigned.target_topic].partitions[assigned.partition]
            if any(batch.producer_id >= 0 and not batch.is_control for batch in target.log.history):
                self.problems.append(f"{target.place}: copied before that was decided")
            note = PartitionNotes.after_others(assigned, "an operator", self.loop.now_ms())
            place = internal_topics.replication(FLOW.source), COMMANDS
            self.store.append(place, [(note.key(), note.value())])

    def heal(self) -> None:
        """End all faults that last."""
        self.note("healed")
        self.store.reachable = True
        for cluster in (self.source, self.target):
            for node, broker in cluster.brokers.items():
                if not broker.up:
                    cluster.start(node)
                if broker.frozen:
                    cluster.thaw(node)
        for worker in (*self.workers.values(), *self.others):
            if worker.process.asleep:
                self.loop.wake(worker.process)
            for wire in (worker.source, worker.target):
                wire.network.loses = wire.network.spikes = 0.0
                wire.network.cut_off = False
        self.scenario.calm()

    async def _show_cuts(self) -> None:
        """Write on where the source was cut: that is not seen before its log grows further."""
        cut = [p for p in self.source.partitions() if p.log.cut_at is not None]
        await asyncio.gather(*(TopicWriter(self.source, p, _LAST_RECORDS).run() for p in cut))

    async def _settle(self) -> None:
        began = self.loop.time()
        while self.loop.time() - began < _SETTLED_S:
            await asyncio.sleep(2.0)
            left = self.list_unfinished()
            is_quiet = self.coordinator.is_idle and self.loop.time() > self._noticed_s()
            if not left and is_quiet:
                await asyncio.sleep(2.5)  # the blocks and reports of the last second
                return
            if self.loop.time() - began > self.scenario.patience_s and self._all_stopped(left):
                return
        self.note("unfinished", "; ".join(self.list_unfinished()))

    def _noticed_s(self) -> float:
        """Return when a slot has noticed at last what an idle target, or a map, has lost."""
        lost = {"target cut", "map lost", "block lost", "last block lost"}
        return max((when for when, kind, _ in self.events if kind in lost), default=0) + _WATCHED_S

    def _all_stopped(self, left: Collection[str]) -> bool:
        stopped = {
            f"{s.topic}-{s.partition}" for s in self.state().statuses if s.state == "stopped"
        }
        return all(entry.split(" ")[0] in stopped for entry in left)

    async def _stop_slots(self) -> None:
        for worker in self.workers.values():
            worker.stop.set()
        tasks = [w.task for w in self.workers.values() if w.task and w.process.alive]
        if tasks:
            await asyncio.wait(tasks, timeout=30.0)


class _Rounds(Discovery):
    """Discovery of the driver over the simulated clusters; no topic is ever gone."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._found = Discovered()

    def prepare(self) -> None:
        """See the class."""
        self._world.store.require("creating internal topics")

    def round(self) -> Discovered:
        """See the class."""
        self._world.loop.pause(0.01)
        partitions = tuple(self._world.assignments())
        found = Discovered(partitions, source_cluster="p", target_cluster="b")
        if found != self._found:
            self._found = found
        return self._found

    def target_ends(
        self, partitions: Collection[AssignedPartition]
    ) -> dict[AssignedPartition, int]:
        """See the class."""
        del partitions
        return {}

    def find_deleted(self, copied: Collection[CopiedTopic]) -> GoneTopics:
        """See the class."""
        del copied
        return GoneTopics()

    def forget(self, topics: Collection[CopiedTopic]) -> None:
        """See the class; no topic is ever gone here."""
        raise AssertionError(f"what is known of {topics} is of use")
