"""Two clusters replicated both ways by real slots, and applications built on srm.client."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Self

from tests import moves
from tests.replicating import Work, at_work, configure, slot_of
from tests.spec.replay import Recorded, violations
from tests.waiting import DEADLINE_S, eventually

from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.config.model import Config
from srm.domain.flow_state.replication_records import (
    STATE_PARTITIONS,
    AssignedPartition,
    Assignment,
)
from srm.domain.moves.request import MoveRequest
from srm.domain.moves.routing import Route, next_generation
from srm.domain.names import internal_topics
from srm.domain.names.topics import Flow
from srm.engine.cluster_ports import TopicSpec
from srm.engine.control.control_topics import create_control_topics
from srm.engine.moves.context import SIDES, MoveContext
from srm.engine.moves.registers import Registers
from srm.engine.moves.tables import ControlChange
from srm.errors import ConflictError, GateClosedError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.state.writers import KafkaStateLog
from srm.spark.slot import run_slot
from srm.wiring import open_move
from srm_lab.stack.kafka import KafkaBroker

PARTITIONS = 3


class Site:
    """Two clusters under aliases of this test, a topic or more on both, replicated both ways."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], home: Path, topics: int = 1) -> None:
        unique = uuid.uuid4().hex[:6]
        self.p, self.b = f"P{unique}", f"B{unique}"
        self.topics = [f"Payments{unique}{'x' * number}" for number in range(topics)]
        self.topic = self.topics[0]
        self.unique = unique
        self.servers = {self.p: clusters["P"].bootstrap, self.b: clusters["B"].bootstrap}
        self.path = home / "srm.properties"
        self.config: Config = configure(
            self.path,
            self.servers,
            f"{self.b}->{self.p}.enabled = true",
            "topics = Payments.*",
            "groups = .*",
        )
        self.clusters = {
            alias: KafkaCluster(alias, self.config.cluster_clients(alias)) for alias in self.servers
        }
        for alias, cluster in self.clusters.items():
            other = self.b if alias == self.p else self.p
            compact = {"cleanup.policy": "compact"}
            cluster.create_topics(
                [
                    *(TopicSpec(name, PARTITIONS, 1, {}) for name in self.topics),
                    *(TopicSpec(f"{other}.{name}", PARTITIONS, 1, {}) for name in self.topics),
                    TopicSpec(internal_topics.offset_syncs(other), 1, 1, compact),
                    TopicSpec(internal_topics.offset_map(other), 8, 1, compact),
                    TopicSpec(internal_topics.replication(other), STATE_PARTITIONS, 1, compact),
                    TopicSpec(internal_topics.raw_metrics(other), 1, 1, {}),
                ]
            )
            create_control_topics(cluster, 1)
            # A replay needs all that moves have written; after ten minutes it may be compacted.
            lasting = {"min.compaction.lag.ms": str(24 * 60 * 60 * 1000)}
            names = internal_topics.ROUTING, internal_topics.MOVES
            cluster.alter_topic_configs(dict.fromkeys(names, lasting))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for cluster in self.clusters.values():
            cluster.close()

    def group(self, name: str) -> str:
        return f"{name}-{self.unique}"

    @contextmanager
    def replicating(self, *flows: Flow) -> Iterator[None]:
        """Run a slot for each flow; all flows by default."""
        works: list[Work] = []
        for flow in flows or (Flow(self.p, self.b), Flow(self.b, self.p)):
            self._assign(flow)
            works.append(partial(run_slot, slot_of(self.config, flow)))
        with at_work(*works):
            yield

    def _assign(self, flow: Flow) -> None:
        ids = {alias: self.clusters[alias].topics() for alias in (flow.source, flow.target)}
        assignment = Assignment(
            "0",
            time.time_ns(),
            tuple(
                AssignedPartition(
                    topic,
                    number,
                    ids[flow.source][topic].topic_id,
                    f"{flow.source}.{topic}",
                    ids[flow.target][f"{flow.source}.{topic}"].topic_id,
                )
                for topic in self.topics
                for number in range(PARTITIONS)
            ),
        )
        log = KafkaStateLog(flow.target, self.config.client(flow.target, "producer"))
        log.write(internal_topics.replication(flow.source), assignment.key(), assignment.value())
        log.flush(DEADLINE_S)

    def violations(self, folder: Path) -> list[str]:
        """Return what of this site's routes and moves docs/spec cannot explain; P is the first."""
        traces = folder / "traces"
        traces.mkdir()
        ours = self.unique.encode()
        source, target = (
            replace(one, routing={key: rows for key, rows in one.routing.items() if ours in key})
            for one in map(Recorded.of, self.clusters.values())
        )
        return violations(source, target, traces)

    @contextmanager
    def context(self, source: str, target: str) -> Iterator[MoveContext]:
        with open_move(self.config, source, target) as context:
            yield context


