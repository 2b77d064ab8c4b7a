"""Faults of a flow. Each happens at its time; those that last end by themselves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from srm.domain.flow_state.replication_records import Pause
from srm.domain.names.topics import TopicPartition, topic_id_bytes
from srm.errors import SrmError
from srm.replication.claim import seal
from srm.replication.driver import pausing
from srm.replication.driver.state_book import DriverLog
from srm.replication.log_reader import LogReader
from srm_lab.testing.flows import P_TO_B
from srm_lab.testing.simulation import damage
from srm_lab.testing.simulation.batches import foreign_batch
from srm_lab.testing.simulation.cluster import Partition, SimulatedCluster, sleep_until
from srm_lab.testing.simulation.connection import Network
from srm_lab.testing.simulation.loop import Process
from srm_lab.testing.simulation.state import SimulatedDriverLog
from srm_lab.testing.simulation.wire import SimulatedWire
from srm_lab.testing.simulation.workload import Habit, TopicWriter

if TYPE_CHECKING:
    from srm_lab.testing.simulation.scenario import SimulatedScenario
    from srm_lab.testing.simulation.world import SimulatedWorld, Worker

_AGAIN_S: Final = 1.0

Play = Callable[["SimulatedWorld", random.Random], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault at a virtual second after the start."""

    at_s: float
    kind: str
    seed: int

    async def play(self, world: SimulatedWorld, when: float) -> None:
        """Let it happen."""
        await sleep_until(world.loop, when)
        rng = random.Random(self.seed)  # noqa: S311 - to be repeated, not to be secret
        await (ORDINARY | UNKIND | DIVERGING | SEALED)[self.kind](world, rng)


