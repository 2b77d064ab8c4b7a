"""Moves between real brokers with the real slots, and applications built on srm.client."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from srm.client.consumer import FailoverConsumer
from srm.client.producer import FailoverProducer
from srm.client.routing import RoutingWatcher
from srm.config.loader import load_config
from srm.config.model import Config
from srm.domain import internal_topics
from srm.domain.replication_records import AssignedPartition, Assignment
from srm.domain.topics import Flow
from srm.engine import move
from srm.engine.move import MoveContext, MoveReport, MoveRequest
from srm.engine.ports import TopicSpec
from srm.errors import GateClosedError
from srm.kafka.cluster import KafkaCluster
from srm.kafka.slot_state import KafkaStateLog
from srm.replication.slot import SlotSpec
from srm.spark.slot import run_slot
from srm.stack.kafka import KafkaBroker
from srm.wiring import open_move

pytestmark = [pytest.mark.kafka, pytest.mark.integration]

PARTITIONS = 3
DEADLINE_S = 60.0


def eventually(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Poll a condition until it holds."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s:.0f} s: {what}"
        time.sleep(0.05)


class Site:
    """Two clusters under aliases of this test, one topic on both, replicated both ways."""

    def __init__(self, clusters: Mapping[str, KafkaBroker], home: Path) -> None:
        unique = uuid.uuid4().hex[:6]
        self.p, self.b = f"P{unique}", f"B{unique}"
        self.topic = f"Payments{unique}"
        self.unique = unique
        path = home / "srm.properties"
        path.write_text(
            f"""
            clusters = {self.p}, {self.b}
            {self.p}.bootstrap.servers = {clusters["P"].bootstrap}
            {self.b}.bootstrap.servers = {clusters["B"].bootstrap}
            {self.p}->{self.b}.enabled = true
            {self.b}->{self.p}.enabled = true
            topics = Payments.*
            groups = .*
            replication.factor = 1
            offset-syncs.topic.replication.factor = 1
            checkpoints.topic.replication.factor = 1
            heartbeats.topic.replication.factor = 1
            """
        )
        self.path = path
        self.config: Config = load_config(path)
        self.clusters = {
            alias: KafkaCluster(
                alias,
                *[self.config.client(alias, kind) for kind in ("admin", "consumer", "producer")],
            )
            for alias in (self.p, self.b)
        }
        for alias, cluster in self.clusters.items():
            other = self.b if alias == self.p else self.p
            compact = {"cleanup.policy": "compact"}
            cluster.create_topics(
                [
                    TopicSpec(self.topic, PARTITIONS, 1, {}),
                    TopicSpec(f"{other}.{self.topic}", PARTITIONS, 1, {}),
                    TopicSpec(internal_topics.offset_syncs(other), 1, 1, compact),
                    TopicSpec(internal_topics.offset_map(other), 8, 1, compact),
                    TopicSpec(internal_topics.replication(other), 1, 1, compact),
                    TopicSpec(internal_topics.raw_metrics(other), 1, 1, {}),
                ]
            )

    def group(self, name: str) -> str:
        return f"{name}-{self.unique}"

    @contextmanager
    def replicating(self, *flows: Flow) -> Iterator[None]:
        """Run a slot for each flow; all flows by default."""
        stop = threading.Event()
        failures: list[BaseException] = []

        def work(flow: Flow) -> None:
            try:
                sides = [
                    self.config.client(alias, "consumer") for alias in (flow.source, flow.target)
                ]
                run_slot(SlotSpec(self.config.flow(flow), "0", *sides), stop)
            except BaseException as error:  # noqa: BLE001 -- the test reports it
                failures.append(error)

        threads = []
        for flow in flows or (Flow(self.p, self.b), Flow(self.b, self.p)):
            self._assign(flow)
            threads.append(threading.Thread(target=work, args=(flow,)))
            threads[-1].start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(30)
        assert not failures, failures

    def _assign(self, flow: Flow) -> None:
        remote = f"{flow.source}.{self.topic}"
        source_id = self.clusters[flow.source].topics()[self.topic].topic_id
        target_id = self.clusters[flow.target].topics()[remote].topic_id
        assignment = Assignment(
            "0",
            time.time_ns(),
            tuple(
                AssignedPartition(self.topic, number, source_id, remote, target_id)
                for number in range(PARTITIONS)
            ),
        )
        log = KafkaStateLog(flow.target, self.config.client(flow.target, "producer"))
        log.write(internal_topics.replication(flow.source), assignment.key(), assignment.value())
        log.flush(10)

    @contextmanager
    def context(self, source: str, target: str) -> Iterator[MoveContext]:
        with open_move(self.config, source, target) as context:
            yield context


class Application:
    """Members of one group, each a thread, that write down what they have processed."""

    def __init__(self, site: Site, group: str, members: int, watcher: RoutingWatcher) -> None:
        self.group = group
        self.processed: list[bytes] = []
        self.clusters: set[str] = set()
        self.pause_s = 0.0
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        self._arguments = (site, watcher)
        self._threads = [threading.Thread(target=self._work) for _ in range(members)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _work(self) -> None:
        site, watcher = self._arguments
        try:
            with FailoverConsumer(
                site.config, self.group, [site.topic], watcher=watcher
            ) as consumer:
                while not self._stop.is_set():
                    message = consumer.poll(0.5)
                    if message is not None:
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
        self._thread = threading.Thread(target=self._work)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self) -> None:
        def delivered(error: object, message: object) -> None:
            if error is not None:
                self.failures.append(error)
            else:
                self.acknowledged.append(message.value())

        number = 0
        try:
            with FailoverProducer(
                self._site.config, [self._site.topic], watcher=self._watcher
            ) as producer:
                while not self._stop.wait(0.002):
                    number += 1
                    value = f"payment-{number}".encode()
                    producer.produce(
                        self._site.topic, value, str(number % 50), on_delivery=delivered
                    )
        except BaseException as error:  # noqa: BLE001 -- the test reports it
            self.failures.append(error)


@pytest.fixture
def site(clusters: Mapping[str, KafkaBroker], tmp_path: Path) -> Iterator[Site]:
    made = Site(clusters, tmp_path)
    yield made
    for cluster in made.clusters.values():
        cluster.close()


def carry_out(context: MoveContext, request: MoveRequest, move_id: str) -> MoveReport:
    """Run a move as the workflow does."""
    plan = move.plan(context, request, move_id)
    assert plan.blocking == ()
    move.hold(context, move_id)
    eventually(lambda: move.wait_status(context, move_id).ready, f"{move_id} ready")
    assert move.apply(context, move_id).open
    move.go(context, move_id)
    eventually(lambda: move.verify(context, move_id).done, f"{move_id} resumed")
    return move.report(context, move_id)


def test_groups_and_producers_move_there_and_back_and_process_each_payment_once(
    site: Site,
) -> None:
    names = {name: site.group(name) for name in ("fast", "steady", "far")}
    bulk = Producer(site.config.client(site.p, "producer"))
    loaded = [f"old-{number}".encode() for number in range(6_000)]
    for value in loaded:
        bulk.produce(site.topic, value, value)
    assert bulk.flush(30) == 0

    with ExitStack() as stack:
        stack.enter_context(site.replicating())
        watcher = stack.enter_context(RoutingWatcher(site.config))
        source = Source(site, watcher)
        applications = {
            name: Application(site, names[name], 2 if name == "fast" else 1, watcher)
            for name in names
        }
        applications["far"].pause_s = 0.005
        for application in applications.values():
            stack.enter_context(application)
        source.start()
        stack.callback(source.stop)
        eventually(lambda: len(applications["fast"].processed) > 6_000, "fast has read the bulk")

        request = MoveRequest(
            "failover", site.p, site.b, (site.topic,), tuple(names.values()), quiet_seconds=0.5
        )
        with site.context(site.p, site.b) as context:
            there = carry_out(context, request, f"there-{site.unique}")
        before = len(source.acknowledged)
        eventually(lambda: len(source.acknowledged) > before + 500, "payments written on B")
        eventually(
            lambda: len(applications["steady"].processed) > before + 6_000, "steady works on B"
        )

        back = MoveRequest(
            "failback", site.b, site.p, (site.topic,), tuple(names.values()), quiet_seconds=0.5
        )
        with site.context(site.b, site.p) as context:
            again = carry_out(context, back, f"back-{site.unique}")
        before = len(source.acknowledged)
        eventually(lambda: len(source.acknowledged) > before + 300, "payments written on P again")
        source.stop()
        applications["far"].pause_s = 0.0
        expected = Counter(loaded + source.acknowledged)
        for name, application in applications.items():
            eventually(
                lambda a=application: len(a.processed) >= len(expected) or a.failures,
                f"{name} has read everything",
            )

    assert source.failures == []
    assert set(expected.values()) == {1}
    for application in applications.values():
        assert application.failures == []
        assert Counter(application.processed) == expected
        assert application.clusters == {site.p, site.b}
    for report in (there, again):
        assert report.ok, report.problems
        assert report.rpo_records == 0
        assert {(g.skipped, g.re_read) for g in report.groups.values()} == {(0, 0)}
    assert there.groups[names["far"]].lag_at_hold > 3_000


@pytest.fixture
def filled(site: Site) -> Site:
    """200 payments on P, and a group that has read 50 of partition 0 and left."""
    producer = Producer(site.config.client(site.p, "producer"))
    for number in range(200):
        producer.produce(site.topic, f"{number}", partition=0)
    assert producer.flush(30) == 0
    group = member(site, site.p, site.group("g"))
    group.commit(offsets=[KafkaTopicPartition(site.topic, 0, 50)], asynchronous=False)
    group.close()
    return site


def member(site: Site, alias: str, group: str) -> Consumer:
    """Join a group as an application that knows nothing of srm; returns when it is a member."""
    consumer = Consumer(
        {
            **site.config.client(alias, "consumer"),
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
    )
    joined = threading.Event()
    consumer.subscribe([site.topic], on_assign=lambda *_: joined.set())
    deadline = time.monotonic() + 30
    while not joined.is_set():
        consumer.poll(0.1)
        assert time.monotonic() < deadline
    return consumer


def test_clients_are_not_sent_away_while_a_member_is_alive_or_replication_is_behind(
    filled: Site,
) -> None:
    site, group, move_id = filled, filled.group("g"), f"gate-{filled.unique}"
    request = MoveRequest("failover", site.p, site.b, (site.topic,), (group,), quiet_seconds=0.2)

    with site.context(site.p, site.b) as context:
        with site.replicating():
            eventually(
                lambda: not move.plan(context, request, move_id).warnings, "replication caught up"
            )
            move.hold(context, move_id)
            eventually(lambda: move.wait_status(context, move_id).ready, "ready")
            move.apply(context, move_id)

            alive = member(site, site.p, group)
            with pytest.raises(GateClosedError, match=f"{group} is still active on {site.p}"):
                move.go(context, move_id)
            alive.close()

        producer = Producer(site.config.client(site.p, "producer"))
        producer.produce(site.topic, b"late", partition=0)
        assert producer.flush(30) == 0
        with pytest.raises(GateClosedError, match="is 1 records behind"):
            move.go(context, move_id)
        routes = RoutingWatcher(site.config)
        with routes:
            assert routes.route(f"group:{group}").state == "hold"
            assert routes.route(f"topic:{site.topic}").cluster == site.p

        with site.replicating():
            eventually(lambda: move.wait_status(context, move_id).open, "open")
            move.go(context, move_id)
    committed = site.clusters[site.b].committed(group)
    assert {str(tp): offset for tp, offset in committed.items()} == {
        f"{site.p}.{site.topic}-0": committed_position(site, 50)
    }


def committed_position(site: Site, position: int) -> int:
    """Offset on B of the record that has the given position on P, found by reading B."""
    reader = Consumer(
        {
            **site.config.client(site.b, "consumer"),
            "group.id": f"reader-{site.unique}",
            "auto.offset.reset": "earliest",
        }
    )
    reader.assign([KafkaTopicPartition(f"{site.p}.{site.topic}", 0, 0)])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is not None and message.value() == str(position).encode():
                return message.offset()
    finally:
        reader.close()
    raise AssertionError(f"record {position} is not on {site.b}")


def test_a_released_move_lets_clients_go_on_where_they_were(filled: Site) -> None:
    site, group, move_id = filled, filled.group("g"), f"release-{filled.unique}"
    request = MoveRequest("failover", site.p, site.b, (site.topic,), (group,))

    with ExitStack() as stack:
        stack.enter_context(site.replicating())
        watcher = stack.enter_context(RoutingWatcher(site.config))
        application = Application(site, group, 1, watcher)
        stack.enter_context(application)
        eventually(lambda: len(application.processed) == 150, "the group has read the rest")
        context = stack.enter_context(site.context(site.p, site.b))
        eventually(lambda: not move.plan(context, request, move_id).blocking, "a plan")
        move.hold(context, move_id)
        eventually(lambda: move.wait_status(context, move_id).ready, "the group has left")
        move.release(context, move_id)

        producer = Producer(site.config.client(site.p, "producer"))
        producer.produce(site.topic, b"after", partition=0)
        assert producer.flush(30) == 0
        eventually(lambda: len(application.processed) == 151, "the group goes on")

    assert application.processed[-1] == b"after"
    assert len(set(application.processed)) == 151
    assert application.clusters == {site.p}
