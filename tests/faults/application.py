"""The whole Spark application on a topic that grows, to be killed in parts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.waiting import eventually

from srm.engine.ports import TopicSpec
from srm.kafka.cluster import KafkaCluster
from srm.stack.kafka import KafkaBroker
from srm.testing.logs import first_difference, read_log

PARTITIONS = 2
START_S = 150.0


class Application:
    """``srm replicate`` as a user starts it, both flows at once, four slots in all."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], home: Path) -> None:
        unique = uuid.uuid4().hex[:6]
        self.source, self.target = clusters["P"].bootstrap, clusters["B"].bootstrap
        self.topic = f"pay{unique}"
        self.remote = f"P{unique}.{self.topic}"
        self.flows = [f"P{unique}->B{unique}", f"B{unique}->P{unique}"]
        self.home = home
        self.config = home / "srm.properties"
        self.config.write_text(
            f"clusters = P{unique}, B{unique}\n"
            f"P{unique}.bootstrap.servers = {self.source}\n"
            f"B{unique}.bootstrap.servers = {self.target}\n"
            f"P{unique}->B{unique}.enabled = true\n"
            f"B{unique}->P{unique}.enabled = true\n"
            f"topics = {self.topic}\n"
            "replication.factor = 1\n"
            "offset-syncs.topic.replication.factor = 1\n"
            "checkpoints.topic.replication.factor = 1\n"
            "heartbeats.topic.replication.factor = 1\n"
        )
        props = {"bootstrap.servers": self.source}
        with KafkaCluster("P", props, props, props) as cluster:
            cluster.create_topics([TopicSpec(self.topic, PARTITIONS, 1, {})])

    @contextmanager
    def running(self, *options: str) -> Iterator[psutil.Process]:
        flows = [part for flow in self.flows for part in ("--flow", flow)]
        srm = Path(sys.executable).parent / "srm"
        with (self.home / f"{uuid.uuid4().hex}.log").open("w") as log:
            process = subprocess.Popen(
                [srm, "replicate", "--config", self.config, *flows, *options],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                yield psutil.Process(process.pid)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(30)

    def copied(self) -> int:
        consumer = Consumer({"bootstrap.servers": self.target, "group.id": "x"})
        try:
            return sum(
                consumer.get_watermark_offsets(TopicPartition(self.remote, n), timeout=10)[1]
                for n in range(PARTITIONS)
            )
        except Exception:  # noqa: BLE001 - the remote topic does not exist yet
            return 0
        finally:
            consumer.close()

    def grows(self, by: int) -> None:
        """Wait until so many more records are copied."""
        goal = self.copied() + by
        eventually(lambda: self.copied() >= goal, f"{goal} records copied", START_S)

    def is_equal(self) -> bool:
        return all(
            first_difference(
                read_log(self.source, self.topic, n), read_log(self.target, self.remote, n)
            )
            is None
            for n in range(PARTITIONS)
        )


@contextmanager
def load(application: Application) -> Iterator[None]:
    stop = threading.Event()

    def work() -> None:
        producer = Producer({"bootstrap.servers": application.source, "enable.idempotence": True})
        number = 0
        while not stop.wait(0.01):
            for _ in range(20):
                producer.produce(
                    application.topic, str(number).encode(), partition=number % PARTITIONS
                )
                number += 1
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(90)
