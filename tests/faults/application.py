"""The whole Spark application on a topic that grows, to be killed in parts."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka import Producer
from tests.replicating import application_of, at_work, configure
from tests.waiting import DEADLINE_S, eventually

from srm.config.loader import load_config
from srm.config.model import ClusterClients
from srm.domain.names.topics import Flow
from srm.domain.names.topics import TopicPartition as Partition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.map_reader import KafkaMapReader
from srm.kafka.cluster import KafkaCluster
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import LoggedRecord, first_difference, read_log

Log = list[tuple[int, LoggedRecord]]

START_S = 300.0
MOST_ON_THE_WAY = 5_000


class Application:
    """``srm replicate`` as a user starts it.

    Args:
        clusters: the brokers ``P`` and ``B``.
        home: folder for the configuration and the logs.
        flows: 2 for both flows at once.
        slots: slots of each flow.
        partitions: of the one topic.
    """

    def __init__(
        self,
        clusters: Mapping[str, KafkaBroker],
        home: Path,
        *,
        flows: int = 2,
        slots: int = 1,
        partitions: int = 2,
    ) -> None:
        unique = uuid.uuid4().hex[:6]
        self.source, self.target = clusters["P"].bootstrap, clusters["B"].bootstrap
        self.partitions = partitions
        self.topic = f"pay{unique}"
        self.remote = f"P{unique}.{self.topic}"
        self.flows = [f"P{unique}->B{unique}", f"B{unique}->P{unique}"][:flows]
        self.home = home
        self.config = home / "srm.properties"
        configure(
            self.config,
            {f"P{unique}": self.source, f"B{unique}": self.target},
            f"B{unique}->P{unique}.enabled = true",
            f"topics = {self.topic}",
            f"tasks.max = {slots}",
        )
        props = {"bootstrap.servers": self.source}
        with KafkaCluster("P", ClusterClients.alike(props)) as cluster:
            cluster.create_topics([TopicSpec(self.topic, partitions, 1, {})])

    @contextmanager
    def running(self, *options: str) -> Iterator[psutil.Process]:
        flows = [part for flow in self.flows for part in ("--flow", flow)]
        self.log = self.home / f"{uuid.uuid4().hex}.log"
        with application_of(self.config, self.log, *flows, *options) as process:
            yield psutil.Process(process.pid)

    def view(self) -> str:
        """Return the last line that the application has printed."""
        return self.log.read_text().rstrip().rpartition("\n")[2]

    def ends(self) -> list[int]:
        """Ends of the remote partitions, zeros while they do not exist."""
        places = [Partition(self.remote, n) for n in range(self.partitions)]
        props = {"bootstrap.servers": self.target}
        with KafkaCluster("B", ClusterClients.alike(props)) as cluster:
            found = cluster.log_ends(places)
        return [found.get(place, 0) for place in places]

    def copied(self) -> int:
        return sum(self.ends())

    def grows(self, by: int) -> None:
        """Wait until so many more records are copied."""
        goal = self.copied() + by
        eventually(lambda: self.copied() >= goal, f"{goal} records copied", START_S)

    def is_equal(self) -> bool:
        return all(first_difference(*self._logs(n)) is None for n in range(self.partitions))

    def assert_equal(self) -> None:
        """Compare both copies record by record, and the map with both."""
        config, flow = load_config(self.config), Flow.parse(self.flows[0])
        with open_flow(config, flow) as context:
            maps = KafkaMapReader(context.target, context.source, flow).load([self.topic])
        for n in range(self.partitions):
            source, target = self._logs(n)
            difference = first_difference(source, target)
            assert difference is None, difference
            mapped = [
                (run.source_start + i, run.target_start + i)
                for run in maps.get(Partition(self.topic, n)).runs
                for i in range(run.count)
            ]
            assert mapped == [(s, t) for (s, _), (t, _) in zip(source, target, strict=True)]

    def _logs(self, number: int) -> tuple[Log, Log]:
        return read_log(self.source, self.topic, number), read_log(self.target, self.remote, number)


@contextmanager
def load(application: Application) -> Iterator[None]:
    def work(stop: threading.Event) -> None:
        producer = Producer({"bootstrap.servers": application.source, "enable.idempotence": True})
        number = 0
        while not stop.wait(0.01):
            if len(producer) > MOST_ON_THE_WAY:
                producer.poll(0.1)  # the broker is not faster
                continue
            for _ in range(20):
                producer.produce(
                    application.topic,
                    str(number).encode(),
                    partition=number % application.partitions,
                )
                number += 1
            producer.poll(0)
        producer.flush(DEADLINE_S)

    with at_work(work):
        yield