def drawn(rng: random.Random, scenario: SimulatedScenario, kinds: str) -> list[Fault]:
    """Draw the faults of a scenario."""
    choice = list(ORDINARY)
    if kinds == "all":
        few = rng.sample(sorted(UNKIND), rng.choice((0, 1, 1, 2, 3)))
        choice += few * (len(ORDINARY) // max(1, len(few)))
    elif kinds != "ordinary":
        choice += [kind for kind in kinds.split(",") for _ in range(len(ORDINARY))]
    count = rng.choice((0, 1, 2, 3, 4, 6))
    span_s = scenario.span_s + 3.0
    found = [
        Fault(rng.uniform(1.0, span_s), rng.choice(choice), rng.getrandbits(32))
        for _ in range(count)
    ]
    also = random.Random(scenario.seed)  # noqa: S311 - to be repeated; the others stay as they are
    if kinds == "all" and also.random() < 0.2:
        kind = also.choice(sorted(DIVERGING))
        found.append(Fault(also.uniform(1.0, span_s), kind, also.getrandbits(32)))
    return sorted(found, key=lambda fault: fault.at_s)


# ----- faults after which everything has to be as if they had not been


async def _kill_slot(world: SimulatedWorld, rng: random.Random) -> None:
    slot = str(rng.randrange(world.scenario.slots))
    world.kill_slot(slot, rng.choice((0.3, 2.0, 8.0)))
    await asyncio.sleep(0)


async def _kill_at_write(world: SimulatedWorld, rng: random.Random) -> None:
    """Kill a worker between two of the writes that make up its report."""
    slot, left = str(rng.randrange(world.scenario.slots)), rng.randint(1, 8)

    def count() -> None:
        nonlocal left
        left -= 1
        if not left:
            world.store.on_append = None
            world.kill_slot(slot, 2.0)

    world.store.on_append = count
    await asyncio.sleep(0)


async def _stop_slot(world: SimulatedWorld, rng: random.Random) -> None:
    """Stop a worker as SIGSTOP does, and let it continue; maybe another one is there by then."""
    worker = world.workers[str(rng.randrange(world.scenario.slots))]
    if not worker.process.alive or worker.process.asleep:
        return
    replaced = rng.random() < 0.4
    seconds = rng.choice((0.5, 4.0, 9.0, 20.0))
    await _sleep(world, rng, worker, seconds, replaced=replaced)


async def _sleep_long(world: SimulatedWorld, rng: random.Random) -> None:
    """Asleep for longer than the target's brokers remember producers."""
    worker = world.workers[str(rng.randrange(world.scenario.slots))]
    if worker.process.alive and not worker.process.asleep:
        seconds = min(4 * world.scenario.claim_lifetime_s + 5.0, 90.0)
        await _sleep(world, rng, worker, seconds, replaced=True)


async def _sleep(
    world: SimulatedWorld, rng: random.Random, worker: Worker, seconds: float, *, replaced: bool
) -> None:
    world.note("asleep", worker.process.name)
    worker.process.asleep = True
    if replaced:
        world.start_slot(worker.slot)
    await asyncio.sleep(seconds)
    if worker.process.asleep:
        world.note("awake", worker.process.name)
        world.loop.wake(worker.process)
    if replaced:
        await asyncio.sleep(rng.uniform(0.5, 15.0))
        worker.process.kill()


async def _two_workers(world: SimulatedWorld, rng: random.Random) -> None:
    """A second worker with the same slot id: the first one was cut off from Spark only."""
    worker = world.workers[str(rng.randrange(world.scenario.slots))]
    if worker.process.alive:
        world.note("second worker", worker.slot)
        world.start_slot(worker.slot)
        await asyncio.sleep(rng.uniform(1.0, 12.0))
        world.note("killed", worker.process.name)
        worker.process.kill()


async def _kill_driver(world: SimulatedWorld, rng: random.Random) -> None:
    if world.driver is not None and world.driver.alive:
        world.note("killed", world.driver.name)
        if rng.random() < 0.7:
            world.driver.kill()
        await asyncio.sleep(rng.uniform(0.0, 6.0))
        world.start_driver()


async def _cut_connections(world: SimulatedWorld, rng: random.Random) -> None:
    for worker in list(world.workers.values()):
        for wire in (worker.source, worker.target):
            if rng.random() < 0.7:
                wire.cut()
    world.note("connections cut")
    await asyncio.sleep(0)


async def _partition(world: SimulatedWorld, rng: random.Random) -> None:
    """One worker reaches one cluster no more: packets vanish."""
    worker = world.workers[str(rng.randrange(world.scenario.slots))]
    wire = rng.choice((worker.source, worker.target))
    world.note("cut off", f"{worker.process.name} from {wire.alias}")
    wire.network.cut_off = True
    await asyncio.sleep(rng.choice((0.5, 3.0, 10.0)))
    wire.network.cut_off = False


async def _elect(world: SimulatedWorld, rng: random.Random) -> None:
    partition = _any_partition(world, rng)
    if partition is not None:
        cluster, chosen = partition
        cluster.elect(chosen)
        world.note("elected", f"{chosen.place} on {cluster.alias}: node {chosen.leader}")
    await asyncio.sleep(0)


async def _crash_broker(world: SimulatedWorld, rng: random.Random) -> None:
    cluster = rng.choice((world.source, world.target))
    node = rng.choice(list(cluster.brokers))
    if cluster.brokers[node].up and not cluster.brokers[node].frozen:
        world.note("broker crashed", f"{node} of {cluster.alias}")
        cluster.crash(node)
        await asyncio.sleep(rng.choice((0.2, 2.0, 6.0)))
        cluster.start(node)


async def _freeze_broker(world: SimulatedWorld, rng: random.Random) -> None:
    cluster = rng.choice((world.source, world.target))
    node = rng.choice(list(cluster.brokers))
    if cluster.brokers[node].works:
        world.note("broker frozen", f"{node} of {cluster.alias}")
        cluster.freeze(node)
        await asyncio.sleep(rng.choice((0.5, 4.0, 15.0, 45.0)))
        cluster.thaw(node)


async def _state_outage(world: SimulatedWorld, rng: random.Random) -> None:
    world.note("state topics unavailable")
    world.store.reachable = False
    await asyncio.sleep(rng.choice((0.5, 3.0, 12.0)))
    world.store.reachable = True
    world.note("state topics back")


async def _clean_state(world: SimulatedWorld, _rng: random.Random) -> None:
    """The brokers' log cleaner goes through the internal topics."""
    world.note("state topics cleaned")
    world.store.compact()
    await asyncio.sleep(0)


ORDINARY: Final[dict[str, Play]] = {
    "kill slot": _kill_slot,
    "kill slot again": _kill_slot,
    "kill at write": _kill_at_write,
    "stop slot": _stop_slot,
    "sleep long": _sleep_long,
    "two workers": _two_workers,
    "kill driver": _kill_driver,
    "cut connections": _cut_connections,
    "cut off": _partition,
    "elect": _elect,
    "crash broker": _crash_broker,
    "freeze broker": _freeze_broker,
    "state outage": _state_outage,
    "clean state": _clean_state,
}

# ----- faults that destroy data


def _pair(world: SimulatedWorld, rng: random.Random) -> tuple[Partition, Partition] | None:
    assigned = world.assignments()
    if not assigned:
        return None
    chosen = rng.choice(assigned)
    source = world.source.topics[chosen.topic].partitions[chosen.partition]
    return source, world.target.topics[chosen.target_topic].partitions[chosen.partition]


async def _then_kill(world: SimulatedWorld, rng: random.Random) -> None:
    """Destroyed data matters most to the next owner."""
    if rng.random() < 0.6:
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        world.kill_slot(str(rng.randrange(world.scenario.slots)), rng.choice((0.3, 2.0)))


def _lose_source_end(world: SimulatedWorld, source: Partition, rng: random.Random) -> None:
    end = source.log.end
    world.source.lose_tail(source, rng.randint(1, 30))
    world.note("source cut", f"{source.place} from {source.log.end} to {end}")


def _lose_target_end(
    world: SimulatedWorld, source: Partition, target: Partition, rng: random.Random
) -> None:
    end = target.log.end
    world.target.lose_tail(target, rng.randint(1, 30))
    world.note("target cut", f"{source.place} from {target.log.end} to {end}")


async def _truncate_source(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None:
        source, _ = pair
        _lose_source_end(world, source, rng)
        await _then_kill(world, rng)


async def _truncate_target(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None:
        source, target = pair
        _lose_target_end(world, source, target, rng)
        await _then_kill(world, rng)


async def _restore_source(world: SimulatedWorld, rng: random.Random) -> None:
    """Restore a source from a snapshot; half the time it grows again before a slot looks at it."""
    if (pair := _pair(world, rng)) is not None:
        source, _ = pair
        end = source.log.end

        def restore() -> None:
            world.source.restore(source, rng.randint(1, 30))
            world.note("source cut", f"{source.place} from {source.log.end} to {end}, restored")

        if rng.random() < 0.5:
            restore()
            await _then_kill(world, rng)
            return
        await _while_stopped(world, restore, rng)
        await _grow(world, source, rng)


async def _elect_forks(world: SimulatedWorld, rng: random.Random) -> None:
    """Elect a replica that has lost the end of the source's log, then one that has kept it."""
    if (pair := _pair(world, rng)) is not None:
        source, _ = pair
        _lose_source_end(world, source, rng)
        await _grow(world, source, rng)
        await asyncio.sleep(rng.uniform(0.0, 3.0))
        end = source.log.end
        world.source.rejoin(source)
        world.note("source cut", f"{source.place} until {end}, by the former replica")
        await _then_kill(world, rng)


async def _elect_target_forks(world: SimulatedWorld, rng: random.Random) -> None:
    """Do the same with a target."""
    if (pair := _pair(world, rng)) is not None:
        source, target = pair
        _lose_target_end(world, source, target, rng)
        await asyncio.sleep(rng.uniform(0.0, 6.0))
        end = target.log.end
        world.target.rejoin(target)
        world.note("target cut", f"{source.place} until {end}, by the former replica")
        await _then_kill(world, rng)


async def _grow(world: SimulatedWorld, source: Partition, rng: random.Random) -> None:
    """Write fast, so that the log is longer than it was."""
    habit = Habit(rng.randint(0, 12), most_records=4, pause_s=0.02, keys=1)
    await TopicWriter(world.source, source, habit).run()


async def _trim_source(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None:
        source, _ = pair
        log = source.log
        log.trim(rng.randint(log.start, log.high_watermark), world.loop.time())
        world.note("source trimmed", f"{source.place} to {log.start}")
        await _then_kill(world, rng)


async def _trim_target(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None:
        source, target = pair
        log = target.log
        log.trim(rng.randint(log.start, log.high_watermark), world.loop.time())
        world.note("target trimmed", f"{source.place} to {log.start}")
        await _then_kill(world, rng)


async def _compact_source(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None and world.is_keyed(pair[0].place.topic):
        source, _ = pair
        log = source.log
        if rng.random() < 0.5:
            world.kill_slot(str(rng.randrange(world.scenario.slots)), rng.choice((2.0, 6.0)))
            await asyncio.sleep(rng.uniform(0.0, 2.0))
        log.compact(rng.randint(log.start, log.high_watermark), world.loop.time())
        world.note("source compacted", f"{source.place}, {len(log.compacted)} records gone")
        await _then_kill(world, rng)


async def _compact_target(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None and world.is_keyed(pair[0].place.topic):
        source, target = pair
        log = target.log
        log.compact(rng.randint(log.start, log.high_watermark), world.loop.time())
        world.note("target compacted", f"{source.place}, {len(log.compacted)} records gone")
        await _then_kill(world, rng)


async def _lose_map(world: SimulatedWorld, rng: random.Random) -> None:
    """Destroy the whole map while no replicator runs."""
    await _while_stopped(world, lambda: damage.lose_map(world, lambda _: True, "map lost"), rng)


async def _lose_last_block(world: SimulatedWorld, rng: random.Random) -> None:
    def lose() -> None:
        if (pair := _pair(world, rng)) is not None:
            damage.lose_last_block(world, pair[0].place)

    await _while_stopped(world, lose, rng)


async def _lose_block(world: SimulatedWorld, rng: random.Random) -> None:
    def lose() -> None:
        if (pair := _pair(world, rng)) is not None:
            damage.lose_block(world, pair[0].place, rng)

    await _while_stopped(world, lose, rng)


async def _contradict(world: SimulatedWorld, rng: random.Random) -> None:
    def contradict() -> None:
        if (pair := _pair(world, rng)) is not None:
            damage.contradict(world, pair[0].place)

    await _while_stopped(world, contradict, rng)


async def _lose_reports(world: SimulatedWorld, rng: random.Random) -> None:
    await _while_stopped(world, lambda: damage.lose_reports(world), rng)


async def _lose_index(world: SimulatedWorld, rng: random.Random) -> None:
    await _while_stopped(world, lambda: damage.lose_index(world), rng)


async def _while_stopped(
    world: SimulatedWorld, do_damage: Callable[[], None], rng: random.Random
) -> None:
    for worker in world.others:
        worker.process.kill()
    while any(worker.process.alive for worker in world.workers.values()):
        for slot in list(world.workers):
            world.kill_slot(slot, rng.uniform(1.0, 3.0))
        await asyncio.sleep(0.5)  # what was under way has arrived
    do_damage()


async def _foreign_record(world: SimulatedWorld, rng: random.Random) -> None:
    if (pair := _pair(world, rng)) is not None and pair[1].leader is not None:
        _, target = pair
        data = foreign_batch(world.loop.now_ms())
        target.log.append(data, world.loop.time(), world.loop.now_ms())
        world.target.replicate(target)
        world.note("foreign record", f"{pair[0].place} at {target.log.end - 1}")
    await asyncio.sleep(0)


UNKIND: Final[dict[str, Play]] = {
    "truncate source": _truncate_source,
    "truncate target": _truncate_target,
    "trim source": _trim_source,
    "trim target": _trim_target,
    "compact source": _compact_source,
    "compact target": _compact_target,
    "lose map": _lose_map,
    "lose last block": _lose_last_block,
    "lose a block": _lose_block,
    "lose index": _lose_index,
    "contradict": _contradict,
    "lose reports": _lose_reports,
    "foreign record": _foreign_record,
}

DIVERGING: Final[dict[str, Play]] = {
    "restore source": _restore_source,
    "elect forks": _elect_forks,
    "elect target forks": _elect_target_forks,
}
"""Logs that diverge from what was read of them, which one leader epoch cannot show."""

# ----- what an operator does as an unplanned move would


async def _seal(world: SimulatedWorld, rng: random.Random) -> None:
    """Pause the flow, seal its copies, and resume it; no copy grows in between."""
    acts = [kind for _, kind, _ in world.events if kind in ("pauses", "resumed")]
    if acts[-1:] == ["pauses"]:
        return  # another operator is at work
    world.note("pauses")
    wire = SimulatedWire(world.target, world.coordinator, Network())
    loop = world.loop

    async def operate() -> None:
        await _as_driver(world, lambda log: pausing.pause(log, Pause("", "operator", "test", 1)))
        copies = list(world.target.partitions())
        for copy in copies:
            await _until_done(_seal_one, world, wire, copy)
        sealed = {copy: _end_of_copy(world, copy) for copy in copies}
        world.note("sealed")
        habit = Habit(rng.choice((0, 3)), most_records=2, pause_s=0.5, keys=1)
        await asyncio.gather(
            *(TopicWriter(world.source, p, habit).run() for p in _some(world, rng))
        )
        await asyncio.sleep(rng.choice((0.5, 6.0, 20.0)))
        for copy, end in sealed.items():
            if copy.log.cut_at is None and _end_of_copy(world, copy) > end:
                world.problems.append(f"{copy.place}: a sealed copy has grown")
        await _as_driver(world, pausing.resume)
        world.note("resumed")

    await loop.create_task(operate(), context=loop.in_process(Process("operator")))


async def _seal_deaf(world: SimulatedWorld, rng: random.Random) -> None:
    """Do the same while one slot reaches both clusters, but hears nothing of its assignment."""
    slot = str(rng.randrange(world.scenario.slots))
    world.note("deaf", f"slot {slot}")
    world.store.deaf.add(slot)
    try:
        await _seal(world, rng)
    finally:
        world.store.deaf.discard(slot)


async def _as_driver(world: SimulatedWorld, act: Callable[[DriverLog], object]) -> None:
    async def once() -> None:
        log = SimulatedDriverLog(world.store, P_TO_B, world.epochs)
        await world.loop.run_in_executor(None, act, log)

    await _until_done(once)


async def _until_done(attempt: Callable[..., Any], *args: Any) -> None:
    done = False
    while not done:
        try:
            await attempt(*args)
            done = True
        except SrmError:
            await asyncio.sleep(_AGAIN_S)


async def _seal_one(world: SimulatedWorld, wire: SimulatedWire, copy: Partition) -> None:
    place = TopicPartition(copy.place.topic, copy.place.partition)
    topic_id = topic_id_bytes(world.target.topics[place.topic].id_text)
    await seal(LogReader(wire, place, topic_id, read_committed=False), P_TO_B)


def _some(world: SimulatedWorld, rng: random.Random) -> list[Partition]:
    """Return partitions of the source; the others stay idle."""
    return [partition for partition in world.source.partitions() if rng.random() < 0.5]


def _end_of_copy(world: SimulatedWorld, copy: Partition) -> int:
    """Return the offset after the last record that a slot wrote into a copy."""
    ours = (
        batch.last + 1
        for batch in reversed(copy.log.history)
        if not batch.is_control and batch.producer_id in world.coordinator.claimed
    )
    return next(ours, 0)


SEALED: Final[dict[str, Play]] = {"seal": _seal, "seal deaf": _seal_deaf}
"""Effects of an unplanned move on the flow; drawn only if named."""


def _any_partition(
    world: SimulatedWorld, rng: random.Random
) -> tuple[SimulatedCluster, Partition] | None:
    cluster = rng.choice((world.source, world.target))
    found = [p for p in cluster.partitions() if p.leader is not None]
    return (cluster, rng.choice(found)) if found else None
