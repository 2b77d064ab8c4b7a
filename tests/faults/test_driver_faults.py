"""The driver is killed, with slots and without, in the middle of what it does."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from tests.faults.campaign import checker
from tests.faults.campaign.history import TopicHistory
from tests.replicating import at_work, configure, driver_of, is_copied, slot_of
from tests.waiting import DEADLINE_S, eventually

from srm.config.loader import load_config
from srm.domain.flow_state.replication_records import AssignedPartition
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.map_reader import KafkaMapReader
from srm.engine.ports import FlowContext
from srm.spark.slot import run_slot
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log, read_logs

pytestmark = [pytest.mark.kafka, pytest.mark.faults, pytest.mark.timeout(1500)]

SPAWN = multiprocessing.get_context("spawn")
SLOTS = ("0", "1")
IMPATIENT = {"refresh_s": 0.5, "slot_timeout_s": 5.0, "grace_s": 3.0}
"""Slots are killed here, and the others take their partitions over."""
COPIED_S = 300.0


def _drive(file: Path, flow: Flow, name: str) -> None:
    config = load_config(file)
    with open_flow(config, flow) as context:
        driver_of(context, slot_of(config, flow), name, slots=SLOTS, timing=IMPATIENT).run(
            threading.Event()
        )


def _copy(file: Path, flow: Flow, slot: str) -> None:
    run_slot(slot_of(load_config(file), flow, slot), threading.Event())


class Processes:
    """A driver and its slots, each to be killed by name."""

    def __init__(self, file: Path, flow: Flow) -> None:
        self._start: dict[str, Callable[[], BaseProcess]] = {
            f"slot {slot}": lambda slot=slot: SPAWN.Process(target=_copy, args=(file, flow, slot))  # type: ignore[misc]
            for slot in SLOTS
        }
        self._start["driver"] = lambda: SPAWN.Process(
            target=_drive, args=(file, flow, uuid.uuid4().hex)
        )
        self._running: dict[str, BaseProcess] = {}

    def start(self, *names: str) -> None:
        for name in names or self._start:
            process = self._start[name]()
            process.daemon = True
            process.start()
            self._running[name] = process

    def kill(self, *names: str) -> None:
        for name in names or list(self._running):
            process = self._running.pop(name)
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
            process.join(DEADLINE_S)


@contextmanager
def _writing(servers: str, topic: str, partitions: list[int]) -> Iterator[None]:
    """Write to all partitions that the list has, until the block ends."""

    def work(over: threading.Event) -> None:
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "topic.metadata.refresh.interval.ms": 300,
            }
        )
        number = 0
        while not over.wait(0.01):
            for partition in partitions:
                with suppress(KafkaException):  # it has not heard of the partition yet
                    producer.produce(topic, b"%d" % number, partition=partition)
                    number += 1
            producer.poll(0)
        producer.flush(DEADLINE_S)

    with at_work(work):
        yield


def _damage(context: FlowContext, topic: str, servers: Mapping[str, str]) -> list[str]:
    flow, remote = context.config.flow, f"{context.config.flow.source}.{topic}"
    description, target_id = (
        context.source.topics()[topic],
        context.target.topics()[remote].topic_id,
    )
    partitions = [
        AssignedPartition(topic, number, description.topic_id, remote, target_id)
        for number in range(description.partitions)
    ]
    history = TopicHistory(topic, remote, partitions, compacted=False, remote_configs={})
    history.begin_life(partitions, same_target=True)
    places = [(topic, p.partition) for p in partitions]
    for (_, number), records in read_logs(servers[flow.source], places).items():
        history.life.take(number, records)
    maps = KafkaMapReader(context.target, context.source, flow).load([topic])
    return [
        problem
        for p in partitions
        for problem in checker.check_partition(
            history,
            p.partition,
            read_log(servers[flow.target], remote, p.partition),
            b"stranger ",
            [maps.get(TopicPartition(topic, p.partition))],
            [],
            policy="stop",
        ).problems
    ]


def test_a_driver_killed_again_and_again_loses_no_partition_and_no_record(
    clusters: Mapping[str, KafkaBroker], tmp_path: Path
) -> None:
    """Partitions are added, and slots killed, while there is no driver: the next one sees to it."""
    unique, chance = uuid.uuid4().hex[:6], random.Random(1)
    flow, topic = Flow(f"P{unique}", f"B{unique}"), f"orders{unique}"
    servers = {flow.source: clusters["P"].bootstrap, flow.target: clusters["B"].bootstrap}
    file = tmp_path / "srm.properties"
    config = configure(
        file,
        servers,
        f"topics = {topic}",
        f"tasks.max = {len(SLOTS)}",
        "heartbeats.replication.enabled = false",
    )
    processes, numbers = Processes(file, flow), [0, 1]
    with open_flow(config, flow) as context:
        context.source.create_topics([TopicSpec(topic, len(numbers), 1, {})])
        remote = f"{flow.source}.{topic}"

        def ends() -> dict[TopicPartition, int]:
            return context.target.log_ends([TopicPartition(remote, n) for n in numbers])

        def grows() -> None:
            before: dict[TopicPartition, int] = {}

            def all_have_grown() -> bool:
                now = ends()
                before.update({place: end for place, end in now.items() if place not in before})
                return len(now) == len(numbers) and all(now[p] > before[p] for p in now)

            eventually(all_have_grown, "every partition is copied", COPIED_S)

        try:
            processes.start()
            with _writing(servers[flow.source], topic, numbers):
                grows()
                for _ in range(3):
                    processes.kill("driver")
                    number = len(numbers)
                    context.source.create_partitions({topic: number + 1})
                    numbers.append(number)
                    victim = f"slot {chance.choice(SLOTS)}"
                    processes.kill(victim)
                    processes.start("driver")
                    if chance.random() < 0.5:  # it meets one slot, or both
                        grows()
                    processes.start(victim)
                    grows()
            eventually(lambda: is_copied(context, topic), "everything is copied", COPIED_S)
        finally:
            processes.kill()

        assert _damage(context, topic, servers) == []
