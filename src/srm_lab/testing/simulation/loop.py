"""An event loop with virtual time: it never waits, it only says that time has passed.

Handles belong to a *process* of the simulated world (by a context variable, which tasks, timers and
callbacks inherit). A process that is asleep gets its handles when it wakes up; one that is dead
never does: no ``finally`` runs, as with kill -9.

Calls that block (``run_in_executor``, threads) run as greenlets: where a simulated port has to
wait, it gives control back to the loop until its future is done.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import random
from asyncio import Future
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet  # type: ignore[import-untyped]

from srm import clock

T = TypeVar("T")

START_S = 1000.0
"""Time of the clock at the start of a world."""
MOST_STEPS = 400_000
EPOCH_MS = 1_700_000_000_000


@dataclass(eq=False)
class Process:
    """Something that can be killed, or stopped and continued, as a whole."""

    name: str
    alive: bool = True
    asleep: bool = False
    parked: list[asyncio.Handle] = field(default_factory=list)

    def kill(self) -> None:
        """End it at its current point."""
        self.alive = False


_process: ContextVar[Process | None] = ContextVar("process", default=None)


class _Task(asyncio.Task[Any]):
    """A task whose place in a set does not depend on where it lies in memory."""

    _numbers = 0

    def __new__(cls, *_: Any, **__: Any) -> Self:
        task = super().__new__(cls)
        _Task._numbers += 1
        task._place = _Task._numbers  # type: ignore[attr-defined]
        return task

    def __hash__(self) -> int:
        return int(self._place)  # type: ignore[attr-defined]


class DeadlockError(RuntimeError):
    """Nothing will ever happen again."""


class EndlessError(RuntimeError):
    """Something goes round in circles."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs one world; not for threads."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        _Task._numbers = 0  # noqa: SLF001
        self.rng = rng
        self.steps = 0
        self._now = START_S
        self._timers: list[tuple[float, Any]] = []
        self._main = getcurrent()
        self._world = Context()
        # Held to the end: a task that is collected runs its ``finally``, at a moment of chance.
        self._held: list[object] = []
        self.set_task_factory(self._new_task)

    def _new_task(self, _loop: object, work: Any, **settings: Any) -> asyncio.Task[Any]:
        task = _Task(work, loop=self, **settings)
        self._held.append(task)
        return task

    def abandon(self) -> None:
        """Forget the unfinished work: killed work never ends, and no caller is to be notified."""
        for held in self._held:
            if isinstance(held, _Task):
                held._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001 -- asyncio's
        self._held.clear()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def now_ms(self) -> int:
        """Return the virtual time as epoch milliseconds."""
        return EPOCH_MS + round(self._now * 1000)

    # A world calls these all the time, so they are shorter than those of asyncio.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """See asyncio."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, timer))
        return timer

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and timers[0][1]._cancelled:  # noqa: SLF001
            heapq.heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise DeadlockError("nothing is left to happen")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[1])
        for _ in range(len(ready)):
            if not ready:  # a process that blocks its own loop has run the rest
                break
            handle = ready.popleft()
            if handle._cancelled:  # noqa: SLF001
                continue
            process = handle._context.get(_process)  # noqa: SLF001
            if process is not None and (process.asleep or not process.alive):
                process.parked.append(handle)
                continue
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise EndlessError(f"{self.steps} steps by {self._now - START_S:.1f} s")
            handle._run()  # noqa: SLF001

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when their time has come."""

    def _write_to_self(self) -> None:
        """Do nothing: there is one thread, and no other to wake up."""

    # ----- processes

    def in_process(self, process: Process) -> Context:
        """Return a context whose tasks and timers belong to a process."""
        context = Context()
        context.run(_process.set, process)
        return context

    def wake(self, process: Process) -> None:
        """Let a process that is asleep go through all it has missed."""
        process.asleep = False
        parked, process.parked = process.parked, []
        self._ready.extend(parked)  # type: ignore[attr-defined]

    def world_later(self, delay_s: float, call: Callable[..., object], *args: Any) -> None:
        """Call something of the world outside the processes, which is never killed."""
        self.call_later(delay_s, call, *args, context=self._world.copy())

    def world_task(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task of the world outside the processes."""
        return self.create_task(work, context=self._world.copy())

    # ----- calls that block

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, func: Callable[..., T], *args: Any
    ) -> Future[T]:
        """Run a blocking call as a greenlet; it starts at once, in its turn."""
        result: Future[T] = self.create_future()

        def body() -> None:
            try:
                value = func(*args)
            except GreenletExit:
                return
            except BaseException as error:  # noqa: BLE001 - it belongs to the waiting caller
                if not result.done():
                    result.set_exception(error)
            else:
                if not result.done():
                    result.set_result(value)

        call = greenlet(body, self._main)
        self._held.append(call)
        call.gr_context = copy_context()
        self.call_soon(call.switch)
        return result

    def block_on(self, future: Future[T]) -> T:
        """Wait inside a blocking call."""
        call = getcurrent()
        if call is self._main:
            self._block_all(future)
        elif not future.done():
            future.add_done_callback(lambda _: call.switch())
            self._main.switch()
        return future.result()

    def _block_all(self, future: Future[Any]) -> None:
        """Wait where a process blocks its own loop: the rest of the world lives on."""
        task = asyncio.current_task(self)
        if task is not None:
            asyncio.tasks._leave_task(self, task)  # noqa: SLF001
        while not future.done():
            self._run_once()
        if task is not None:
            asyncio.tasks._enter_task(self, task)  # noqa: SLF001

    def pause(self, seconds: float) -> None:
        """Let time pass inside a blocking call."""
        done: Future[None] = self.create_future()
        self.call_later(seconds, resolve, done, None)
        self.block_on(done)


def resolve(future: Future[T], value: T) -> None:
    """Set a result, unless the waiting caller has cancelled it."""
    if not future.done():
        future.set_result(value)


@contextmanager
def simulated_loop(seed: int) -> Iterator[SimulatedLoop]:
    """Give a loop that is the process's clock and source of chance while the block runs."""
    before = random.getstate()
    gc.disable()  # a collection in the middle of it costs time and changes nothing
    loop = SimulatedLoop(random.Random(seed))  # noqa: S311 - to be repeated, not to be secret
    random.seed(seed)
    try:
        with clock.using(loop.time):
            yield loop
    finally:
        random.setstate(before)
        loop.abandon()
        loop.close()
        gc.enable()
