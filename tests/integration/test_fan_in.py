"""Two clusters copy into one topic of a third: order, maps, crashes, groups and moves."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.conftest import BrokerFactory
from tests.integration.one_name import IDENTITY, NamedTopic
from tests.replicating import at_work, configure, replicating
from tests.waiting import eventually

from srm.config.model import Config
from srm.domain.flow_state.replication_state import decode_state
from srm.domain.names.topics import Flow, TopicPartition
from srm.engine.cluster_ports import TopicSpec
from srm.engine.flows.target_topics import StateTopic
from srm.engine.groups.checkpoints import emit
from srm.engine.groups.group_sync import sync
from srm.engine.groups.translate import translate
from srm.wiring import open_flow
from srm_lab.stack.kafka import KafkaBroker
from srm_lab.testing.logs import read_log

pytestmark = [pytest.mark.kafka, pytest.mark.integration]


class FanIn(NamedTopic):
    """Clusters A and B with one topic each, of 2 and 3 partitions, and C where both are copied."""

    def __init__(
        self, clusters: Mapping[str, KafkaBroker], c: KafkaBroker, home: Path, *lines: str
    ) -> None:
        self.unique = uuid.uuid4().hex[:6]
        self.a, self.b, self.c = (f"{alias}{self.unique}" for alias in "ABC")
        self.topic, self.file = f"T{self.unique}", home / "srm.properties"
        self.servers = {
            self.a: clusters["P"].bootstrap,
            self.b: clusters["B"].bootstrap,
            self.c: c.bootstrap,
        }
        self.flows = Flow(self.a, self.c), Flow(self.b, self.c)
        self.config: Config = configure(
            self.file,
            self.servers,
            f"{self.a}->{self.b}.enabled = false",
            *(f"{flow}.enabled = true" for flow in self.flows),
            *(f"topics = {self.topic}", "groups = .*", "sync.group.offsets.enabled = true"),
            *(line.replace("C->A", f"{self.c}->{self.a}") for line in (IDENTITY, *lines)),
        )
        for alias, partitions in ((self.a, 2), (self.b, 3)):
            with self.cluster(alias) as source:
                source.create_topics([TopicSpec(self.topic, partitions, 1, {})])

    @contextmanager
    def application(self, flow: Flow) -> Iterator[None]:
        """Copy a flow in a process of its own, which is killed at the end."""
        command = [sys.executable, "-m", "tests.integration.flow_process", self.file, str(flow)]
        process = subprocess.Popen(command)
        try:
            yield
        finally:
            assert process.poll() is None, "it has ended by itself"
            process.kill()
            process.wait(60)

    def write(self, alias: str, partitions: int, stop: threading.Event) -> None:
        """Write numbered records to a cluster until the event is set."""
        producer = Producer({**self.config.client(alias, "producer"), "linger.ms": 1})
        number = 0
        while not stop.wait(0.01):
            for _ in range(5):
                value = f"{alias}-{number}".encode()
                producer.produce(self.topic, value, partition=number % partitions)
                number += 1
            producer.poll(0)
        assert producer.flush(60) == 0

    def grows(self, flow: Flow, by: int) -> None:
        """Wait until a flow has reported so many more records."""

        def copied() -> int:
            with open_flow(self.config, flow) as context:
                maps = context.maps.load([self.topic])
                found = (maps.get(TopicPartition(self.topic, n)).position for n in range(3))
                return sum(position.source_next for position in found if position is not None)

        goal = copied() + by
        eventually(lambda: copied() >= goal, f"{flow} has copied {goal} records")

    def troubles(self, flow: Flow) -> list[str]:
        """Return what slots of a flow have noted of its partitions."""
        with open_flow(self.config, flow) as context:
            state = decode_state(StateTopic(context.target, flow.source).read())
            ids = {self.topic: context.source.topics()[self.topic].topic_id}
            return [status.reason for status in state.statuses_of(ids).values() if status.reason]

    def assert_exact(self, flow: Flow) -> None:
        """Compare the source with its records on C, in order, and the map with both."""
        with open_flow(self.config, flow) as context:
            maps = context.maps.load([self.topic])
        for number in range(2 if flow.source == self.a else 3):
            source = read_log(self.servers[flow.source], self.topic, number)
            there = read_log(self.servers[self.c], self.topic, number)
            copies = [
                (at, r) for at, r in there if (r.value or b"").startswith(flow.source.encode())
            ]
            assert [r.value for _, r in copies] == [r.value for _, r in source]
            mapped = [
                (run.source_start + i, run.target_start + i)
                for run in maps.get(TopicPartition(self.topic, number)).runs
                for i in range(run.count)
            ]
            assert mapped == [(s, t) for (s, _), (t, _) in zip(source, copies, strict=True)]


@pytest.fixture
def fan(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> FanIn:
    return FanIn(clusters, broker_factory("C"), tmp_path)


@pytest.mark.timeout(900)
def test_two_sources_are_copied_into_one_topic_in_order_and_mapped_through_kills_of_either(
    fan: FanIn,
) -> None:
    first, second = fan.flows

    with at_work(partial(fan.write, fan.a, 2), partial(fan.write, fan.b, 3)):
        with fan.application(first), fan.application(second):
            fan.grows(first, 100)
            fan.grows(second, 100)
        with fan.application(second):
            with fan.application(first):
                fan.grows(first, 100)
            fan.grows(second, 100)
    with fan.application(first), fan.application(second):
        fan.copied(*fan.flows)
        troubles = [fan.troubles(flow) for flow in fan.flows]
        with fan.cluster(fan.c) as target:
            assert target.partition_counts()[fan.topic] == 3

    for flow in fan.flows:
        fan.assert_exact(flow)
    assert {outcome for outcome, _ in fan.verified(*fan.flows)} == {"equal"}
    assert troubles == [[], []]


@pytest.mark.timeout(900)
def test_a_group_that_both_sources_have_continues_at_the_lower_of_its_places(fan: FanIn) -> None:
    first, second = fan.flows
    fan.produce(fan.a, [f"a{n}" for n in range(50)])
    placed = list[int | None]()

    def place(*flows: Flow) -> None:
        for flow in flows:
            with open_flow(fan.config, flow) as context:
                emit(context, [fan.group("g")])
                sync(context, [fan.group("g")])
        placed.append(fan.committed(fan.c, "g", fan.topic))

    with replicating(fan.config, *fan.flows):
        fan.copied(first)
        fan.produce(fan.b, [f"b{n}" for n in range(50)])
        fan.copied(*fan.flows)
        fan.commit(fan.a, "g", fan.topic, 40)
        place(first)
        fan.commit(fan.b, "g", fan.topic, 10)
        place(second)
        fan.commit(fan.a, "g", fan.topic, 30)
        fan.commit(fan.b, "g", fan.topic, 20)
        place(second, first)
        place(first, second)
        fan.commit(fan.a, "g", fan.topic, 50)
        place(first)
        place(second, first)
        with open_flow(fan.config, second) as context:
            b20 = translate(context, TopicPartition(fan.topic, 0), 20).to_offset
            proof = emit(context, [fan.group("g")]).proof
    firsts = [fan.values(fan.c, fan.topic, at)[0] for at in placed if at is not None]

    assert firsts == ["a40", "a40", "a30", "a30", "b0", "b0"]
    assert b20 is not None
    assert placed[-1] is not None
    assert placed[-1] < b20, "the group on A has read no record of B"
    assert proof is not None
    assert not proof.disproved


@pytest.mark.timeout(900)
def test_a_group_moves_from_one_source_while_the_other_copies(fan: FanIn) -> None:
    first, second = fan.flows
    fan.produce(fan.a, [f"a{n}" for n in range(50)])
    fan.commit(fan.a, "g", fan.topic, 30)

    with replicating(fan.config, first, second):
        fan.copied(first)
        with at_work(partial(fan.write, fan.b, 1)):
            fan.grows(second, 100)
            fan.move(fan.a, fan.c, "g")
            at = fan.committed(fan.c, "g", fan.topic)

    assert at is not None
    values = fan.values(fan.c, fan.topic, at)
    assert [one for one in values if one.startswith("a")] == [f"a{n}" for n in range(30, 50)]
    assert values[0] == "a30"


@pytest.mark.timeout(900)
def test_records_of_one_source_reach_the_other_through_the_target_once_and_never_return(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    fan = FanIn(clusters, broker_factory("C"), tmp_path, "C->A.enabled = true")
    first, second = fan.flows
    fan.produce(fan.a, [f"a{n}" for n in range(50)])
    fan.produce(fan.b, [f"b{n}" for n in range(50)])

    with replicating(fan.config, first, second, first.reverse):
        fan.copied(first, second)
        fan.produce(fan.c, [f"c{n}" for n in range(20)])
        fan.copied(first.reverse)
        fan.copied(first, second, first.reverse)

    of_a, of_b, of_c = (Counter(fan.values(one, fan.topic)) for one in (fan.a, fan.b, fan.c))
    assert of_c == of_a
    assert set(of_c.values()) == {1}
    assert len(of_c) == 50 + 50 + 20
    assert set(of_b) == {f"b{n}" for n in range(50)}


@pytest.mark.timeout(900)
def test_a_group_that_read_only_records_of_the_other_source_goes_back_to_its_place(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    fan = FanIn(clusters, broker_factory("C"), tmp_path, "C->A.enabled = true")
    first, second = fan.flows
    fan.produce(fan.a, [f"a{n}" for n in range(50)])
    fan.produce(fan.b, [f"b{n}" for n in range(10)])
    fan.commit(fan.a, "g", fan.topic, 48)

    with replicating(fan.config, second):
        fan.copied(second)
    with replicating(fan.config, first, second, first.reverse):
        fan.copied(first, second, first.reverse)
        fan.move(fan.a, fan.c, "g")
        left_at = fan.committed(fan.c, "g", fan.topic)
        assert left_at is not None
        assert fan.values(fan.c, fan.topic, left_at)[0] == "b0"
        fan.commit(fan.c, "g", fan.topic, left_at + 12)
        read = fan.values(fan.c, fan.topic, left_at)[:10]
        fan.move(fan.c, fan.a, "g")

    assert read == [f"b{n}" for n in range(10)]
    at = fan.committed(fan.a, "g", fan.topic)
    assert at is not None
    assert fan.values(fan.a, fan.topic, at)[:2] == ["a48", "a49"]


@pytest.mark.timeout(900)
def test_groups_leave_a_dead_source_while_the_other_copies(
    clusters: Mapping[str, KafkaBroker], broker_factory: BrokerFactory, tmp_path: Path
) -> None:
    dying = broker_factory("A")
    fan = FanIn({**clusters, "P": dying}, broker_factory("C"), tmp_path)
    first, second = fan.flows
    fan.produce(fan.a, [f"a{n}" for n in range(50)])
    fan.commit(fan.a, "g", fan.topic, 30)

    with replicating(fan.config, *fan.flows):
        fan.copied(first)
        fan.produce(fan.b, [f"b{n}" for n in range(50)])
        fan.copied(*fan.flows)
        with open_flow(fan.config, first) as context:
            emit(context, [fan.group("g")])
        dying.kill()
        fan.leave(fan.a, fan.c, "g")
        at = fan.committed(fan.c, "g", fan.topic)
        fan.produce(fan.b, ["later"])
        fan.copied(second)
        assert {outcome for outcome, _ in fan.verified(second)} == {"equal"}

    assert at is not None
    values = fan.values(fan.c, fan.topic, at)
    assert [one for one in values if one.startswith("a")] == [f"a{n}" for n in range(30, 50)]
    assert values[-1] == "later"
