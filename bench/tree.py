"""CPU seconds and memory of a process and all its descendants."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

import psutil

from srm_lab.processes import is_worker

_SAMPLE_S: Final = 1.0


class Tree:
    """CPU time and memory of a process tree, including the time of processes that have ended."""

    def __init__(self, pid: int) -> None:
        self.root = psutil.Process(pid)
        self._seen: dict[tuple[int, float], tuple[str, float]] = {}

    def processes(self) -> list[psutil.Process]:
        """Return the running processes."""
        try:
            return [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def cpu_seconds(self) -> float:
        """Return user and system seconds so far."""
        return sum(self.cpu_by_name().values())

    def cpu_by_name(self) -> Mapping[str, float]:
        """Return user and system seconds so far, by the kind of process."""
        for process in self.processes():
            try:
                times = process.cpu_times()
                key = (process.pid, process.create_time())
                name = self._seen[key][0] if key in self._seen else kind(process)
            except psutil.Error:
                continue
            self._seen[key] = (name, _seconds(times))
        totals: defaultdict[str, float] = defaultdict(float)
        for name, seconds in self._seen.values():
            totals[name] += seconds
        return totals

    def memory_by_name(self) -> Mapping[str, float]:
        """Return megabytes (PSS: shared pages count once in all) by the kind of process."""
        totals: defaultdict[str, float] = defaultdict(float)
        for process in self.processes():
            try:
                totals[kind(process)] += process.memory_full_info().pss / 1e6
            except psutil.Error:
                continue
        return totals

    def memory(self) -> float:
        """Return megabytes (PSS) of all processes."""
        return sum(self.memory_by_name().values())


def cpu_seconds(process: psutil.Process) -> float:
    """Return user and system seconds of one process so far."""
    return _seconds(process.cpu_times())


def _seconds(times: Any) -> float:
    return float(times.user + times.system)


def come_to_rest(
    used_seconds: Callable[[], float], cores: float, limit_s: float, look_s: float
) -> None:
    """Wait until fewer than ``cores`` are used during a look, or until the limit.

    Args:
        used_seconds: returns CPU seconds so far.
        cores: limit for idle.
        limit_s: maximum wait.
        look_s: seconds of a look.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        began, before = time.monotonic(), used_seconds()
        time.sleep(look_s)  # time in which usage is measured
        if (used_seconds() - before) / (time.monotonic() - began) < cores:
            return


def kind(process: psutil.Process) -> str:
    """Return the role of a process: ``java``, ``worker`` of Spark, or ``driver``."""
    if process.name() == "java":
        return "java"
    try:
        return "worker" if is_worker(process) else "driver"
    except psutil.ZombieProcess:  # its command line is gone
        return "driver"


class PeakMemory:
    """Peak memory of a tree while the body runs, sampled once a second."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bench memory", daemon=True)
        self.megabytes = 0.0

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_S):
            self.megabytes = max(self.megabytes, self._tree.memory())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.megabytes = max(self.megabytes, self._tree.memory())
