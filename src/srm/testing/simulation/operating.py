"""An operator pauses a flow, seals its copies and lets it copy again, as an unplanned move does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from srm.domain.map_records import topic_id_bytes
from srm.domain.pause import Pause
from srm.domain.topics import TopicPartition
from srm.errors import SrmError
from srm.replication.driver import pausing
from srm.replication.driver.driver_log import DriverLog
from srm.replication.slot.claim import take
from srm.replication.slot.log_reader import LogReader
from srm.replication.slot.marker import until_in_force
from srm.testing.flows import P_TO_B
from srm.testing.simulation.cluster import Partition
from srm.testing.simulation.connection import Network
from srm.testing.simulation.loop import Process
from srm.testing.simulation.state import SimulatedDriverLog
from srm.testing.simulation.wire import SimulatedWire
from srm.testing.simulation.workload import Habit, Writer

if TYPE_CHECKING:
    from srm.testing.simulation.world import World

_LIFETIME_S: Final = 10.0
_AGAIN_S: Final = 1.0


async def seal_for_a_while(world: World, rng: random.Random) -> None:
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
            await _until_done(_seal, world, wire, copy)
        sealed = {copy: _copied(world, copy) for copy in copies}
        world.note("sealed")
        habit = Habit(rng.choice((0, 3)), most_records=2, pause_s=0.5, keys=1)
        await asyncio.gather(*(Writer(world.source, p, habit).run() for p in _some(world, rng)))
        await asyncio.sleep(rng.choice((0.5, 6.0, 20.0)))
        for copy, end in sealed.items():
            if copy.log.cut_at is None and _copied(world, copy) > end:
                world.problems.append(f"{copy.place}: a sealed copy has grown")
        await _as_driver(world, pausing.resume)
        world.note("resumed")

    await loop.create_task(operate(), context=loop.in_process(Process("operator")))


async def seal_while_one_is_deaf(world: World, rng: random.Random) -> None:
    """Do the same while one slot reaches both clusters, but hears nothing of its assignment."""
    slot = str(rng.randrange(world.scenario.slots))
    world.note("deaf", f"slot {slot}")
    world.store.deaf.add(slot)
    try:
        await seal_for_a_while(world, rng)
    finally:
        world.store.deaf.discard(slot)


async def _as_driver(world: World, act: Callable[[DriverLog], object]) -> None:
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


async def _seal(world: World, wire: SimulatedWire, copy: Partition) -> None:
    place = TopicPartition(copy.place.topic, copy.place.partition)
    _, end = await wire.log_range(place)
    claim = await take(wire, P_TO_B, place, _LIFETIME_S)
    topic_id = topic_id_bytes(world.target.topics[place.topic].id_text)
    await until_in_force(LogReader(wire, place, topic_id, read_committed=False), end, claim)


def _some(world: World, rng: random.Random) -> list[Partition]:
    """Return partitions of the source; the others stay idle."""
    return [partition for partition in world.source.partitions() if rng.random() < 0.5]


def _copied(world: World, copy: Partition) -> int:
    """Return the offset after the last record that a slot wrote into a copy."""
    ours = (
        batch.last + 1
        for batch in reversed(copy.log.history)
        if not batch.is_control and batch.producer_id in world.coordinator.claimed
    )
    return next(ours, 0)
