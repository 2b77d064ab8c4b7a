"""Slots and brokers are killed and stopped in mid copy: both copies end equal, nothing twice."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import pytest
from tests.conftest import BrokerFactory
from tests.integration.copying import CopyLab
from tests.waiting import DEADLINE_S, eventually

from srm.domain.replication_records import AssignedPartition
from srm.replication.slot.slot import SlotSpec
from srm.spark.slot import run_slot
from srm.stack.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(900)]

SPAWN = multiprocessing.get_context("spawn")
MOST_ON_THE_WAY = 5_000


def _run(spec: SlotSpec) -> None:
    run_slot(spec, threading.Event())


def _start(lab: CopyLab, slot: str) -> BaseProcess:
    process = SPAWN.Process(target=_run, args=(lab.spec(slot),), daemon=True)
    process.start()
    return process


def _kill(process: BaseProcess) -> None:
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join(DEADLINE_S)


class Load:
    """A producer that goes on until the block ends."""

    def __init__(self, lab: CopyLab, topic: str, partitions: int) -> None:
        self._lab = lab
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self.sent = 0

    def _work(self) -> None:
        producer = self._lab.producer(**{"enable.idempotence": True})
        while not self._stop.is_set():
            for _ in range(50):
                partition = self.sent % self._partitions
                producer.produce(self._topic, f"{self.sent}".encode() * 20, partition=partition)
                self.sent += 1
            producer.poll(0)
            while len(producer) > MOST_ON_THE_WAY and not self._stop.is_set():
                producer.poll(0.1)  # the broker is not faster, or away
            self._stop.wait(0.02)
        assert producer.flush(DEADLINE_S) == 0

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(2 * DEADLINE_S)

    def at_least(self, more: int) -> None:
        """Wait until so many more records were sent."""
        goal = self.sent + more
        eventually(lambda: self.sent >= goal, f"{goal} records sent")


def _progressed(lab: CopyLab, partitions: Sequence[AssignedPartition]) -> int:
    positions: dict[tuple[str, int], int] = {}
    for report in lab.reports():
        for entry in report.positions:
            key = (entry.topic_id, entry.partition)
            positions[key] = max(positions.get(key, 0), entry.position.source_next)
    return sum(positions.get((p.topic_id, p.partition), 0) for p in partitions)


def test_a_slot_killed_again_and_again_loses_and_repeats_nothing(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    seed = int(os.environ.get("SRM_FAULT_SEED", "1"))
    chance = random.Random(seed)
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    partitions = lab.topic(2)
    lab.assign("0", partitions)
    load = Load(lab, partitions[0].topic, 2)
    with load.running():
        for _ in range(4):
            before = _progressed(lab, partitions)
            slot = _start(lab, "0")
            eventually(lambda b=before: _progressed(lab, partitions) > b, "the slot copies")
            load.at_least(chance.randrange(50, 3000))
            _kill(slot)
    slot = _start(lab, "0")
    lab.wait_until_copied(partitions)
    _kill(slot)

    lab.assert_equal(partitions)


def test_a_stopped_slot_that_wakes_up_after_its_partitions_moved_writes_nothing(
    clusters: Mapping[str, KafkaBroker],
) -> None:
    lab = CopyLab(clusters["P"].bootstrap, clusters["B"].bootstrap)
    partitions = lab.topic(2)
    lab.assign("0", partitions)
    load = Load(lab, partitions[0].topic, 2)
    zombie, heir = _start(lab, "0"), _start(lab, "1")
    try:
        with load.running():
            eventually(lambda: _progressed(lab, partitions) > 0, "the first slot copies")
            assert zombie.pid is not None
            os.kill(zombie.pid, signal.SIGSTOP)
            lab.assign("0", [])
            lab.assign("1", partitions)
            before = _progressed(lab, partitions)
            eventually(lambda: _progressed(lab, partitions) > before + 500, "the heir copies")
            os.kill(zombie.pid, signal.SIGCONT)
            load.at_least(2000)
        lab.wait_until_copied(partitions)
    finally:
        _kill(zombie)
        _kill(heir)

    lab.assert_equal(partitions)


def test_the_target_broker_killed_in_mid_copy_is_caught_up_with(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory
) -> None:
    target = broker_factory("B")
    lab = CopyLab(clusters["P"].bootstrap, target.bootstrap)
    partitions = lab.topic(2)
    lab.assign("0", partitions)
    load = Load(lab, partitions[0].topic, 2)
    slot = _start(lab, "0")
    try:
        with load.running():
            eventually(lambda: _progressed(lab, partitions) > 0, "the slot copies")
            target.kill()
            load.at_least(1000)
            target.start()
            target.wait_ready()
            load.at_least(1000)
        lab.wait_until_copied(partitions)
    finally:
        _kill(slot)

    lab.assert_equal(partitions)
