"""Virtual time, processes that are killed or asleep, and calls that block in it."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from srm.clock import now_s
from srm_lab.testing.simulation.loop import (
    DeadlockError,
    Process,
    SimulatedLoop,
    simulated_loop,
)
from srm_lab.testing.simulation.threads import SimulatedEvent


def test_an_hour_of_virtual_time_passes_at_once() -> None:
    async def sleep() -> float:
        began = now_s()
        await asyncio.sleep(3600)
        return now_s() - began

    began = time.process_time()
    with simulated_loop(1) as loop:
        assert loop.run_until_complete(sleep()) == pytest.approx(3600)
    assert time.process_time() - began < 60


def test_a_world_in_which_nothing_can_happen_any_more_is_an_error() -> None:
    with simulated_loop(1) as loop, pytest.raises(DeadlockError):
        loop.run_until_complete(loop.create_future())


async def _ticks(seen: list[float]) -> None:
    try:
        while True:
            await asyncio.sleep(1.0)
            seen.append(now_s() - 1000)
    finally:
        seen.append(-1.0)


def _run_with(loop: SimulatedLoop, process: Process, seen: list[float], *steps: object) -> None:
    async def world() -> None:
        loop.create_task(_ticks(seen), context=loop.in_process(process))
        for step in steps:
            await asyncio.sleep(2.5)
            step()  # type: ignore[operator]
        await asyncio.sleep(2.5)

    loop.run_until_complete(world())


def test_a_process_that_is_killed_ends_where_it_stands() -> None:
    seen: list[float] = []
    with simulated_loop(1) as loop:
        process = Process("victim")
        _run_with(loop, process, seen, process.kill)
        assert seen == [1.0, 2.0]


def test_what_was_killed_is_collected_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    with simulated_loop(1) as loop:
        process = Process("victim")
        _run_with(loop, process, [], process.kill)
    del loop, process

    gc.collect()

    assert not caplog.records


def test_a_process_that_is_asleep_finds_its_timers_due_when_it_wakes_up() -> None:
    seen: list[float] = []
    with simulated_loop(1) as loop:
        process = Process("sleeper")

        def sleep() -> None:
            process.asleep = True

        _run_with(loop, process, seen, sleep, lambda: loop.wake(process))
        assert seen == [1.0, 2.0, 5.0, 6.0, 7.0]


def test_a_blocking_call_lets_the_loop_go_on_until_its_time_has_come() -> None:
    seen: list[str] = []

    def blocking(loop: SimulatedLoop, event: SimulatedEvent) -> bool:
        seen.append("begun")
        loop.pause(2.0)
        seen.append("paused")
        return event.wait(5.0)

    async def world(loop: SimulatedLoop) -> None:
        event = SimulatedEvent(loop)
        call = loop.run_in_executor(None, blocking, loop, event)
        await asyncio.sleep(1.0)
        seen.append("meanwhile")
        await asyncio.sleep(2.0)
        event.set()
        assert await call
        assert now_s() == pytest.approx(1003)

    with simulated_loop(1) as loop:
        loop.run_until_complete(world(loop))
    assert seen == ["begun", "meanwhile", "paused"]
