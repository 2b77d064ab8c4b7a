"""Substitutes for threads, locks and chance in modules of the product while a world lives."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from greenlet import getcurrent  # type: ignore[import-untyped]

from srm.domain.flow_state import slot_records
from srm.replication import report
from srm.replication.driver import driver
from srm_lab.testing.simulation.loop import SimulatedLoop, resolve


class SimulatedEvent:
    """threading.Event for code that runs in a simulated loop."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._is_set = False
        self._waiting: list[Future[bool]] = []

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake all waiting threads."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            resolve(future, True)  # noqa: FBT003

    def wait(self, timeout: float | None = None) -> bool:
        """Block until it is set, or the time is over."""
        if not self._is_set:
            future: Future[bool] = self._loop.create_future()
            self._waiting.append(future)
            if timeout is not None:
                self._loop.call_later(timeout, resolve, future, False)  # noqa: FBT003
            self._loop.block_on(future)
        return self._is_set


class SimulatedThreads:
    """Replaces ``threading`` in a module of the product."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def Event(self) -> SimulatedEvent:  # noqa: N802 - as threading has it
        """Return an event."""
        return SimulatedEvent(self._loop)

    def Thread(  # noqa: N802 - as threading has it
        self, target: Callable[..., Any], args: tuple[Any, ...] = (), **_: Any
    ) -> SimulatedThread:
        """Return a thread, not yet started."""
        return SimulatedThread(self._loop, target, args)

    def RLock(self) -> SimulatedRLock:  # noqa: N802 - as threading has it
        """Return a lock."""
        return SimulatedRLock(self._loop)


class SimulatedRLock:
    """threading.RLock whose owners are greenlets: all that are asleep at once share a thread."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self._owner: object = None
        self._depth = 0
        self._waiting: list[Future[None]] = []

    def __enter__(self) -> None:
        """Take it, waiting until it is free."""
        while self._owner not in (None, getcurrent()):
            free: Future[None] = self._loop.create_future()
            self._waiting.append(free)
            self._loop.block_on(free)
        self._owner = getcurrent()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        self._depth -= 1
        if not self._depth:
            self._owner = None
            waiting, self._waiting = self._waiting, []
            for free in waiting:
                resolve(free, None)


class SimulatedThread:
    """threading.Thread as a greenlet."""

    def __init__(
        self, loop: SimulatedLoop, target: Callable[..., Any], args: tuple[Any, ...]
    ) -> None:
        self._loop = loop
        self._call = target, args
        self._ended = SimulatedEvent(loop)

    def start(self) -> None:
        """Run it."""
        target, args = self._call

        def body() -> None:
            try:
                target(*args)
            finally:
                self._ended.set()

        self._loop.run_in_executor(None, body)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""
        self._ended.wait(timeout)


class _Secrets:
    """Replaces ``secrets`` in a module of the product."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def token_hex(self, count: int) -> str:
        """Return chance that a seed repeats."""
        return self._loop.rng.randbytes(count).hex()


@contextmanager
def simulated_threads(loop: SimulatedLoop) -> Iterator[None]:
    """Let threads, locks and chance of the product be those of the simulated world."""
    threads = SimulatedThreads(loop)
    places: list[tuple[Any, str, object]] = [
        (driver, "threading", threads),
        (report, "threading", threads),
        (slot_records, "secrets", _Secrets(loop)),
    ]
    before = [vars(module)[name] for module, name, _ in places]
    for module, name, simulated in places:
        setattr(module, name, simulated)
    try:
        yield
    finally:
        for (module, name, _), was in zip(places, before, strict=True):
            setattr(module, name, was)
