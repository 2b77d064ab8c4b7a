"""Slots as processes, and the driver's part: who copies what.

A slot that ends is started again, as Spark starts a failed job again. Processes come from a fork
server that has imported everything, as they come from Spark's worker daemon.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from tests.integration.copying import CopyLab

from srm.config.model import ClusterClients
from srm.domain.flow_state.replication_records import AssignedPartition, PartitionPosition
from srm.domain.offset_map.map_records import CopyId
from srm.replication.copy.slot import SlotSpec
from srm.spark.slot import run_slot

_CONTEXT: Final = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["srm.spark.slot", "tests.faults.campaign.slots"])
_WATCH_S: Final = 0.2


def _work(spec: SlotSpec, log: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s {os.getpid()} %(levelname)s %(name)s %(message)s",
    )
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    run_slot(spec, threading.Event())


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Slots:
    """The slots of one seed. Not for two threads at once, but for :meth:`watch`.

    ``target`` is what they need to come to the target, where it is not what the lab uses.
    """

    def __init__(
        self, lab: CopyLab, count: int, home: Path, target: Mapping[str, str] | None = None
    ) -> None:
        self.names = [str(number) for number in range(count)]
        self.held: dict[str, set[AssignedPartition]] = {name: set() for name in self.names}
        self._untold: dict[str, set[AssignedPartition]] = {}
        self._lab = lab
        self._home = home
        self._target = target
        self._wanted: set[str] = set()
        self._processes: dict[str, BaseProcess] = {}
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    # ----- processes

    def start_all(self) -> None:
        for name in self.names:
            self.start(name)
        if not self._watcher.is_alive():
            self._watcher.start()

    def start(self, name: str) -> None:
        with self._lock:
            self._wanted.add(name)
            process = self._processes.get(name)
            if process is not None and process.is_alive():
                return
            process = _CONTEXT.Process(
                target=_work, args=(self._spec(name), self._home / f"slot-{name}.log")
            )
            process.daemon = True
            process.start()
            self._processes[name] = process

    def _spec(self, name: str) -> SlotSpec:
        spec = self._lab.spec(name)
        if self._target is None:
            return spec
        return replace(spec, target=ClusterClients.alike(self._target))

    def kill(self, name: str) -> None:
        with self._lock:
            self._wanted.discard(name)
            self.signal(name, signal.SIGKILL)
            self._processes[name].join(60)

    def signal(self, name: str, number: int) -> None:
        pid = self._processes[name].pid
        if pid is not None and self._processes[name].is_alive():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def wake_all(self) -> None:
        for name in self.names:
            self.signal(name, signal.SIGCONT)

    def close(self) -> None:
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for name in list(self._processes):
            self.kill(name)

    def _watch(self) -> None:
        while not self._ended.wait(_WATCH_S):
            with self._lock:
                for name in self._wanted:
                    self.start(name)

    # ----- assignments

    def spread(self, partitions: Iterable[AssignedPartition]) -> None:
        """Give new partitions to the slots in turn."""
        for partition in sorted(partitions):
            poorest = min(self.names, key=lambda name: len(self.held[name]))
            self.held[poorest].add(partition)

    def replace(self, old: Iterable[AssignedPartition], new: Iterable[AssignedPartition]) -> None:
        """Take partitions away and spread others."""
        gone = set(old)
        for held in self.held.values():
            held.difference_update(gone)
        self.spread(new)

    def heirs(self, name: str) -> set[AssignedPartition]:
        """Hand everything a slot has to the next one, and return it."""
        moved, self.held[name] = self.held[name], set()
        heir = self.names[(self.names.index(name) + 1) % len(self.names)]
        self.held[heir] |= moved
        return moved

    def keep_untold(self, name: str) -> None:
        """Publish to the slot what it has now until :meth:`tell`, whatever moves meanwhile."""
        self._untold.setdefault(name, set(self.held[name]))

    def tell(self, name: str) -> None:
        self._untold.pop(name, None)

    def publish(self) -> None:
        """Publish every slot's assignment, as the driver would."""
        for name in self.names:
            self._lab.assign(name, sorted(self._untold.get(name, self.held[name])))

    def holder(self, partition: AssignedPartition) -> str:
        return next(name for name in self.names if partition in self.held[name])

    # ----- what they report

    def positions(self) -> dict[CopyId, list[tuple[str, PartitionPosition]]]:
        """Return all reported positions with their slots."""
        found: dict[CopyId, list[tuple[str, PartitionPosition]]] = {}
        for report in self._lab.reports():
            for entry in report.positions:
                found.setdefault(entry.copy_id, []).append((report.slot, entry))
        return found