def route_clients(site: Site, subject: str, cluster: str, state: str) -> None:
    """Write the next route of a subject on both clusters, as a move would."""
    with site.context(site.p, site.b) as context:
        registers = Registers(context)

        def write() -> None:
            generation = next_generation([registers.routes.get(subject)])
            route = Route(generation, cluster, state, f"move-{site.unique}", decided=state == "go")
            for side in SIDES:
                registers.write(side, ControlChange({subject: route}))

        registers.run("a test", write)


class Application:
    """Members of one group, each a thread, that write down what they have processed."""

    def __init__(
        self,
        site: Site,
        group: str,
        members: int,
        watcher: RoutingWatcher,
        pause_s: float = 0.0,
    ) -> None:
        self.group = group
        self.processed: list[bytes] = []
        self.clusters: set[str] = set()
        self.pause_s = pause_s
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._arguments = (site, watcher)
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(members)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)

    def _work(self) -> None:
        site, watcher = self._arguments
        try:
            with FailoverConsumer({"group.id": self.group}, watcher=watcher) as consumer:
                consumer.subscribe([site.topic])
                while not self._stop.is_set():
                    message = consumer.poll(0.5)
                    if message is not None:
                        assert message.error() is None, message.error()
                        self.processed.append(message.value())
                        self.clusters.add(consumer.cluster)
                        if self.pause_s:
                            self._stop.wait(self.pause_s)
        except BaseException as error:  # noqa: BLE001 -- the test reports it
            self.failures.append(error)


class Source:
    """A thread that produces numbered payments without end, through moves."""

    def __init__(self, site: Site, watcher: RoutingWatcher) -> None:
        self.acknowledged: list[bytes] = []
        self.failures: list[object] = []
        self._site = site
        self._watcher = watcher
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)

    def _work(self) -> None:
        def delivered(error: object, message: object) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged.append(message.value())

        number = 0
        try:
            with FailoverProducer({}, topics=[self._site.topic], watcher=self._watcher) as producer:
                while not self._stop.wait(0.002):
                    number += 1
                    producer.poll(0)
                    value = f"payment-{number}".encode()
                    producer.produce(
                        self._site.topic, value, str(number % 50), on_delivery=delivered
                    )
        except BaseException as error:  # noqa: BLE001 -- the test reports it
            self.failures.append(error)


def begin(context: MoveContext, request: MoveRequest, move_id: str) -> None:
    """Plan a move and take its hold, as soon as it may start.

    A group's first commit may come after the plan, of a partition that is not copied yet: the move
    does not start then, and is planned again.
    """

    def begun() -> bool:
        if moves.plan(context, request, move_id).blocking:
            return False
        try:
            moves.hold(context, move_id)
        except ConflictError:
            return False
        return True

    eventually(begun, f"{move_id} starts")


def pass_gate(
    context: MoveContext, move_id: str, step: Callable[..., object] = moves.apply_and_go
) -> None:
    """Take a step of a move that holds, as soon as its gate lets it.

    The product's own retry has a short limit on the clock, which a starved machine exceeds.
    """

    def passed() -> bool:
        if not moves.wait_status(context, move_id).ready:
            return False
        try:
            step(context, move_id)
        except GateClosedError:
            return False
        return True

    eventually(passed, f"{move_id} passes its gate")


def hold_and_go(context: MoveContext, move_id: str) -> None:
    """Run a planned move from its hold until its clients are sent to the target."""
    moves.hold(context, move_id)
    pass_gate(context, move_id)


def carry_out(context: MoveContext, request: MoveRequest, move_id: str) -> None:
    """Run a move until its groups work on the target."""
    begin(context, request, move_id)
    pass_gate(context, move_id)
    eventually(lambda: moves.verify(context, move_id).done, f"{move_id} resumed")
